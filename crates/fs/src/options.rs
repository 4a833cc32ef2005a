//! How a file system is opened: the mount options that concern it, under the names that Btrfs and mount(8)
//! give them.
//!
//! | option | meaning |
//! |---|---|
//! | `ro`, `rw` | for reading only, or for writing too |
//! | `subvol=PATH`, `subvolid=N` | which subvolume is the root; without them the default one |
//! | `compress[=ALG[:LEVEL]]`, `compress-force[=…]` | compress new data; `no` and `none` turn it off |
//! | `nodatacow`, `nodatasum` (`datacow`, `datasum`) | flags of new files |
//! | `max_inline=N` | the largest file that lies in its tree |
//! | `commit=SECONDS` | how often to commit; 0 is the default of 30 |
//! | `idle=SECONDS` | commit, too, when nothing was changed for so long (default 1); 0, and a longer `commit=` before it: only at the interval |
//! | `noatime`, `relatime`, `strictatime`, `nodiratime`, `diratime`, `atime` | which reads leave a trace |
//! | `user_subvol_rm_allowed` | owners may delete their subvolumes |
//! | `owners=keep`, `owners=me` | whose files these are for an ordinary user |
//! | `cache=BYTES`, `dirty=BYTES` | bounds of memory |
//! | `disable=NAME[:NAME…]` | mechanisms turned off for measurement |
//! | `acl`, `noacl` | whether ACLs are honoured |
//! | `discard[=sync\|async]`, `nodiscard` | each commit tells the devices what it freed: holes are punched into an image file |
//! | `notreelog`, `treelog`, `flushoncommit`, `noflushoncommit` | as on Linux |
//! | `rescue=PART[:PART…]` ([`RescueOptions`]) | with `ro` only: what may be damaged |
//! | `degraded` | devices may be missing; what the others have is read then, and nothing written |
//! | `history=DEVID` | of devices that were written to apart from one another, the one that is read; nothing is written |
//! | `ssd`, `space_cache`, … ([`WITHOUT_EFFECT`]) | Linux's, taken and without effect here |

use std::time::Duration;

use vlinder_base::clock::Clock;
use vlinder_base::inode_clock::InodeClock;
use vlinder_base::metrics::Registry;
use vlinder_base::random::{OsRandom, Random};
use vlinder_base::sync::Arc;
use vlinder_codec::compress::Compression;
use vlinder_format::{DeviceId, RootId};
use vlinder_transaction::{Disabled, Rescue};
use vlinder_tree::bootstrap::Leniency;

/// A mount option that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown option {name:?}; see the manual's list of mount options")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A value that the option does not take, or none where it needs one.
    #[error("option {name}: {value:?} is no {expected}")]
    Value {
        /// The name.
        name: String,
        /// What was given.
        value: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// An option that is for reading alone.
    #[error("option {option} is for reading alone; give ro with it")]
    NeedsReadOnly {
        /// The option.
        option: &'static str,
    },
}

/// Options of Linux (without the `no` that some begin with) that may be given and change nothing here: where
/// data lie on the device does not depend on them, there is no v1 space cache, threads are the front end's,
/// and flushes are never left out.
pub const WITHOUT_EFFECT: [&str; 10] = [
    "ssd",
    "ssd_spread",
    "barrier",
    "space_cache",
    "autodefrag",
    "enospc_debug",
    "skip_balance",
    "thread_pool",
    "metadata_ratio",
    "fatal_errors",
];

/// Which subvolume is shown as the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubvolumeChoice {
    /// The one that `set-default` named; the top level at first.
    #[default]
    Default,
    /// The one at this path from the top level.
    Path(Vec<u8>),
    /// The one of this number; 0 is the top level.
    Number(RootId),
}

/// Compression of new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressOption {
    /// The algorithm.
    pub algorithm: Compression,
    /// Its level; 0 is the algorithm's default.
    pub level: i32,
    /// Compress even what does not look compressible (`compress-force`).
    pub force: bool,
}

/// When reading changes a file's access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Where it is not newer than the last change, or a day old (Linux's default).
    #[default]
    Relative,
    /// At each read.
    Strict,
    /// Never.
    Never,
}

/// Whose files these are, for an ordinary user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// As stored.
    #[default]
    Keep,
    /// All are shown as those of the opener, who acts as their owner; what is stored stays.
    Me,
}

/// As Linux: `BTRFS_DEFAULT_COMMIT_INTERVAL`, fs/btrfs/fs.h.
const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(30);

