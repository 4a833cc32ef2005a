//! `mkfs`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use vlinder_admin::mkfs::{
    self, ArchiveFault, MkfsError, MkfsOptions, PathFlags, RootDirectory, SourceError, SubvolumeDirectory,
};
use vlinder_base::clock::Timestamp;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::Uuid;
use vlinder_fs::{CompressOption, OpenOptions};
use vlinder_partitions::{ImageName, NamedPart};
use vlinder_places::failure::{ExitStatus, Failure, Kind, text_of};
use vlinder_places::interruption::end_by_signals;
use vlinder_places::mounted;
use vlinder_places::place::image::from_fs;
use vlinder_places::progress::Progress;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::text;
use vlinder_places::units::{Base, Units, parse_size};
use vlinder_places::values::Choice;
use vlinder_volume::Profile;

use crate::source_size::SourceSize;

const FLAGS: fn(&str) -> Result<PathFlags, String> = |text| PathFlags::parse(text.as_ref());
const CHECKSUMS: &[&str] = &["crc32c", "xxhash", "sha256", "blake2"];
const PROFILES: &[&str] = &["single", "dup"];
const COMPRESSIONS: &[&str] = &["zlib", "lzo", "zstd"];

/// Make a file system on a file or block device, empty or filled from a directory or archive.
///
/// A file that does not exist is made where -b or --rootdir says how large. With SOURCE_DATE_EPOCH in the
/// environment and -U given, the same source gives the same bytes, and no time in it is later than that.
///
/// IMAGE@NUMBER is a partition of a disk or disk image, of a GPT or an MBR. Nothing beside it is written, and
/// the partition keeps the type that the table gives it.
///
/// The defaults are those of btrfs-progs 6.19, which Linux mounts from 6.1 on. For older kernels leave
/// features out: -O ^block-group-tree from 4.9 on, -O ^block-group-tree,^free-space-tree from 3.14 on, and
/// ^no-holes besides from 3.10 on.
#[derive(Args, Debug)]
#[command(disable_version_flag = true)]
#[command(after_help = "Examples:\n  vlinder mkfs -b 1G disk.img\n  \
                  vlinder mkfs --rootdir /srv/data --compress zstd --shrink data.img\n  \
                  vlinder mkfs --rootdir /srv/data --compress zstd -m single --dedupe --shrink small.img\n  \
                  vlinder mkfs --rootdir tree disk.raw@2\n  \
                  vlinder mkfs --rootdir target --owner-table devices.txt --all-root root.img\n  \
                  podman export NAME | vlinder mkfs --rootdir - container.img")]
pub struct MkfsArguments {
    /// Overwrite what the target holds.
    #[arg(short, long)]
    force: bool,
    /// The label.
    #[arg(short = 'L', long, value_name = "LABEL", allow_hyphen_values = true)]
    label: Option<OsString>,
    /// The UUID; all other UUIDs are derived from it.
    #[arg(short = 'U', long, value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// The UUID of the device.
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    device_uuid: Option<Uuid>,
    #[command(flatten)]
    format: FormatArguments,
    /// Bytes of the file system, with K, M, G, T behind the number. With --rootdir a file becomes longer
    /// where the source needs more.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    byte_count: Option<u64>,
    /// Make it at this byte of the image, up to its end, or as many bytes as -b says. Nothing else of the
    /// image is written.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    offset: Option<u64>,
    #[command(flatten)]
    source: SourceArguments,
    /// Do not discard what the device held.
    #[arg(short = 'K', long)]
    nodiscard: bool,
    /// Print only errors.
    #[arg(short = 'q', hide = true)]
    quiet_short: bool,
    /// As --verbose.
    #[arg(short = 'v', hide = true)]
    verbose_short: bool,
    /// The file or block device.
    #[arg(required_unless_present = "features", value_name = "IMAGE")]
    image: Option<PathBuf>,
    /// Further ones, so that they can be refused by name.
    #[arg(hide = true)]
    others: Vec<OsString>,
}

