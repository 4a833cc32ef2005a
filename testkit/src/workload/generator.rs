//! Chooses operations so that interesting cases are likely: few names that meet, names with equal hashes,
//! offsets that come again, sizes around every border.

mod attributes;
mod fsync;

use std::collections::VecDeque;

use super::choice::Choice;
use super::content::Pattern;
use super::model::{Model, NameTarget};
use super::names::Names;
use super::node_kind::NodeKind;
use super::operation::{AllocateMode, OpenSlot, Operation, Place, RenameMode, Token};

/// Bounds of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Inodes, those of snapshots included; above it deletions are more likely.
    pub inodes: usize,
    /// Bytes of all files, those of snapshots included.
    pub bytes: u64,
    /// Bytes of one write.
    pub write_bytes: u64,
    /// The largest file.
    pub file_bytes: u64,
    /// Live subvolumes.
    pub subvolumes: usize,
    /// Plain names.
    pub names: usize,
    /// One of so many operations is an fsync or fdatasync; 0 for none, which leaves a seed's operations what
    /// they were.
    pub fsync_every: u64,
    /// One of so many writes is direct; 0 as above.
    pub direct_every: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            inodes: 600,
            bytes: 96 << 20,
            write_bytes: 1 << 20,
            file_bytes: 12 << 20,
            subvolumes: 8,
            names: 24,
            fsync_every: 0,
            direct_every: 0,
        }
    }
}

/// How many files are held open at most.
const SLOTS: OpenSlot = 4;

/// Chooses operations; see the module.
#[derive(Debug)]
pub struct Generator {
    choice: Choice,
    names: Names,
    limits: Limits,
    next_token: u32,
    /// Files that were made, whether they still exist or not.
    places: Vec<Place>,
    subvolumes: Vec<Token>,
    /// Offsets that were used, for using them again.
    offsets: Vec<u64>,
    /// Files and directories that the last operations were about.
    recent: VecDeque<Place>,
}

#[derive(Clone, Copy)]
enum Kind {
    CreateFile,
    CreateNode,
    CreateDirectory,
    CreateSymbolicLink,
    CreateTemporary,
    Link,
    Unlink,
    RemoveDirectory,
    Rename,
    Open,
    Close,
    Write,
    Append,
    WriteOpen,
    Truncate,
    Allocate,
    CopyRange,
    Seek,
    Read,
    SetAttribute,
    RemoveAttribute,
    SetPermissions,
    SetOwner,
    SetTimes,
    SetFlags,
    SetCompression,
    CreateSubvolume,
    Snapshot,
    DeleteSubvolume,
    SetDefault,
    SetReadOnly,
    Clean,
    Sync,
}

const WEIGHTS: [(u32, Kind); 33] = [
    (70, Kind::CreateFile),
    (14, Kind::CreateNode),
    (26, Kind::CreateDirectory),
    (14, Kind::CreateSymbolicLink),
    (8, Kind::CreateTemporary),
    (30, Kind::Link),
    (50, Kind::Unlink),
    (16, Kind::RemoveDirectory),
    (60, Kind::Rename),
    (16, Kind::Open),
    (16, Kind::Close),
    (120, Kind::Write),
    (30, Kind::Append),
    (20, Kind::WriteOpen),
    (36, Kind::Truncate),
    (60, Kind::Allocate),
    (40, Kind::CopyRange),
    (12, Kind::Seek),
    (20, Kind::Read),
    (36, Kind::SetAttribute),
    (14, Kind::RemoveAttribute),
    (14, Kind::SetPermissions),
    (12, Kind::SetOwner),
    (12, Kind::SetTimes),
    (16, Kind::SetFlags),
    (10, Kind::SetCompression),
    (12, Kind::CreateSubvolume),
    (24, Kind::Snapshot),
    (24, Kind::DeleteSubvolume),
    (6, Kind::SetDefault),
    (8, Kind::SetReadOnly),
    (8, Kind::Clean),
    (5, Kind::Sync),
];

impl Generator {
    /// The workload of a seed.
    pub fn new(seed: u64, limits: Limits) -> Self {
        let choice = Choice::new(seed);
        let names = Names::new(&choice, limits.names);
        Self::choosing(choice, names, limits)
    }

    /// The workload that the bytes of a script choose; its names are always the same.
    pub fn scripted(script: &[u8], limits: Limits) -> Self {
        Self::choosing(Choice::scripted(script), Names::new(&Choice::new(0), limits.names), limits)
    }

    /// Whether all of a script was used.
    pub fn is_over(&self) -> bool {
        self.choice.is_over()
    }

