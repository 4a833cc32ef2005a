//! Which blocks of files show what a block of an earlier file shows.

use std::collections::HashMap;

/// What a block of a file shows, and where it lies, as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Of its bytes; [`NOTHING`] where it has none to share.
    pub(super) content: u64,
    /// Of the extents that it consists of.
    pub(super) layout: u64,
}

/// The content of a block that is a hole, lies in the tree, or is not written yet.
pub(super) const NOTHING: u64 = 0;

/// A run of blocks of a file that show what a run of an earlier file, or an earlier run of the same one,
/// shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SameBlocks {
    /// The number of the file with the earlier run.
    pub(super) source: usize,
    /// Where that begins.
    pub(super) source_block: usize,
    /// Where the run begins.
    pub(super) block: usize,
    /// How many blocks they are.
    pub(super) count: usize,
    /// Both consist of the same extents already.
    pub(super) is_shared: bool,
}

/// All blocks of the files that were looked at: 16 bytes for each, and some 40 for each content.
#[derive(Default)]
pub(super) struct BlockIndex {
    files: Vec<Vec<Block>>,
    /// The first block of each content: file and number.
    first: HashMap<u64, (usize, usize)>,
    /// The content of each layout, which is read once.
    contents: HashMap<u64, u64>,
}

impl BlockIndex {
    /// The content of extents that were read before.
    pub(super) fn content_of(&self, layout: u64) -> Option<u64> {
        self.contents.get(&layout).copied()
    }

    /// Notes what extents hold.
    pub(super) fn note(&mut self, block: Block) {
        self.contents.insert(block.layout, block.content);
    }

    /// Adds the next file; gives the runs of it, of `longest` blocks at most, that are to be found before.
    pub(super) fn add(&mut self, blocks: Vec<Block>, longest: usize) -> Vec<SameBlocks> {
        let number = self.files.len();
        self.files.push(blocks);
        let (mut runs, mut open) = (Vec::new(), None::<SameBlocks>);
        for position in 0..self.files[number].len() {
            let block = self.files[number][position];
            if let Some(run) = &mut open {
                if run.count < longest && self.goes_on(run, number, block) {
                    run.count += 1;
                    continue;
                }
                runs.extend(open.take());
            }
            if block.content == NOTHING {
                continue;
            }
            match self.first.get(&block.content) {
                Some(&(source, source_block)) => {
                    let is_shared = self.files[source][source_block].layout == block.layout;
                    open = Some(SameBlocks { source, source_block, block: position, count: 1, is_shared });
                }
                None => drop(self.first.insert(block.content, (number, position))),
            }
        }
        runs.extend(open);
        runs
    }

    /// Whether a run of file `number` goes on with this block: one operation shares all of it, and the extents
    /// stay in as few pieces as they were.
    fn goes_on(&self, run: &SameBlocks, number: usize, block: Block) -> bool {
        let next = run.source_block + run.count;
        // Of one file, the earlier run ends before the later one begins.
        let is_before = run.source != number || next < run.block;
        is_before
            && block.content != NOTHING
            && self.files[run.source].get(next).is_some_and(|source| {
                source.content == block.content && (source.layout == block.layout) == run.is_shared
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Files of few contents, at few places.
    fn files() -> impl Strategy<Value = Vec<Vec<Block>>> {
        let block = (0..5_u64, 0..4_u64).prop_map(|(content, layout)| Block { content, layout });
        proptest::collection::vec(proptest::collection::vec(block, 0..20), 1..6)
    }

    proptest! {
        #[test]
        fn every_block_with_a_double_before_it_is_in_one_run(files in files(), longest in 1..6_usize) {
            let mut index = BlockIndex::default();
            let mut seen = std::collections::HashSet::new();
            for (number, blocks) in files.iter().enumerate() {
                let runs = index.add(blocks.clone(), longest);
                let mut covered = vec![0; blocks.len()];
                for run in &runs {
                    prop_assert!(run.count >= 1 && run.count <= longest);
                    for step in 0..run.count {
                        let (block, source) = (blocks[run.block + step], files[run.source][run.source_block + step]);
                        prop_assert_eq!(block.content, source.content);
                        prop_assert_eq!(block.layout == source.layout, run.is_shared);
                        covered[run.block + step] += 1;
                    }
                    let earlier_end = run.source_block + run.count;
                    prop_assert!(run.source < number || run.source == number && earlier_end <= run.block);
                }
                for (block, covered) in blocks.iter().zip(covered) {
                    let has_double = block.content != NOTHING && !seen.insert(block.content);
                    prop_assert_eq!(covered, usize::from(has_double), "{:?} {:?}", block, runs);
                }
            }
        }
    }

    #[test]
    fn a_copy_of_a_file_is_one_run() {
        let block = |content, layout| Block { content, layout };
        let mut index = BlockIndex::default();
        assert_eq!(index.add(vec![block(1, 1), block(2, 2), block(3, 3)], 8), []);
        let copy = index.add(vec![block(1, 4), block(2, 5), block(3, 6)], 8);
        let whole = SameBlocks { source: 0, source_block: 0, block: 0, count: 3, is_shared: false };
        assert_eq!(copy, [whole]);
        let snapshot = index.add(vec![block(1, 1), block(2, 2), block(3, 3)], 8);
        assert_eq!(snapshot, [SameBlocks { is_shared: true, ..whole }]);
        // What is shared in part is shared in the rest.
        let half = index.add(vec![block(1, 1), block(2, 9), block(3, 9)], 8);
        let (first, rest) = (
            SameBlocks { count: 1, is_shared: true, ..whole },
            SameBlocks { source_block: 1, block: 1, count: 2, ..whole },
        );
        assert_eq!(half, [first, rest]);
        index.note(block(7, 70));
        assert_eq!((index.content_of(70), index.content_of(71)), (Some(7), None));
    }
}
