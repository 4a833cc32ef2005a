//! How bad a finding is.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Linux mends it by itself, or it costs nothing but space: the file system may be used.
    Warning,
    /// Something contradicts something else, or cannot be read.
    Error,
}

impl Severity {
    /// As it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}
