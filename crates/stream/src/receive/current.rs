//! The subvolume that is being received.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_data::COMPRESSION_NAME;
use vlinder_format::{Generation, RootId, Uuid};
use vlinder_fs::{
    AttributeMode, BeingReceived, Caller, Filesystem, FsError, Inode, InodeId, Refusal, RenameMode,
};

use super::ReceiveError;
use super::command_hasher::CommandHasher;
use super::directory_times::DirectoryTimes;
use super::error::command_error;
use super::partial::{
    checkpoint_names, encode_mark, is_own_checkpoint, partial_name, partial_subvolumes, refuse_under_way,
    remove_parts,
};
use super::partial_subvolume::PartialSubvolume;
use super::paths::SubvolumePaths;
use super::sources;
use crate::resume::{ResumeToken, TOKEN_ATTRIBUTE};
use crate::wire::CommandKind;

/// The subvolume that is being received.
pub(super) struct Current {
    /// The name that it will have.
    pub name: Vec<u8>,
    /// What it is of; how much of it was received is in `received`.
    of: ResumeToken,
    /// The commands of it that were applied.
    pub received: CommandHasher,
    pub paths: SubvolumePaths,
    pub times: DirectoryTimes,
    /// Bytes of commands up to the last checkpoint.
    checkpoint_bytes: u64,
    /// Which of its two names the next checkpoint gets.
    next_checkpoint: usize,
    /// Subvolumes that ranges were cloned from.
    pub clone_sources: HashMap<(Uuid, Generation), SubvolumePaths>,
    /// A command of it could not be applied.
    pub lacks_commands: bool,
    /// Hides it from all users of a mount, until it is whole or given up.
    _hidden: BeingReceived,
}

impl Current {
    /// Makes a subvolume to receive into.
    ///
    /// # Errors
    /// Its name, or that of what is partial, is taken; there is no parent. Nothing was made then.
    pub fn begin(
        filesystem: &Filesystem,
        directory: &Arc<Inode>,
        name: &[u8],
        token: ResumeToken,
    ) -> Result<Self, ReceiveError> {
        let is_whole = token.parent_uuid.is_nil();
        let kind = if is_whole { CommandKind::Subvolume } else { CommandKind::Snapshot };
        if name_is_taken(filesystem, directory, name)? {
            return Err(command_error(kind, name, Refusal::Exists.into()));
        }
        let all = partial_subvolumes(filesystem, directory)?;
        if let Some(before) = all.into_iter().find(|partial| partial.name == name) {
            refuse_under_way(filesystem, &before)?;
            let (name, token) = (before.name, before.token.map(Box::new));
            return Err(ReceiveError::PartialExists { name, token });
        }
        let partial = partial_name(name);
        for needed in std::iter::once(&partial).chain(&checkpoint_names(name)) {
            if name_is_taken(filesystem, directory, needed)? {
                return Err(ReceiveError::InTheWay { name: needed.clone() });
            }
        }
        let (subvolumes, caller) = (filesystem.subvolumes(), Caller::superuser());
        let made = if is_whole {
            subvolumes.create(&caller, directory, &partial)
        } else {
            let parent = sources::find(filesystem, token.parent_uuid, token.parent_transid)?;
            subvolumes.snapshot(&caller, parent, directory, &partial, false)
        };
        let id = made.map_err(|error| command_error(kind, name, error))?;
        let mut current = Self::of(filesystem, id, name, token)?;
        if is_whole {
            // The subvolume around it passed that on, and its stream says what it has.
            let attributes = filesystem.attributes();
            let root = current.paths.root();
            match attributes.remove_extended_attribute(&caller, root, COMPRESSION_NAME) {
                Err(FsError::Refused(Refusal::NoAttribute)) => {}
                removed => removed?,
            }
        }
        current.mark(filesystem)?;
        Ok(current)
    }

    /// Goes on with a partial subvolume from its last checkpoint.
    ///
    /// # Errors
    /// Another subvolume has the name. Nothing was changed then.
    pub fn resume(
        filesystem: &Filesystem,
        directory: &Arc<Inode>,
        partial: &PartialSubvolume,
        token: ResumeToken,
    ) -> Result<Self, ReceiveError> {
        refuse_under_way(filesystem, partial)?;
        let is_own = partial.parts.iter().any(|part| part.name == partial.name);
        if !is_own && name_is_taken(filesystem, directory, &partial.name)? {
            return Err(ReceiveError::NameTaken { name: partial.name.clone() });
        }
        let Some(checkpoint) = partial.checkpoint() else {
            remove_parts(filesystem, directory, partial.parts.iter())?;
            return Self::begin(filesystem, directory, &partial.name, token);
        };
        let others = partial.parts.iter().filter(|part| part.id != checkpoint.id);
        remove_parts(filesystem, directory, others)?;
        let (name, caller) = (partial_name(&partial.name), Caller::superuser());
        let id =
            filesystem.subvolumes().snapshot_as_sibling(&caller, checkpoint.id, directory, &name, false)?;
        let mut current = Self::of(filesystem, id, &partial.name, token)?;
        current.checkpoint_bytes = current.received.bytes();
        current.next_checkpoint = usize::from(checkpoint.name == checkpoint_names(&partial.name)[0]);
        Ok(current)
    }

