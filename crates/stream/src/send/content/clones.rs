//! Where the receiver has the bytes of an extent already.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_forest::{ExtentUser, ExtentUsers, Forest};
use vlinder_format::{Logical, ObjectId, RootId};

use crate::send::{CloneRoot, SendError};

/// An extent with more references is not walked, as in Linux (`SEND_MAX_EXTENT_REFS`). Each reference costs
/// a descent or two, in memory mostly: the walk takes about ten milliseconds at most, once for an extent. A
/// fan of more than that is found by what was sent before.
const MAX_REFERENCES: u64 = 1024;
/// Extents whose runs are remembered, those that were sent and those that a walk found; all are forgotten
/// when there are more.
const MAX_EXTENTS: usize = 1 << 14;
/// Runs that are remembered of what was sent of one extent: which one a clone is taken from matters little.
const MAX_SENT_RUNS: usize = 32;
/// Runs that walks found, over all extents.
const MAX_FOUND_RUNS: usize = 1 << 16;

/// What comes next of a run of an extent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This file shows so many bytes of it already.
    Clone(ExtentUser, u64),
    /// So many bytes are nowhere.
    Write(u64),
}

/// The search for files that show an extent already: of the subvolume that is sent, those that were sent
/// before; of others that the receiver has, all.
pub(crate) struct CloneSearch<'a> {
    users: ExtentUsers<'a>,
    own: RootId,
    others: &'a [CloneRoot<'a>],
    /// The extent that was looked up last, with how many references it has.
    last: (Logical, u64),
    /// What was sent of shared extents.
    sent: HashMap<Logical, Vec<ExtentUser>>,
    /// What walks found.
    found: HashMap<Logical, Arc<[ExtentUser]>>,
    found_runs: usize,
}

