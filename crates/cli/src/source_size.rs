//! How much there is to copy, for a bar that shows how far a copy is. It is counted beside the copy, which
//! does not wait for it, and only where a bar is shown.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::thread;

/// The bytes of all files below a directory of the host, once they are counted.
pub struct SourceSize {
    counted: Arc<Mutex<Option<u64>>>,
    ended: Arc<AtomicBool>,
}

impl SourceSize {
    /// Begins to count.
    pub fn of(root: &Path) -> Self {
        let size = Self { counted: Arc::default(), ended: Arc::default() };
        let (counted, ended, root) = (Arc::clone(&size.counted), Arc::clone(&size.ended), root.to_owned());
        // Without a thread to spare the bar is one without an end.
        drop(thread::try_spawn("counting", move || *counted.lock() = count(root, &ended)));
        size
    }

    /// The bytes, if they are counted by now.
    pub fn bytes(&self) -> Option<u64> {
        *self.counted.lock()
    }
}

impl Drop for SourceSize {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Counts files below a directory, each once however many names it has. What can't be read counts as nothing:
/// the copy tells of it. None once nobody waits for it any more.
fn count(root: PathBuf, ended: &AtomicBool) -> Option<u64> {
    let mut bytes = 0_u64;
    let mut seen = HashSet::new();
    let mut waiting = vec![root];
    while let Some(directory) = waiting.pop() {
        if ended.load(Ordering::Relaxed) {
            return None;
        }
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                waiting.push(entry.path());
            } else if found.is_file() && (found.nlink() == 1 || seen.insert((found.dev(), found.ino()))) {
                // Holes are not copied.
                bytes = bytes.saturating_add(found.len().min(found.blocks().saturating_mul(512)));
            }
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_counts_once() {
        let scratch = vlinder_testkit::Scratch::new("source-size");
        let at = |name: &str| scratch.join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/one"), [0; 1000]).unwrap();
        std::fs::write(at("a/b/two"), [0; 24]).unwrap();
        std::fs::hard_link(at("a/one"), at("a/b/again")).unwrap();
        std::os::unix::fs::symlink("/", at("a/link")).unwrap();
        std::fs::File::create(at("a/hole")).unwrap().set_len(1 << 30).unwrap();
        assert_eq!(count(at("a"), &AtomicBool::new(false)), Some(1024));
        assert_eq!(count(at("none"), &AtomicBool::new(false)), Some(0));
        assert_eq!(count(at("a"), &AtomicBool::new(true)), None);
    }
}
