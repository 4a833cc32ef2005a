//! Reads tree blocks and judges each by itself and by what its parent says of it.

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::{Checksum, checksum};
use vlinder_format::block::BlockFault;
use vlinder_format::{Block, Damage, Key, Level, Place, RootId};
use vlinder_volume::{BadCopy, CopyFault, ReadRequest, VolumeError};

use crate::check_state::CheckState;
use crate::checked_tree::CheckedTree;
use crate::expected::Expected;
use crate::finding::FindingKind;
use crate::judge::Judge;
use crate::report::Finding;

impl CheckState<'_> {
    /// As [`Judge::read`], with what is found.
    pub(crate) fn read(&mut self, wanted: &[Expected]) -> Vec<Option<Arc<Block>>> {
        let mut findings = Vec::new();
        let blocks = self.judge.read(wanted, &mut findings);
        for finding in findings {
            self.find(finding.kind, finding.place);
        }
        blocks
    }
}

impl Judge<'_> {
    /// The leaf of a tree where a key lies, if the tree has it. What is wrong on the way is found when the
    /// tree is walked.
    pub(crate) fn leaf_of(&self, tree: &CheckedTree, key: &Key) -> Option<Arc<Block>> {
        let CheckedTree { id, logical, generation, level, .. } = *tree;
        let mut expected = Expected { tree: id, logical, generation, level, first_key: None };
        loop {
            let block = self.read(&[expected], &mut Vec::new()).pop().flatten()?;
            if expected.level == Level::LEAF {
                return Some(block);
            }
            // A node without children is not parsed.
            let child = block.child(block.child_slot(key));
            expected = Expected {
                logical: child.logical,
                generation: child.generation,
                level: expected.level.below()?,
                first_key: Some(child.key),
                ..expected
            };
        }
    }

    /// Reads blocks. What is wrong with a copy, or with all of them, is found; a block without a good copy is
    /// none.
    pub(crate) fn read(&self, wanted: &[Expected], findings: &mut Vec<Finding>) -> Vec<Option<Arc<Block>>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let length = usize::try_from(self.rules.node_size).unwrap_or(usize::MAX);
        let requests: Vec<ReadRequest> =
            wanted.iter().map(|expected| ReadRequest { logical: expected.logical, length }).collect();
        let results =
            self.volume.submit_reads(&requests).wait(&mut |number, bytes| match wanted.get(number) {
                Some(expected) => self.judge(bytes, expected),
                None => Err(Damage::new(BlockFault::Checksum, Place::default())),
            });
        let mut blocks = Vec::with_capacity(wanted.len());
        for (expected, result) in wanted.iter().zip(results) {
            blocks.push(match result {
                Ok(verified) => {
                    findings.extend(verified.bad_copies.into_iter().filter(is_bad).map(|bad| Finding {
                        kind: FindingKind::BadCopy {
                            device: bad.failure.device,
                            physical: bad.failure.physical,
                            reason: bad.failure.fault.to_string(),
                        },
                        place: expected.place(),
                    }));
                    Some(verified.value)
                }
                Err(error) => {
                    let kind = FindingKind::BlockUnreadable { reason: reason(&error) };
                    findings.push(Finding { kind, place: expected.place() });
                    None
                }
            });
        }
        blocks
    }

    /// Judges the bytes of one copy.
    fn judge(&self, bytes: Vec<u8>, expected: &Expected) -> Result<Arc<Block>, Damage> {
        let damage = |fault: BlockFault| Damage::new(fault, expected.place());
        let matches = bytes.split_first_chunk::<32>().is_some_and(|(field, covered)| {
            Checksum::from_field(*field).matches(&checksum(self.checksum_kind, covered), self.checksum_kind)
        });
        if !matches {
            return Err(damage(BlockFault::Checksum));
        }
        let block = Block::parse(bytes.into_boxed_slice(), &self.block_rules)
            .map_err(|(fault, slot)| Damage::new(fault, Place { slot, ..expected.place() }))?;
        let fsid = block.header().fsid();
        if fsid != self.superblock.tree_block_uuid() && !self.volume.members().is_seed_block_uuid(fsid) {
            return Err(damage(BlockFault::FileSystem));
        }
        if block.logical() != expected.logical {
            return Err(damage(BlockFault::Address { found: block.logical() }));
        }
        if block.generation() != expected.generation {
            let (found, expected) = (block.generation(), expected.generation);
            return Err(damage(BlockFault::Generation { found, expected }));
        }
        if block.level() != expected.level {
            return Err(damage(BlockFault::Level { found: block.level(), expected: expected.level }));
        }
        if let Some(key) = expected.first_key {
            let found = block.first_key().unwrap_or(Key::MAX);
            if found != key {
                return Err(damage(BlockFault::FirstKey { found, expected: key }));
            }
        }
        if !is_possible_owner(block.owner(), expected.tree) {
            return Err(damage(BlockFault::Owner { found: block.owner(), tree: expected.tree }));
        }
        Ok(Arc::new(block))
    }
}

/// A fixed tree has its own blocks; a subvolume may share those of any other; log and relocation trees have
/// all sorts.
pub(crate) fn is_possible_owner(owner: RootId, tree: RootId) -> bool {
    if tree == RootId::TREE_LOG || tree == RootId::TREE_RELOCATION || owner == RootId::TREE_RELOCATION {
        return tree.is_shareable() || tree == RootId::TREE_LOG;
    }
    owner == tree || (tree.is_subvolume() && owner.is_subvolume())
}

/// Whether a copy that was not good is worth a finding: that a device is absent is found once, and for
/// itself.
pub(crate) fn is_bad(copy: &BadCopy) -> bool {
    !matches!(copy.failure.fault, CopyFault::MissingDevice { .. } | CopyFault::StaleDevice { .. })
}

/// Why a block could not be read, each copy in a few words.
fn reason(error: &VolumeError) -> String {
    match error {
        VolumeError::NoGoodCopy { failures, .. } => {
            let reasons: Vec<String> = failures
                .iter()
                .map(|failure| {
                    format!("device {} at {}: {}", failure.device, failure.physical, failure.fault)
                })
                .collect();
            reasons.join("; ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_of_their_tree_or_of_one_that_may_share_them() {
        let (one, two) = (RootId(256), RootId(257));
        let (log, relocation, data) =
            (RootId::TREE_LOG, RootId::TREE_RELOCATION, RootId::DATA_RELOCATION_TREE);
        for (owner, tree, is_possible) in [
            (one, one, true),
            (RootId::FS_TREE, one, true),
            (one, two, true),
            (RootId::EXTENT_TREE, RootId::EXTENT_TREE, true),
            (RootId::CHECKSUM_TREE, RootId::EXTENT_TREE, false),
            (one, RootId::EXTENT_TREE, false),
            (RootId::EXTENT_TREE, one, false),
            (one, log, true),
            (log, log, true),
            (RootId::EXTENT_TREE, relocation, true),
            (relocation, one, true),
            (relocation, data, true),
            (relocation, RootId::EXTENT_TREE, false),
            (log, one, false),
        ] {
            assert_eq!(is_possible_owner(owner, tree), is_possible, "a block of {owner} in {tree}");
        }
    }
}
