//! Where benchmarks run: a directory on tmpfs, removed at the end, and the mounts in it, undone at the end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::shell;
use crate::observation::Observation;

/// A directory on tmpfs.
pub struct Host {
    directory: PathBuf,
    notes: RefCell<Vec<(String, f64)>>,
    observation: Observation,
    expected: RefCell<BTreeSet<String>>,
    /// Whether the directory goes with this value.
    is_owner: bool,
}

impl Host {
    /// A fresh directory.
    pub fn prepare() -> Result<Self> {
        let directory = PathBuf::from(format!("/dev/shm/vlinder-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        Ok(Self {
            directory,
            notes: RefCell::default(),
            observation: Observation::Nothing,
            expected: RefCell::default(),
            is_owner: true,
        })
    }

    /// The directory of another process, which keeps it; runs in it are watched.
    pub fn borrow(directory: PathBuf, observation: Observation) -> Self {
        Self {
            directory,
            notes: RefCell::default(),
            observation,
            expected: RefCell::default(),
            is_owner: false,
        }
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

    /// The running side marks a part of which this is to be counted, in this run or in another.
    pub fn expect(&self, name: &str) {
        self.expected.borrow_mut().insert(name.into());
    }

    /// What is to be counted of the parts that were marked.
    pub fn expected(&self) -> BTreeSet<String> {
        self.expected.borrow().clone()
    }

    /// What is counted of a run beside its time.
    pub fn observation(&self) -> &Observation {
        &self.observation
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Undoes the mounts in it, and ends their servers if a run that failed left some behind.
    pub fn clear_mounts(&self) {
        let directory = self.directory.display();
        // What is left is cleared away as far as it goes.
        let _ = shell(&format!(
            "for m in $(awk '{{print $2}}' /proc/mounts | grep '^{directory}/' | sort -r); do umount -l $m || true; done"
        ));
        // The directory's name has this process's number in it, so no other server is meant.
        let _ = shell(&format!(
            "for p in $(pgrep -f '^[^ ]*(vlinder mount|fuse2fs) .*{directory}/'); do kill -KILL $p || true; done"
        ));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.is_owner {
            return;
        }
        self.clear_mounts();
        // The benchmark is over: what is left is cleared away as far as it goes.
        let _ = shell(&format!("rm -rf {}", self.directory.display()));
    }
}
