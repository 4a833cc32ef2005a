//! A reader knows a chunk when an address needs it, and hears of what is wrong with it what a writer
//! hears at opening.

use std::path::{Path, PathBuf};

use vlinder_base::sync::Arc;
use vlinder_device::{FileDevice, OpenOptions};
use vlinder_format::chunk::{BlockGroupFlags, Chunk};
use vlinder_format::superblock::Superblock;
use vlinder_format::{ItemType, Key, Logical, ObjectId, Physical, RootId};
use vlinder_testkit::{Scratch, require};
use vlinder_volume::{Access, Opened, SuperblockChoice, Volume};

use crate::{Engine, EngineError, EngineOptions, Reservation};

fn volume(image: &Path, access: Access) -> Opened {
    let options = match access {
        Access::ReadOnly => OpenOptions::reader(),
        _ => OpenOptions::writer(),
    };
    let device = FileDevice::open(image, &options).unwrap();
    Volume::open(vec![Arc::new(device)], SuperblockChoice::default(), access).unwrap()
}

pub(crate) fn write(image: &Path) -> Result<Arc<Engine>, EngineError> {
    Engine::open(volume(image, Access::ReadWrite), EngineOptions::default())
}

fn read_options() -> EngineOptions {
    EngineOptions { read_only: true, ..EngineOptions::default() }
}

fn read(image: &Path) -> Result<Arc<Engine>, EngineError> {
    Engine::open(volume(image, Access::ReadOnly), read_options())
}

/// A new image of 256 MiB, made by Linux's tool with these arguments.
pub(crate) fn new_image(scratch: &Scratch, arguments: &[&str]) -> PathBuf {
    let path = scratch.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let mut mkfs = std::process::Command::new("mkfs.btrfs");
    assert!(mkfs.args(["-q", "-f"]).args(arguments).arg(&path).status().unwrap().success());
    path
}

/// An image, and its chunk of data.
fn image(scratch: &Scratch) -> (PathBuf, Logical, Chunk) {
    let path = new_image(scratch, &[]);
    let chunks = write(&path).unwrap().core().volume().chunks().snapshot();
    let data = chunks.iter().find(|chunk| chunk.chunk.flags.has(BlockGroupFlags::DATA)).unwrap();
    let (logical, chunk) = (data.logical, data.chunk.clone());
    (path, logical, chunk)
}

/// Puts a chunk's item into the chunk tree, and nothing else.
fn forge(image: &Path, logical: Logical, chunk: &Chunk) {
    let engine = write(image).unwrap();
    let mut handle = engine.begin(Reservation::items(1)).unwrap();
    let key = Key::new(ObjectId::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, logical.0);
    handle.editor_mut().put(engine.core().trees().chunk(), key, &chunk.encode()).unwrap();
    handle.mark_changed();
    drop(handle);
    engine.commit().unwrap();
}

fn said<T, E: ToString>(result: Result<T, E>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_reader_loads_a_chunk_when_needed_and_all_for_space() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("as-needed");
    let (image, data, chunk) = image(&scratch);
    let (all, space) = {
        let writer = write(&image).unwrap();
        (writer.core().volume().chunks().snapshot(), writer.space().unwrap())
    };
    let reader = read(&image).unwrap();
    let chunks = reader.core().volume().chunks();
    assert!(chunks.get(data).is_none(), "nobody has needed it");
    assert!(chunks.get(reader.superblock().root).is_some(), "the root tree lies in it");
    assert!(reader.core().space().kinds(|_| false).is_empty());
    assert_eq!(reader.core().volume().chunk(data, 4096).unwrap().chunk, chunk);
    assert_eq!(
        said(reader.core().volume().chunk(Logical(1 << 50), 1)),
        said(chunks.covering(Logical(1 << 50), 1))
    );
    for _ in 0..2 {
        let found = reader.space().unwrap();
        let sizes = |report: &crate::SpaceReport| {
            report
                .kinds
                .iter()
                .map(|kind| (kind.flags, kind.total_bytes, kind.used_bytes))
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(&found), sizes(&space));
        assert_eq!(found.unallocated_bytes, space.unallocated_bytes);
        assert_eq!(found.global_reserve_bytes, space.global_reserve_bytes);
    }
    assert_eq!(chunks.snapshot(), all);
    let weak = Arc::downgrade(reader.core().volume());
    drop(reader);
    assert!(weak.upgrade().is_none(), "what looks for chunks does not keep the volume");
}

