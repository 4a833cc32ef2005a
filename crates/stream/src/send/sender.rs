//! One snapshot, or what differs between two, as commands.

use std::io::Write;

use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_data::{ContentSource, Extent};
use vlinder_forest::{Difference, ForestError, compare};
use vlinder_format::inode::{DeviceNumber, FileType};
use vlinder_format::{ItemType, Key, ObjectId};
use vlinder_tree::Readahead;

use super::content::{CloneSearch, ContentTurn, Outlet};
use super::default_lists::{DEFAULT_LIST, DefaultLists, default_list};
use super::inode_turn::{InodeTurn, times_of};
use super::pipeline::{Crew, Output};
use super::tree_names::{TreeNames, facts, item_fault};
use super::{CloneRoot, Identity, NameChange, Namespace, SendError, SendOptions, SentSubvolume};
use crate::wire::{Command, Node, Protocol, Snapshot, StreamWriter};

/// Tree blocks that are read in one batch, ahead of where they are needed.
const BLOCKS_AHEAD: usize = 256;

/// What is sent, and what the receiver has.
pub struct Sending<'a> {
    /// The name that the subvolume gets there.
    pub name: &'a [u8],
    /// The subvolume.
    pub subvolume: SentSubvolume<'a>,
    /// The one that it is sent as a change of.
    pub parent: Option<SentSubvolume<'a>>,
    /// Further ones that the receiver has: ranges are cloned from them.
    pub clone_sources: Vec<SentSubvolume<'a>>,
    /// Where the bytes of files are read.
    pub source: ContentSource<'a>,
    /// How.
    pub options: SendOptions<'a>,
}

/// Sends one subvolume: all commands but the one that ends a stream. Gives the bytes of files in them.
///
/// # Errors
/// What reading or writing met. What was written before it stays written.
pub fn send<W: Write>(sending: &Sending<'_>, output: &mut StreamWriter<W>) -> Result<u64, SendError> {
    let (source, options) = (&sending.source, &sending.options);
    thread::scope(|scope| {
        let crew = Crew::start(scope, options.threads, source, output.protocol());
        send_to(sending, Output::new(output, source, crew, options.progress))
    })
}

/// The bytes of files that [`send`] would put into a stream of a version: of this, [`SendOptions::progress`]
/// tells how much is done. Reads the trees, and no data.
///
/// # Errors
/// What reading met.
pub fn count_data_bytes(sending: &Sending<'_>, protocol: Protocol) -> Result<u64, SendError> {
    let mut nowhere = StreamWriter::new(std::io::sink(), protocol);
    send_to(sending, Output::counting(&mut nowhere, &sending.source))
}

fn send_to<W: Write>(sending: &Sending<'_>, mut output: Output<'_, W>) -> Result<u64, SendError> {
    let Sending { name: path, subvolume, parent, .. } = sending;
    let (uuid, transid) = (subvolume.uuid, subvolume.transid);
    output.put(&match parent {
        None => Command::Subvolume { path, uuid, transid },
        Some(parent) => {
            let (parent_uuid, parent_transid) = (parent.uuid, parent.transid);
            Command::Snapshot(Snapshot { path, uuid, transid, parent_uuid, parent_transid })
        }
    })?;
    let new = subvolume.names();
    let old = parent.as_ref().map(SentSubvolume::names);
    let clone_roots: Vec<CloneRoot<'_>> =
        parent.iter().chain(&sending.clone_sources).map(SentSubvolume::clone_root).collect();
    let own = subvolume.root.id();
    let is_ahead = !sending.options.no_readahead;
    let readahead = if is_ahead { Readahead::Forward(BLOCKS_AHEAD) } else { Readahead::None };
    let mut sender = Sender {
        sending,
        namespace: Namespace::new(old.as_ref(), &new),
        clones: CloneSearch::new(subvolume.forest, own, &clone_roots)?,
        default_lists: DefaultLists::default(),
        old: old.as_ref(),
        new: &new,
        output,
        number: ObjectId(0),
        turn: None,
    };
    match parent {
        None => sender.walk(subvolume, readahead)?,
        Some(parent) => compare(
            (parent.forest.trees(), &parent.root),
            (subvolume.forest.trees(), &subvolume.root),
            readahead,
            |key, difference| sender.note(key, difference),
        )?,
    }
    sender.finish()
}

