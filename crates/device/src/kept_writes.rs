//! Writes of shared bytes that stay in memory: what is written to be read back soon is copied nowhere.

use std::collections::BTreeMap;
use std::ops::Range;

use vlinder_base::units::Physical;

use crate::request::{Completion, Data, Request};

/// Pieces of a device by place, which never overlap. A piece shares its bytes with the caller that wrote it.
#[derive(Debug, Default)]
pub(crate) struct KeptWrites {
    pieces: BTreeMap<u64, Data>,
    bytes: u64,
}

impl KeptWrites {
    /// Answers a request from memory: a write of shared bytes is kept, so far as no more than `most_bytes`
    /// are, and a piece is read. Gives the request back where the file has to answer it. Before the call, the
    /// caller has written out what [`touching`](Self::touching) gives, so that no kept piece overlaps the
    /// request without being the same range.
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

    /// The pieces that a range touches, as writes to the file; with `but_for_same` not the one that is this
    /// very range. They stay until they are [dropped](Self::drop_pieces).
    pub(crate) fn touching(&self, range: Range<u64>, but_for_same: bool) -> Vec<Request> {
        let before = self.pieces.range(..range.start).next_back();
        let near = before.into_iter().chain(self.pieces.range(range.clone()));
        let touched = near.filter(|(place, data)| {
            let piece = **place..**place + length_of(data);
            piece.end > range.start && !(but_for_same && piece == range)
        });
        touched.map(|(place, data)| Request::write(Physical(*place), data.clone())).collect()
    }

    /// Drops pieces that the file has by now, or that are to be zeros.
    pub(crate) fn drop_pieces(&mut self, places: &[Physical]) {
        for place in places {
            self.remove(place.0);
        }
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
