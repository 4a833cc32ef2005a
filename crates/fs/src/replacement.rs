//! New content for a file that stays the file it is: number, names, owner, mode, attributes and flags remain.

use vlinder_base::sync::Arc;
use vlinder_data::{begin, compression_property};
use vlinder_format::inode::{FileType, InodeFlags, InodeItem, Mode};
use vlinder_format::orphan;
use vlinder_transaction::{ChangeKind, Reservation};

use crate::changes::Changes;
use crate::file::with_two;
use crate::inode::{Inode, new_item};
use crate::new_file::{Prepared, remember};
use crate::open::{OpenInode, OpenMode};
use crate::privileges::kill_privileges;
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::{Caller, Filesystem, Refusal, Result};

/// Items that making the file without a name may touch: its inode, its orphan item, and `btrfs.compression`.
const ITEMS: u32 = 4;
/// What says how a file's data are stored.
const DATA_FLAGS: InodeFlags = InodeFlags(
    InodeFlags::NODATACOW.0 | InodeFlags::NODATASUM.0 | InodeFlags::COMPRESS.0 | InodeFlags::NOCOMPRESS.0,
);

/// The coming content of a file, in a file without a name until all of it is there. [`finish`](Self::finish)
/// exchanges it for the old content in one transaction; where that is not reached, the old content stays.
#[derive(Debug)]
pub struct Replacement {
    filesystem: Filesystem,
    target: OpenInode,
    content: OpenInode,
}

impl Replacement {
    /// Begins new content for a file, judged as an opening for writing that drops the content (`O_TRUNC`).
    ///
    /// # Errors
    /// Those of permissions; [`Refusal::NotPermitted`] for a file that is immutable, can only grow or is
    /// verified by fs-verity; [`Refusal::InvalidArgument`] for what is no regular file;
    /// [`Refusal::ReadOnly`]; [`Refusal::NoSpace`].
    pub fn begin(filesystem: &Filesystem, caller: &Caller, target: &Arc<Inode>) -> Result<Self> {
        let item = filesystem.rights().changeable_item(target)?;
        let mode = OpenMode { write: true, truncate: true, ..OpenMode::default() };
        let target = filesystem.files().open(caller, target, mode)?;
        if target.inode().file_type() != FileType::Regular {
            return Err(Refusal::InvalidArgument.into());
        }
        if item.flags.has(InodeFlags::VERITY) {
            return Err(Refusal::NotPermitted.into());
        }
        let content = with_room(filesystem.engine(), || make_nameless(filesystem, caller, target.inode()))?;
        Ok(Self { filesystem: filesystem.clone(), target, content })
    }

    /// The file that takes the new content. Its data are stored as those of the target are: with or without
    /// copy-on-write, checksums and compression.
    #[must_use]
    pub fn content(&self) -> &Arc<Inode> {
        self.content.inode()
    }

    /// Gives the target the new content. Set-id bits and file capabilities go, as for any write by this
    /// caller.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`]; what flushing and the trees met. The target has its old content then.
    pub fn finish(self, caller: &Caller) -> Result<()> {
        let Self { filesystem, target, content } = self;
        let (source, target) = (content.inode(), target.inode());
        with_two(source, target, || {
            filesystem.rights().changeable_item(target)?;
            kill_privileges(filesystem.store(), filesystem.rights(), caller, target)?;
            let _noting = filesystem.store().background().noting();
            with_room(filesystem.engine(), || {
                Ok(vlinder_data::replace_content(filesystem.store(), source.node(), target.node())?)
            })
        })
    }
}

/// Makes a file without a name in the subvolume of another, with the flags and the compression that the other
/// has.
fn make_nameless(filesystem: &Filesystem, caller: &Caller, like: &Arc<Inode>) -> Result<OpenInode> {
    let compression = compression_property(filesystem.store(), like.node())?;
    let flags = InodeFlags(like.flags().0 & DATA_FLAGS.0);
    let mut handle = begin(filesystem.store(), Reservation::items(ITEMS).of(ChangeKind::Names))?;
    let stamp = Stamp::of(&handle);
    let template = InodeItem {
        user: caller.user,
        group: caller.group,
        mode: Mode::new(FileType::Regular, 0o600),
        flags,
        ..InodeItem::default()
    };
    let prepared = Prepared {
        number: like.subvolume().allocate_inode_number(filesystem.engine())?,
        item: new_item(stamp.generation, template, stamp.time),
        access_acl: None,
        default_acl: None,
        compression,
    };
    let mut changes = Changes::new(filesystem.engine(), like.subvolume());
    changes.add_inode(&prepared, b"", stamp.generation)?;
    changes.insert_pending(orphan::key(prepared.number), Vec::new());
    changes.apply(&mut handle)?;
    let inode = remember(filesystem.inodes(), like, prepared);
    {
        let mut state = inode.state();
        state.orphan = true;
        state.opens += 1;
    }
    drop(handle);
    Ok(filesystem.opener().adopt(inode))
}