/// Turns items, in the order of their keys, into commands.
struct Sender<'a, W> {
    sending: &'a Sending<'a>,
    old: Option<&'a TreeNames<'a>>,
    new: &'a TreeNames<'a>,
    namespace: Namespace<'a, TreeNames<'a>>,
    clones: CloneSearch<'a>,
    default_lists: DefaultLists,
    output: Output<'a, W>,
    /// The number whose items come.
    number: ObjectId,
    /// The inode of the new state that has it.
    turn: Option<InodeTurn>,
}

impl<'a, W: Write> Sender<'a, W> {
    /// Sends all that a tree has.
    fn walk(&mut self, subvolume: &SentSubvolume<'_>, readahead: Readahead) -> Result<(), SendError> {
        let first = Key::new(ObjectId::FIRST_FREE, ItemType::INODE_ITEM, 0);
        let mut cursor =
            subvolume.forest.trees().cursor(&subvolume.root, &first, readahead).map_err(ForestError::from)?;
        while let Some((key, data)) = cursor.item() {
            self.note(key, Difference::Added(data))?;
            cursor.advance().map_err(ForestError::from)?;
        }
        Ok(())
    }

    /// Takes an item that is not the same in both trees.
    fn note(&mut self, key: Key, difference: Difference<'_>) -> Result<(), SendError> {
        if key.objectid < ObjectId::FIRST_FREE || key.objectid > ObjectId::LAST_FREE {
            return Ok(());
        }
        if self.number != key.objectid {
            self.end_turn()?;
            self.begin_turn(key.objectid)?;
        }
        let Some(mut turn) = self.turn.take() else { return Ok(()) };
        match (&mut turn.content, key.item_type) {
            // What has the number now has nothing of what had it: its items were all sent when it began.
            _ if turn.is_replaced => {}
            (_, ItemType::XATTR_ITEM) => {
                turn.note_attributes(key, difference, &mut self.default_lists, &mut self.output)?;
            }
            (Some(content), ItemType::EXTENT_DATA) => {
                self.note_extent(content, &turn.path, key, difference)?;
            }
            _ => {}
        }
        self.turn = Some(turn);
        Ok(())
    }

    fn begin_turn(&mut self, number: ObjectId) -> Result<(), SendError> {
        self.number = number;
        let old = self.old.map(|old| old.item(number)).transpose()?.flatten();
        let new = self.new.item(number)?;
        self.namespace.turn(number)?;
        self.put_name_changes()?;
        let is_replaced = number != Identity::ROOT.number
            && old.zip(new).is_some_and(|(old, new)| old.generation != new.generation);
        let Some(item) = new else { return Ok(()) };
        let facts = facts(number, &item);
        let path = if facts.is_directory {
            self.namespace.touch(facts.identity);
            self.namespace.path_of_directory(facts.identity)?
        } else {
            self.namespace.path_of_file(facts.identity)?
        };
        let before = old.filter(|_| !is_replaced);
        let mut turn = InodeTurn::new(facts.identity, before, item, path.into(), is_replaced);
        if is_replaced {
            self.send_all_attributes(&mut turn)?;
            if let Some(content) = &mut turn.content {
                content.send_all(&turn.path, self.new, &mut self.outlet())?;
            }
        }
        self.turn = Some(turn);
        Ok(())
    }

    fn note_extent(
        &mut self,
        content: &mut ContentTurn,
        path: &Arc<[u8]>,
        key: Key,
        difference: Difference<'_>,
    ) -> Result<(), SendError> {
        let sector_bytes = u64::from(self.sending.source.sector_bytes);
        let decode = |data: &[u8]| Extent::decode(key.offset, data).map_err(|fault| item_fault(fault, key));
        let (old, new) = match difference {
            Difference::Removed(old) => (Some(decode(old)?), None),
            Difference::Added(new) => (None, Some(decode(new)?)),
            Difference::Changed { old, new } => (Some(decode(old)?), Some(decode(new)?)),
        };
        match (self.old.filter(|_| content.is_changed()), new) {
            (None, Some(new)) => content.send_extent(path, &new, &mut self.outlet()),
            (None, None) => Ok(()),
            (Some(tree), new) => {
                let ranges = old.iter().chain(&new).map(|extent| extent.file_range(sector_bytes));
                let longest = ranges.max_by_key(|range| range.end()).unwrap_or_default();
                content.note(longest, path, (tree, self.new), &mut self.outlet())
            }
        }
    }

