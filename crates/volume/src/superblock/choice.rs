//! Which superblock copy is believed when the primary is not sound.
//!
//! The copies are written (and may be lost in the device's cache) before the primary, the primary after a
//! flush of all that it reaches; a log is announced by the primary alone. A cut during the write of the
//! primary can leave a mix of its old and new sectors of 512 bytes: the *head* (first sector: identity,
//! generation, roots, log) is of one commit.
//!
//! | primary | newest valid copy | verdict | why |
//! |---|---|---|---|
//! | valid | any | primary | it is the last word |
//! | absent, unreadable, no magic | any | refuse | nothing says how old the copy is |
//! | checksum right, a rule broken | any | refuse | it was written so, not torn |
//! | torn, other file system | any | refuse | |
//! | torn, head older than the copy | | copy | its commit was flushed before the primary was begun |
//! | torn, head as old as the copy, same log | | copy | they are one commit |
//! | torn, head as old as the copy, other log | | refuse | the copy would lose the log |
//! | torn, head one newer, unfinished | | copy | the newer commit was never published, so nothing of the older is overwritten |
//! | torn, head one newer, finished | | refuse | the damage came later |
//! | torn, head newer still | | refuse | what the copy reaches may be overwritten |
//! | torn | none | refuse | |
//!
//! *Unfinished*: the parts of the superblock that lie in other sectors and change with every commit (the
//! backup roots, the UUID tree's generation) are not those of the head's generation.

use vlinder_format::superblock::{MAGIC, Superblock, SuperblockFault, SuperblockMirror};

use super::copy::Copy;

/// What the table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Believe the primary.
    Primary,
    /// Believe the newest valid copy.
    Copy,
    /// Believe none without the user's word.
    Refuse,
}

/// The rows of the table.
#[derive(Clone, Debug)]
pub(super) enum Primary<'a> {
    Valid,
    Gone,
    RuleBroken,
    Torn(&'a Superblock),
}

impl<'a> Primary<'a> {
    pub(super) fn of(copy: &'a Copy) -> Self {
        match copy {
            Copy::Valid(_) => Self::Valid,
            Copy::Absent | Copy::Unreadable(_) => Self::Gone,
            Copy::Broken(head, _) if head.magic != MAGIC => Self::Gone,
            Copy::Broken(head, SuperblockFault::Checksum) => Self::Torn(head),
            Copy::Broken(..) => Self::RuleBroken,
        }
    }
}

pub(super) fn judge(primary: &Primary<'_>, copy: Option<&Superblock>) -> Verdict {
    let (head, copy) = match (primary, copy) {
        (Primary::Valid, _) => return Verdict::Primary,
        (Primary::Torn(head), Some(copy)) => (*head, copy),
        _ => return Verdict::Refuse,
    };
    if head.fsid != copy.fsid
        || head.location != SuperblockMirror::Primary.offset()
        || head.device_count != copy.device_count
    {
        return Verdict::Refuse;
    }
    let believable = if head.generation < copy.generation {
        true
    } else if head.generation == copy.generation {
        head.log_root == copy.log_root
    } else {
        head.generation == copy.generation.next() && is_unfinished(head, copy)
    };
    if believable { Verdict::Copy } else { Verdict::Refuse }
}

/// Whether the sectors behind the head are still those before the head's commit.
fn is_unfinished(head: &Superblock, copy: &Superblock) -> bool {
    let backup_done = head.backup_roots.iter().any(|backup| backup.tree_root_generation == head.generation);
    let uuid_generation_changes = copy.uuid_tree_generation == copy.generation;
    let uuid_generation_done = head.uuid_tree_generation != copy.uuid_tree_generation;
    !backup_done || (uuid_generation_changes && !uuid_generation_done)
}
