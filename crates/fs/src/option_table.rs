//! The mount options of a file system, and how a list of them is read.

use std::time::Duration;

use vlinder_codec::compress::Compression;
use vlinder_data::CompressOption;
use vlinder_format::{DeviceId, RootId};

use crate::mount_option::{Apply, MountOption, OptionError, Origin, apply};
use crate::options::{AccessTimes, DEFAULT_COMMIT_INTERVAL, OpenOptions, Owners, SubvolumeChoice};
use crate::rescue::RESCUE_LIST;
use crate::switches::{SWITCH_LIST, switch};

type OpenOption = MountOption<OpenOptions>;

const ALGORITHMS: &str = "algorithm: zlib[:1-9], lzo, zstd[:-15-15], no or none";
const SECONDS: &str = "number of seconds";
const BYTES: &str = "number of bytes";

/// The options that every verb takes which opens an image.
pub const OPEN_OPTIONS: &[OpenOption] = &[
    linux(
        "ro, rw",
        "for reading only, or writing too",
        &[
            ("ro", Apply::Flag(|options| options.read_only = true)),
            ("rw", Apply::Flag(|options| options.read_only = false)),
        ],
    ),
    linux(
        "subvol=PATH, subvolid=N",
        "the subvolume to show, not the default one",
        &[
            (
                "subvol",
                Apply::Value("path of a subvolume", |options, path| {
                    options.subvolume = SubvolumeChoice::Path(path.as_bytes().to_vec());
                    Some(())
                }),
            ),
            (
                "subvolid",
                Apply::Value("number of a subvolume", |options, number| {
                    options.subvolume = SubvolumeChoice::Number(RootId(number.parse().ok()?));
                    Some(())
                }),
            ),
        ],
    ),
    // Those of mount(8) for loop devices.
    linux(
        "offset=BYTES, sizelimit=BYTES",
        "where the file system lies in the image: its first byte, and how many it has",
        &[
            (
                "offset",
                Apply::Value(BYTES, |options, value| set(&mut options.offset, bytes(value).map(Some))),
            ),
            (
                "sizelimit",
                Apply::Value(BYTES, |options, value| set(&mut options.size_limit, bytes(value).map(Some))),
            ),
        ],
    ),
    linux(
        "compress[=ALG[:LEVEL]], compress-force[=...]",
        "compress new data: zlib, lzo, zstd; no and none turn it off",
        &[
            ("compress", Apply::MayHaveValue(ALGORITHMS, |options, value| compress(options, value, false))),
            (
                "compress-force",
                Apply::MayHaveValue(ALGORITHMS, |options, value| compress(options, value, true)),
            ),
        ],
    ),
    linux(
        "nodatacow, nodatasum, datacow, datasum",
        "new files overwrite in place; have no checksums",
        &[
            (
                "nodatacow",
                Apply::Flag(|options| {
                    options.no_data_cow = true;
                    options.no_data_sum = true;
                    options.compress = None;
                }),
            ),
            ("datacow", Apply::Flag(|options| options.no_data_cow = false)),
            ("nodatasum", Apply::Flag(|options| options.no_data_sum = true)),
            (
                "datasum",
                Apply::Flag(|options| {
                    options.no_data_sum = false;
                    options.no_data_cow = false;
                }),
            ),
        ],
    ),
    linux(
        "max_inline=BYTES",
        "the largest file that lies in its tree",
        &[(
            "max_inline",
            Apply::Value(BYTES, |options, value| set(&mut options.max_inline_bytes, bytes(value))),
        )],
    ),
    linux(
        "commit=SECONDS",
        "how often to commit (30)",
        &[(
            "commit",
            Apply::Value(SECONDS, |options, value| {
                let interval = seconds(value)?;
                options.commit_interval = if interval.is_zero() { DEFAULT_COMMIT_INTERVAL } else { interval };
                // Fewer commits than by default are not asked for by those that want one at each pause.
                if options.commit_interval > DEFAULT_COMMIT_INTERVAL {
                    options.idle_commit = None;
                }
                Some(())
            }),
        )],
    ),
    linux(
        "discard[=sync|async], nodiscard",
        "commits tell the devices what they freed",
        &[
            (
                "discard",
                Apply::MayHaveValue("word: sync or async", |options, value| {
                    options.discard = true;
                    matches!(value, None | Some("sync" | "async")).then_some(())
                }),
            ),
            ("nodiscard", Apply::Flag(|options| options.discard = false)),
        ],
    ),
    linux(
        "flushoncommit, noflushoncommit",
        "a commit writes out all data first",
        &[
            ("flushoncommit", Apply::Flag(|options| options.flush_on_commit = true)),
            ("noflushoncommit", Apply::Flag(|options| options.flush_on_commit = false)),
        ],
    ),
    linux(
        "notreelog, treelog",
        "whether fsync may write a log",
        &[
            ("notreelog", Apply::Flag(|options| options.no_tree_log = true)),
            ("treelog", Apply::Flag(|options| options.no_tree_log = false)),
        ],
    ),
    linux(
        "acl, noacl",
        "whether ACLs are honoured",
        &[
            ("acl", Apply::Flag(|options| options.acl = true)),
            ("noacl", Apply::Flag(|options| options.acl = false)),
        ],
    ),
    linux(
        "user_subvol_rm_allowed",
        "owners may delete their subvolumes",
        &[
            ("user_subvol_rm_allowed", Apply::Flag(|options| options.user_may_delete_subvolumes = true)),
            ("nouser_subvol_rm_allowed", Apply::Flag(|options| options.user_may_delete_subvolumes = false)),
        ],
    ),
    linux(
        "rescue=PART[:PART...]",
        "with ro: what may be damaged",
        &[("rescue", Apply::Value(RESCUE_LIST, |options, parts| options.rescue.add(parts)))],
    ),
    linux(
        "noatime, relatime, strictatime, nodiratime, diratime",
        "which reads leave a trace",
        &[
            ("noatime", Apply::Flag(|options| options.access_times = AccessTimes::Never)),
            ("relatime", Apply::Flag(|options| options.access_times = AccessTimes::Relative)),
            ("atime", Apply::Flag(|options| options.access_times = AccessTimes::Relative)),
            ("norelatime", Apply::Flag(|options| options.access_times = AccessTimes::Relative)),
            ("nostrictatime", Apply::Flag(|options| options.access_times = AccessTimes::Relative)),
            ("strictatime", Apply::Flag(|options| options.access_times = AccessTimes::Strict)),
            ("nodiratime", Apply::Flag(|options| options.directory_access_times = false)),
            ("diratime", Apply::Flag(|options| options.directory_access_times = true)),
        ],
    ),
    linux(
        "degraded",
        "devices may be missing: what the others have is read, and what can't be is named",
        &[
            ("degraded", Apply::Flag(|options| options.degraded = true)),
            ("nodegraded", Apply::Flag(|options| options.degraded = false)),
        ],
    ),
    // Where data lie on the device does not depend on these, there is no v1 space cache, threads are the
    // front end's, and flushes are never left out.
    linux(
        "ssd, space_cache, barrier, autodefrag, thread_pool=, ...",
        "taken, and without effect here",
        &[
            ("ssd", Apply::WithoutEffect),
            ("ssd_spread", Apply::WithoutEffect),
            ("barrier", Apply::WithoutEffect),
            ("space_cache", Apply::WithoutEffect),
            ("autodefrag", Apply::WithoutEffect),
            ("enospc_debug", Apply::WithoutEffect),
            ("skip_balance", Apply::WithoutEffect),
            ("thread_pool", Apply::WithoutEffect),
            ("metadata_ratio", Apply::WithoutEffect),
            ("fatal_errors", Apply::WithoutEffect),
        ],
    ),
    vlinder(
        "idle=SECONDS",
        "commit, too, when nothing was changed for so long (1); 0, and a longer commit= before it: never for \
         that reason",
        &[(
            "idle",
            Apply::Value(SECONDS, |options, value| {
                options.idle_commit = Some(seconds(value)?).filter(|pause| !pause.is_zero());
                Some(())
            }),
        )],
    ),
    vlinder(
        "history=DEVID",
        "of devices that were each written to without the others, the one that is read; nothing is written",
        &[(
            "history",
            Apply::Value("number of a device", |options, number| {
                options.history = Some(DeviceId(number.parse().ok()?));
                options.read_only = true;
                Some(())
            }),
        )],
    ),
    vlinder(
        "owners=keep, owners=me, owners=root",
        "whose files these are for an ordinary user: as stored; the user's own; as stored, with the user as their \
         root, alone (no allow_other), and with nosuid and nodev",
        &[(
            "owners",
            Apply::Value("word: keep, me or root", |options, word| {
                let owners = [("keep", Owners::Keep), ("me", Owners::Me), ("root", Owners::Root)];
                options.owners = owners.into_iter().find(|(known, _)| *known == word)?.1;
                Some(())
            }),
        )],
    ),
    vlinder(
        "cache=BYTES, dirty=BYTES",
        "bounds of memory (256m, 64m)",
        &[
            ("cache", Apply::Value(BYTES, |options, value| set(&mut options.cache_bytes, bytes(value)))),
            ("dirty", Apply::Value(BYTES, |options, value| set(&mut options.dirty_bytes, bytes(value)))),
        ],
    ),
    vlinder(
        "disable=NAME[:NAME...]",
        "mechanisms turned off for measurement",
        &[(
            "disable",
            Apply::Value(SWITCH_LIST, |options, names| {
                names.split(':').try_for_each(|name| set(switch(&mut options.disabled, name)?, Some(true)))
            }),
        )],
    ),
];

