//! What is read although it is damaged.

/// What is believed although it is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leniency {
    /// Blocks without a right checksum, if nothing else is wrong with them (`rescue=ignoremetacsums`).
    pub ignores_checksums: bool,
    /// A chunk tree of which parts can't be read, and chunks that break a rule
    /// ([`ChunkReading::Salvage`](crate::bootstrap::ChunkReading::Salvage)); leaves in which items alone
    /// break a rule, without those ([`LeftOut`](crate::LeftOut)).
    pub salvages: bool,
}
