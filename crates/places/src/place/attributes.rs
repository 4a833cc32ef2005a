//! Attributes that files are given.

use vlinder_format::inode::Timestamp;

use super::status::{FileStatus, Owner};
use crate::failure::{Failure, Kind};

/// Attributes to set. None leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Owner and group.
    pub owner: Option<Owner>,
    /// The twelve permission bits; not for symbolic links.
    pub permissions: Option<u32>,
    /// Last access, last change of the content.
    pub times: Option<(Timestamp, Timestamp)>,
}

/// What attributes are given to: a name in a directory, or a file that is being written.
pub trait Attributed {
    /// Sets owner, permissions and times, in this order.
    ///
    /// # Errors
    /// What the system said of the host, or the file system of the image.
    fn change(&self, change: &Change) -> Result<(), Failure>;
    /// Sets an extended attribute.
    ///
    /// # Errors
    /// What the system said of the host, or the file system of the image.
    fn set_attribute(&self, attribute: &[u8], value: &[u8]) -> Result<(), Failure>;
    /// Removes an extended attribute, if it is there.
    ///
    /// # Errors
    /// What the system said of the host, or the file system of the image.
    fn remove_attribute(&self, attribute: &[u8]) -> Result<(), Failure>;
}

/// The permission bits without set-user-id and set-group-id.
pub const WITHOUT_SET_ID_BITS: u32 = 0o1777;
/// The extended attribute that holds what a program may do without being root's.
pub const CAPABILITIES: &[u8] = b"security.capability";

/// The list that says who else may use a file, and the one that what is made in a directory gets.
pub const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Gives a copy the owner of its original, and says which permissions it may have then. Where the owner is
/// refused, because only root may give it or because it is no id, these are the permissions without set-id
/// bits: under the wrong owner, the bits would give rights away. It comes before attributes and permissions,
/// since a change of owner takes capabilities and set-id bits away.
///
/// # Errors
/// As [`Attributed::change`], but for an owner that is refused.
pub fn give_owner(to: &dyn Attributed, original: &FileStatus) -> Result<u32, Failure> {
    let without_set_id_bits = original.permissions & WITHOUT_SET_ID_BITS;
    let Some(owner) = Owner::new(original.user, original.group) else { return Ok(without_set_id_bits) };
    match to.change(&Change { owner: Some(owner), ..Change::default() }) {
        Ok(()) => Ok(original.permissions),
        // EINVAL: the user namespace maps nothing to that id, so nobody in it may give it (chown_common,
        // fs/open.c).
        Err(failure) if matches!(failure.kind, Kind::Permission | Kind::Invalid) => Ok(without_set_id_bits),
        Err(failure) => Err(failure),
    }
}
