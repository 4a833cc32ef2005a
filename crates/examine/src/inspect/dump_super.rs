//! `inspect-internal dump-super`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use vlinder_codec::checksum::{Checksum, ChecksumKind, checksum};
use vlinder_device::{Device, DeviceExt};
use vlinder_format::features::{CompatReadOnlyFeatures, IncompatFeatures};
use vlinder_format::superblock::{
    BACKUP_ROOTS, BackupRoot, MAGIC, SUPERBLOCK_SIZE, Superblock, SuperblockMirror,
};
use vlinder_format::{ItemType, Key, ObjectId, Physical};
use vlinder_places::devices::{Purpose, open_device};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::options::OptionArguments;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::text::hexadecimal;
use vlinder_places::values::number;

use super::items;
use super::keys;
use super::text::line;

/// Print superblocks as text.
///
/// An image that is mounted can be looked at too.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder inspect-internal dump-super -f disk.img")]
pub struct DumpSuperArguments {
    #[command(flatten)]
    options: OptionArguments,
    /// Print the system chunk array and the backup roots too.
    #[arg(short, long)]
    full: bool,
    /// Print all copies.
    #[arg(short, long)]
    all: bool,
    /// Which copy to print: 0, 1 or 2. (Larger numbers are taken as --bytenr.)
    #[arg(short, long = "super", value_name = "COPY", value_parser = number, alias = "mirror")]
    superblock: Option<u64>,
    /// As --super; outdated.
    #[arg(short = 'i', value_name = "COPY", value_parser = number, hide = true)]
    copy: Option<u64>,
    /// Print the superblock at this byte of the device.
    #[arg(long, value_name = "BYTE", value_parser = number)]
    bytenr: Option<u64>,
    /// Print what lies there even if it has no magic number.
    #[arg(short = 'F', long)]
    force: bool,
    /// Images or devices.
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
}

/// Runs the verb.
pub fn run(arguments: &DumpSuperArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let options = arguments.options.read()?;
    let places = places(arguments)?;
    let mut objects = Vec::new();
    for image in &arguments.images {
        let image = &options.device_name(image)?;
        let device = open_device(image, Purpose::Peek)?;
        for place in &places {
            if place.0 > device.length() || (arguments.all && place.0.saturating_add(4096) > device.length())
            {
                if *place == SuperblockMirror::Primary.offset() {
                    let failure =
                        Failure::new(Kind::Invalid, "no Btrfs file system: it ends before byte 65536");
                    return Err(failure.at(image.display()).hint("check the path"));
                }
                // A device that is too short has no such copy; btrfs-progs then leaves a blank line.
                if arguments.all && !session.json {
                    session.line("")?;
                }
                continue;
            }
            let superblock = read(&*device, image, *place, arguments.force)?;
            if session.json {
                objects.push(object(&superblock, image, *place));
                continue;
            }
            session.line(format!("superblock: bytenr={place}, device={}", image.display()))?;
            session.line("-".repeat(57))?;
            let mut text = Vec::new();
            print(&mut text, &superblock);
            if arguments.full {
                print_full(&mut text, &superblock);
            }
            text.push(b'\n');
            session.bytes(&text)?;
        }
    }
    if session.json {
        session.object(json!({ "superblocks": objects }))?;
    }
    Ok(ExitStatus::Done)
}

fn places(arguments: &DumpSuperArguments) -> Result<Vec<Physical>, Failure> {
    if let Some(byte) = arguments.bytenr {
        return Ok(vec![Physical(byte)]);
    }
    if let Some(copy) = arguments.superblock.or(arguments.copy) {
        let mirror = usize::try_from(copy).ok().and_then(|copy| SuperblockMirror::ALL.get(copy));
        return match mirror {
            Some(mirror) => Ok(vec![mirror.offset()]),
            None if arguments.copy.is_none() => Ok(vec![Physical(copy)]),
            None => Err(Failure::usage(format!("there is no copy {copy}; give 0, 1 or 2"))),
        };
    }
    let mirrors: &[SuperblockMirror] =
        if arguments.all { &SuperblockMirror::ALL } else { &[SuperblockMirror::Primary] };
    Ok(mirrors.iter().map(|mirror| mirror.offset()).collect())
}

fn read(device: &dyn Device, image: &Path, place: Physical, force: bool) -> Result<Superblock, Failure> {
    let place_text = format!("{}, byte {place}", image.display());
    let bytes = device.read_at(place, SUPERBLOCK_SIZE).map_err(|error| {
        let failure = Failure::from(error);
        Failure { place: Some(place_text.clone()), ..failure }
    })?;
    let superblock = Superblock::decode(&bytes)
        .map_err(|fault| Failure::new(Kind::Corruption, fault.to_string()).at(&place_text))?;
    if superblock.magic != MAGIC && !force {
        let failure = Failure::new(Kind::Invalid, "no Btrfs superblock: the magic number is missing");
        return Err(failure.at(&place_text).hint("give --force to print it anyway"));
    }
    Ok(superblock)
}