    fn choosing(choice: Choice, names: Names, limits: Limits) -> Self {
        Self {
            choice,
            names,
            limits,
            next_token: 1,
            places: vec![Place::default()],
            subvolumes: vec![Token::ROOT],
            offsets: vec![0, 4096, 65536, 128 << 10, 1 << 20],
            recent: VecDeque::new(),
        }
    }

    /// The next operation. Most are such that the model expects them to succeed.
    pub fn next(&mut self, model: &mut Model) -> Operation {
        let wants_refusal = self.choice.chance(1, 24);
        let mut operation = self.propose(model);
        for _ in 0..64 {
            if model.predict(&operation).is_err() == wants_refusal {
                break;
            }
            operation = self.propose(model);
        }
        self.note(&operation);
        self.note_recent(&operation);
        operation
    }

    fn note(&mut self, operation: &Operation) {
        let Some(token) = operation.made() else { return };
        self.next_token += 1;
        let place = |directory: &Place| Place { subvolume: directory.subvolume, object: token };
        match operation {
            Operation::CreateSubvolume { .. } | Operation::Snapshot { .. } => {
                self.subvolumes.push(token);
                self.places.push(Place { subvolume: token, object: Token::ROOT });
            }
            Operation::CreateFile { directory, .. }
            | Operation::CreateNode { directory, .. }
            | Operation::CreateDirectory { directory, .. }
            | Operation::CreateSymbolicLink { directory, .. }
            | Operation::CreateTemporary { directory, .. } => self.places.push(place(directory)),
            _ => {}
        }
    }

    fn propose(&mut self, model: &Model) -> Operation {
        let is_full = model.inode_count() > self.limits.inodes || model.stored_bytes() > self.limits.bytes;
        if is_full && self.choice.chance(1, 2) {
            return self.deletion(model);
        }
        if self.limits.fsync_every > 0 && self.choice.chance(1, self.limits.fsync_every) {
            return self.fsync(model);
        }
        let kind = self.choice.weighted(&WEIGHTS);
        match kind {
            Kind::CreateFile
            | Kind::CreateNode
            | Kind::CreateDirectory
            | Kind::CreateSymbolicLink
            | Kind::CreateTemporary => self.creation(kind, model),
            Kind::Link | Kind::Unlink | Kind::RemoveDirectory | Kind::Rename | Kind::Open | Kind::Close => {
                self.naming(kind, model)
            }
            Kind::Write
            | Kind::Append
            | Kind::WriteOpen
            | Kind::Truncate
            | Kind::Allocate
            | Kind::CopyRange
            | Kind::Seek
            | Kind::Read => self.data(kind, model),
            Kind::SetAttribute | Kind::RemoveAttribute => self.attribute(kind, model),
            Kind::SetPermissions
            | Kind::SetOwner
            | Kind::SetTimes
            | Kind::SetFlags
            | Kind::SetCompression => self.metadata(kind, model),
            Kind::CreateSubvolume
            | Kind::Snapshot
            | Kind::DeleteSubvolume
            | Kind::SetDefault
            | Kind::SetReadOnly => self.subvolume_operation(kind, model),
            Kind::Clean => Operation::Clean,
            Kind::Sync => Operation::Sync,
        }
    }

    fn deletion(&mut self, model: &Model) -> Operation {
        match self.choice.below(8) {
            0 | 1 => self.subvolume_operation(Kind::DeleteSubvolume, model),
            2 => self.naming(Kind::RemoveDirectory, model),
            3 => self.naming(Kind::Close, model),
            4 => Operation::Truncate { file: self.file(model), size: self.choice.size(4096) },
            _ => self.naming(Kind::Unlink, model),
        }
    }

    fn creation(&mut self, kind: Kind, model: &Model) -> Operation {
        let (directory, name, token) =
            (self.directory(model), self.names.any(&self.choice), Token(self.next_token));
        let permissions = [0o644, 0o600, 0o755, 0o777, 0o000, 0o1644][self.choice.below(6) as usize];
        match kind {
            Kind::CreateNode => {
                let kinds = [NodeKind::Fifo, NodeKind::Socket, NodeKind::Character, NodeKind::Block];
                let kind = kinds[self.choice.below(4) as usize];
                let device = ((self.choice.below(4096)) as u32, (self.choice.below(1 << 20)) as u32);
                Operation::CreateNode { directory, name, kind, device, permissions, token }
            }
            Kind::CreateDirectory => {
                let permissions = [0o755, 0o700, 0o1777, 0o2775][self.choice.below(4) as usize];
                Operation::CreateDirectory { directory, name, permissions, token }
            }
            Kind::CreateSymbolicLink => {
                let length = [1, 20, 255, 1000, 3000][self.choice.below(5) as usize];
                let target = vec![b'a' + (self.choice.below(26)) as u8; length];
                Operation::CreateSymbolicLink { directory, name, target, token }
            }
            Kind::CreateTemporary => {
                let slot = self.choice.below(SLOTS.into()) as OpenSlot;
                Operation::CreateTemporary { directory, permissions, token, slot }
            }
            _ => Operation::CreateFile { directory, name, permissions, token },
        }
    }

