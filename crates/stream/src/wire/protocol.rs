//! The versions of the stream.

/// A version of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// What every Linux since 3.6 writes and reads.
    #[default]
    V1,
    /// Since Linux 6.0: birth times, encoded writes (compressed extents as they are), preallocation,
    /// attributes of files.
    V2,
    /// Linux 6.x with debugging on: fs-verity.
    V3,
}

impl Protocol {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    /// Of a number; none for one that this program does not know.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::V1, Self::V2, Self::V3].into_iter().find(|protocol| protocol.number() == number)
    }

    /// True if the bytes of a write go to the end of the command and have no length of their own.
    pub(super) fn has_open_data(self) -> bool {
        self >= Self::V2
    }
}