/// What the disk format leaves open.
#[derive(Args, Debug)]
struct FormatArguments {
    /// Bytes of a tree block: 4k to 64k.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_small, alias = "node-size")]
    nodesize: Option<u32>,
    /// Bytes of a sector: 4k to 64k.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_small, default_value = "4096")]
    sectorsize: u32,
    /// Checksums: crc32c, xxhash, sha256 or blake2.
    #[arg(long, alias = "checksum", value_name = "ALGORITHM", value_parser = Choice::new(CHECKSUMS, parse_checksum), hide_possible_values = true, default_value = "crc32c")]
    csum: ChecksumKind,
    /// How data are replicated: single or dup.
    #[arg(short, long, value_name = "PROFILE", value_parser = Choice::new(PROFILES, parse_profile), hide_possible_values = true)]
    data: Option<Profile>,
    /// How metadata are replicated: single or dup.
    #[arg(short, long, value_name = "PROFILE", value_parser = Choice::new(PROFILES, parse_profile), hide_possible_values = true)]
    metadata: Option<Profile>,
    /// Data and metadata share chunks, for small devices.
    #[arg(short = 'M', long)]
    mixed: bool,
    /// Features, joined by commas; ^NAME turns one off. list-all shows them.
    #[arg(short = 'O', long, value_name = "FEATURES")]
    features: Vec<String>,
    /// As --features; outdated.
    #[arg(short = 'R', long, value_name = "FEATURES", hide = true)]
    runtime_features: Vec<String>,
}

/// What fills the file system.
#[derive(Args, Debug)]
struct SourceArguments {
    /// Fill it with what is in this directory, or in this archive of tar (plain or compressed with gzip or
    /// zstd; - for standard input), as root would have unpacked it, owners by their numbers. Without -b a new
    /// image becomes as large as that needs and a quarter of it, 8 MiB at least: give -b where more is to
    /// come, for images can't be enlarged yet.
    #[arg(short, long, value_name = "SOURCE", value_hint = clap::ValueHint::AnyPath)]
    rootdir: Option<PathBuf>,
    /// With --rootdir: compress files, with zlib, lzo or zstd, and :LEVEL behind it. Without
    /// --rootdir nothing is compressed: a mount option says how later files are.
    #[arg(long, value_name = "ALGORITHM", value_parser = Choice::new(COMPRESSIONS, parse_compress), hide_possible_values = true)]
    compress: Option<CompressOption>,
    /// With --rootdir: make this directory in it a subvolume, with rw:, ro:, default: or default-ro: before
    /// it.
    #[arg(short = 'u', long, value_name = "PATH", requires = "rootdir")]
    subvol: Vec<OsString>,
    /// With --rootdir: this file or directory in it, and all below, is nodatacow or nodatasum, or both.
    #[arg(long, value_name = "FLAG[,FLAG]:PATH", value_parser = FLAGS, requires = "rootdir")]
    inode_flags: Vec<PathFlags>,
    /// With --rootdir: everything belongs to root in the image. (Under fakeroot and pseudo, owners and
    /// devices are those that these show.)
    #[arg(long, requires = "rootdir", conflicts_with = "owner")]
    all_root: bool,
    /// With --rootdir: everything belongs to this user and group in the image.
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner, requires = "rootdir")]
    owner: Option<(u32, u32)>,
    /// With --rootdir: owners, modes and device nodes by a table, as genext2fs takes it: a line a path, with
    /// type, mode, uid and gid, and of a device major, minor, start, inc, count. It counts before --owner,
    /// and makes what is not there.
    #[arg(long, value_name = "FILE", requires = "rootdir", value_hint = clap::ValueHint::FilePath)]
    owner_table: Option<PathBuf>,
    /// With --rootdir: make the image as small as can be, whatever -b says and however long the file was.
    /// Files can be deleted in it then, but little or nothing more fits into it.
    #[arg(long, requires = "rootdir")]
    shrink: bool,
    /// With --rootdir: store files with the same bytes once. They share their extents, as after cp --reflink,
    /// and each can be changed alone.
    #[arg(long, requires = "rootdir")]
    dedupe: bool,
}

