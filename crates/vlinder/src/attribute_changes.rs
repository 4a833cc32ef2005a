//! Changes of permissions, owners and times.

use std::time::SystemTime;

use vlinder_fs::{GroupId, SetAttributes, SetTime, UserId};

use crate::time::timestamp;

/// What [`Image::set_attributes`](crate::Image::set_attributes) changes; what is not named stays.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = vlinder_testkit::Scratch::new("doc");
/// # let path = scratch.join("disk.img");
/// # let image = vlinder::Image::create(&path, 1 << 30)?;
/// # image.write("/file", "")?;
/// use vlinder::AttributeChanges;
///
/// image.set_attributes("/file", &AttributeChanges::new().owner(1000).group(1000).permissions(0o640))?;
/// # image.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChanges {
    inner: SetAttributes,
    of_symlink: bool,
}

impl AttributeChanges {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Set-id, sticky and permission bits: 0o644, say.
    #[must_use]
    pub fn permissions(mut self, permissions: u32) -> Self {
        self.inner.permissions = Some(permissions);
        self
    }

    /// The number of the owner.
    #[must_use]
    pub fn owner(mut self, uid: u32) -> Self {
        self.inner.user = Some(UserId(uid));
        self
    }

    /// The number of the owning group.
    #[must_use]
    pub fn group(mut self, gid: u32) -> Self {
        self.inner.group = Some(GroupId(gid));
        self
    }

    /// When the file was last read.
    #[must_use]
    pub fn accessed(mut self, time: SystemTime) -> Self {
        self.inner.access_time = Some(SetTime::At(timestamp(time)));
        self
    }

    /// When its data last changed.
    #[must_use]
    pub fn modified(mut self, time: SystemTime) -> Self {
        self.inner.modification_time = Some(SetTime::At(timestamp(time)));
        self
    }

    /// Whether a symbolic link at the end of the path is changed itself, not the file behind it.
    #[must_use]
    pub fn of_symlink(mut self, of_symlink: bool) -> Self {
        self.of_symlink = of_symlink;
        self
    }

    pub(crate) fn parts(&self) -> (&SetAttributes, bool) {
        (&self.inner, self.of_symlink)
    }
}
