//! What the kernel's page cache may hold of a mount: bytes that programs wrote and that were not handed over
//! yet.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The share of all dirty pages that the kernel allows a FUSE mount unless an administrator changed it
/// (`fuse_bdi_init` in Linux's fs/fuse/inode.c).
const USUAL_SHARE: u64 = 100;
/// Of memory, what may be dirty at most by default, with a margin (`vm.dirty_ratio` is 20 percent of what can
/// be used).
const USUAL_RATIO_PERCENT: u64 = 40;

/// More than the lines of `/proc/meminfo` that are looked for, and those before them, have.
const MAX_SHOWN_BYTES: usize = 4096;

/// The page cache as far as it concerns one mount. What the kernel shows is read often, so that takes no
/// memory.
pub(super) struct PageCache {
    /// Files in which the kernel shows the limits of the mount.
    strict_limit: PathBuf,
    max_ratio: PathBuf,
    max_bytes: PathBuf,
}

impl PageCache {
    /// That of the mount with this device number.
    pub(super) fn of((major, minor): (u32, u32)) -> Self {
        let limits = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}"));
        let [strict_limit, max_ratio, max_bytes] =
            ["strict_limit", "max_ratio", "max_bytes"].map(|name| limits.join(name));
        Self { strict_limit, max_ratio, max_bytes }
    }

    /// Bytes that programs may have written before the kernel makes them wait for the server.
    pub(super) fn limit_bytes(&self) -> u64 {
        let number = |path: &PathBuf| with_text(path, |text| text.trim().parse().ok())?;
        let memory = || memory_bytes("/proc/meminfo", &["MemTotal:"]);
        limit_of(number(&self.strict_limit), number(&self.max_ratio), number(&self.max_bytes), memory)
    }

    /// At least as many bytes as the kernel holds of the mount now: what it holds of all file systems.
    pub(super) fn held_bytes(&self) -> u64 {
        memory_bytes("/proc/meminfo", &["Dirty:", "Writeback:", "WritebackTmp:"]).unwrap_or(u64::MAX)
    }
}

/// The limit by what `/sys/class/bdi` shows: with the strict limit the mount has its share of what may be
/// dirty, without it all of that. Kernels before 6.2 show less, and are strict with FUSE.
fn limit_of(
    strict_limit: Option<u64>,
    max_ratio: Option<u64>,
    max_bytes: Option<u64>,
    memory: impl FnOnce() -> Option<u64>,
) -> u64 {
    let is_strict = strict_limit != Some(0);
    match max_bytes {
        Some(share) if is_strict => share,
        Some(share) => (share / max_ratio.unwrap_or(1).max(1)).saturating_mul(100),
        None => {
            let all = memory().unwrap_or(u64::MAX) / 100 * USUAL_RATIO_PERCENT;
            if is_strict { all / USUAL_SHARE * max_ratio.unwrap_or(1).clamp(1, 100) } else { all }
        }
    }
}

/// The sum of lines of `/proc/meminfo`; none where it can't be read or has none of them.
fn memory_bytes(path: &str, names: &[&str]) -> Option<u64> {
    with_text(path, |text| {
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let kibibytes: u64 = words.next()?.parse().ok()?;
            names.contains(&name).then_some(kibibytes << 10)
        });
        lines.reduce(u64::saturating_add)
    })?
}

/// What a short file says, or the first bytes of a longer one; none where it can't be read.
fn with_text<R>(path: impl AsRef<Path>, look: impl FnOnce(&str) -> R) -> Option<R> {
    let mut bytes = [0; MAX_SHOWN_BYTES];
    let mut file = fs::File::open(path).ok()?;
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..]).ok()? {
            0 => break,
            read => length += read,
        }
    }
    Some(look(std::str::from_utf8(&bytes[..length]).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strict_limit_is_the_mounts_share_and_without_it_all() {
        let never = || panic!("the kernel shows the limit");
        assert_eq!(limit_of(Some(1), Some(1), Some(48 << 20), never), 48 << 20);
        assert_eq!(limit_of(Some(0), Some(1), Some(48 << 20), never), 4800 << 20);
        assert_eq!(limit_of(Some(0), Some(50), Some(100 << 20), never), 200 << 20);
        assert_eq!(limit_of(Some(0), Some(0), Some(1 << 20), never), 100 << 20);
    }

    #[test]
    fn an_old_kernels_limit_follows_from_the_memory() {
        assert_eq!(limit_of(None, Some(1), None, || Some(100_000)), 400);
        assert_eq!(limit_of(None, None, None, || Some(100_000)), 400);
        assert_eq!(limit_of(Some(0), Some(1), None, || Some(100_000)), 40_000);
    }

    #[test]
    fn the_memory_that_is_there_is_read() {
        let total = memory_bytes("/proc/meminfo", &["MemTotal:"]).unwrap();
        let free = memory_bytes("/proc/meminfo", &["MemFree:"]).unwrap();
        assert!(total > free && free > 0, "{total} {free}");
        assert_eq!(memory_bytes("/proc/nowhere", &["MemTotal:"]), None);
    }
}