    fn naming(&mut self, kind: Kind, model: &Model) -> Operation {
        let slot = self.choice.below(SLOTS.into()) as OpenSlot;
        match kind {
            Kind::Link => {
                // An open temporary file gets its name like any other.
                let (file, name) = (self.any(model), self.names.any(&self.choice));
                let directory = self.directory_in(model, file.subvolume);
                Operation::Link { file, directory, name }
            }
            Kind::Unlink => {
                let (directory, name) = self.entry(model);
                Operation::Unlink { directory, name }
            }
            Kind::RemoveDirectory => {
                let (directory, name) = self.entry(model);
                Operation::RemoveDirectory { directory, name }
            }
            Kind::Open => Operation::Open { file: self.file(model), slot },
            Kind::Close => Operation::Close { slot },
            _ => {
                let (from, from_name) = self.entry(model);
                let modes = [
                    (6, RenameMode::Replace),
                    (2, RenameMode::NoReplace),
                    (3, RenameMode::Exchange),
                    (2, RenameMode::Whiteout),
                ];
                let mode = self.choice.weighted(&modes);
                let (to, to_name) = if mode == RenameMode::Exchange || self.choice.chance(1, 3) {
                    self.entry(model)
                } else if self.choice.chance(1, 8) {
                    (self.directory(model), self.names.any(&self.choice))
                } else {
                    (self.directory_in(model, from.subvolume), self.names.any(&self.choice))
                };
                Operation::Rename { from, from_name, to, to_name, mode, token: Token(self.next_token) }
            }
        }
    }

    fn data(&mut self, kind: Kind, model: &Model) -> Operation {
        let file = self.file(model);
        let size = model.file(file).and_then(|file| model.node(file)).map_or(0, |node| node.content.size());
        let offset = self.offset(size);
        let length = self
            .choice
            .size(self.limits.write_bytes)
            .min(self.limits.file_bytes.saturating_sub(offset))
            .max(1);
        let pattern = self.pattern();
        match kind {
            Kind::Append if size < self.limits.file_bytes => {
                Operation::Append { file, length: self.choice.size(64 << 10), pattern }
            }
            Kind::WriteOpen => {
                let slot = self.choice.below(SLOTS.into()) as OpenSlot;
                Operation::WriteOpen { slot, offset, length: length.min(64 << 10), pattern }
            }
            Kind::Truncate => {
                let size =
                    if self.choice.chance(1, 3) { self.choice.below(size + 1) } else { self.offset(size) };
                Operation::Truncate { file, size }
            }
            Kind::Allocate => {
                let modes = [
                    AllocateMode::Extend,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::PunchHole,
                    AllocateMode::ZeroRange,
                    AllocateMode::ZeroRangeKeepSize,
                ];
                Operation::Allocate { file, mode: modes[self.choice.below(6) as usize], offset, length }
            }
            Kind::CopyRange => {
                let target = if self.choice.chance(1, 5) { file } else { self.file(model) };
                let (mut source_offset, mut target_offset) = (self.offset(size), self.offset(size));
                let mut length = length;
                if self.choice.chance(2, 3) {
                    (source_offset, target_offset) =
                        (source_offset / 4096 * 4096, target_offset / 4096 * 4096);
                    if self.choice.chance(1, 2) {
                        length = length.next_multiple_of(4096);
                    }
                }
                Operation::CopyRange { source: file, source_offset, target, target_offset, length }
            }
            Kind::Seek => Operation::Seek { file },
            Kind::Read => Operation::Read { file, offset, length },
            _ => {
                let direct = self.limits.direct_every > 0 && self.choice.chance(1, self.limits.direct_every);
                Operation::Write { file, offset, length, pattern, direct }
            }
        }
    }

