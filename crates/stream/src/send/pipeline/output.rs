//! Batches written in order, and how many may be under way.

use std::collections::BTreeMap;
use std::io::Write;

use vlinder_data::ContentSource;

use super::batch::Batch;
use super::work::carry_out;
use super::{Crew, Piece};
use crate::send::SendError;
use crate::send::options::Progress;
use crate::wire::{Command, Protocol, StreamWriter, encode};

/// Memory of a batch: small enough that each worker has one, large enough that a device gets many requests
/// at once.
const BATCH_BYTES: u64 = 1 << 20;
/// Memory of all batches that are under way. With the block cache and the rest, a sending process stays
/// below 128 MiB.
const WINDOW_BYTES: u64 = 40 << 20;

/// A batch that was given to the workers.
#[derive(Clone, Copy, Default)]
struct UnderWay {
    cost: u64,
    data_bytes: u64,
}

/// The stream, with what is still to be read for it.
pub(crate) struct Output<'a, W> {
    stream: &'a mut StreamWriter<W>,
    source: &'a ContentSource<'a>,
    crew: Option<Crew>,
    progress: Option<Progress<'a>>,
    open: Batch,
    /// By number, from the one that is written next.
    under_way: BTreeMap<u64, UnderWay>,
    under_way_cost: u64,
    finished: BTreeMap<u64, Result<Vec<u8>, SendError>>,
    next: u64,
    data_bytes: u64,
    is_counting: bool,
}

impl<'a, W: Write> Output<'a, W> {
    pub fn new(
        stream: &'a mut StreamWriter<W>,
        source: &'a ContentSource<'a>,
        crew: Option<Crew>,
        progress: Option<Progress<'a>>,
    ) -> Self {
        Self {
            stream,
            source,
            crew,
            progress,
            open: Batch::default(),
            under_way: BTreeMap::new(),
            under_way_cost: 0,
            finished: BTreeMap::new(),
            next: 0,
            data_bytes: 0,
            is_counting: false,
        }
    }

    /// One that only counts the bytes of files.
    pub fn counting(stream: &'a mut StreamWriter<W>, source: &'a ContentSource<'a>) -> Self {
        Self { is_counting: true, ..Self::new(stream, source, None, None) }
    }

    pub fn protocol(&self) -> Protocol {
        self.stream.protocol()
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The stream's version does not have the command, a value is too long, or an earlier batch failed.
    pub fn put(&mut self, command: &Command<'_>) -> Result<(), SendError> {
        if self.is_counting {
            return Ok(());
        }
        let before = self.open.commands.len();
        encode(command, self.stream.protocol(), &mut self.open.commands)?;
        self.open.note_commands(self.open.commands.len() - before);
        self.close_if_full()
    }

    /// Sends a piece of a file.
    ///
    /// # Errors
    /// An earlier batch failed.
    pub fn send(&mut self, piece: Piece) -> Result<(), SendError> {
        if self.is_counting {
            self.data_bytes = self.data_bytes.saturating_add(piece.length);
            return Ok(());
        }
        self.open.add(piece);
        self.close_if_full()
    }

    /// Writes all that is left, and gives the bytes of files in all commands.
    ///
    /// # Errors
    /// What reading or writing met.
    pub fn finish(mut self) -> Result<u64, SendError> {
        self.close()?;
        while !self.under_way.is_empty() {
            self.write_next()?;
        }
        Ok(self.data_bytes)
    }

    fn close_if_full(&mut self) -> Result<(), SendError> {
        if self.open.cost >= BATCH_BYTES { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<(), SendError> {
        let batch = std::mem::take(&mut self.open);
        let number = self.next.saturating_add(self.under_way.len() as u64);
        let (cost, data_bytes) = (batch.cost, batch.data_bytes);
        self.under_way.insert(number, UnderWay { cost, data_bytes });
        self.under_way_cost = self.under_way_cost.saturating_add(cost);
        let left = match &self.crew {
            Some(crew) if !batch.is_ready() => crew.give(number, batch).err(),
            _ => Some(batch),
        };
        if let Some(batch) = left {
            self.finished.insert(number, carry_out(self.source, self.stream.protocol(), batch));
        }
        while self.is_next_ready() || self.under_way_cost > WINDOW_BYTES {
            self.write_next()?;
        }
        Ok(())
    }

    /// Takes what the workers have finished; tells whether the batch that is written next is there.
    fn is_next_ready(&mut self) -> bool {
        while let Some(done) = self.crew.as_ref().and_then(|crew| crew.take(false)) {
            self.finished.insert(done.number, done.commands);
        }
        self.finished.contains_key(&self.next)
    }

    fn write_next(&mut self) -> Result<(), SendError> {
        let commands = loop {
            if let Some(commands) = self.finished.remove(&self.next) {
                break commands;
            }
            let done = self.crew.as_ref().and_then(|crew| crew.take(true)).ok_or(SendError::WorkerEnded)?;
            self.finished.insert(done.number, done.commands);
        };
        self.stream.put_encoded(&commands?)?;
        let written = self.under_way.remove(&self.next).unwrap_or_default();
        self.next += 1;
        self.under_way_cost = self.under_way_cost.saturating_sub(written.cost);
        self.data_bytes = self.data_bytes.saturating_add(written.data_bytes);
        if let Some(progress) = self.progress {
            progress(self.data_bytes);
        }
        Ok(())
    }
}