/// How to open a file system. Build it with [`OpenOptions::default`] or [`OpenOptions::parse`].
#[derive(Clone)]
pub struct OpenOptions {
    /// For reading only.
    pub read_only: bool,
    /// The root.
    pub subvolume: SubvolumeChoice,
    /// Compression of new data.
    pub compress: Option<CompressOption>,
    /// New files overwrite in place and have no checksums.
    pub no_data_cow: bool,
    /// New files have no checksums.
    pub no_data_sum: bool,
    /// The largest file that lies in its tree, in bytes; at most a sector.
    pub max_inline_bytes: u64,
    /// How often to commit.
    pub commit_interval: Duration,
    /// A commit follows when nothing was changed for so long, and something before; none without it. Needs
    /// [`background`](Self::background).
    pub idle_commit: Option<Duration>,
    /// A thread commits at the interval, frees the blocks of deleted subvolumes and writes data out. Without
    /// it nothing happens but what callers ask for, so that a simulation replays from its seed.
    pub background: bool,
    /// Which reads leave a trace.
    pub access_times: AccessTimes,
    /// Reads of directories leave a trace.
    pub directory_access_times: bool,
    /// Owners may delete their subvolumes (`user_subvol_rm_allowed`).
    pub user_may_delete_subvolumes: bool,
    /// POSIX ACLs are honoured.
    pub acl: bool,
    /// Freed space is discarded on the devices.
    pub discard: bool,
    /// fsync commits instead of writing a log.
    pub no_tree_log: bool,
    /// A commit writes out all data first.
    pub flush_on_commit: bool,
    /// What may be damaged (`rescue=`).
    pub rescue: RescueOptions,
    /// Devices may be missing: what the others have is read then.
    pub degraded: bool,
    /// Of devices that were written to apart from one another, the one whose history is read; nothing is
    /// written then.
    pub history: Option<DeviceId>,
    /// Whose files these are.
    pub owners: Owners,
    /// Bound of the tree blocks and inodes in memory, in bytes (`cache=`).
    pub cache_bytes: u64,
    /// How many inodes stay in memory though nobody holds them; as many as an eighth of
    /// [`cache_bytes`](Self::cache_bytes) has room for, where none is given.
    pub cached_inodes: Option<usize>,
    /// Bound of the file data that are not written yet, in bytes (`dirty=`). Pending items take a quarter as
    /// much beside.
    pub dirty_bytes: u64,
    /// Mechanisms turned off for measurement (`disable=`).
    pub disabled: Disabled,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where random numbers come from.
    pub random: Arc<dyn Random>,
    /// Where counters are registered.
    pub registry: Arc<Registry>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            subvolume: SubvolumeChoice::Default,
            compress: None,
            no_data_cow: false,
            no_data_sum: false,
            max_inline_bytes: 2048,
            commit_interval: DEFAULT_COMMIT_INTERVAL,
            idle_commit: Some(Duration::from_secs(1)),
            background: true,
            access_times: AccessTimes::Relative,
            directory_access_times: true,
            user_may_delete_subvolumes: false,
            acl: true,
            discard: false,
            no_tree_log: false,
            flush_on_commit: false,
            rescue: RescueOptions::default(),
            degraded: false,
            history: None,
            owners: Owners::Keep,
            cache_bytes: 256 << 20,
            cached_inodes: None,
            dirty_bytes: 64 << 20,
            disabled: Disabled::default(),
            clock: Arc::new(InodeClock::new()),
            random: Arc::new(OsRandom),
            registry: Arc::new(Registry::default()),
        }
    }
}

macro_rules! switches {
    ($($name:ident: $help:literal,)*) => {
        /// The mechanisms that `disable=` switches off, each with what it is.
        pub const SWITCHES: &[(&str, &str)] = &[$((stringify!($name), $help),)*];
        /// What belongs behind `disable=`.
        const SWITCH_LIST: &str = concat!("list of ", $(stringify!($name), ", ",)* "joined by colons");

        fn switch<'a>(disabled: &'a mut Disabled, name: &str) -> Option<&'a mut bool> {
            match name {
                $(stringify!($name) => Some(&mut disabled.$name),)*
                _ => None,
            }
        }
    };
}

switches! {
    seek_cache: "the cached position of SEEK_DATA and SEEK_HOLE",
    delayed_batch: "batches of pending items across gaps of keys",
    block_group_skip: "not writing the items of block groups whose `used` ends a transaction where it began",
    send_readahead: "readahead for send (no send yet)",
    state_trim: "trimming state records in place",
}

