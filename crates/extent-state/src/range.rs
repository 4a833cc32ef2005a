use std::fmt;

/// The bytes from `start` up to, not including, `end`; `start` is never behind `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// All bytes that have an offset below `u64::MAX`.
    pub const ALL: Self = Self { start: 0, end: u64::MAX };

    /// A range; none if `end` is before `start`.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start <= end { Some(Self { start, end }) } else { None }
    }

    /// `length` bytes from `start` on; none if they end past `u64::MAX`.
    #[must_use]
    pub const fn with_length(start: u64, length: u64) -> Option<Self> {
        match start.checked_add(length) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// The first byte's offset.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The offset behind the last byte.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn length_bytes(self) -> u64 {
        self.end - self.start
    }

    /// Whether it has no byte.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether both have a byte in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// The bytes that both have; none if there is no such byte.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end)).filter(|part| !part.is_empty())
    }
}

/// `[start, end)`.
impl fmt::Display for ByteRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{}, {})", self.start, self.end)
    }
}
