//! What is known of the blocks that several subvolumes share, so that they are read and judged once.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_format::{Generation, Key, Level, Logical};

use crate::expected::Expected;
use crate::summary::Summary;

/// What summaries take in memory at most, in bytes. Blocks beyond are walked once for each subvolume.
const MAX_BYTES: usize = 64 << 20;
/// What a summary takes beside its lists, about.
const EACH_BYTES: usize = 1024;

/// What a block and all below it come to.
pub(crate) struct SharedSummary {
    generation: Generation,
    level: Level,
    first_key: Option<Key>,
    pub(crate) summary: Summary,
}

/// The summaries of shared blocks.
#[derive(Default)]
pub(crate) struct Summaries {
    blocks: HashMap<Logical, Arc<SharedSummary>>,
    weight_bytes: usize,
}

impl Summaries {
    /// Whether one more is kept.
    pub(crate) fn has_room(&self) -> bool {
        self.weight_bytes < MAX_BYTES
    }

    /// Keeps what a block comes to.
    pub(crate) fn keep(&mut self, expected: &Expected, summary: Summary) {
        let weight = EACH_BYTES.saturating_add(summary.gathered.weight_bytes());
        if self.weight_bytes.saturating_add(weight) > MAX_BYTES {
            return;
        }
        let Expected { logical, generation, level, first_key, .. } = *expected;
        let shared = SharedSummary { generation, level, first_key, summary };
        if self.blocks.insert(logical, Arc::new(shared)).is_none() {
            self.weight_bytes = self.weight_bytes.saturating_add(weight);
        }
    }

    /// What is known of a block, if it is what this pointer says.
    pub(crate) fn get(&self, expected: &Expected) -> Option<Arc<SharedSummary>> {
        let known = self.blocks.get(&expected.logical)?;
        let is_it = known.generation == expected.generation
            && known.level == expected.level
            && known.first_key == expected.first_key;
        is_it.then(|| Arc::clone(known))
    }
}

#[cfg(test)]
mod tests {
    use vlinder_format::{ItemType, ObjectId, RootId};

    use super::*;
    use crate::collector::Gathered;
    use crate::name_fact::NameSink;
    use crate::summary::Need;

    fn summary(unlinked: usize) -> Summary {
        let mut gathered = Gathered::new(NameSink::Facts(Vec::new()));
        gathered.unlinked = vec![ObjectId(257); unlinked];
        Summary { need: Need::Nothing, head: None, head_ended: false, tail: None, gathered }
    }

    const EXPECTED: Expected = Expected {
        tree: RootId::FS_TREE,
        logical: Logical(4096),
        generation: Generation(7),
        level: Level(1),
        first_key: None,
    };

    #[test]
    fn what_is_known_is_known_of_the_block_that_a_pointer_means() {
        let mut summaries = Summaries::default();
        summaries.keep(&EXPECTED, summary(0));
        assert!(summaries.get(&Expected { tree: RootId(300), ..EXPECTED }).is_some(), "of any tree");
        let key = Key::new(ObjectId(256), ItemType::INODE_ITEM, 0);
        for other in [
            Expected { logical: Logical(8192), ..EXPECTED },
            Expected { generation: Generation(8), ..EXPECTED },
            Expected { level: Level::LEAF, ..EXPECTED },
            Expected { first_key: Some(key), ..EXPECTED },
        ] {
            assert!(summaries.get(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn what_is_kept_has_a_bound_and_is_weighed_once() {
        let mut summaries = Summaries::default();
        summaries.keep(&EXPECTED, summary(10));
        summaries.keep(&EXPECTED, summary(10));
        assert_eq!(summaries.weight_bytes, EACH_BYTES + 80);
        let other = Expected { logical: Logical(8192), ..EXPECTED };
        summaries.keep(&other, summary(MAX_BYTES / 8));
        assert!(summaries.has_room() && summaries.get(&other).is_none());
        summaries.keep(&other, summary((MAX_BYTES - summaries.weight_bytes - EACH_BYTES) / 8));
        assert!(!summaries.has_room() && summaries.get(&other).is_some());
    }
}
