//! The parent of a snapshot that is sent with clone sources alone.

use vlinder_places::failure::{Failure, Kind};

use super::snapshot::Snapshot;

/// The clone source that differs least from a snapshot, as far as their ancestry tells: the one that it is a
/// snapshot of, or else, of the other snapshots of what it is a snapshot of, the one whose last change is
/// nearest.
///
/// # Errors
/// None of them has to do with it.
pub(super) fn choose<'s>(snapshot: &Snapshot, sources: &'s [Snapshot]) -> Result<&'s Snapshot, Failure> {
    let own = &snapshot.information;
    let origin = Some(own.parent_uuid).filter(|uuid| !uuid.is_nil());
    let is_origin = |source: &&Snapshot| Some(source.information.uuid) == origin;
    let is_sibling = |source: &&Snapshot| origin.is_some() && Some(source.information.parent_uuid) == origin;
    let distance =
        |source: &&Snapshot| source.information.change_transaction.0.abs_diff(own.change_transaction.0);
    let found = sources.iter().find(is_origin);
    found.or_else(|| sources.iter().filter(is_sibling).min_by_key(distance)).ok_or_else(|| {
        Failure::new(Kind::Invalid, "none of the clone sources is related to it, so none can be its parent")
            .at(snapshot.named.place())
            .hint("name the parent with -p, or leave -c out to send it whole")
    })
}
