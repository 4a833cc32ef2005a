//! What changed in a subvolume since the last commit, as far as an fsync has to know: names, ranges of files,
//! attributes; and what of it the log has.
//!
//! Names are recorded where they change ([`Changes`](crate::changes::Changes)), under the gate's shared side,
//! in one step with the change itself; the writer of a log holds the other side, and so sees all names at
//! one moment. The record is of one transaction: the first change of the next begins a new one. (No handle of
//! two transactions is ever open at once.)

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use vlinder_base::sync::{Arc, Mutex, MutexGuard, RwLock};
use vlinder_data::ChangedRanges;
use vlinder_extent_state::ByteRange;
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::{Generation, ObjectId};
use vlinder_transaction::LogTicket;

/// A name's place and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamePlace {
    pub(crate) index: DirectoryIndex,
    pub(crate) inode: ObjectId,
}

/// What became of one name of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NameChange {
    /// As of the last commit.
    pub(super) before: Option<NamePlace>,
    /// As of now.
    pub(super) now: Option<NamePlace>,
}

/// The bytes of a name, which several records share.
pub(crate) type NameBytes = Arc<[u8]>;

/// A directory and a name in it.
pub(super) type Place = (ObjectId, NameBytes);

/// A set of places. The first costs no allocation: most inodes get or lose one name in a transaction.
#[derive(Debug, Default)]
pub(super) struct Places {
    first: Option<Place>,
    others: BTreeSet<Place>,
}

impl Places {
    fn insert(&mut self, place: Place) {
        match &self.first {
            None if !self.others.contains(&place) => self.first = Some(place),
            Some(first) if *first != place => {
                self.others.insert(place);
            }
            _ => {}
        }
    }

    fn remove(&mut self, place: &Place) {
        if self.first.as_ref() == Some(place) {
            self.first = None;
        } else {
            self.others.remove(place);
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.first.iter().chain(&self.others)
    }
}

/// How much of an inode the log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Logged {
    /// That it exists, with its names and attributes.
    Exists,
    /// All of it.
    All,
}

/// One inode.
#[derive(Debug, Default)]
pub(super) struct InodeRecord {
    /// It was made in this transaction.
    pub(super) is_new: bool,
    /// Its item was removed.
    pub(super) is_gone: bool,
    /// It has no name.
    pub(super) is_nameless: bool,
    /// The names that it got or lost.
    pub(super) names: Places,
    /// Ranges of the file whose items changed and are not in the log as they are now.
    pub(super) ranges: Ranges,
    /// Changed ranges behind the end of the file as it was logged: the replay drops all there, and where the
    /// file grows over them, they have to be logged after all.
    pub(super) behind_end: Ranges,
    /// Extended attributes changed since they were logged.
    pub(super) attributes_changed: bool,
    pub(super) logged: Option<Logged>,
    /// The item as it was fsynced last, and the ticket of that.
    last: Option<(Vec<u8>, LogTicket)>,
}

impl InodeRecord {
    /// Nobody can find it any more.
    pub(super) fn is_dead(&self) -> bool {
        self.is_gone || self.is_nameless
    }
}

/// One subvolume.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) generation: Generation,
    pub(super) names: HashMap<ObjectId, BTreeMap<NameBytes, NameChange>>,
    pub(super) inodes: HashMap<ObjectId, InodeRecord>,
    /// Inodes in the log whose names are others now.
    pub(super) stale: BTreeSet<ObjectId>,
    /// Directories in which names of subvolumes came or went, and these names.
    pub(super) subvolume_names: HashMap<ObjectId, HashSet<NameBytes>>,
    /// Indexes of committed names that the log says are gone.
    pub(super) logged_removals: HashSet<(ObjectId, DirectoryIndex)>,
}

/// A change that [`Changes`](crate::changes::Changes) notes.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// A directory got a name.
    Added { directory: ObjectId, name: NameBytes, named: NamePlace },
    /// A directory lost a name.
    Removed { directory: ObjectId, name: NameBytes, named: NamePlace },
    /// A name of a subvolume came or went.
    SubvolumeName { directory: ObjectId, name: NameBytes },
    /// An inode was made.
    Made(ObjectId),
    /// An inode is gone.
    Gone(ObjectId),
    /// An inode has no names, or has some again.
    Nameless(ObjectId, bool),
    /// An inode's extended attributes changed.
    Attributes(ObjectId),
}