/// What belongs behind `rescue=`.
const RESCUE_PARTS: &str = "part of rescue=: all, ignorebadroots, ignoredatacsums, ignoremetacsums, ignoresuperflags, \
                            nologreplay or usebackuproot";

/// What may be damaged, by the parts of `rescue=` (Linux: `fs/btrfs/super.c`, `disk-io.c`, `block-group.c`).
/// All need `ro`; Linux lets `usebackuproot` alone be given without, and then writes on from the older state:
/// here nothing is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RescueOptions {
    /// `usebackuproot`: the state of an earlier commit is shown where that of the last can't be read.
    pub uses_backup_roots: bool,
    /// `nologreplay`: an fsync log is left as it is; shown is the state of the last commit.
    pub leaves_log: bool,
    /// `ignorebadroots`, `ibadroots`: the extent, device, checksum, UUID, free-space and block-group tree may
    /// be missing or have a root block that can't be read. Without a checksum tree data are given out
    /// unverified. The space in use is not known then.
    pub ignores_bad_roots: bool,
    /// `ignoredatacsums`, `idatacsums`: data are given out as they are.
    pub ignores_data_checksums: bool,
    /// `ignoremetacsums`, `imetacsums`: a tree block of which no copy has its checksum is taken, if nothing
    /// else is wrong with it.
    pub ignores_block_checksums: bool,
    /// `ignoresuperflags`, `isuperflags`: flags of the superblock that are not known count for nothing.
    pub ignores_super_flags: bool,
}

impl RescueOptions {
    /// All parts that `rescue=all` stands for. `usebackuproot` is none of them, as on Linux.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            uses_backup_roots: false,
            leaves_log: true,
            ignores_bad_roots: true,
            ignores_data_checksums: true,
            ignores_block_checksums: true,
            ignores_super_flags: true,
        }
    }

    /// Adds a part by its name.
    fn add(&mut self, part: &str) -> Option<()> {
        match part {
            "usebackuproot" => self.uses_backup_roots = true,
            "nologreplay" => self.leaves_log = true,
            "ignorebadroots" | "ibadroots" => self.ignores_bad_roots = true,
            "ignoredatacsums" | "idatacsums" => self.ignores_data_checksums = true,
            "ignoremetacsums" | "imetacsums" => self.ignores_block_checksums = true,
            "ignoresuperflags" | "isuperflags" => self.ignores_super_flags = true,
            "all" => *self = Self { uses_backup_roots: self.uses_backup_roots, ..Self::all() },
            _ => return None,
        }
        Some(())
    }

    pub(crate) const fn of_engine(self) -> Rescue {
        let leniency = Leniency { ignores_checksums: self.ignores_block_checksums, salvages: false };
        Rescue { ignores_bad_roots: self.ignores_bad_roots, leniency }
    }
}

impl OpenOptions {
    /// For reading only.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    /// Whether the options go together.
    ///
    /// # Errors
    /// [`OptionError::NeedsReadOnly`].
    pub fn check(&self) -> Result<(), OptionError> {
        if self.rescue != RescueOptions::default() && !self.read_only {
            return Err(OptionError::NeedsReadOnly { option: "rescue=" });
        }
        Ok(())
    }

    /// The options of a list as mount(8) takes it: `ro,subvol=home,compress=zstd:3`.
    ///
    /// # Errors
    /// An unknown name or a bad value.
    pub fn parse(list: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for option in list.split(',').filter(|option| !option.is_empty()) {
            if !options.apply(option)? {
                let name = option.split('=').next().unwrap_or(option).to_owned();
                return Err(OptionError::Unknown { name });
            }
        }
        Ok(options)
    }

