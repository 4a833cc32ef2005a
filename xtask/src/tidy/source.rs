//! The files that the rules are about: sources and documents.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::lexer;
use crate::workspace;

/// A source file of the workspace.
pub struct Source {
    /// Path below the root.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Its text with comments and literals blanked out, line for line.
    pub code: String,
}

impl Source {
    /// From a text, for a path below the root.
    pub fn new(path: PathBuf, text: String) -> Self {
        let code = lexer::code_of(&text);
        Source { path, text, code }
    }

    /// True for `crates/NAME/…`.
    pub fn is_in(&self, directory: &str) -> bool {
        self.path.starts_with(directory)
    }

    /// True for files that hold only tests.
    pub fn is_test_file(&self) -> bool {
        let is_test_name =
            |name: &std::ffi::OsStr| name == "tests" || name == "tests.rs" || name == "benches";
        self.path.iter().any(is_test_name)
    }
}

/// All source files of the workspace, sorted by path.
pub fn sources() -> Result<Vec<Source>> {
    let root = workspace::root();
    let mut paths = Vec::new();
    for directory in ["crates", "testkit", "bench", "xtask", "fuzz"] {
        collect_sources(&root.join(directory), &mut paths)?;
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(Source::new(path.strip_prefix(root)?.to_owned(), text))
    };
    paths.iter().map(read).collect()
}

fn collect_sources(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            collect_sources(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

/// Paths of all documents below the root, sorted.
pub fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut documents = Vec::new();
    collect_documents(root, &mut documents)?;
    documents.sort();
    Ok(documents)
}

fn collect_documents(directory: &Path, documents: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        // The forms for changes and issues lie in a hidden directory.
        let is_hidden = path.file_name().is_none_or(|name| {
            name == "target" || name.as_encoded_bytes().starts_with(b".") && name != ".github"
        });
        if is_hidden || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect_documents(&path, documents)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
    Ok(())
}