#[test]
fn a_reader_hears_of_an_overlap_where_it_is_met() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("overlap");
    let (image, data, chunk) = image(&scratch);
    let length = chunk.length / 2;
    let inside = Logical(data.0 + length);
    forge(&image, inside, &Chunk { length, ..chunk });
    let expected = said(write(&image));
    assert!(expected.contains("overlaps"), "{expected}");
    for first in [data, inside] {
        let reader = read(&image).unwrap();
        for logical in [first, inside, data] {
            // Asked again it is refused again: what was refused is not known.
            assert_eq!(said(reader.core().volume().chunk(logical, 1)), expected, "{logical}");
        }
        assert_eq!(said(reader.space()), expected);
        assert_eq!(said(reader.space()), expected);
    }
}

#[test]
fn a_reader_hears_of_a_chunk_outside_its_device_where_it_is_met() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("outside");
    let (image, data, mut chunk) = image(&scratch);
    let far = Logical(data.0 + (1 << 40));
    chunk.stripes[0].physical = Physical(1 << 30);
    forge(&image, far, &chunk);
    let expected = said(write(&image));
    assert!(expected.contains("no such bytes"), "{expected}");
    let reader = read(&image).unwrap();
    assert_eq!(said(reader.core().volume().chunk(far, 1)), expected);
    reader.core().volume().chunk(data, 1).unwrap();
    assert_eq!(said(reader.space()), expected);
}

#[test]
fn a_system_chunk_that_the_tree_contradicts_is_refused() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("system");
    let (image, ..) = image(&scratch);
    let (logical, chunk) =
        volume(&image, Access::ReadOnly).superblock.system_chunks().next().unwrap().unwrap();
    let mut other = chunk.clone();
    other.stripes[0].physical.0 += 1 << 20;
    forge(&image, logical, &other);
    let expected = said(write(&image));
    assert!(expected.contains("overlaps"), "{expected}");
    assert_eq!(said(read(&image)), expected);
    // One that reaches into it, from before and from behind.
    for start in [logical.0 - (1 << 20), logical.0 + (1 << 20)] {
        forge_across(&image, &chunk, start);
    }
}

/// Lays a chunk across a system chunk of a fresh image.
fn forge_across(image: &Path, chunk: &Chunk, start: u64) {
    let mkfs = std::process::Command::new("mkfs.btrfs").arg("-qf").arg(image).status().unwrap();
    assert!(mkfs.success());
    let crossing = Chunk { flags: BlockGroupFlags::METADATA, ..chunk.clone() };
    let crossing = Chunk { stripes: crossing.stripes[..1].to_vec(), ..crossing };
    forge(image, Logical(start), &crossing);
    let expected = said(write(image));
    assert!(expected.contains("overlaps"), "{start}: {expected}");
    assert_eq!(said(read(image)), expected);
}

#[test]
fn the_chunk_tree_is_not_read_through_a_chunk_of_its_own() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("recursion");
    let (image, data, _) = image(&scratch);
    let opened = volume(&image, Access::ReadOnly);
    let superblock = Superblock { chunk_root: data, ..opened.superblock.clone() };
    let error = said(Engine::open(Opened { superblock, ..opened }, read_options()));
    assert!(error.contains("no chunk covers"), "{error}");
}

#[test]
fn each_tree_that_describes_space_is_reserved_for_once() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("reserve");
    let (extent, checksum) = (RootId::EXTENT_TREE, RootId::CHECKSUM_TREE);
    for (features, expected) in [
        ("free-space-tree", vec![extent, checksum, RootId::FREE_SPACE_TREE]),
        ("^free-space-tree", vec![extent, checksum]),
    ] {
        let engine = write(&new_image(&scratch, &["-R", features])).unwrap();
        let trees: Vec<RootId> = engine.core().trees().fixed().of_space().map(|tree| tree.id()).collect();
        assert_eq!(trees, expected, "{features}");
    }
}
