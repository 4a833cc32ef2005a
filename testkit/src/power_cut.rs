//! Every image that a power cut could have left, from the record of a workload.
//!
//! The failure model: a cut loses any subset of the writes (and discards) since the last successful flush,
//! each possibly torn at 512 bytes or 4 KiB; a durable write survives once acknowledged, and what survives
//! keeps its order. A cut can fall on every write of the workload: the one it falls on is in flight, so it
//! too is whole, torn or absent, durable or not. Where the open epoch holds few writes all subsets are made,
//! elsewhere a seeded sample.

use std::collections::HashSet;

use vlinder_base::random::{Random, SeededRandom};
use vlinder_device::MemoryDevice;

use crate::simulated::{Certainty, ChangeContent, Event, LoggedWrite, Part, Recording, Unflushed};

mod image_hash;
use image_hash::HashedBase;

/// How many states to make.
#[derive(Debug, Clone)]
pub struct CutOptions {
    /// Seeds the samples.
    pub seed: u64,
    /// An open epoch of up to so many changes is enumerated whole.
    pub all_subsets_up_to: usize,
    /// Subsets per cut in larger epochs, besides none and all.
    pub samples: usize,
    /// Torn states per cut and unit (512 bytes, 4 KiB).
    pub torn: usize,
    /// Falls on every so many-th change only; 1 is each.
    pub stride: usize,
}

impl Default for CutOptions {
    fn default() -> Self {
        CutOptions { seed: 1, all_subsets_up_to: 8, samples: 24, torn: 2, stride: 1 }
    }
}

/// One state after a cut.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The image that was left.
    pub image: MemoryDevice,
    /// The event (its position in the record) that the cut fell on; the number of events if it came after
    /// all.
    pub event: usize,
    /// The last mark before the cut: what the workload had been promised by then.
    pub mark: Option<u64>,
    /// Successful flushes before the cut.
    pub flushes: u64,
    /// Which changes survived, for a person who has to understand a failure.
    pub description: String,
    /// Hash of the image's content.
    pub hash: u128,
}

/// The states of one recording, in order; see the module. States that equal an earlier one in image and mark
/// are left out.
pub struct PowerCuts {
    options: CutOptions,
    random: SeededRandom,
    events: Vec<Event>,
    next_event: usize,
    changes_seen: usize,
    mark: Option<u64>,
    flushes: u64,
    unflushed: Unflushed,
    hashed: HashedBase,
    ready: std::vec::IntoIter<Cut>,
    made: u64,
    images: HashSet<u128>,
    seen: HashSet<(u128, Option<u64>)>,
}

/// What an enumeration came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// States made, equal ones included.
    pub made: u64,
    /// Distinct images among them.
    pub distinct_images: u64,
    /// Changes (writes and discards) in the record so far.
    pub changes: u64,
}

impl Recording {
    /// Number of successful flushes.
    pub fn flushes(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Flush)).count()
    }

    /// The same record as if the workload had left out its flush with this number (from 0): two epochs become
    /// one. A test of an engine must fail on it, or it proves nothing about that flush.
    #[must_use]
    pub fn without_flush(&self, number: usize) -> Self {
        let mut flushes = 0..;
        let keep = |event: &&Event| !matches!(event, Event::Flush) || flushes.next() != Some(number);
        Recording {
            initial: self.initial.snapshot(),
            events: self.events.iter().filter(keep).cloned().collect(),
        }
    }

    /// The same record as if the device had lost the writes that a function chooses, and had acknowledged
    /// them.
    #[must_use]
    pub fn without_writes(&self, mut is_lost: impl FnMut(&LoggedWrite) -> bool) -> Self {
        let keep = |event: &&Event| !matches!(event, Event::Write(write) if is_lost(write));
        let events = self.events.iter().filter(keep).cloned().collect();
        Recording { initial: self.initial.snapshot(), events }
    }

    /// The same record as if every durable write had been a cached one.
    #[must_use]
    pub fn without_durable_writes(&self) -> Self {
        let weaken = |event: &Event| match event {
            Event::Write(write) => Event::Write(LoggedWrite { durable: false, ..write.clone() }),
            other => other.clone(),
        };
        Recording { initial: self.initial.snapshot(), events: self.events.iter().map(weaken).collect() }
    }
}

impl PowerCuts {
    /// The states of this record.
    pub fn new(recording: &Recording, options: CutOptions) -> Self {
        PowerCuts {
            random: SeededRandom::new(options.seed),
            options,
            events: recording.events.clone(),
            next_event: 0,
            changes_seen: 0,
            mark: None,
            flushes: 0,
            unflushed: Unflushed::new(recording.initial.snapshot()),
            hashed: HashedBase::new(&recording.initial),
            ready: Vec::new().into_iter(),
            made: 0,
            images: HashSet::new(),
            seen: HashSet::new(),
        }
    }

    /// What was made so far.
    pub fn summary(&self) -> Summary {
        Summary {
            made: self.made,
            distinct_images: self.images.len() as u64,
            changes: self.changes_seen as u64,
        }
    }

