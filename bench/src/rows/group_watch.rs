//! What each commit makes of the block group items, seen from outside: the superblock is looked at again and
//! again, and when there is a newer one, btrfs-progs reads the items that it leads to.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::shell;

/// Where the superblock's generation lies.
const GENERATION_AT: u64 = (64 << 10) + 72;
/// Commits are a second apart, but for those at the end.
const EACH: Duration = Duration::from_millis(1);

/// Bytes in use, by where a group begins.
type Used = BTreeMap<u64, u64>;

/// A thread that watches an image.
pub struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Watch {
    /// From the image's present superblock on.
    pub fn begin(image: &str) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut states = States::of(image)?;
        let is_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            loop {
                // What was committed before the end was announced is looked at once more.
                let last = is_over.load(Ordering::Relaxed);
                states.look()?;
                if last {
                    return Ok(states.changed);
                }
                std::thread::sleep(EACH);
            }
        });
        Ok(Self { over, thread })
    }

    /// How many groups differed, summed over all commits since the beginning.
    pub fn end(self) -> Result<u64> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the thread that watches the groups panicked"))?
    }
}

/// What was seen so far.
struct States {
    image: String,
    file: File,
    generation: u64,
    used: Used,
    changed: u64,
}

impl States {
    fn of(image: &str) -> Result<Self> {
        let file = File::open(image)?;
        let mut states = Self { image: image.into(), file, generation: 0, used: Used::new(), changed: 0 };
        (states.generation, states.used) = states.read()?;
        states.changed = 0;
        Ok(states)
    }

    fn generation_now(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, GENERATION_AT)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A state that stood still while it was read: what the next commit frees of it is not written to before
    /// that is durable.
    fn read(&self) -> Result<(u64, Used)> {
        for _ in 0..100 {
            let before = self.generation_now()?;
            let items = shell(&format!("btrfs inspect-internal dump-tree -t 11 {}", self.image));
            if self.generation_now()? == before {
                return Ok((before, parse(&items?)?));
            }
        }
        bail!("commits follow one another too fast to be seen")
    }

    fn look(&mut self) -> Result<()> {
        if self.generation_now()? == self.generation {
            return Ok(());
        }
        let (generation, used) = self.read()?;
        if generation != self.generation + 1 {
            bail!("generation {generation} follows {}: one was not seen", self.generation);
        }
        self.changed += used.iter().filter(|(start, used)| self.used.get(start) != Some(used)).count() as u64;
        (self.generation, self.used) = (generation, used);
        Ok(())
    }
}

/// The items of a dump: a line with the key, then one with what it says.
fn parse(dump: &str) -> Result<Used> {
    let mut used = Used::new();
    let mut start = None;
    for line in dump.lines() {
        if let Some((_, rest)) = line.split_once("key (")
            && let Some((object, _)) = rest.split_once(" BLOCK_GROUP_ITEM ")
        {
            start = Some(object.parse::<u64>().with_context(|| line.to_owned())?);
        } else if let Some(start) = start.take() {
            let rest = line.trim().strip_prefix("block group used ").with_context(|| line.to_owned())?;
            let number = rest.split_whitespace().next().with_context(|| line.to_owned())?;
            used.insert(start, number.parse().with_context(|| line.to_owned())?);
        }
    }
    if used.is_empty() {
        bail!("no block group items in: {dump}");
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    #[test]
    fn items_are_read_from_what_btrfs_progs_print() {
        let dump = "block group tree key (BLOCK_GROUP_TREE ROOT_ITEM 0)\nleaf 30458880 items 2\n\
            \titem 0 key (13631488 BLOCK_GROUP_ITEM 8388608) itemoff 16259 itemsize 24\n\
            \t\tblock group used 4096 chunk_objectid 256 flags DATA|single\n\
            \titem 1 key (22020096 BLOCK_GROUP_ITEM 8388608) itemoff 16235 itemsize 24\n\
            \t\tblock group used 16384 chunk_objectid 256 flags SYSTEM|DUP\n";
        let used = super::parse(dump).unwrap();
        assert_eq!(used.into_iter().collect::<Vec<_>>(), [(13631488, 4096), (22020096, 16384)]);
        assert!(super::parse("").is_err());
    }
}
