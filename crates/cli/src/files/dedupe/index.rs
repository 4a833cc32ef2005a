//! Which blocks of files show what a block of an earlier file shows.

use std::collections::HashMap;

/// A block of a file that has something to share: what it shows, and where that lies, as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Its number in the file.
    pub(super) number: u64,
    /// Of its bytes.
    pub(super) content: u64,
    /// Of the extents that it consists of.
    pub(super) layout: u64,
}

/// A run of blocks of a file that show what a run of an earlier file, or an earlier run of the same one,
/// shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SameBlocks {
    /// The number of the file with the earlier run.
    pub(super) source: usize,
    /// The block that it begins with.
    pub(super) source_block: u64,
    /// The block that the run begins with.
    pub(super) block: u64,
    /// How many blocks they are.
    pub(super) count: u64,
    /// Both consist of the same extents already.
    pub(super) is_shared: bool,
}

impl SameBlocks {
    /// Its halves; none of a single block.
    pub(super) fn halves(self) -> Option<[Self; 2]> {
        let first = self.count / 2;
        let rest = Self {
            source_block: self.source_block + first,
            block: self.block + first,
            count: self.count - first,
            ..self
        };
        (first > 0).then_some([Self { count: first, ..self }, rest])
    }
}

/// All blocks of the files that were looked at: 24 bytes for each, and some 40 for each content and layout.
#[derive(Default)]
pub(super) struct BlockIndex {
    /// In the order of their numbers.
    files: Vec<Vec<Block>>,
    /// The first block of each content: its file, and its place among the file's blocks.
    first: HashMap<u64, (usize, usize)>,
    /// The content of each layout, which is read once.
    contents: HashMap<u64, u64>,
}

/// A run that may go on.
struct OpenRun {
    run: SameBlocks,
    /// Behind the last block of the earlier run, among its file's blocks.
    next: usize,
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

    /// Adds the next file, with its blocks in the order of their numbers; gives the runs of it, of `longest`
    /// blocks at most, that are to be found before.
    pub(super) fn add(&mut self, blocks: Vec<Block>, longest: u64) -> Vec<SameBlocks> {
        let file = self.files.len();
        self.files.push(blocks);
        let (mut runs, mut open) = (Vec::new(), None::<OpenRun>);
        for place in 0..self.files[file].len() {
            let block = self.files[file][place];
            if let Some(open) = &mut open
                && open.run.count < longest
                && self.goes_on(open, file, block)
            {
                open.run.count += 1;
                open.next += 1;
                continue;
            }
            runs.extend(open.take().map(|open| open.run));
            match self.first.get(&block.content) {
                Some(&(source, earlier)) => {
                    let found = self.files[source][earlier];
                    let is_shared = found.layout == block.layout;
                    let (source_block, block) = (found.number, block.number);
                    let run = SameBlocks { source, source_block, block, count: 1, is_shared };
                    open = Some(OpenRun { run, next: earlier + 1 });
                }
                None => drop(self.first.insert(block.content, (file, place))),
            }
        }
        runs.extend(open.map(|open| open.run));
        runs
    }

    /// Whether a run of a file goes on with this block: one operation shares all of it, and the extents stay
    /// in as few pieces as they were.
    fn goes_on(&self, open: &OpenRun, file: usize, block: Block) -> bool {
        let run = &open.run;
        self.files[run.source].get(open.next).is_some_and(|source| {
            // Of one file, the earlier run ends before the later one begins.
            (run.source != file || source.number < run.block)
                && source.number == run.source_block + run.count
                && block.number == run.block + run.count
                && source.content == block.content
                && (source.layout == block.layout) == run.is_shared
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Files of few contents, at few places, with holes.
    fn files() -> impl Strategy<Value = Vec<Vec<Block>>> {
        let block = (0..5_u64, 0..4_u64, 1..3_u64);
        let file = proptest::collection::vec(block, 0..20).prop_map(|blocks| {
            let numbered = |number: &mut u64, (content, layout, step)| {
                *number += step;
                Some(Block { number: *number, content, layout })
            };
            blocks.into_iter().scan(0, numbered).collect()
        });
        proptest::collection::vec(file, 1..6)
    }

    proptest! {
        #[test]
        fn every_block_with_a_double_before_it_is_in_one_run(files in files(), longest in 1..6_u64) {
            let mut index = BlockIndex::default();
            let mut seen = std::collections::HashSet::new();
            for (number, blocks) in files.iter().enumerate() {
                let runs = index.add(blocks.clone(), longest);
                let of = |file: usize, number: u64| files[file].iter().find(|block| block.number == number);
                let mut covered = Vec::new();
                for run in &runs {
                    prop_assert!(run.count >= 1 && run.count <= longest);
                    for step in 0..run.count {
                        let (block, source) = (of(number, run.block + step), of(run.source, run.source_block + step));
                        let (block, source) = (block.unwrap(), source.unwrap());
                        prop_assert_eq!(block.content, source.content);
                        prop_assert_eq!(block.layout == source.layout, run.is_shared);
                        covered.push(block.number);
                    }
                    let earlier_end = run.source_block + run.count;
                    prop_assert!(run.source < number || run.source == number && earlier_end <= run.block);
                }
                let has_double = |block: &&Block| !seen.insert(block.content);
                let doubles: Vec<u64> = blocks.iter().filter(has_double).map(|block| block.number).collect();
                prop_assert_eq!(covered, doubles, "{:?}", runs);
            }
        }
    }

    #[test]
    fn a_copy_of_a_file_is_one_run() {
        let file = |layouts: [u64; 3]| -> Vec<Block> {
            let numbered = layouts.iter().zip(1..);
            numbered.map(|(layout, number)| Block { number, content: number, layout: *layout }).collect()
        };
        let mut index = BlockIndex::default();
        assert_eq!(index.add(file([1, 2, 3]), 8), []);
        let whole = SameBlocks { source: 0, source_block: 1, block: 1, count: 3, is_shared: false };
        assert_eq!(index.add(file([4, 5, 6]), 8), [whole]);
        assert_eq!(index.add(file([1, 2, 3]), 8), [SameBlocks { is_shared: true, ..whole }]);
        // What is shared in part is shared in the rest.
        let first = SameBlocks { count: 1, is_shared: true, ..whole };
        let rest = SameBlocks { source_block: 2, block: 2, count: 2, ..whole };
        assert_eq!(index.add(file([1, 9, 9]), 8), [first, rest]);
        assert_eq!(whole.halves(), Some([SameBlocks { count: 1, ..whole }, rest]));
        assert_eq!(SameBlocks { count: 1, ..whole }.halves(), None);
        index.note(Block { number: 0, content: 7, layout: 70 });
        assert_eq!((index.content_of(70), index.content_of(71)), (Some(7), None));
    }
}