    /// Takes in events up to the next change and makes the states of a cut that falls on it. False at the
    /// end.
    fn advance(&mut self) -> bool {
        while let Some(event) = self.events.get(self.next_event).cloned() {
            let position = self.next_event;
            self.next_event += 1;
            match event {
                Event::Mark(mark) => self.mark = Some(mark),
                Event::Flush => {
                    self.unflushed.flush();
                    self.hashed = HashedBase::new(self.unflushed.base());
                    self.flushes += 1;
                }
                Event::FailedFlush => self.unflushed.fail_flush(),
                Event::Write(write) => {
                    let Some((place, certainty)) = write.effect() else { continue };
                    // Until it is acknowledged even a durable write may be lost.
                    let in_flight =
                        if certainty == Certainty::Certain { Certainty::Optional } else { certainty };
                    self.unflushed.push(place, ChangeContent::Bytes(write.bytes), in_flight);
                    self.fall_on(position);
                    if certainty == Certainty::Certain {
                        self.unflushed.acknowledge_last();
                    }
                    return true;
                }
                Event::Discard { offset, length_bytes } => {
                    self.unflushed.push(offset, ChangeContent::Zeros(length_bytes), Certainty::Optional);
                    self.fall_on(position);
                    return true;
                }
            }
        }
        if self.next_event == self.events.len() {
            // After everything: what the last marks promise must hold without any help.
            self.next_event += 1;
            self.make_states(self.events.len());
            return true;
        }
        false
    }

    fn fall_on(&mut self, position: usize) {
        self.changes_seen += 1;
        if self.changes_seen.is_multiple_of(self.options.stride.max(1)) {
            self.make_states(position);
        }
    }

    fn make_states(&mut self, position: usize) {
        let optional: Vec<usize> = self
            .unflushed
            .changes()
            .iter()
            .enumerate()
            .filter(|(_, change)| change.certainty != Certainty::Certain)
            .map(|(number, _)| number)
            .collect();
        let mut choices = self.subsets(optional.len());
        choices.extend(self.torn(&optional));
        let mut cuts = Vec::new();
        for parts in choices {
            cuts.extend(self.state(position, &optional, &parts));
        }
        self.ready = cuts.into_iter();
    }

    /// Whole writes only: each choice says for each optional change how much of it is left.
    fn subsets(&self, count: usize) -> Vec<Vec<Part>> {
        let part = |is_kept| if is_kept { Part::Whole } else { Part::Nothing };
        if count <= self.options.all_subsets_up_to {
            return (0..1_u64 << count)
                .map(|mask| (0..count).map(|bit| part(mask >> bit & 1 == 1)).collect())
                .collect();
        }
        let mut choices = vec![vec![Part::Nothing; count], vec![Part::Whole; count]];
        for sample in 0..self.options.samples {
            // Sparse, even and dense subsets in turn: one missing write is another thing than one surviving.
            let share = [1, 8, 15][sample % 3];
            choices.push((0..count).map(|_| part(self.random.next_u64() % 16 < share)).collect());
        }
        choices
    }

    /// States with one torn change: first the one in flight among whole others, then any among any.
    fn torn(&self, optional: &[usize]) -> Vec<Vec<Part>> {
        let mut choices = Vec::new();
        for unit_bytes in [512, 4096] {
            for round in 0..self.options.torn {
                let Some(last) = optional.len().checked_sub(1) else { continue };
                let torn = if round == 0 { last } else { self.below(optional.len()) };
                let length = self.unflushed.changes()[optional[torn]].content.length_bytes();
                let units = length.div_ceil(unit_bytes) as usize;
                if units < 2 {
                    continue;
                }
                let mut parts: Vec<Part> = (0..optional.len())
                    .map(|_| match round == 0 || self.below(2) == 0 {
                        true => Part::Whole,
                        false => Part::Nothing,
                    })
                    .collect();
                parts[torn] = Part::Units { unit_bytes, kept: self.some_units(units) };
                choices.push(parts);
            }
        }
        choices
    }

    /// At least one unit kept and one lost: a prefix (as most disks tear) or any subset.
    fn some_units(&self, units: usize) -> Vec<bool> {
        let edge = 1 + self.below(units - 1);
        if self.below(2) == 0 {
            return (0..units).map(|unit| unit < edge).collect();
        }
        let mut kept: Vec<bool> = (0..units).map(|_| self.below(2) == 0).collect();
        kept[edge] = false;
        kept[self.below(edge)] = true;
        kept
    }

    fn below(&self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    fn state(&mut self, position: usize, optional: &[usize], parts: &[Part]) -> Option<Cut> {
        self.made += 1;
        let part_of = |number: usize| match optional.binary_search(&number) {
            Ok(choice) => parts[choice].clone(),
            Err(_) => Part::Whole,
        };
        let image = self.unflushed.image(part_of);
        let hash = self.hashed.hash_of(&image, self.unflushed.changes());
        self.images.insert(hash);
        if !self.seen.insert((hash, self.mark)) {
            return None;
        }
        let description = self.describe(position, optional, parts);
        Some(Cut { image, event: position, mark: self.mark, flushes: self.flushes, description, hash })
    }

    fn describe(&self, position: usize, optional: &[usize], parts: &[Part]) -> String {
        let mut text =
            format!("cut on event {position}, after flush {} and mark {:?};", self.flushes, self.mark);
        for (number, part) in optional.iter().zip(parts) {
            let change = &self.unflushed.changes()[*number];
            let state = match part {
                Part::Whole => continue,
                Part::Nothing => "lost".to_owned(),
                Part::Units { unit_bytes, kept } => {
                    let left = kept.iter().filter(|is_kept| **is_kept).count();
                    format!("torn ({left} of {} units of {unit_bytes} left)", kept.len())
                }
            };
            text += &format!(" {} bytes at {} {state};", change.content.length_bytes(), change.offset);
        }
        text
    }
}

impl Iterator for PowerCuts {
    type Item = Cut;

    fn next(&mut self) -> Option<Cut> {
        loop {
            if let Some(cut) = self.ready.next() {
                return Some(cut);
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
