//! The tree of files that most rows work on: text, 14 KiB on average, 50,000 files unless FILES says
//! otherwise.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

const WORDS: [&str; 32] = [
    "the",
    "butterfly",
    "rests",
    "on",
    "a",
    "leaf",
    "of",
    "tree",
    "and",
    "every",
    "root",
    "is",
    "written",
    "twice",
    "before",
    "it",
    "flies",
    "checksum",
    "extent",
    "transaction",
    "commit",
    "snapshot",
    "of",
    "light",
    "sector",
    "free",
    "space",
    "between",
    "two",
    "generations",
    "no",
    "byte",
];

/// Repeatable numbers.
pub struct Dice(pub u64);

impl Dice {
    /// The next, below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Makes the tree below `root`, the same every time.
pub fn make(root: &Path, files: u64) -> Result<()> {
    let mut dice = Dice(11);
    let mut text = String::new();
    for number in 0..files {
        let directory = root.join(format!("d{:03}", number / 500)).join(format!("s{:02}", number / 50 % 10));
        if number % 50 == 0 {
            std::fs::create_dir_all(&directory)?;
        }
        text.clear();
        let size = match dice.roll(10) {
            0..=3 => dice.roll(2_000),
            4..=8 => dice.roll(20_000),
            _ => dice.roll(86_000),
        };
        while (text.len() as u64) < size {
            let word = WORDS[usize::try_from(dice.roll(32))?];
            write!(text, "{word} {} ", dice.roll(1000))?;
        }
        std::fs::write(directory.join(format!("file-{number}.txt")), &text)?;
    }
    Ok(())
}
