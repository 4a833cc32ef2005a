//! Writes of shared bytes that stay in memory: what is written to be read back soon is copied nowhere.

use std::collections::BTreeMap;
use std::ops::Range;

use vlinder_base::units::Physical;

use crate::request::{Completion, Data, Request};

/// Pieces of a device by place, which never overlap. They share their bytes with their writer.
#[derive(Debug, Default)]
pub(crate) struct KeptWrites {
    pieces: BTreeMap<u64, Data>,
    bytes: u64,
}

impl KeptWrites {
    /// Answers a request from memory: a write of shared bytes is kept, so far as no more than `most_bytes`
    /// are, and a piece is read. Gives the request back where the file has to answer it; nothing that is kept
    /// touches it then. What the request cuts was taken with [`take`](Self::take) before.
    pub(crate) fn answer(&mut self, request: Request, most_bytes: u64) -> Result<Completion, Request> {
        match request {
            Request::Read { offset, mut buffer } => match self.pieces.get(&offset.0) {
                Some(piece) if piece.as_slice().len() == buffer.len() => {
                    buffer.copy_from_slice(piece.as_slice());
                    Ok(Completion { data: Data::Owned(buffer), result: Ok(()) })
                }
                _ => Err(Request::Read { offset, buffer }),
            },
            Request::Write { offset, data, durability } => {
                self.remove(offset.0);
                let length = length_of(&data);
                if matches!(data, Data::Owned(_)) || self.bytes + length > most_bytes {
                    return Err(Request::Write { offset, data, durability });
                }
                self.bytes += length;
                self.pieces.insert(offset.0, data.clone());
                Ok(Completion { data, result: Ok(()) })
            }
        }
    }

    /// Takes out the pieces that a range touches, to be written to the file; with `but_for_same` not the one
    /// that is this very range.
    pub(crate) fn take(&mut self, range: Range<u64>, but_for_same: bool) -> Vec<Request> {
        let before = self.pieces.range(..range.start).next_back();
        let touching = before.into_iter().chain(self.pieces.range(range.clone()));
        let places = touching.map(|(place, data)| *place..*place + length_of(data));
        let cut = places.filter(|piece| piece.end > range.start && !(but_for_same && *piece == range));
        let cut: Vec<u64> = cut.map(|piece| piece.start).collect();
        let taken = cut.into_iter().filter_map(|place| Some((place, self.remove(place)?)));
        taken.map(|(place, data)| Request::write(Physical(place), data)).collect()
    }

    fn remove(&mut self, place: u64) -> Option<Data> {
        let data = self.pieces.remove(&place)?;
        self.bytes -= length_of(&data);
        Some(data)
    }
}

fn length_of(data: &Data) -> u64 {
    data.as_slice().len() as u64
}