fn parse_uuid(text: &str) -> Result<Uuid, String> {
    match text {
        "random" => Ok(Uuid::NIL),
        _ => Uuid::parse(text).ok_or_else(|| format!("{text:?} is no UUID: 8-4-4-4-12 hexadecimal digits")),
    }
}

fn parse_small(text: &str) -> Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| format!("{text:?} is too large"))
}

fn parse_checksum(text: &str) -> Result<ChecksumKind, String> {
    ChecksumKind::from_name(text).ok_or_else(|| format!("{text:?} is none of crc32c, xxhash, sha256, blake2"))
}

fn parse_profile(text: &str) -> Result<Profile, String> {
    Profile::from_name(text).ok_or_else(|| format!("{text:?} is no profile; give single or dup"))
}

fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    // The largest number is nobody's: chown(2) takes it for "leave as it is".
    let id = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    text.split_once(':')
        .and_then(|(user, group)| Some((id(user)?, id(group)?)))
        .ok_or_else(|| format!("{text:?} is not two numbers with a colon between them, as 1000:1000"))
}

fn parse_compress(text: &str) -> Result<CompressOption, String> {
    let mut options = OpenOptions::default();
    options.apply(&format!("compress={text}")).map_err(|error| error.to_string())?;
    options.compress.ok_or_else(|| "no compression: leave --compress out".to_owned())
}

/// The time for everything that has no other, after
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
fn source_date() -> Result<Option<Timestamp>, Failure> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = value.to_str().and_then(|text| text.parse::<i64>().ok());
    let seconds =
        seconds.ok_or_else(|| Failure::usage("SOURCE_DATE_EPOCH is no number of seconds since 1970"))?;
    Ok(Some(Timestamp::new(seconds, 0)))
}

fn options(arguments: &MkfsArguments) -> Result<MkfsOptions, Failure> {
    let mut features =
        mkfs::MkfsFeatures { mixed_groups: arguments.format.mixed, ..mkfs::MkfsFeatures::default() };
    for list in arguments.format.features.iter().chain(&arguments.format.runtime_features) {
        features.apply(list).map_err(|error| match error {
            mkfs::FeatureError::Unsupported { .. } => Failure::new(Kind::Unsupported, error.to_string()),
            other => Failure::usage(other.to_string()),
        })?;
    }
    let given = |uuid: Option<Uuid>| uuid.filter(|uuid| !uuid.is_nil());
    Ok(MkfsOptions {
        label: arguments.label.as_ref().map(|label| label.as_encoded_bytes().to_vec()).unwrap_or_default(),
        uuid: given(arguments.uuid),
        device_uuid: given(arguments.device_uuid),
        format: mkfs::FormatOptions {
            node_size: arguments.format.nodesize,
            sector_size: arguments.format.sectorsize,
            checksum_kind: arguments.format.csum,
            data_profile: arguments.format.data,
            metadata_profile: arguments.format.metadata,
            features,
        },
        size_bytes: arguments.byte_count,
        force: arguments.force,
        discard: !arguments.nodiscard,
        root_directory: arguments.source.rootdir.as_ref().map(|path| RootDirectory {
            compress: arguments.source.compress,
            subvolumes: arguments.source.subvol.iter().map(|path| SubvolumeDirectory::parse(path)).collect(),
            shrink: arguments.source.shrink,
            dedupe: arguments.source.dedupe,
            inode_flags: arguments.source.inode_flags.clone(),
            owner: arguments.source.owner.or(arguments.source.all_root.then_some((0, 0))),
            owner_table: arguments.source.owner_table.clone(),
            ..RootDirectory::new(path)
        }),
        time: source_date()?,
        threads: None,
        ..MkfsOptions::default()
    })
}

