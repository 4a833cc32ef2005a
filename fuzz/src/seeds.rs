//! Where runs begin: sound images, and inputs made of their items.

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_codec::compress::{Compression, compress};
use vlinder_device::{DeviceExt, MemoryDevice};
use vlinder_format::block::{BlockRules, HEADER_SIZE};
use vlinder_format::{Block, Generation, Key, Uuid};
use vlinder_fs::path::Files;
use vlinder_fs::{AttributeMode, Caller, Filesystem, OpenOptions};
use vlinder_stream::resume::{ResumeToken, RunningHash};
use vlinder_stream::wire::{Command, Protocol, StreamWriter};
use vlinder_testkit::subject::{MkfsFeatures, Recipe};
use vlinder_volume::Profile;

use crate::item_case::{Case, OWNERS};
use crate::{images, receiving, target};

/// What the images are like: today's defaults, small nodes without newer features, many names, and one with a
/// log.
fn recipes() -> Vec<(Recipe, usize)> {
    let plain = Recipe { device_bytes: 128 << 20, ..Recipe::default() };
    let old = MkfsFeatures {
        block_group_tree: false,
        free_space_tree: false,
        no_holes: false,
        skinny_metadata: false,
        ..MkfsFeatures::default()
    };
    vec![
        (plain.clone(), 3),
        (
            Recipe {
                node_size: 4096,
                features: old,
                checksum_kind: ChecksumKind::Xxhash64,
                metadata_profile: Profile::Single,
                ..plain.clone()
            },
            3,
        ),
        (Recipe { node_size: 4096, metadata_profile: Profile::Single, ..plain.clone() }, 120),
        (Recipe { node_size: 4096, identity: 7, ..plain }, 4),
    ]
}

/// The sound images that the target `image` changes; the same in every process.
///
/// # Panics
/// If one can't be made.
pub fn images() -> Vec<MemoryDevice> {
    recipes().into_iter().map(|(recipe, names)| image(&recipe, names)).collect()
}

fn image(recipe: &Recipe, names: usize) -> MemoryDevice {
    let device = Arc::new(recipe.in_memory());
    match fill(&device, names, recipe.identity == 7) {
        Ok(logged) => logged.unwrap_or_else(|| device.snapshot()),
        Err(error) => panic!("{recipe:?}: {error}"),
    }
}

/// Something of everything: files of each size class, links, attributes, subvolumes, snapshots. Gives the
/// image as the power's loss after an fsync leaves it, where that is asked for.
fn fill(
    device: &Arc<MemoryDevice>,
    names: usize,
    logged: bool,
) -> Result<Option<MemoryDevice>, Box<dyn std::error::Error>> {
    let files = open(device, "rw")?;
    files.write("/a", b"inline")?;
    files.create_subvolume("/b")?;
    files.write("/b/one", vec![1; 9000])?;
    files.hard_link("/b/one", "/b/two")?;
    files.symlink("../a", "/b/link")?;
    files.create_dir_all("/c/d")?;
    for number in 0..names {
        files.write(format!("/c/file {number}"), vec![number as u8; 50 * number])?;
    }
    let attributed = files.resolve("/c".as_ref())?;
    files.filesystem().attributes().set_extended_attribute(
        &Caller::superuser(),
        &attributed,
        b"user.colour",
        b"blue",
        AttributeMode::Either,
    )?;
    files.snapshot("/b", "/c/snapshot", true)?;
    files.write("/b/one", vec![2; 30_000])?;
    files.sync()?;
    files.close()?;
    let files = open(device, "rw,compress-force=zstd")?;
    files.write("/compressed", vec![3; 200_000])?;
    files.write("/small", vec![4; 1500])?;
    let sparse = files.options().write(true).create(true).open("/sparse")?;
    sparse.write_at(&[5; 5000], 1 << 20)?;
    files.sync()?;
    if !logged {
        files.close()?;
        return Ok(None);
    }
    let file = files.open_file("/b/one")?;
    drop(file);
    let file = files.options().write(true).create(true).open("/new")?;
    file.write_at(&[6; 10_000], 3000)?;
    files.rename("/small", "/c/renamed")?;
    file.sync_all()?;
    // What the device holds now is what a cut would leave.
    let cut = device.snapshot();
    files.close()?;
    Ok(Some(cut))
}

fn open(device: &Arc<MemoryDevice>, list: &str) -> Result<Files, Box<dyn std::error::Error>> {
    let options = OpenOptions {
        background: false,
        clock: Arc::new(vlinder_base::clock::FixedClock::new(vlinder_base::clock::Timestamp::new(
            1_700_000_000,
            0,
        ))),
        random: Arc::new(vlinder_base::random::SeededRandom::new(1)),
        ..OpenOptions::parse(list)?
    };
    let filesystem = Filesystem::open_devices(vec![Arc::clone(device) as _], options)?;
    Ok(Files::new(filesystem, Caller::superuser()))
}

/// Inputs to begin with, each with its target: the items, blocks and superblock of the images, streams of
/// each codec, and the images without a change.
pub fn inputs() -> Vec<(&'static str, Vec<u8>)> {
    let mut inputs = Vec::new();
    for device in images() {
        for (start, chunk) in device.written_chunks() {
            for at in (0..chunk.len()).step_by(4096) {
                let size = if chunk[at + 100..].len() >= 16384 { [4096, 16384] } else { [4096, 4096] };
                for node_size in size {
                    let Ok(bytes) = device.read_at(Physical(start.0 + at as u64), node_size) else {
                        continue;
                    };
                    let rules = BlockRules { node_size: node_size as u32, sector_size: 4096 };
                    if let Ok(block) = Block::parse(bytes.into(), &rules) {
                        inputs.extend(of_block(&block));
                    }
                }
            }
        }
    }
    inputs.extend(by_hand());
    inputs.extend(streams());
    inputs.extend(images::sound_inputs().into_iter().map(|input| ("image", input)));
    inputs.extend(receiving::sound_inputs().into_iter().map(|input| ("receive", input)));
    inputs.extend((0..8).map(|recipe| ("operations", vec![41, recipe, 1, 2, 3, 4, 5, 6, 7, 8, 9])));
    inputs
}

