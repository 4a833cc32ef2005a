//! What a device's cache holds beyond its durable image, and the images that a power cut can make of both.

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceExt, MemoryDevice};

use super::sector::SECTOR_BYTES;

/// The durable image, and the changes since in their order.
#[derive(Debug, Clone)]
pub(crate) struct Unflushed {
    base: MemoryDevice,
    changes: Vec<DeviceChange>,
}

/// One write or discard.
#[derive(Debug, Clone)]
pub(crate) struct DeviceChange {
    pub(crate) offset: Physical,
    pub(crate) content: ChangeContent,
    pub(crate) certainty: Certainty,
}

#[derive(Debug, Clone)]
pub(crate) enum ChangeContent {
    Bytes(Arc<[u8]>),
    Zeros(u64),
}

/// Whether a cut can lose a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// Until the next flush.
    Optional,
    /// For ever: a flush failed after it, or the write itself did.
    Doubtful,
    /// Never.
    Certain,
}

/// How much of a change a cut left.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Nothing,
    Whole,
    /// Torn: these units of so many bytes, counted from the change's start.
    Units {
        unit_bytes: u64,
        kept: Vec<bool>,
    },
}

impl ChangeContent {
    pub(crate) fn length_bytes(&self) -> u64 {
        match self {
            ChangeContent::Bytes(bytes) => bytes.len() as u64,
            ChangeContent::Zeros(length) => *length,
        }
    }
}

impl Unflushed {
    pub(crate) fn new(base: MemoryDevice) -> Self {
        Unflushed { base, changes: Vec::new() }
    }

    pub(crate) fn push(&mut self, offset: Physical, content: ChangeContent, certainty: Certainty) {
        self.changes.push(DeviceChange { offset, content, certainty });
    }

    /// Makes the last change certain, as an acknowledged durable write is.
    pub(crate) fn acknowledge_last(&mut self) {
        if let Some(last) = self.changes.last_mut() {
            last.certainty = Certainty::Certain;
        }
    }

    pub(crate) fn flush(&mut self) {
        for change in &mut self.changes {
            if change.certainty == Certainty::Optional {
                change.certainty = Certainty::Certain;
            }
        }
        // A doubtful change keeps its place before later ones, which would otherwise be overwritten by older
        // bytes.
        let certain = self.changes.iter().take_while(|change| change.certainty == Certainty::Certain).count();
        for change in self.changes.drain(..certain) {
            apply(&self.base, &change, &Part::Whole);
        }
    }

    pub(crate) fn fail_flush(&mut self) {
        for change in &mut self.changes {
            if change.certainty == Certainty::Optional {
                change.certainty = Certainty::Doubtful;
            }
        }
    }

    /// The durable image without the changes.
    pub(crate) fn base(&self) -> &MemoryDevice {
        &self.base
    }

    /// The changes in order.
    pub(crate) fn changes(&self) -> &[DeviceChange] {
        &self.changes
    }

    /// The image after a cut that left these parts (by the number of the change) of what it could lose.
    pub(crate) fn image(&self, part: impl Fn(usize) -> Part) -> MemoryDevice {
        let image = self.base.snapshot();
        for (number, change) in self.changes.iter().enumerate() {
            match change.certainty {
                Certainty::Certain => apply(&image, change, &Part::Whole),
                Certainty::Optional | Certainty::Doubtful => apply(&image, change, &part(number)),
            }
        }
        image
    }
}

fn apply(image: &MemoryDevice, change: &DeviceChange, part: &Part) {
    let length = change.content.length_bytes();
    let (unit_bytes, kept): (u64, &[bool]) = match part {
        Part::Nothing => return,
        Part::Whole => (length.max(SECTOR_BYTES), &[true]),
        Part::Units { unit_bytes, kept } => (*unit_bytes, kept),
    };
    for (number, _) in kept.iter().enumerate().filter(|(_, is_kept)| **is_kept) {
        let start = number as u64 * unit_bytes;
        let end = (start + unit_bytes).min(length);
        let place = Physical(change.offset.0 + start);
        let done = match &change.content {
            _ if start >= end => Ok(()),
            ChangeContent::Bytes(bytes) => image.write_at(place, &bytes[start as usize..end as usize]),
            ChangeContent::Zeros(_) => image.discard(place, end - start),
        };
        // Changes were checked against the device's length when they were recorded.
        assert!(done.is_ok(), "a recorded change does not fit its image: {done:?}");
    }
}