impl<'a> CloneSearch<'a> {
    pub fn new(forest: &'a Forest, own: RootId, others: &'a [CloneRoot<'a>]) -> Result<Self, SendError> {
        let within: Vec<RootId> = std::iter::once(own).chain(others.iter().map(|root| root.id)).collect();
        let users = ExtentUsers::within(forest, &within)?;
        let last = (Logical(u64::MAX), 0);
        let (sent, found) = (HashMap::new(), HashMap::new());
        Ok(Self { users, own, others, last, sent, found, found_runs: 0 })
    }

    /// The other subvolume with this number.
    pub fn other(&self, id: RootId) -> Option<&'a CloneRoot<'a>> {
        self.others.iter().find(|root| root.id == id)
    }

    /// What comes next of the bytes of an extent from `start` (in the decompressed extent) on, which are
    /// about to be sent for an offset of an inode.
    pub(super) fn next(
        &mut self,
        extent: Logical,
        start: u64,
        length: u64,
        here: (ObjectId, u64),
    ) -> Result<Next, SendError> {
        let references = self.references(extent)?;
        // One reference is the run that is sent, in whatever trees; only a subvolume beside the parent can
        // show that without having been compared.
        let least = if self.others.len() > 1 { 1 } else { 2 };
        if references < least {
            return Ok(Next::Write(length));
        }
        let sent = self.sent.get(&extent).map_or(&[][..], |runs| &runs[..]);
        let known = choose(sent.iter().copied(), start, length);
        let is_whole = matches!(known, Next::Clone(_, covered) if covered == length);
        if is_whole || references > MAX_REFERENCES {
            return Ok(known);
        }
        let found = self.users_of(extent)?;
        let sent = self.sent.get(&extent).map_or(&[][..], |runs| &runs[..]);
        let found = found.iter().filter_map(|user| self.sent_part(*user, here));
        Ok(choose(sent.iter().copied().chain(found), start, length))
    }

    /// Notes that a run of a file is at the receiver.
    pub(super) fn note_sent(&mut self, extent: Logical, run: ExtentUser) {
        if self.last.0 != extent || self.last.1 < 2 {
            return;
        }
        if self.sent.len() >= MAX_EXTENTS && !self.sent.contains_key(&extent) {
            self.sent.clear();
        }
        let runs = self.sent.entry(extent).or_default();
        let end = |run: &ExtentUser| run.extent_offset.saturating_add(run.length_bytes);
        let is_known =
            runs.iter().any(|known| known.extent_offset <= run.extent_offset && end(known) >= end(&run));
        if !is_known && runs.len() < MAX_SENT_RUNS {
            runs.push(run);
        }
    }

    /// How many references a data extent has.
    fn references(&mut self, extent: Logical) -> Result<u64, SendError> {
        if self.last.0 != extent {
            let found = self.users.extent_at(extent)?.filter(|found| found.start == extent && found.is_data);
            self.last = (extent, found.map_or(0, |found| found.references));
        }
        Ok(self.last.1)
    }

    fn users_of(&mut self, extent: Logical) -> Result<Arc<[ExtentUser]>, SendError> {
        if let Some(found) = self.found.get(&extent) {
            return Ok(Arc::clone(found));
        }
        let users: Arc<[ExtentUser]> = self.users.users(extent)?.into_iter().collect();
        let is_full = self.found_runs.saturating_add(users.len()) > MAX_FOUND_RUNS;
        if is_full || self.found.len() >= MAX_EXTENTS {
            self.found.clear();
            self.found_runs = 0;
        }
        self.found_runs = self.found_runs.saturating_add(users.len());
        self.found.insert(extent, Arc::clone(&users));
        Ok(users)
    }

    /// The part of a run that the receiver has by now.
    fn sent_part(&self, user: ExtentUser, (inode, offset): (ObjectId, u64)) -> Option<ExtentUser> {
        if user.root != self.own {
            return self.other(user.root).map(|_| user);
        }
        if user.inode < inode {
            return Some(user);
        }
        let sent = offset.checked_sub(user.file_offset).filter(|_| user.inode == inode)?;
        Some(ExtentUser { length_bytes: user.length_bytes.min(sent), ..user }).filter(|_| sent > 0)
    }
}

/// The run that has the most bytes from `start` on, or up to where one begins.
fn choose(known: impl Iterator<Item = ExtentUser>, start: u64, length: u64) -> Next {
    let (mut best, mut next) = (None, length);
    for user in known {
        let end = user.extent_offset.saturating_add(user.length_bytes);
        if user.extent_offset <= start && end > start {
            let covered = length.min(end - start);
            if best.is_none_or(|(_, most)| most < covered) {
                best = Some((user, covered));
            }
        } else if user.extent_offset > start {
            next = next.min(user.extent_offset - start);
        }
    }
    match best {
        Some((user, covered)) => {
            // From where the bytes are that are wanted.
            let skip = start - user.extent_offset;
            let file_offset = user.file_offset.saturating_add(skip);
            let length_bytes = user.length_bytes - skip;
            Next::Clone(ExtentUser { file_offset, extent_offset: start, length_bytes, ..user }, covered)
        }
        None => Next::Write(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(inode: u64, file_offset: u64, extent_offset: u64, length_bytes: u64) -> ExtentUser {
        let (root, inode, compressed) = (RootId(256), ObjectId(inode), false);
        ExtentUser { root, inode, file_offset, extent_offset, length_bytes, compressed }
    }

    #[test]
    fn the_longest_run_is_taken_else_bytes_up_to_the_next() {
        let users = [user(300, 1000, 100, 50), user(301, 0, 90, 100), user(302, 7, 400, 10)];
        let chosen = choose(users.into_iter(), 100, 1000);
        assert_eq!(chosen, Next::Clone(user(301, 10, 100, 90), 90));
        assert_eq!(choose(users.into_iter(), 100, 20), Next::Clone(user(300, 1000, 100, 50), 20));
        assert_eq!(choose(users.into_iter(), 190, 1000), Next::Write(210));
        assert_eq!(choose(users.into_iter(), 410, 1000), Next::Write(1000));
        assert_eq!(choose([].into_iter(), 0, 5), Next::Write(5));
    }
}