/// Runs the verb.
pub fn run(arguments: &MkfsArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if arguments.format.features.iter().any(|list| list == "list-all") {
        for name in mkfs::MkfsFeatures::names() {
            session.line(name)?;
        }
        return Ok(ExitStatus::Done);
    }
    let image = match &arguments.image {
        Some(image) if arguments.others.is_empty() => image,
        None => return Err(Failure::usage("no image or device was given")),
        Some(_) => {
            return Err(Failure::new(Kind::Unsupported, "file systems on several devices can't be made yet")
                .hint("give one image or device"));
        }
    };
    let options = options(arguments)?;
    if arguments.source.compress.is_some() && options.root_directory.is_none() {
        session.note("--compress is for the files that --rootdir copies; without it nothing is copied");
    }
    let image = &target(image, arguments)?;
    let was_there = ImageName::of(image).file().exists();
    // An empty file system is made at once.
    if options.root_directory.is_some() {
        // What was begun is taken back.
        end_by_signals(&options.interrupted)?;
    }
    let mut progress = Progress::new(session, "copying", None);
    let mut shown = 0;
    let wanted = |root: &&RootDirectory| Progress::is_wanted(session) && root.path.is_dir();
    let source = options.root_directory.as_ref().filter(wanted);
    let size = source.map(|source| SourceSize::of(&source.path));
    let made = mkfs::mkfs(&options, image, &mut |step| {
        if let mkfs::Progress::Copied { data_bytes, .. } = step {
            if let Some(bytes) = size.as_ref().and_then(SourceSize::bytes) {
                progress.expect(bytes);
            }
            progress.add(data_bytes.saturating_sub(shown));
            shown = data_bytes;
        }
    });
    drop(progress);
    let report = made.map_err(|error| explain(error, image, was_there))?;
    for note in &report.notes {
        session.warn(note);
    }
    tell(&report, image, session, arguments.quiet_short)?;
    Ok(ExitStatus::Done)
}

/// The target, with the part of it that is meant.
fn target(image: &Path, arguments: &MkfsArguments) -> Result<PathBuf, Failure> {
    match arguments.offset {
        Some(offset) => Ok(ImageName::range(image, offset, arguments.byte_count)?),
        None => Ok(image.to_owned()),
    }
}

/// What went wrong, with what became of the image.
fn explain(error: MkfsError, image: &Path, was_there: bool) -> Failure {
    let (is_image_full, is_interrupted) =
        (matches!(error, MkfsError::Full { .. }), matches!(error, MkfsError::Interrupted));
    let failure = failure(error).at(image.display());
    match failure.kind {
        _ if is_interrupted && was_there => failure.hint("it holds no file system now"),
        _ if is_interrupted => failure.hint("the image that was begun was removed"),
        Kind::Busy => mounted::advise(failure, image),
        Kind::NoSpace if !was_there && !is_image_full => failure
            .hint("free some space there, or put the image elsewhere; what was begun of it was removed"),
        _ => failure,
    }
}