/// Whether the stored checksum is that of the bytes.
fn checksum_matches(superblock: &Superblock, kind: ChecksumKind) -> bool {
    let bytes = superblock.encode();
    checksum(kind, Superblock::checksummed_bytes(&bytes))
        .matches(&Checksum::from_field(superblock.checksum), kind)
}

/// Bytes as text, with a dot for what is not printable ASCII.
fn printable(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' }).collect()
}

/// Bits by name, one on a line.
fn readable_flags(text: &mut Vec<u8>, bits: u64, names: &[(u64, String)]) {
    let known = names.iter().fold(0, |known, (bit, _)| known | bit);
    let mut lines: Vec<String> =
        names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name.clone()).collect();
    if bits & !known != 0 {
        lines.push(format!("unknown flag: 0x{:x}", bits & !known));
    }
    if !lines.is_empty() {
        line!(text, "\t\t\t( {} )", lines.join(" |\n\t\t\t  "));
    }
}

fn superblock_flags() -> Vec<(u64, String)> {
    let names = [
        (1, "WRITTEN"),
        (1 << 1, "RELOC"),
        (1 << 35, "CHANGING_FSID"),
        (1 << 36, "CHANGING_FSID_V2"),
        (1 << 32, "SEEDING"),
        (1 << 33, "METADUMP"),
        (1 << 34, "METADUMP_V2"),
    ];
    names.map(|(bit, name)| (bit, name.to_owned())).to_vec()
}

fn upper(names: &[vlinder_format::features::FeatureName]) -> Vec<(u64, String)> {
    names.iter().map(|known| (known.bit, known.name.to_ascii_uppercase())).collect()
}

fn print(text: &mut Vec<u8>, superblock: &Superblock) {
    print_checksum(text, superblock);
    line!(text, "bytenr\t\t\t{}", superblock.location);
    line!(text, "flags\t\t\t0x{:x}", superblock.flags);
    readable_flags(text, superblock.flags, &superblock_flags());
    let matches = if superblock.magic == MAGIC { "[match]" } else { "[DON'T MATCH]" };
    line!(text, "magic\t\t\t{} {matches}", printable(&superblock.magic.to_le_bytes()));
    line!(text, "fsid\t\t\t{}", superblock.fsid);
    line!(text, "metadata_uuid\t\t{}", superblock.tree_block_uuid());
    line!(text, "label\t\t\t{}", printable(superblock.label.as_bytes()));
    let lines: [(&str, u64); 18] = [
        ("generation\t\t", superblock.generation.0),
        ("root\t\t\t", superblock.root.0),
        ("sys_array_size\t\t", u64::from(superblock.system_array_size)),
        ("chunk_root_generation\t", superblock.chunk_root_generation.0),
        ("root_level\t\t", u64::from(superblock.root_level.0)),
        ("chunk_root\t\t", superblock.chunk_root.0),
        ("chunk_root_level\t", u64::from(superblock.chunk_root_level.0)),
        ("log_root\t\t", superblock.log_root.0),
        ("log_root_transid (deprecated)\t", superblock.log_root_transaction),
        ("log_root_level\t\t", u64::from(superblock.log_root_level.0)),
        ("total_bytes\t\t", superblock.total_bytes),
        ("bytes_used\t\t", superblock.bytes_used),
        ("sectorsize\t\t", u64::from(superblock.sector_size)),
        ("nodesize\t\t", u64::from(superblock.node_size)),
        ("leafsize (deprecated)\t", u64::from(superblock.leaf_size)),
        ("stripesize\t\t", u64::from(superblock.stripe_size)),
        ("root_dir\t\t", superblock.root_directory.0),
        ("num_devices\t\t", superblock.device_count),
    ];
    for (name, value) in lines {
        line!(text, "{name}{value}");
    }
    line!(text, "compat_flags\t\t0x{:x}", superblock.compat.0);
    line!(text, "compat_ro_flags\t\t0x{:x}", superblock.compat_read_only.0);
    readable_flags(text, superblock.compat_read_only.0, &upper(CompatReadOnlyFeatures::NAMES));
    line!(text, "incompat_flags\t\t0x{:x}", superblock.incompat.0);
    readable_flags(text, superblock.incompat.0, &upper(IncompatFeatures::NAMES));
    line!(text, "cache_generation\t{}", superblock.cache_generation);
    line!(text, "uuid_tree_generation\t{}", superblock.uuid_tree_generation);
    print_device(text, superblock);
}

fn print_checksum(text: &mut Vec<u8>, superblock: &Superblock) {
    match ChecksumKind::from_disk(superblock.checksum_type) {
        Some(kind) => {
            line!(text, "csum_type\t\t{} ({})", superblock.checksum_type, kind.name());
            line!(text, "csum_size\t\t{}", kind.size_bytes());
            let stored = hexadecimal(&superblock.checksum[..kind.size_bytes()]);
            let matches = if checksum_matches(superblock, kind) { "[match]" } else { "[DON'T MATCH]" };
            line!(text, "csum\t\t\t0x{stored} {matches}");
        }
        None => {
            line!(text, "csum_type\t\t{} (INVALID)", superblock.checksum_type);
            line!(text, "csum_size\t\t32");
            line!(text, "csum\t\t\t0x{} [UNKNOWN CSUM TYPE OR SIZE]", hexadecimal(&superblock.checksum));
        }
    }
}

