//! The running hash of a stream, kept in a thread beside the one that applies its commands. Nobody needs it
//! but a checkpoint, and SHA-256 takes longer than reading and checking the stream.

use vlinder_base::channel::{self, Receiver, Sender};
use vlinder_base::thread;

use crate::resume::RunningHash;
use crate::wire::split_command;

/// Bytes of commands that are given to the thread at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that may wait for the thread, or be hashed. A piece has at most `PIECE_BYTES` and one command, or
/// what its giver gathered.
const MAX_UNDER_WAY: usize = 3;

/// Commands one after the other, and the hash that they go on from, if the thread does not have that.
struct CommandRun {
    before: Option<RunningHash>,
    commands: Vec<u8>,
}

/// What the thread makes of a piece: its hash, and the buffer for use again.
struct Hashed {
    hash: RunningHash,
    buffer: Vec<u8>,
}

/// Invariants:
/// 1. `hash` followed by the pieces under way, in their order, followed by `gathered` is what was added.
/// 2. `bytes` counts all of that.
/// 3. `gathered` holds whole commands, with the lengths in their heads as they came.
pub(super) struct CommandHasher {
    hash: RunningHash,
    bytes: u64,
    gathered: Vec<u8>,
    under_way: usize,
    /// None until the first piece is full: a short stream has no thread.
    beside: Option<(Sender<CommandRun>, Receiver<Hashed>)>,
}

impl CommandHasher {
    /// Goes on from a hash.
    pub fn after(hash: RunningHash) -> Self {
        Self { hash, bytes: hash.bytes(), gathered: Vec::new(), under_way: 0, beside: None }
    }

    /// Bytes of all commands so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes in a whole command, head and attributes.
    pub fn add(&mut self, command: &[u8]) {
        self.bytes += command.len() as u64;
        self.gathered.extend_from_slice(command);
        if self.gathered.len() >= PIECE_BYTES {
            self.give();
        }
    }

    /// Takes in commands that were gathered one after the other, and leaves an empty buffer in their place.
    pub fn add_all(&mut self, commands: &mut Vec<u8>) {
        self.bytes += commands.len() as u64;
        if self.gathered.is_empty() {
            std::mem::swap(&mut self.gathered, commands);
        } else {
            self.gathered.extend_from_slice(commands);
            commands.clear();
        }
        if self.gathered.len() >= PIECE_BYTES {
            self.give();
        }
    }

    /// The hash of all commands so far.
    pub fn hash(&mut self) -> RunningHash {
        while self.under_way > 0 {
            self.take();
        }
        add_each(&mut self.hash, &self.gathered);
        self.gathered.clear();
        debug_assert_eq!(self.hash.bytes(), self.bytes, "every command was hashed");
        self.hash
    }

    /// Gives what was gathered to the thread, or hashes it here if the system gives no thread.
    fn give(&mut self) {
        if self.beside.is_none() {
            self.beside = start();
        }
        let spare = if self.under_way >= MAX_UNDER_WAY { self.take() } else { Vec::new() };
        let commands = std::mem::replace(&mut self.gathered, spare);
        let before = (self.under_way == 0).then_some(self.hash);
        let Some((pieces, _)) = &self.beside else {
            add_each(&mut self.hash, &commands);
            return;
        };
        assert!(pieces.send(CommandRun { before, commands }).is_ok(), "the thread ends after its last piece");
        self.under_way += 1;
    }

    /// Waits for the oldest piece under way; gives its buffer, empty.
    fn take(&mut self) -> Vec<u8> {
        let Some((_, hashed)) = &self.beside else { unreachable!("the thread has pieces") };
        let Ok(Hashed { hash, mut buffer }) = hashed.recv() else {
            unreachable!("the thread gives back each piece")
        };
        self.under_way -= 1;
        self.hash = hash;
        buffer.clear();
        buffer
    }
}

/// A thread that hashes pieces until no more can come.
fn start() -> Option<(Sender<CommandRun>, Receiver<Hashed>)> {
    let (pieces, to_do) = channel::unbounded::<CommandRun>();
    let (results, hashed) = channel::unbounded();
    let work = move || {
        let mut hash = RunningHash::default();
        for CommandRun { before, commands } in to_do.iter() {
            hash = before.unwrap_or(hash);
            add_each(&mut hash, &commands);
            if results.send(Hashed { hash, buffer: commands }).is_err() {
                break;
            }
        }
    };
    thread::try_spawn("stream-hash", work).ok().map(|_| (pieces, hashed))
}

/// Takes in commands that lie one after the other.
fn add_each(hash: &mut RunningHash, mut commands: &[u8]) {
    while let Some((command, rest)) = split_command(commands) {
        hash.add(command);
        commands = rest;
    }
}