fn tell(report: &mkfs::Report, image: &Path, session: &Session, quiet: bool) -> Result<(), Failure> {
    let parameters = &report.parameters;
    let features: Vec<String> = {
        let (incompat, read_only) = (parameters.features.incompat(), parameters.features.compat_read_only());
        incompat.names().into_iter().chain(read_only.names()).collect()
    };
    let (data, metadata) = (parameters.data_profile.name(), parameters.metadata_profile.name());
    if session.json {
        return session.object(json!({
            "image": report::name(image.as_os_str().as_encoded_bytes()),
            "label": report::name(parameters.label.as_bytes()),
            "fsid": parameters.uuids.fsid.to_string(),
            "total_bytes": report.size_bytes,
            "node_size_bytes": parameters.node_size,
            "sector_size_bytes": parameters.sector_size,
            "checksum_kind": parameters.checksum_kind.name(),
            "data_profile": data,
            "metadata_profile": metadata,
            "features": features,
            "inodes": report.copied.inodes,
            "hard_links": report.copied.hard_links,
            "data_bytes": report.copied.data_bytes,
            "shared_bytes": report.copied.shared_bytes,
        }));
    }
    if quiet {
        return Ok(());
    }
    let size = Units::Human(Base::Binary).show(report.size_bytes);
    session.tell(format!("Label:              {}", text::escaped(parameters.label.as_bytes())))?;
    session.tell(format!("UUID:               {}", parameters.uuids.fsid))?;
    session.tell(format!("Node size:          {}", parameters.node_size))?;
    session.tell(format!("Sector size:        {}", parameters.sector_size))?;
    session.tell(format!("Filesystem size:    {size}"))?;
    session.tell(format!("Profiles:           data {data}, metadata {metadata}"))?;
    let (incompat, read_only) = (parameters.features.incompat(), parameters.features.compat_read_only());
    let as_options: Vec<&str> = incompat.option_names().chain(read_only.option_names()).collect();
    session.tell(format!("Features:           {}", as_options.join(", ")))?;
    session.tell(format!("Checksum:           {}", parameters.checksum_kind.name()))?;
    if report.copied.inodes > 0 {
        let data = Units::Human(Base::Binary).show(report.copied.data_bytes);
        session
            .tell(format!("Copied:             {} files and directories, {data}", report.copied.inodes))?;
    }
    if report.copied.shared_bytes > 0 {
        let shared = Units::Human(Base::Binary).show(report.copied.shared_bytes);
        session.tell(format!("Stored once:        {shared} of that in files equal to others"))?;
    }
    Ok(())
}

fn failure(error: MkfsError) -> Failure {
    match error {
        MkfsError::Device(error) => error.into(),
        MkfsError::Partition(error) => error.into(),
        MkfsError::Volume(error) => error.into(),
        MkfsError::Filesystem(error) => from_fs(error, "the new file system"),
        MkfsError::Write { path, source } => from_fs(source, format!("{path}, in the new file system")),
        MkfsError::InUse { target, name, offset } => {
            Failure::new(Kind::Exists, format!("it seems to hold {name} (a mark at byte {offset})"))
                .hint(match vlinder_partitions::table_on(Path::new(&target)) {
                    Some(table) if ImageName::of(Path::new(&target)).part() == NamedPart::Unsaid => format!(
                        "it has {table}; name a partition as IMAGE@NUMBER, or give -f to overwrite all of it"
                    ),
                    _ => "give -f to overwrite it".to_owned(),
                })
                .at(target)
        }
        MkfsError::NoTarget { target } => {
            Failure::new(Kind::NotFound, "it does not exist, and nothing says how large it should be")
                .at(target)
                .hint("make it first, or give its size: -b 1G")
        }
        MkfsError::Target { target, source } => Failure::host(&source, target),
        MkfsError::NoThreads { source } => Failure::no_threads(&source),
        MkfsError::SourceDirectory { path, source } => match Failure::host(&source, path) {
            failure if failure.kind == Kind::NotFound => failure,
            failure => failure.hint("--rootdir takes a directory or an archive that you may read"),
        },
        MkfsError::Source(SourceError::Call { path, call, errno }) => {
            Failure::new(Kind::of_errno(errno), format!("{call} failed: {}", text_of(errno.raw_os_error())))
                .at(format!("{path}, in the source directory"))
                .hint("leave it out of the source directory, or make it readable for you")
        }
        MkfsError::Interrupted => Failure::new(Kind::Invalid, "interrupted"),
        MkfsError::Archive { archive, byte, fault } => {
            let kind = match &fault {
                ArchiveFault::Host { source, .. } | ArchiveFault::NoSpool { source, .. } => {
                    Failure::host(source, "").kind
                }
                ArchiveFault::Compressed { .. } | ArchiveFault::UnknownType { .. } => Kind::Unsupported,
                _ => Kind::Invalid,
            };
            let place = if byte > 0 { format!(" (up to byte {byte} of it)") } else { String::new() };
            Failure::new(kind, format!("{fault}{place}")).at(archive)
        }
        error @ MkfsError::Full { .. } => Failure::new(Kind::NoSpace, error.to_string()),
        error => Failure::new(Kind::Invalid, error.to_string()),
    }
}