    fn outlet(&mut self) -> Outlet<'_, 'a, W> {
        let subvolume = &self.sending.subvolume;
        Outlet {
            source: &self.sending.source,
            clones: &mut self.clones,
            namespace: &mut self.namespace,
            own: subvolume.root.id(),
            own_uuid: (subvolume.uuid, subvolume.transid),
            new: self.new,
            options: self.sending.options,
            output: &mut self.output,
        }
    }

    /// The extended attributes of an inode whose number another one had: some may be equal in both.
    fn send_all_attributes(&mut self, turn: &mut InodeTurn) -> Result<(), SendError> {
        for (key, data) in self.new.attributes(turn.identity.number)? {
            let all = Difference::Added(&data);
            turn.note_attributes(key, all, &mut self.default_lists, &mut self.output)?;
        }
        Ok(())
    }

    fn end_turn(&mut self) -> Result<(), SendError> {
        match self.turn.take() {
            Some(mut turn) => {
                let trees = self.old.map(|old| (old, self.new));
                if let Some(content) = &mut turn.content {
                    content.finish(&turn.path, trees, &mut self.outlet())?;
                }
                turn.finish(&mut self.output)
            }
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<u64, SendError> {
        self.end_turn()?;
        self.namespace.finish()?;
        self.put_name_changes()?;
        for directory in self.default_lists.take_waiting() {
            if let Some(value) = default_list(self.new, directory)? {
                let path = self.namespace.path_of_directory(directory)?;
                self.output.put(&Command::SetXattr { path: &path, name: DEFAULT_LIST, value: &value })?;
            }
        }
        let directories = self.namespace.touched_directories()?;
        // The root is the lowest, and comes last: everything that waited for its place changed it.
        for directory in directories.into_iter().rev() {
            let path = self.namespace.path_of_directory(directory)?;
            let number = directory.number;
            let item = self.new.item(number)?.ok_or(SendError::MissingInode { inode: number })?;
            self.output.put(&Command::SetTimes { path: &path, times: times_of(&item) })?;
        }
        self.output.finish()
    }

    fn put_name_changes(&mut self) -> Result<(), SendError> {
        for change in self.namespace.take_changes() {
            match &change {
                NameChange::Create { path, inode, directory } => {
                    if self.default_lists.must_go(*directory, self.old)? {
                        let parent = path.rsplitn(2, |byte| *byte == b'/').nth(1).unwrap_or_default();
                        self.output.put(&Command::RemoveXattr { path: parent, name: DEFAULT_LIST })?;
                    }
                    self.create(path, *inode)?;
                }
                NameChange::Rename { from, to } => self.output.put(&Command::Rename { path: from, to })?,
                NameChange::Link { path, existing } => self.output.put(&Command::Link { path, existing })?,
                NameChange::Unlink { path } => self.output.put(&Command::Unlink { path })?,
                NameChange::RemoveDirectory { path } => {
                    self.output.put(&Command::RemoveDirectory { path })?;
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &[u8], identity: Identity) -> Result<(), SendError> {
        let number = identity.number;
        let item = self.new.item(number)?.ok_or(SendError::MissingInode { inode: number })?;
        let inode = Some(number.0);
        let node = Node { path, inode, mode: u64::from(item.mode.0), device: packed(item.device_number) };
        let file_type = item.mode.file_type().ok_or(SendError::UnknownType { inode: number })?;
        let target;
        let command = match file_type {
            FileType::Regular => Command::MakeFile { path, inode },
            FileType::Directory => Command::MakeDirectory { path, inode },
            FileType::CharacterDevice | FileType::BlockDevice => Command::MakeNode(node),
            FileType::Fifo => Command::MakeFifo(node),
            FileType::Socket => Command::MakeSocket(node),
            FileType::SymbolicLink => {
                target = self.new.symlink_target(number, &item)?;
                Command::Symlink { path, inode, target: &target }
            }
        };
        self.output.put(&command)
    }
}

/// A device number as Linux's `new_encode_dev` packs it.
fn packed(device: DeviceNumber) -> u64 {
    let (major, minor) = (device.major(), device.minor());
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}
