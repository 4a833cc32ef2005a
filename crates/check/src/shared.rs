//! What is known of the blocks that several subvolumes share, so that they are read and judged once.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_format::{Generation, Key, Level, Logical};

use crate::reader::Expected;
use crate::summary::Summary;

/// What summaries take in memory at most, in bytes. Blocks beyond are walked once for each subvolume.
const MOST_BYTES: usize = 64 << 20;
/// What a summary takes beside its lists, about.
const EACH_BYTES: usize = 1024;

/// What a block and all below it come to.
pub(crate) struct Shared {
    generation: Generation,
    level: Level,
    first_key: Option<Key>,
    pub(crate) summary: Summary,
}

/// The summaries of shared blocks.
#[derive(Default)]
pub(crate) struct Summaries {
    blocks: HashMap<Logical, Arc<Shared>>,
    weight_bytes: usize,
}

impl Summaries {
    /// Whether one more is kept.
    pub(crate) fn has_room(&self) -> bool {
        self.weight_bytes < MOST_BYTES
    }

    /// Keeps what a block comes to.
    pub(crate) fn keep(&mut self, expected: &Expected, summary: Summary) {
        let weight = EACH_BYTES.saturating_add(summary.gathered.weight_bytes());
        if self.weight_bytes.saturating_add(weight) > MOST_BYTES {
            return;
        }
        let Expected { logical, generation, level, first_key, .. } = *expected;
        let shared = Shared { generation, level, first_key, summary };
        if self.blocks.insert(logical, Arc::new(shared)).is_none() {
            self.weight_bytes = self.weight_bytes.saturating_add(weight);
        }
    }

    /// What is known of a block, if it is what this pointer says.
    pub(crate) fn get(&self, expected: &Expected) -> Option<Arc<Shared>> {
        let known = self.blocks.get(&expected.logical)?;
        let is_it = known.generation == expected.generation
            && known.level == expected.level
            && known.first_key == expected.first_key;
        is_it.then(|| Arc::clone(known))
    }
}