    fn subvolume_operation(&mut self, kind: Kind, model: &Model) -> Operation {
        let subvolume = self.subvolume(model);
        match kind {
            Kind::CreateSubvolume | Kind::Snapshot if model.subvolumes().len() < self.limits.subvolumes => {
                let (directory, name, token) =
                    (self.directory(model), self.names.any(&self.choice), Token(self.next_token));
                if matches!(kind, Kind::CreateSubvolume) {
                    return Operation::CreateSubvolume { directory, name, token };
                }
                let read_only = self.choice.chance(1, 2);
                Operation::Snapshot { source: subvolume, directory, name, read_only, token }
            }
            Kind::SetDefault => Operation::SetDefault { subvolume },
            Kind::SetReadOnly => {
                let is_read_only =
                    |token| model.root_of(token).is_some_and(|root| model.subvolumes()[&root].read_only);
                Operation::SetReadOnly {
                    subvolume,
                    read_only: subvolume != Token::ROOT && !is_read_only(subvolume),
                }
            }
            _ => self.subvolume_deletion(model),
        }
    }

    fn subvolume_deletion(&self, model: &Model) -> Operation {
        let subvolume = self.subvolume(model);
        let place = model.root_of(subvolume).and_then(|root| model.subvolumes()[&root].place.clone());
        let found = place.and_then(|(directory, name)| {
            let found = self.places.iter().find(|place| model.file(**place) == Some(directory));
            found.map(|place| (*place, name))
        });
        let (directory, name) = found.unwrap_or_else(|| (Place::default(), self.names.any(&self.choice)));
        Operation::DeleteSubvolume { directory, name }
    }

    fn pattern(&self) -> Pattern {
        let seed = self.choice.any();
        match self.choice.below(8) {
            0..=2 => Pattern::Random(seed),
            3..=4 => Pattern::Words(seed),
            5 => Pattern::Same((seed % 3) as u8),
            _ => Pattern::Mixed(seed),
        }
    }

    fn offset(&mut self, size: u64) -> u64 {
        let offset = match self.choice.below(8) {
            0 => 0,
            1 => size,
            2..=3 => self.choice.of(&self.offsets).copied().unwrap_or(0),
            4 => self.choice.below(size + 1) / 4096 * 4096,
            5 => self.choice.below(size + 1),
            6 => size + self.choice.size(1 << 20),
            _ => self.choice.size(self.limits.file_bytes),
        };
        let offset = offset.min(self.limits.file_bytes);
        if self.offsets.len() < 64 {
            self.offsets.push(offset);
        } else {
            let at = self.choice.below(64) as usize;
            self.offsets[at] = offset;
        }
        offset
    }

    fn subvolume(&self, model: &Model) -> Token {
        for _ in 0..8 {
            if let Some(token) =
                self.choice.of(&self.subvolumes).filter(|token| model.root_of(**token).is_some())
            {
                return *token;
            }
        }
        Token::ROOT
    }

    /// A file of a kind, young ones more likely; the root directory where none is found.
    fn find(&self, model: &Model, wanted: impl Fn(NodeKind) -> bool) -> Place {
        for _ in 0..24 {
            let count = self.places.len() as u64;
            let back = self.choice.below(count.min(1 << self.choice.below(14)));
            let mut place = self.places[(count - 1 - back) as usize];
            if self.choice.chance(1, 6) {
                // The same file in a snapshot, or where a snapshot was taken from.
                place.subvolume = self.subvolume(model);
            }
            let node = model.file(place).and_then(|file| model.node(file));
            if node.is_some_and(|node| wanted(node.kind)) {
                return place;
            }
        }
        Place::default()
    }

    fn any(&self, model: &Model) -> Place {
        self.find(model, |_| true)
    }

    fn file(&self, model: &Model) -> Place {
        self.find(model, |kind| kind == NodeKind::File)
    }

    fn directory(&self, model: &Model) -> Place {
        if self.choice.chance(1, 5) {
            Place::default()
        } else {
            self.find(model, |kind| kind == NodeKind::Directory)
        }
    }

    fn directory_in(&self, model: &Model, subvolume: Token) -> Place {
        for _ in 0..6 {
            let place = self.directory(model);
            if place.subvolume == subvolume {
                return place;
            }
        }
        Place { subvolume, object: Token::ROOT }
    }

    /// A name that exists, mostly.
    fn entry(&self, model: &Model) -> (Place, Vec<u8>) {
        for _ in 0..6 {
            let directory = self.directory(model);
            let Some(node) = model.file(directory).and_then(|file| model.node(file)) else { continue };
            let names: Vec<(&Vec<u8>, &NameTarget)> = node.entries.iter().collect();
            if let Some((name, _)) = self.choice.of(&names) {
                return (directory, (*name).clone());
            }
        }
        (Place::default(), self.names.any(&self.choice))
    }
}