/// The record of a subvolume.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    record: Mutex<Record>,
    /// Shared by the callers that change names, held by the one that writes a log.
    pub(super) gate: RwLock<()>,
}

impl Journal {
    /// Runs a change of a subvolume's items, then keeps what it was.
    pub(crate) fn recording<E>(
        &self,
        generation: Generation,
        notes: Vec<Note>,
        change: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _gate = self.gate.read();
        change()?;
        if !notes.is_empty() {
            let mut record = self.of(generation);
            notes.into_iter().for_each(|note| record.note(note));
        }
        Ok(())
    }

    /// The record of a transaction that is running.
    pub(super) fn of(&self, generation: Generation) -> MutexGuard<'_, Record> {
        let mut record = self.record.lock();
        if record.generation != generation {
            assert!(record.generation < generation, "a change was recorded after its transaction");
            *record = Record { generation, ..Record::default() };
        }
        record
    }
}

impl ChangedRanges for Journal {
    fn note_ranges(&self, generation: Generation, inode: ObjectId, ranges: &[ByteRange]) {
        if !ranges.is_empty() {
            let mut record = self.of(generation);
            let known = record.inodes.entry(inode).or_default();
            ranges.iter().for_each(|range| known.ranges.add(*range));
        }
    }
}

impl Record {
    /// The ticket of the last fsync of a file, if nothing of it changed since, nor of the names of what is in
    /// the log. `item` gives the bytes of the file's inode item as they are now.
    pub(super) fn unchanged(&self, number: ObjectId, item: impl FnOnce() -> Vec<u8>) -> Option<LogTicket> {
        let known = self.inodes.get(&number)?;
        let (logged, ticket) = known.last.as_ref()?;
        let is_same = self.stale.is_empty()
            && known.ranges.is_empty()
            && !known.attributes_changed
            && *logged == item();
        is_same.then_some(*ticket)
    }

    /// A file was fsynced as it is. `item` gives the bytes of its inode item.
    pub(super) fn note_logged(
        &mut self,
        number: ObjectId,
        item: impl FnOnce() -> Vec<u8>,
        ticket: LogTicket,
    ) {
        if let Some(known) = self.inodes.get_mut(&number) {
            known.last = Some((item(), ticket));
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Added { directory, name, named } => {
                self.change_name(directory, name, named.inode, |change| change.now = Some(named));
            }
            Note::Removed { directory, name, named } => {
                let known = self.names.get(&directory).is_some_and(|names| names.contains_key(&name));
                self.change_name(directory, name, named.inode, |change| {
                    if !known {
                        change.before = Some(named);
                    }
                    change.now = None;
                });
            }
            Note::SubvolumeName { directory, name } => {
                self.subvolume_names.entry(directory).or_default().insert(name);
            }
            Note::Made(inode) => self.inodes.entry(inode).or_default().is_new = true,
            Note::Gone(inode) => {
                let record = self.inodes.entry(inode).or_default();
                record.is_gone = true;
                if record.logged.is_some() {
                    self.stale.insert(inode);
                } else if record.is_new && record.names.is_empty() {
                    self.inodes.remove(&inode);
                }
            }
            Note::Nameless(inode, is_nameless) => {
                let record = self.inodes.entry(inode).or_default();
                record.is_nameless = is_nameless;
                if record.logged.is_some() {
                    self.stale.insert(inode);
                }
            }
            Note::Attributes(inode) => self.inodes.entry(inode).or_default().attributes_changed = true,
        }
    }

    fn change_name(
        &mut self,
        directory: ObjectId,
        name: NameBytes,
        inode: ObjectId,
        apply: impl FnOnce(&mut NameChange),
    ) {
        let names = self.names.entry(directory).or_default();
        let change = names.entry(Arc::clone(&name)).or_default();
        apply(change);
        let is_nothing = change.before.is_none() && change.now.is_none();
        if is_nothing {
            names.remove(&name);
            if names.is_empty() {
                self.names.remove(&directory);
            }
        }
        let record = self.inodes.entry(inode).or_default();
        if record.logged.is_some() {
            self.stale.insert(inode);
        }
        // A name that came and went is of interest only where the log may have it: who gets it next belongs
        // there, too.
        if is_nothing && record.logged.is_none() {
            record.names.remove(&(directory, name));
        } else {
            record.names.insert((directory, name));
        }
    }
}