const fn linux(
    shown: &'static str,
    help: &'static str,
    names: &'static [(&'static str, Apply<OpenOptions>)],
) -> OpenOption {
    MountOption { origin: Origin::Linux, shown, help, names }
}

const fn vlinder(
    shown: &'static str,
    help: &'static str,
    names: &'static [(&'static str, Apply<OpenOptions>)],
) -> OpenOption {
    MountOption { origin: Origin::Vlinder, shown, help, names }
}

impl OpenOptions {
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

    /// Applies one option, `name` or `name=value`; false if the name is none of [`OPEN_OPTIONS`], so that a
    /// front end can look at its own.
    ///
    /// # Errors
    /// A bad value.
    pub fn apply(&mut self, option: &str) -> Result<bool, OptionError> {
        apply(OPEN_OPTIONS, self, option)
    }
}

fn compress(options: &mut OpenOptions, value: Option<&str>, force: bool) -> Option<()> {
    let value = value.unwrap_or("zlib");
    if matches!(value, "no" | "none") {
        options.compress = None;
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
    options.compress = Some(CompressOption { algorithm, level, force });
    // As on Linux, compression asks for copies on write with checksums.
    options.no_data_cow = false;
    options.no_data_sum = false;
    Some(())
}

fn set<T>(field: &mut T, value: Option<T>) -> Option<()> {
    *field = value?;
    Some(())
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: u32 = text.parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

/// A number of bytes with an optional suffix k, m, g or t of either case, as Linux's memparse takes it.
fn bytes(text: &str) -> Option<u64> {
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
    use crate::rescue::RescueOptions;

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