    fn of(
        filesystem: &Filesystem,
        id: InodeId,
        name: &[u8],
        token: ResumeToken,
    ) -> Result<Self, ReceiveError> {
        Ok(Self {
            name: name.to_vec(),
            of: token,
            received: CommandHasher::after(token.received),
            paths: SubvolumePaths::new(filesystem.inode(id)?),
            times: DirectoryTimes::default(),
            checkpoint_bytes: 0,
            next_checkpoint: 0,
            clone_sources: HashMap::new(),
            lacks_commands: false,
            _hidden: filesystem.subvolumes().begin_receiving(id.root)?,
        })
    }

    /// Its tree.
    pub fn id(&self) -> RootId {
        self.paths.root().id().root
    }

    /// What the stream calls it.
    pub fn sent(&self) -> (Uuid, Generation) {
        (self.of.uuid, self.of.transid)
    }

    /// Bytes of commands since the last checkpoint.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.received.bytes() - self.checkpoint_bytes
    }

    /// Writes down how much was received.
    fn mark(&mut self, filesystem: &Filesystem) -> Result<(), FsError> {
        let token = ResumeToken { received: self.received.hash(), ..self.of };
        let (root, mark) = (self.paths.root(), encode_mark(&token, &self.name));
        let (caller, mode) = (Caller::superuser(), AttributeMode::Either);
        filesystem.attributes().set_extended_attribute(&caller, root, TOKEN_ATTRIBUTE, &mark, mode)
    }

    /// Makes what was received so far a state that receiving can go on from, whatever happens.
    ///
    /// # Errors
    /// What the file system met; the checkpoint before is still there.
    pub fn checkpoint(
        &mut self,
        filesystem: &Filesystem,
        directory: &Arc<Inode>,
    ) -> Result<(), ReceiveError> {
        if self.lacks_commands || self.bytes_since_checkpoint() == 0 {
            return Ok(());
        }
        // The attribute moves no time that anybody sees, but the rest of the stream may not name them all.
        self.times.restore(filesystem)?;
        self.mark(filesystem)?;
        let (subvolumes, caller) = (filesystem.subvolumes(), Caller::superuser());
        let names = checkpoint_names(&self.name);
        let [new, old] = [self.next_checkpoint, 1 - self.next_checkpoint].map(|number| &names[number]);
        // Removing an older one may have failed.
        remove_own_checkpoint(filesystem, directory, new, &self.name)?;
        subvolumes.snapshot_as_sibling(&caller, self.id(), directory, new, true)?;
        self.checkpoint_bytes = self.received.bytes();
        self.next_checkpoint = 1 - self.next_checkpoint;
        remove_own_checkpoint(filesystem, directory, old, &self.name)
    }

    /// Makes it a received subvolume: with its name, read-only, with the UUID of what was sent.
    ///
    /// # Errors
    /// What the file system met; it is partial still.
    pub fn finish(&mut self, filesystem: &Filesystem, directory: &Arc<Inode>) -> Result<(), ReceiveError> {
        self.times.restore(filesystem)?;
        let (names, caller) = (filesystem.names(), Caller::superuser());
        let partial = partial_name(&self.name);
        let renamed =
            names.rename(&caller, directory, &partial, directory, &self.name, RenameMode::NoReplace);
        renamed.map_err(|error| command_error(CommandKind::Subvolume, &self.name, error))?;
        let sent = if self.lacks_commands { (Uuid::NIL, Generation(0)) } else { self.sent() };
        filesystem.subvolumes().set_received(&caller, self.id(), sent, TOKEN_ATTRIBUTE)?;
        let checkpoints = checkpoint_names(&self.name);
        checkpoints
            .iter()
            .try_for_each(|checkpoint| remove_own_checkpoint(filesystem, directory, checkpoint, &self.name))
    }
}

/// Removes a checkpoint of `name`, if it is there. What else has its name is somebody's and stays.
fn remove_own_checkpoint(
    filesystem: &Filesystem,
    directory: &Arc<Inode>,
    checkpoint: &[u8],
    name: &[u8],
) -> Result<(), ReceiveError> {
    if is_own_checkpoint(filesystem, directory, checkpoint, name)? {
        filesystem.subvolumes().delete(&Caller::superuser(), directory, checkpoint)?;
    }
    Ok(())
}

fn name_is_taken(filesystem: &Filesystem, directory: &Arc<Inode>, name: &[u8]) -> Result<bool, FsError> {
    match filesystem.names().lookup(&Caller::superuser(), directory, name) {
        Ok(_) => Ok(true),
        Err(FsError::Refused(Refusal::NotFound)) => Ok(false),
        Err(error) => Err(error),
    }
}