    /// Applies one option, `name` or `name=value`; false if the name is none of these, so that a front end
    /// can look at its own.
    ///
    /// # Errors
    /// A bad value.
    pub fn apply(&mut self, option: &str) -> Result<bool, OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if value.is_none() && self.apply_flag(name) {
            return Ok(true);
        }
        self.apply_value(name, value)
    }

    fn apply_flag(&mut self, name: &str) -> bool {
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "nodatacow" => {
                self.no_data_cow = true;
                self.no_data_sum = true;
                self.compress = None;
            }
            "datacow" => self.no_data_cow = false,
            "nodatasum" => self.no_data_sum = true,
            "datasum" => {
                self.no_data_sum = false;
                self.no_data_cow = false;
            }
            "noatime" => self.access_times = AccessTimes::Never,
            "relatime" | "atime" | "norelatime" | "nostrictatime" => {
                self.access_times = AccessTimes::Relative
            }
            "strictatime" => self.access_times = AccessTimes::Strict,
            "nodiratime" => self.directory_access_times = false,
            "diratime" => self.directory_access_times = true,
            "user_subvol_rm_allowed" => self.user_may_delete_subvolumes = true,
            "nouser_subvol_rm_allowed" => self.user_may_delete_subvolumes = false,
            "acl" => self.acl = true,
            "noacl" => self.acl = false,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "notreelog" => self.no_tree_log = true,
            "treelog" => self.no_tree_log = false,
            "flushoncommit" => self.flush_on_commit = true,
            "degraded" => self.degraded = true,
            "nodegraded" => self.degraded = false,
            "noflushoncommit" => self.flush_on_commit = false,
            _ => return is_without_effect(name),
        }
        true
    }

    fn apply_value(&mut self, name: &str, value: Option<&str>) -> Result<bool, OptionError> {
        let bad = |expected| OptionError::Value {
            name: name.to_owned(),
            value: value.unwrap_or_default().to_owned(),
            expected,
        };
        let given = |expected| value.filter(|value| !value.is_empty()).ok_or_else(|| bad(expected));
        let number = |expected| given(expected)?.parse::<u64>().map_err(|_| bad(expected));
        match name {
            "compress" | "compress-force" => self
                .set_compress(value, name == "compress-force")
                .ok_or_else(|| bad("algorithm: zlib[:1-9], lzo, zstd[:-15-15], no or none"))?,
            "subvol" => {
                self.subvolume = SubvolumeChoice::Path(given("path of a subvolume")?.as_bytes().to_vec())
            }
            "subvolid" => self.subvolume = SubvolumeChoice::Number(RootId(number("number of a subvolume")?)),
            "history" => {
                self.history = Some(DeviceId(number("number of a device")?));
                self.read_only = true;
            }
            "max_inline" => {
                self.max_inline_bytes =
                    parse_bytes(given("number of bytes")?).ok_or_else(|| bad("number of bytes"))?;
            }
            "commit" => {
                let seconds: u32 =
                    given("number of seconds")?.parse().map_err(|_| bad("number of seconds"))?;
                self.commit_interval = Duration::from_secs(if seconds == 0 { 30 } else { seconds.into() });
                // Who wants fewer commits than by default does not want one at each pause.
                if self.commit_interval > DEFAULT_COMMIT_INTERVAL {
                    self.idle_commit = None;
                }
            }
            "idle" => {
                let seconds: u32 =
                    given("number of seconds")?.parse().map_err(|_| bad("number of seconds"))?;
                self.idle_commit = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            "cache" => {
                self.cache_bytes =
                    parse_bytes(given("number of bytes")?).ok_or_else(|| bad("number of bytes"))?
            }
            "dirty" => {
                self.dirty_bytes =
                    parse_bytes(given("number of bytes")?).ok_or_else(|| bad("number of bytes"))?
            }
            "owners" => {
                self.owners = match value {
                    Some("keep") => Owners::Keep,
                    Some("me") => Owners::Me,
                    _ => return Err(bad("word: keep or me")),
                };
            }
            "disable" => self.disable(given("list of mechanisms")?).ok_or_else(|| bad(SWITCH_LIST))?,
            "discard" => match value {
                Some("sync" | "async") => self.discard = true,
                _ => return Err(bad("word: sync or async")),
            },
            "rescue" => {
                for part in given("list of rescue options, joined by colons")?.split(':') {
                    self.rescue.add(part).ok_or_else(|| bad(RESCUE_PARTS))?;
                }
            }
            _ => return Ok(is_without_effect(name)),
        }
        Ok(true)
    }

    fn set_compress(&mut self, value: Option<&str>, force: bool) -> Option<()> {
        let value = value.unwrap_or("zlib");
        if matches!(value, "no" | "none") {
            self.compress = None;
            return Some(());
        }
        let (name, level) = match value.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (value, None),
        };
        let algorithm = Compression::from_name(name)?;
        let level = level.map_or(Some(0), |level| level.parse().ok())?;
        if level != 0 && !algorithm.levels().contains(&level) {
            return None;
        }
        self.compress = Some(CompressOption { algorithm, level, force });
        // As on Linux, compression asks for copies on write with checksums.
        self.no_data_cow = false;
        self.no_data_sum = false;
        Some(())
    }

    fn disable(&mut self, names: &str) -> Option<()> {
        for name in names.split(':') {
            *switch(&mut self.disabled, name)? = true;
        }
        Some(())
    }
}

