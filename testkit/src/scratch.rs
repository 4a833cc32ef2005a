//! A directory that goes with the test.

use std::path::{Path, PathBuf};

use vlinder_base::sync::atomic::{AtomicU64, Ordering};

/// An empty directory under the system's temporary one, removed with all it holds when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new directory; `name` only helps to recognise it.
    ///
    /// # Panics
    /// If it can't be made.
    pub fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// As [`Scratch::new`], in memory where the machine has a place for that: for images, which are flushed
    /// often.
    ///
    /// # Panics
    /// If it can't be made.
    pub fn in_memory(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory, name) } else { Self::new(name) }
    }

    fn below(parent: &Path, name: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("vlinder-{name}-{}-{number}", std::process::id()));
        if let Err(error) = std::fs::create_dir(&path) {
            panic!("{} can't be made: {error}", path.display());
        }
        Scratch { path }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is a few files in a temporary directory; a panic in a drop would hide the test's own.
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{} stays behind: {error}", self.path.display());
        }
    }
}
