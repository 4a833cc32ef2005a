//! Uses of extents: the uses that are found in trees (claimed) against those that the extent tree has
//! (recorded).

use vlinder_format::{ObjectId, Place, RootId};

use crate::check_state::CheckState;
use crate::extent_use::Use;
use crate::extent_use::User;
use crate::finding::FindingKind;
use crate::ledger::Said;
use crate::roots::Roots;

/// Reports the uses that were collected and are not recorded as they are.
pub(crate) fn explain(context: &mut CheckState<'_>, roots: &Roots) {
    let uses = context.references.take();
    for of_extent in uses.chunk_by(|left, right| left.fact.extent == right.fact.extent) {
        let (made, used): (Vec<Said<Use>>, Vec<Said<Use>>) =
            of_extent.iter().copied().partition(|said| matches!(said.fact.user, User::Made(_)));
        explain_generation(context, &made);
        let is_recorded = used.iter().any(|said| said.recorded > 0);
        for said in used.iter().filter(|said| said.claimed != said.recorded) {
            let extent = said.fact.extent;
            let is_missing = said.claimed > said.recorded;
            let is_unknown = if is_missing {
                context.faulty_extents.has_object(ObjectId(extent.logical.0))
            } else {
                said.fact.user.root().is_some_and(|root| roots.faulty.has_root(root))
            };
            // An item that should say so is there and breaks a rule.
            if is_unknown {
                continue;
            }
            let (logical, user) = (extent.logical, said.fact.user.to_string());
            let (expected, found) = (said.claimed, said.recorded);
            let kind = if !is_recorded {
                FindingKind::ExtentMissing { logical, length: extent.length, user }
            } else if expected > found {
                FindingKind::ReferenceMissing { logical, user, expected, found }
            } else {
                FindingKind::ReferenceExtra { logical, user, expected, found }
            };
            let block = extent.level.map(|_| logical);
            context.list(kind, Place { tree: Some(RootId::EXTENT_TREE), block, ..Place::default() });
        }
    }
}

/// Reports a block that is of another generation than its item says. A block that is not reached, or has no
/// item, is another's matter.
fn explain_generation(context: &mut CheckState<'_>, made: &[Said<Use>]) {
    let is_odd = |said: &&Said<Use>| said.claimed != said.recorded;
    let claimed = made.iter().filter(is_odd).find(|said| said.claimed > 0).map(|said| said.fact);
    let recorded = made.iter().filter(is_odd).find(|said| said.recorded > 0).map(|said| said.fact.user);
    if let (Some(Use { extent, user: User::Made(expected) }), Some(User::Made(found))) = (claimed, recorded) {
        let block = Some(extent.logical);
        let place = Place { tree: Some(RootId::EXTENT_TREE), block, ..Place::default() };
        context.list(FindingKind::BlockGeneration { found, expected }, place);
    }
}