/// Whether an option of Linux may be given and does nothing here.
fn is_without_effect(name: &str) -> bool {
    let is_known =
        WITHOUT_EFFECT.iter().any(|known| name == *known || name.strip_prefix("no") == Some(known));
    if is_known {
        tracing::debug!(name, "a mount option without effect here");
    }
    is_known
}

/// A number of bytes with an optional suffix k, m, g or t of either case, as Linux's memparse takes it.
fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        b't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_linux_reads_them() {
        let options =
            OpenOptions::parse("ro,subvol=/a/b,compress-force=zstd:9,commit=5,max_inline=1k,noatime")
                .unwrap();
        assert!(options.read_only);
        assert_eq!(options.subvolume, SubvolumeChoice::Path(b"/a/b".to_vec()));
        let compress = CompressOption { algorithm: Compression::Zstd, level: 9, force: true };
        assert_eq!(options.compress, Some(compress));
        assert_eq!(options.commit_interval, Duration::from_secs(5));
        assert_eq!(options.idle_commit, Some(Duration::from_secs(1)));
        let idle = |text: &str| OpenOptions::parse(text).unwrap().idle_commit;
        assert_eq!(
            (idle("idle=0"), idle("commit=31"), idle("commit=0")),
            (None, None, Some(Duration::from_secs(1)))
        );
        assert_eq!(idle("commit=300,idle=5"), Some(Duration::from_secs(5)));
        assert_eq!((options.max_inline_bytes, options.access_times), (1024, AccessTimes::Never));
        let options = OpenOptions::parse("compress,nodatacow").unwrap();
        assert!(options.no_data_cow && options.no_data_sum && options.compress.is_none());
        assert!(OpenOptions::parse("compress=zlib,compress=none").unwrap().compress.is_none());
        assert!(OpenOptions::parse("disable=seek_cache:state_trim").unwrap().disabled.state_trim);
    }

    #[test]
    fn options_of_linux_without_effect_here_are_taken() {
        let list =
            "ssd,nossd,nossd_spread,space_cache=v2,nospace_cache,barrier,autodefrag,thread_pool=4,treelog";
        assert!(OpenOptions::parse(list).is_ok());
        assert!(OpenOptions::parse("discard").unwrap().discard);
        assert!(OpenOptions::parse("discard=async").unwrap().discard);
        assert!(!OpenOptions::parse("discard,nodiscard").unwrap().discard);
    }

    #[test]
    fn parts_of_rescue_are_joined_and_need_ro() {
        let options = OpenOptions::parse("rescue=nologreplay:idatacsums").unwrap();
        assert_eq!(options.check(), Err(OptionError::NeedsReadOnly { option: "rescue=" }));
        assert!(options.rescue.ignores_data_checksums && options.rescue.leaves_log);
        assert_eq!(OpenOptions::parse("rescue=idatacsums,ro").unwrap().check(), Ok(()));
        assert!(!OpenOptions::parse("rescue=nologreplay").unwrap().rescue.ignores_data_checksums);
        for (long, short) in [
            ("ignorebadroots", "ibadroots"),
            ("ignoredatacsums", "idatacsums"),
            ("ignoremetacsums", "imetacsums"),
            ("ignoresuperflags", "isuperflags"),
        ] {
            let parse = |part| OpenOptions::parse(&format!("ro,rescue={part}")).unwrap().rescue;
            assert_eq!(parse(long), parse(short));
            assert_ne!(parse(long), RescueOptions::default(), "{long}");
        }
    }

    #[test]
    fn all_of_rescue_is_what_linux_means_by_it() {
        let all = OpenOptions::parse("ro,rescue=all").unwrap().rescue;
        let joined = "ro,rescue=idatacsums:imetacsums,rescue=isuperflags:ibadroots:nologreplay";
        assert_eq!(all, OpenOptions::parse(joined).unwrap().rescue);
        assert!(!all.uses_backup_roots);
        assert!(OpenOptions::parse("ro,rescue=all:usebackuproot").unwrap().rescue.uses_backup_roots);
    }

    #[test]
    fn unknown_names_and_bad_values_are_errors() {
        assert_eq!(OpenOptions::parse("ro,frob=1").err(), Some(OptionError::Unknown { name: "frob".into() }));
        for bad in [
            "compress=lz4",
            "compress=zlib:10",
            "subvolid=x",
            "commit=-1",
            "owners=you",
            "disable=all",
            "subvol=",
            "rescue=me",
        ] {
            assert!(matches!(OpenOptions::parse(bad).err(), Some(OptionError::Value { .. })), "{bad}");
        }
    }
}