fn print_device(text: &mut Vec<u8>, superblock: &Superblock) {
    let device = &superblock.device_item;
    line!(text, "dev_item.uuid\t\t{}", device.uuid);
    let matches = if device.fsid == superblock.tree_block_uuid() { "[match]" } else { "[DON'T MATCH]" };
    line!(text, "dev_item.fsid\t\t{} {matches}", device.fsid);
    line!(text, "dev_item.type\t\t{}", device.device_type);
    line!(text, "dev_item.total_bytes\t{}", device.total_bytes);
    line!(text, "dev_item.bytes_used\t{}", device.bytes_used);
    line!(text, "dev_item.io_align\t{}", device.io_align);
    line!(text, "dev_item.io_width\t{}", device.io_width);
    line!(text, "dev_item.sector_size\t{}", device.sector_size);
    line!(text, "dev_item.devid\t\t{}", device.device);
    line!(text, "dev_item.dev_group\t{}", device.device_group);
    line!(text, "dev_item.seek_speed\t{}", device.seek_speed);
    line!(text, "dev_item.bandwidth\t{}", device.bandwidth);
    line!(text, "dev_item.generation\t{}", device.generation);
}

fn print_full(text: &mut Vec<u8>, superblock: &Superblock) {
    line!(text, "sys_chunk_array[2048]:");
    for (number, entry) in superblock.system_chunks().enumerate() {
        match entry {
            Ok((logical, chunk)) => {
                let key = Key::new(ObjectId::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, logical.0);
                line!(text, "\titem {number} {}", keys::key(&key));
                items::chunk(text, &chunk);
            }
            Err(fault) => line!(text, "\titem {number} invalid: {fault}"),
        }
    }
    line!(text, "backup_roots[{BACKUP_ROOTS}]:");
    for (number, backup) in superblock.backup_roots.iter().enumerate() {
        if backup.tree_root.0 != 0 || backup.tree_root_generation.0 != 0 {
            line!(text, "\tbackup {number}:");
            print_backup(text, backup);
        }
    }
}

fn print_backup(text: &mut Vec<u8>, backup: &BackupRoot) {
    let roots = [
        ("backup_tree_root", backup.tree_root, backup.tree_root_generation, backup.tree_root_level),
        ("backup_chunk_root", backup.chunk_root, backup.chunk_root_generation, backup.chunk_root_level),
        ("backup_extent_root", backup.extent_root, backup.extent_root_generation, backup.extent_root_level),
        ("backup_fs_root", backup.fs_root, backup.fs_root_generation, backup.fs_root_level),
        ("backup_dev_root", backup.device_root, backup.device_root_generation, backup.device_root_level),
        ("csum_root", backup.checksum_root, backup.checksum_root_generation, backup.checksum_root_level),
    ];
    for (name, root, generation, level) in roots {
        line!(text, "\t\t{name}:\t{root}\tgen: {generation}\tlevel: {level}");
    }
    line!(text, "\t\tbackup_total_bytes:\t{}", backup.total_bytes);
    line!(text, "\t\tbackup_bytes_used:\t{}", backup.bytes_used);
    line!(text, "\t\tbackup_num_devices:\t{}", backup.device_count);
    line!(text, "");
}

fn object(superblock: &Superblock, image: &Path, place: Physical) -> serde_json::Value {
    use std::os::unix::ffi::OsStrExt;
    let kind = ChecksumKind::from_disk(superblock.checksum_type);
    json!({
        "device": report::name(image.as_os_str().as_bytes()),
        "offset_bytes": place.0,
        "checksum_kind": kind.map(ChecksumKind::name),
        "checksum_matches": kind.is_some_and(|kind| checksum_matches(superblock, kind)),
        "magic_matches": superblock.magic == MAGIC,
        "fsid": superblock.fsid.to_string(),
        "metadata_uuid": superblock.metadata_uuid.to_string(),
        "label": report::name(superblock.label.as_bytes()),
        "flags": superblock.flags,
        "generation": superblock.generation.0,
        "root": superblock.root.0,
        "root_level": superblock.root_level.0,
        "chunk_root": superblock.chunk_root.0,
        "chunk_root_generation": superblock.chunk_root_generation.0,
        "chunk_root_level": superblock.chunk_root_level.0,
        "log_root": superblock.log_root.0,
        "log_root_level": superblock.log_root_level.0,
        "total_bytes": superblock.total_bytes,
        "used_bytes": superblock.bytes_used,
        "sector_size_bytes": superblock.sector_size,
        "node_size_bytes": superblock.node_size,
        "devices": superblock.device_count,
        "compat": superblock.compat.names(),
        "compat_read_only": superblock.compat_read_only.names(),
        "incompat": superblock.incompat.names(),
        "device_number": superblock.device_item.device.0,
        "device_uuid": superblock.device_item.uuid.to_string(),
        "device_total_bytes": superblock.device_item.total_bytes,
        "device_used_bytes": superblock.device_item.bytes_used,
    })
}
