//! Commands and pieces in the order in which they are sent.

use vlinder_data::StoredRun;

use super::{Piece, RawBytes};

/// A part of a batch.
pub(super) enum BatchItem {
    /// Encoded commands, up to this byte of the batch's.
    Commands(usize),
    /// A piece that becomes commands.
    Piece(Piece),
}

/// Work that one thread does at a time.
#[derive(Default)]
pub(super) struct Batch {
    pub items: Vec<BatchItem>,
    /// Encoded commands, one after the other.
    pub commands: Vec<u8>,
    /// Bytes of memory that the batch takes at most.
    pub cost: u64,
    /// Bytes of files in its pieces.
    pub data_bytes: u64,
}

impl Batch {
    /// Notes that encoded commands were appended.
    pub fn note_commands(&mut self, added: usize) {
        let end = self.commands.len();
        match self.items.last_mut() {
            Some(BatchItem::Commands(last)) => *last = end,
            _ => self.items.push(BatchItem::Commands(end)),
        }
        self.cost = self.cost.saturating_add(added as u64);
    }

    pub fn add(&mut self, piece: Piece) {
        self.cost = self.cost.saturating_add(piece.cost());
        self.data_bytes = self.data_bytes.saturating_add(piece.length);
        self.items.push(BatchItem::Piece(piece));
    }

    /// Whether there is nothing to read.
    pub fn is_ready(&self) -> bool {
        self.items.iter().all(|item| matches!(item, BatchItem::Commands(_)))
    }

    /// What the pieces need of the devices.
    pub fn stored_runs(&self) -> impl Iterator<Item = StoredRun> {
        self.pieces().filter_map(|piece| match piece.raw {
            RawBytes::Disk { start, length, has_checksums } => {
                Some(StoredRun { start, length, has_checksums })
            }
            RawBytes::Item(_) => None,
        })
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.items.iter().filter_map(|item| match item {
            BatchItem::Piece(piece) => Some(piece),
            BatchItem::Commands(_) => None,
        })
    }
}