/// So many ranges of one file are kept apart; beyond, they become one.
const MAX_RANGES: usize = 4096;

/// Ranges of a file, apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, joining those that it touches.
    pub(super) fn add(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start(), range.end());
        while let Some((before, before_end)) =
            self.0.range(..=end).next_back().map(|(start, end)| (*start, *end))
            && before_end >= start
        {
            self.0.remove(&before);
            (start, end) = (start.min(before), end.max(before_end));
        }
        self.0.insert(start, end);
        if self.0.len() > MAX_RANGES
            && let (Some((first, _)), Some((_, last))) = (self.0.first_key_value(), self.0.last_key_value())
        {
            self.0 = BTreeMap::from([(*first, *last)]);
        }
    }

    /// Takes out the parts below an offset.
    pub(super) fn take_below(&mut self, end: u64) -> Self {
        let (mut below, mut rest) = (Self::default(), Self::default());
        for range in self.iter() {
            let border = end.clamp(range.start(), range.end());
            below.add(ByteRange::new(range.start(), border).unwrap_or_default());
            rest.add(ByteRange::new(border, range.end()).unwrap_or_default());
        }
        *self = rest;
        below
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.0.iter().filter_map(|(start, end)| ByteRange::new(*start, *end))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(index: u64, inode: u64) -> NamePlace {
        NamePlace { index: DirectoryIndex(index), inode: ObjectId(inode) }
    }

    fn added(name: &[u8], index: u64, inode: u64) -> Note {
        Note::Added { directory: ObjectId(256), name: name.into(), named: named(index, inode) }
    }

    fn removed(name: &[u8], index: u64, inode: u64) -> Note {
        Note::Removed { directory: ObjectId(256), name: name.into(), named: named(index, inode) }
    }

    #[test]
    fn a_name_that_came_and_went_leaves_nothing() {
        let mut record = Record::default();
        record.note(Note::Made(ObjectId(257)));
        record.note(added(b"a", 2, 257));
        record.note(removed(b"a", 2, 257));
        record.note(Note::Gone(ObjectId(257)));
        assert!(record.names.is_empty() && record.inodes.is_empty() && record.stale.is_empty());
    }

    #[test]
    fn a_committed_name_is_remembered_whatever_takes_its_place() {
        let mut record = Record::default();
        record.note(removed(b"a", 2, 257));
        record.note(added(b"a", 3, 258));
        record.note(removed(b"a", 3, 258));
        record.note(added(b"a", 4, 259));
        let change = record.names[&ObjectId(256)][&b"a"[..]];
        assert_eq!(change, NameChange { before: Some(named(2, 257)), now: Some(named(4, 259)) });
    }

    #[test]
    fn what_is_in_the_log_is_stale_when_its_names_change() {
        let mut record = Record::default();
        record.inodes.entry(ObjectId(257)).or_default().logged = Some(Logged::Exists);
        record.note(Note::Attributes(ObjectId(257)));
        assert!(record.stale.is_empty());
        record.note(added(b"b", 5, 257));
        assert_eq!(record.stale, BTreeSet::from([ObjectId(257)]));
    }

    proptest! {
        #[test]
        fn ranges_are_what_a_bit_array_says(parts in prop::collection::vec((0_u64..60, 1_u64..10), 0..30)) {
            let mut bits = [false; 80];
            let mut ranges = Ranges::default();
            for (start, length) in parts {
                bits[start as usize..(start + length) as usize].fill(true);
                ranges.add(ByteRange::with_length(start, length).unwrap());
            }
            let mut seen = [false; 80];
            let mut last_end = None;
            for range in ranges.iter() {
                prop_assert!(last_end.is_none_or(|end| end < range.start()));
                last_end = Some(range.end());
                seen[range.start() as usize..range.end() as usize].fill(true);
            }
            prop_assert_eq!(bits, seen);
        }
    }
}