fn of_block(block: &Block) -> Vec<(&'static str, Vec<u8>)> {
    let mut inputs = Vec::new();
    let bytes = block.bytes();
    if bytes.len() == 4096 {
        let front = 400.min(HEADER_SIZE - 32 + block.len() * 33) as u16;
        let mut input = vec![4, 0];
        input.extend(front.to_le_bytes());
        input.extend(&bytes[32..32 + usize::from(front)]);
        input.extend(&bytes[3000..]);
        inputs.push(("block", input));
    }
    if !block.is_leaf() {
        return inputs;
    }
    let owner = OWNERS.iter().position(|owner| *owner == block.owner()).unwrap_or(1) as u8;
    for slot in 0..block.len() {
        let before: Option<(Key, &[u8])> =
            slot.checked_sub(1).map(|before| (block.key(before), block.data(before)));
        let key = block.key(slot);
        let Some(target) = target::all().find(|target| target.number == key.item_type.0) else { continue };
        let mut input = vec![target.number];
        input.extend(Case::bytes(0, owner, before, key, block.data(slot)));
        inputs.push((target.name, input));
    }
    inputs
}

/// Items that no image of ours has: of the right size, and otherwise empty.
fn by_hand() -> Vec<(&'static str, Vec<u8>)> {
    let mut inputs = Vec::new();
    for target in target::all().filter(|target| target.group == target::Group::Items) {
        for size in [0, 8, 16, 25, 32, 40, 72, 100, 448] {
            let special = [0, 1 << 20, 0u64.wrapping_sub(4), 0u64.wrapping_sub(5)];
            for object in special {
                let key = Key::new(
                    vlinder_format::ObjectId(object),
                    vlinder_format::ItemType(target.number),
                    object & 4096,
                );
                let mut input = vec![target.number];
                input.extend(Case::bytes(16, 0, None, key, &vec![0; size]));
                inputs.push((target.name, input));
            }
        }
    }
    for (number, name) in [(5, "block-edit"), (2, "superblock"), (3, "system-array"), (27, "checksums")] {
        inputs.push((name, vec![number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]));
    }
    inputs
}

/// Streams of send of each version, and the attributes of their commands.
fn sent_streams() -> Vec<(&'static str, Vec<u8>)> {
    let mut inputs = Vec::new();
    let (uuid, transid) = (Uuid([7; 16]), Generation(9));
    let commands = [
        Command::Subvolume { path: b"night", uuid, transid },
        Command::MakeFile { path: b"a", inode: Some(257) },
        Command::Symlink { path: b"l", inode: None, target: b"a" },
        Command::Rename { path: b"a", to: b"b" },
        Command::SetXattr { path: b"b", name: b"user.x", value: b"1" },
        Command::Clone {
            path: b"b",
            offset: 0,
            length: 4096,
            source_uuid: uuid,
            source_transid: transid,
            source_path: b"a",
            source_offset: 8192,
        },
        Command::Truncate { path: b"b", size: 10 },
        Command::Write { path: b"b", offset: 3, data: b"content" },
        Command::End,
    ];
    let (parent_uuid, parent_transid, received) = (uuid, transid, RunningHash::default());
    for (version, protocol) in [Protocol::V1, Protocol::V2, Protocol::V3].into_iter().enumerate() {
        let token = ResumeToken { protocol, uuid, transid, parent_uuid, parent_transid, received };
        inputs.push(("resume-token", [&[8, 0], token.to_string().as_bytes()].concat()));
        inputs.push(("resume-token", (8..=120).collect()));
        let mut stream = vec![6];
        let mut writer = StreamWriter::new(&mut stream, protocol);
        let written =
            writer.begin().and_then(|()| commands.iter().try_for_each(|command| writer.put(command)));
        written.and_then(|()| writer.flush()).expect("a list takes all");
        for place in 0..6 {
            inputs.push(("stream-resume", [&[9, place], &stream[1..]].concat()));
        }
        inputs.push(("stream", stream));
        for command in &commands {
            let mut whole = Vec::new();
            let mut writer = StreamWriter::new(&mut whole, protocol);
            writer.put(command).and_then(|()| writer.flush()).expect("a list takes all");
            // Length and checksum are made by the target.
            let kind = command.kind().number() as u8;
            inputs.push(("stream-edit", [&[7, version as u8, kind][..], &whole[10..]].concat()));
        }
    }
    inputs
}

fn streams() -> Vec<(&'static str, Vec<u8>)> {
    let mut inputs = sent_streams();
    let texts: [&[u8]; 3] = [b"butterfly butterfly butterfly flies", &[0; 5000], &[1, 2, 3, 4, 5, 6, 7, 8]];
    for (kind, number, name) in [
        (Compression::Zlib, 20, "zlib-read"),
        (Compression::Lzo, 21, "lzo-read"),
        (Compression::Zstd, 22, "zstd-read"),
    ] {
        for text in texts {
            let mut input = vec![number, 136, 19, 0];
            if compress(kind, kind.default_level(), text, 4096, 10_000, &mut input).is_ok() {
                inputs.push((name, input));
            }
        }
    }
    for (number, name) in [(23, "zlib-write"), (25, "lzo-write"), (26, "zstd-write")] {
        inputs.push((name, [&[number, 3, 0, 5, 35][..], texts[0]].concat()));
    }
    inputs
}
