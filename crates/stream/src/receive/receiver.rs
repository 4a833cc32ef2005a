//! Streams and the subvolumes that they make.

use std::io::Read;

use vlinder_base::sync::Arc;
use vlinder_format::{Generation, RootId, Uuid};
use vlinder_fs::{BeingReceived, Caller, Filesystem, Inode};

use super::ReceiveError;
use super::directory_times::DirectoryTimes;
use super::paths::SubvolumePaths;
use super::sources;
use crate::wire::{Command, CommandKind, StreamReader};

/// A subvolume that a stream made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its name in the directory.
    pub name: Vec<u8>,
    /// Its tree.
    pub id: RootId,
}

/// Receives streams into one directory.
pub struct Receiver<'f> {
    pub(super) filesystem: &'f Filesystem,
    directory: Arc<Inode>,
    pub(super) current: Option<Current>,
    /// The names of all subvolumes that were begun.
    names: Vec<Vec<u8>>,
}

/// The subvolume that is being received.
pub(super) struct Current {
    name: Vec<u8>,
    pub uuid: Uuid,
    transid: Generation,
    pub paths: SubvolumePaths,
    pub times: DirectoryTimes,
    /// Hides it until it is whole.
    _hidden: BeingReceived,
}

impl<'f> Receiver<'f> {
    /// Receives into a directory.
    pub fn new(filesystem: &'f Filesystem, directory: Arc<Inode>) -> Self {
        Self { filesystem, directory, current: None, names: Vec::new() }
    }

    /// The names of all subvolumes that were begun, whole or not.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(Vec::as_slice)
    }

    /// Applies all streams that follow one another; gives the subvolumes that they made.
    ///
    /// # Errors
    /// The streams are wrong, or the file system refused or failed. A subvolume that was begun stays: it is
    /// writable, and lacks the UUID that would make it a received one.
    pub fn receive<R: Read>(&mut self, streams: &mut StreamReader<R>) -> Result<Vec<Received>, ReceiveError> {
        let mut received = Vec::new();
        while let Some(protocol) = streams.begin()? {
            loop {
                let command = streams.next_command(protocol)?;
                match command {
                    Command::End => break,
                    Command::Subvolume { path, uuid, transid } => {
                        received.extend(self.finish()?);
                        self.begin(path, uuid, transid, None)?;
                    }
                    Command::Snapshot(snapshot) => {
                        received.extend(self.finish()?);
                        let parent = (snapshot.parent_uuid, snapshot.parent_transid);
                        self.begin(snapshot.path, snapshot.uuid, snapshot.transid, Some(parent))?;
                    }
                    command => self.apply(&command)?,
                }
            }
            received.extend(self.finish()?);
        }
        Ok(received)
    }

    fn begin(
        &mut self,
        name: &[u8],
        uuid: Uuid,
        transid: Generation,
        parent: Option<(Uuid, Generation)>,
    ) -> Result<(), ReceiveError> {
        let kind = if parent.is_some() { CommandKind::Snapshot } else { CommandKind::Subvolume };
        // A name alone: where it goes is the receiver's to say.
        let mut places = SubvolumePaths::new(Arc::clone(&self.directory));
        let (directory, last) = places.place(self.filesystem, kind, name)?;
        if last.len() != name.len() {
            return Err(ReceiveError::Path { kind, path: name.to_vec() });
        }
        let (subvolumes, caller) = (self.filesystem.subvolumes(), Caller::superuser());
        let made = match parent {
            None => subvolumes.create(&caller, &directory, name),
            Some((uuid, transid)) => {
                let parent = sources::find(self.filesystem, uuid, transid)?;
                subvolumes.snapshot(&caller, parent, &directory, name, false)
            }
        };
        let id = made.map_err(|error| command_error(kind, name, error))?;
        self.names.push(name.to_vec());
        let hidden = self.filesystem.subvolumes().begin_receiving(id.root)?;
        let root = self.filesystem.inode(id)?;
        self.current = Some(Current {
            name: name.to_vec(),
            uuid,
            transid,
            paths: SubvolumePaths::new(root),
            times: DirectoryTimes::default(),
            _hidden: hidden,
        });
        Ok(())
    }

    /// Makes what is being received a received subvolume: read-only, with the UUID of what was sent.
    fn finish(&mut self) -> Result<Option<Received>, ReceiveError> {
        let Some(current) = self.current.take() else { return Ok(None) };
        let id = current.paths.root().id().root;
        current.times.restore(self.filesystem)?;
        let subvolumes = self.filesystem.subvolumes();
        subvolumes.set_received(&Caller::superuser(), id, current.uuid, current.transid)?;
        Ok(Some(Received { name: current.name, id }))
    }
}

/// An error of the file system, with the command that met it.
pub(super) fn command_error(kind: CommandKind, path: &[u8], error: vlinder_fs::FsError) -> ReceiveError {
    ReceiveError::Command { kind, path: path.to_vec(), error: Box::new(error) }
}
