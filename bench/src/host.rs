//! Where benchmarks run: a directory on tmpfs, removed at the end, and the mounts in it, undone at the end.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::shell;

/// A directory on tmpfs.
pub struct Host {
    directory: PathBuf,
    notes: RefCell<Vec<(String, f64)>>,
}

impl Host {
    /// A fresh directory.
    pub fn prepare() -> Result<Self> {
        let directory = PathBuf::from(format!("/dev/shm/vlinder-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        Ok(Self { directory, notes: RefCell::default() })
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Keeps a number that the running side counted beside its time.
    pub fn note(&self, name: &str, value: f64) {
        self.notes.borrow_mut().push((name.into(), value));
    }

    /// What was noted since this was asked last.
    pub fn take_notes(&self) -> Vec<(String, f64)> {
        self.notes.take()
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let directory = self.directory.display();
        // The benchmark is over: what is left is cleared away as far as it goes.
        let _ = shell(&format!(
            "for m in $(awk '{{print $2}}' /proc/mounts | grep '^{directory}/' | sort -r); do umount -l $m || true; done; rm -rf {directory}"
        ));
    }
}
