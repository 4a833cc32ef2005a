//! The index of streams: which subvolumes they make, and which files are in each.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use vlinder_format::{Generation, Uuid};

use super::apply::{CloneSource, apply};
use super::error::{CommandFault, IndexError, IndexFault, NeededSubvolume};
use super::subvolume::StreamSubvolume;
use super::tree::FileTree;
use super::view::SubvolumeView;
use crate::resume::TOKEN_ATTRIBUTE;
use crate::wire::{Command, CommandKind, PlacedCommand, Protocol, Snapshot, StreamReader};

/// The subvolumes of streams that were read once, in order.
///
/// What it keeps in memory is names, attributes and where data lie: never data. What a snapshot has in common
/// with its parent, and a clone with its source, is kept once.
#[derive(Debug, Default)]
pub struct StreamIndex {
    subvolumes: Vec<StreamSubvolume>,
    by_source: HashMap<(Uuid, Generation), usize>,
    needed: BTreeMap<([u8; 16], u64), bool>,
    counts: BTreeMap<CommandKind, u64>,
    streams: u64,
    inputs: u32,
    /// Whether a subvolume has begun in the stream that is being read.
    has_begun: bool,
}

impl StreamIndex {
    /// An index of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads all streams of an input, which continue those that were added before. Inputs are numbered from
    /// 0 in the order in which they are added.
    ///
    /// # Errors
    /// A stream is wrong. What came before in it stays in the index.
    pub fn add<R: Read>(&mut self, reader: &mut StreamReader<R>) -> Result<(), IndexError> {
        self.inputs += 1;
        loop {
            let offset = reader.position();
            let error = |cause| IndexError { offset, cause };
            match reader.begin() {
                Ok(None) => return Ok(()),
                Ok(Some(protocol)) => self.add_stream(protocol, reader)?,
                Err(wire) => return Err(error(wire.into())),
            }
        }
    }

    fn add_stream<R: Read>(
        &mut self,
        protocol: Protocol,
        reader: &mut StreamReader<R>,
    ) -> Result<(), IndexError> {
        self.streams += 1;
        self.has_begun = false;
        loop {
            let offset = reader.position();
            let error = |cause| IndexError { offset, cause };
            let placed = reader.next_placed(protocol).map_err(|wire| error(wire.into()))?;
            let kind = placed.command.kind();
            *self.counts.entry(kind).or_default() += 1;
            if let Command::End = placed.command {
                return if self.has_begun { Ok(()) } else { Err(error(IndexFault::NoSubvolume)) };
            }
            self.add_command(&placed).map_err(|fault| {
                let path = placed.command.path().unwrap_or_default().to_vec();
                error(IndexFault::Command { kind, path, fault })
            })?;
        }
    }

    fn add_command(&mut self, placed: &PlacedCommand<'_>) -> Result<(), CommandFault> {
        match placed.command {
            Command::Subvolume { path, uuid, transid } => {
                self.begin(path, uuid, transid, None, FileTree::new(None))
            }
            Command::Snapshot(Snapshot { path, uuid, transid, parent_uuid, parent_transid }) => {
                let parent = (parent_uuid, parent_transid);
                let tree = match self.given(parent) {
                    Some(tree) => tree,
                    None => {
                        self.need(parent, true);
                        FileTree::new(Some(parent_uuid))
                    }
                };
                self.begin(path, uuid, transid, Some(parent), tree)
            }
            Command::SetXattr { path: b"", name: TOKEN_ATTRIBUTE, .. } if !self.has_begun => {
                Err(CommandFault::RestOfStream)
            }
            _ => {
                let source = self.clone_source(&placed.command);
                let is_within = self.has_begun;
                let current = self.subvolumes.last_mut().filter(|_| is_within);
                let current = current.ok_or(CommandFault::NoSubvolume)?;
                apply(&mut current.tree, placed, self.inputs - 1, source)
            }
        }
    }

    fn begin(
        &mut self,
        name: &[u8],
        uuid: Uuid,
        transid: Generation,
        parent: Option<(Uuid, Generation)>,
        tree: FileTree,
    ) -> Result<(), CommandFault> {
        // A name alone: where it goes is the receiver's to say.
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
            return Err(CommandFault::NotAPath);
        }
        self.has_begun = true;
        self.by_source.insert((uuid, transid), self.subvolumes.len());
        self.subvolumes.push(StreamSubvolume { name: name.to_vec(), uuid, transid, parent, tree });
        Ok(())
    }

    /// A copy of the files of a subvolume that was given, which shares all with it.
    fn given(&self, source: (Uuid, Generation)) -> Option<FileTree> {
        let subvolume = self.subvolumes.get(*self.by_source.get(&source)?)?;
        Some(subvolume.tree.clone())
    }

    fn clone_source(&mut self, command: &Command<'_>) -> CloneSource {
        let &Command::Clone { source_uuid: uuid, source_transid: transid, .. } = command else {
            return CloneSource::Own;
        };
        if self.subvolumes.last().is_some_and(|current| current.uuid == uuid) {
            return CloneSource::Own;
        }
        match self.given((uuid, transid)) {
            Some(tree) => CloneSource::Given(tree),
            None => {
                self.need((uuid, transid), false);
                CloneSource::Missing(uuid)
            }
        }
    }

    fn need(&mut self, (uuid, transid): (Uuid, Generation), is_parent: bool) {
        *self.needed.entry((uuid.0, transid.0)).or_default() |= is_parent;
    }

    /// How many streams there were.
    #[must_use]
    pub fn streams(&self) -> u64 {
        self.streams
    }

    /// How many commands of each kind there were.
    pub fn counts(&self) -> impl Iterator<Item = (CommandKind, u64)> {
        self.counts.iter().map(|(kind, count)| (*kind, *count))
    }

    /// The subvolumes that the streams build on and that were not given before them.
    pub fn needed(&self) -> impl Iterator<Item = NeededSubvolume> {
        self.needed.iter().map(|((uuid, transid), is_parent)| NeededSubvolume {
            uuid: Uuid(*uuid),
            transid: Generation(*transid),
            is_parent: *is_parent,
        })
    }

    /// The subvolumes in the order in which they were made.
    pub fn subvolumes(&self) -> impl DoubleEndedIterator<Item = SubvolumeView<'_>> {
        self.subvolumes.iter().map(SubvolumeView::new)
    }
}
