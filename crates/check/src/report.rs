//! What a check found.

use core::fmt;

use vlinder_format::Place;

use crate::finding::FindingKind;
use crate::severity::Severity;

/// A finding: what, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// Where.
    pub place: Place,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.severity().name();
        if self.place == Place::default() {
            return write!(formatter, "{name} [{}]: {}", self.kind.id(), self.kind);
        }
        write!(formatter, "{name} [{}]: {}: {}", self.kind.id(), self.place, self.kind)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The findings, in the order in which they were made.
    pub findings: Vec<Finding>,
    /// Findings that are not listed, because there are too many.
    pub not_listed: u64,
    /// Tree blocks that were read and judged.
    pub blocks: u64,
    /// Bytes of data that were read and compared with their checksums.
    pub data_bytes: u64,
}

impl Report {
    /// Whether there is nothing to find fault with; warnings are allowed.
    pub fn is_clean(&self) -> bool {
        self.not_listed == 0
            && self.findings.iter().all(|finding| finding.kind.severity() == Severity::Warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_alone_are_clean_if_all_are_listed() {
        let of =
            |kind| Report { findings: vec![Finding { kind, place: Place::default() }], ..Report::default() };
        let warning = FindingKind::QuotaNotCounted {};
        assert_eq!(warning.severity(), Severity::Warning);
        assert!(Report::default().is_clean() && of(warning.clone()).is_clean());
        assert!(!of(FindingKind::RootDirectory {}).is_clean());
        assert!(!Report { not_listed: 1, ..of(warning) }.is_clean());
    }
}
