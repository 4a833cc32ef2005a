//! How comments and documents are written: short lines, short table cells, and sentences that name their
//! subject.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::baseline::Measure;
use super::lexer::{comments_of, has_word};
use super::source::{Source, documents};

/// Columns of a line of a comment, or of prose in a document.
const MAX_COLUMNS: usize = 110;
/// Characters of a table cell in a document.
const MAX_CELL: usize = 160;
/// Words that leave open who is meant. Written in parts so that this file does not find itself.
const VAGUE: [&str; 2] = [concat!("who", "ever"), concat!("of ", "whom")];

/// Counts of one crate or document.
#[derive(Default)]
struct Counts {
    long_lines: usize,
    vague: usize,
    headless: usize,
    long_cells: usize,
}

/// All measures of comments, by the directory of the crate, and of documents, by their path.
pub fn measures(root: &Path, sources: &[Source]) -> Result<Vec<Measure>> {
    let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
    for source in sources {
        counts.entry(crate_of(&source.path)).or_default().add_comments(source);
    }
    for path in documents(root)? {
        let text = std::fs::read_to_string(&path)?;
        let name = path.strip_prefix(root)?.display().to_string();
        counts.entry(name).or_default().add_document(&text);
    }
    Ok(counts.iter().flat_map(|(name, counts)| counts.measures(name)).collect())
}

/// `crates/fs` for all files of that crate; the first directory for the others.
pub fn crate_of(path: &Path) -> String {
    let length = if path.starts_with("crates") { 2 } else { 1 };
    path.iter().take(length).collect::<PathBuf>().display().to_string()
}

impl Counts {
    fn add_comments(&mut self, source: &Source) {
        for (line, comment) in source.text.lines().zip(comments_of(&source.text).lines()) {
            let text = comment.trim();
            if text.starts_with("//") && line.trim() == text {
                self.add_line(line, text.trim_start_matches(['/', '!']).trim_start());
            }
        }
    }

    fn add_document(&mut self, text: &str) {
        let mut is_code = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if line.trim_start().starts_with('|') && !is_code {
                self.long_cells +=
                    line.split('|').filter(|cell| cell.trim().chars().count() > MAX_CELL).count();
                self.add_words(line);
            } else if !is_code {
                self.add_line(line, line.trim_start_matches([' ', '-', '*']));
            }
        }
    }

    fn add_line(&mut self, line: &str, text: &str) {
        // A table's rows can't be wrapped.
        let is_wrappable = !text.starts_with('|') && text.contains(' ');
        self.long_lines += usize::from(line.chars().count() > MAX_COLUMNS && is_wrappable);
        self.headless += usize::from(text.starts_with("Who ") && !text.ends_with('?'));
        self.add_words(text);
    }

    fn add_words(&mut self, text: &str) {
        let text = text.to_lowercase();
        self.vague += VAGUE.into_iter().filter(|word| has_word(&text, word)).count();
    }

    fn measures(&self, name: &str) -> Vec<Measure> {
        let measure =
            |what: &str, size, advice| Measure { name: format!("{name}: {what}"), size, limit: 0, advice };
        vec![
            measure("lines of prose over 110 columns", self.long_lines, "wrap the lines at 110 columns"),
            measure("lines with words that leave open who is meant", self.vague, "name the actor"),
            measure("lines that begin with Who", self.headless, "begin with a noun"),
            measure("table cells over 160 characters", self.long_cells, "move the text below the table"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &Counts) -> [usize; 4] {
        [counts.long_lines, counts.vague, counts.headless, counts.long_cells]
    }

    #[test]
    fn comments_are_read_and_strings_are_not() {
        let long = "long word ".repeat(12);
        let text = format!(
            "//! {long}\n/// Who reads waits. {}\nlet text = \"\n// {long}\n\";\nfn f() {{}} // Who\n// Who is it?\n",
            VAGUE[0]
        );
        let mut counts = Counts::default();
        counts.add_comments(&Source::new("crates/x/src/a.rs".into(), text));
        assert_eq!(counted(&counts), [1, 1, 1, 0]);
    }

    #[test]
    fn documents_are_read_without_their_code() {
        let long = "long word ".repeat(12);
        let cell = "x".repeat(161);
        let text = format!("{long}\n```\n{long}\n```\n| {cell} | {} |\n- Who asks\n", VAGUE[1]);
        let mut counts = Counts::default();
        counts.add_document(&text);
        assert_eq!(counted(&counts), [1, 1, 1, 1]);
        assert_eq!(crate_of(Path::new("crates/fs/src/a.rs")), "crates/fs");
        assert_eq!(crate_of(Path::new("testkit/src/a.rs")), "testkit");
    }
}
