//! How far a walk of a tree reads ahead of itself.

/// How far a cursor reads ahead of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readahead {
    /// Not at all: for a look-up of a few neighbours.
    #[default]
    None,
    /// When a leaf is missing, up to so many leaves behind it are read in the same batch.
    Forward(usize),
}
