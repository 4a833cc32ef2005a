//! New content for a file that stays the file it is: old or new after a power cut, and refused where a
//! program could not open the file to cut it.

use std::borrow::Cow;

use crate::support::{read, root_user};
use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_fs::{
    AttributeMode, ContentTimes, Filesystem, Inode, InodeFlags, OpenOptions, Refusal, Replacement,
    WriteOrigin,
};
use vlinder_testkit::SimulatedDevice;
use vlinder_testkit::power_cut::{CutOptions, PowerCuts};
use vlinder_testkit::subject::{Recipe, own_check};

const OLD: usize = 300_000;
const NEW: usize = 700_001;

fn noise(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn open(device: Arc<dyn Device>) -> Filesystem {
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    Filesystem::open_devices(vec![device], options).unwrap()
}

fn write(filesystem: &Filesystem, inode: &Arc<Inode>, bytes: &[u8]) {
    let origin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
    filesystem.files().write_file(&root_user(), inode, 0, Cow::Borrowed(bytes), origin).unwrap();
}

/// The name `file` stands for a file of two names with an attribute.
fn base(flags: InodeFlags) -> MemoryDevice {
    let device = Arc::new(Recipe { device_bytes: 256 << 20, ..Recipe::default() }.in_memory());
    let filesystem = open(Arc::clone(&device) as _);
    let (caller, root) = (root_user(), filesystem.root().unwrap());
    let file = filesystem.names().create_file(&caller, &root, b"file", 0o640).unwrap();
    filesystem.attributes().set_flags(&caller, &file, flags).unwrap();
    write(&filesystem, &file, &noise(OLD, 1));
    filesystem
        .attributes()
        .set_extended_attribute(&caller, &file, b"user.note", b"kept", AttributeMode::Either)
        .unwrap();
    filesystem.names().link(&caller, &file, &root, b"second").unwrap();
    drop(file);
    filesystem.close().unwrap();
    device.snapshot()
}

fn file(filesystem: &Filesystem) -> Arc<Inode> {
    filesystem.names().lookup(&root_user(), &filesystem.root().unwrap(), b"file").unwrap()
}

#[test]
fn after_a_cut_the_content_is_the_old_or_the_new() {
    for flags in [InodeFlags::NONE, InodeFlags::NODATACOW, InodeFlags::COMPRESS] {
        let device = Arc::new(SimulatedDevice::from_image(base(flags)));
        let filesystem = open(Arc::clone(&device) as _);
        let target = file(&filesystem);
        let (flags, attributes) = (target.flags(), filesystem.attributes().of(&target));
        let replacement = Replacement::begin(&filesystem, &root_user(), &target).unwrap();
        let new = noise(NEW, 2);
        write(&filesystem, replacement.content(), &new[..NEW / 2]);
        filesystem.sync().unwrap();
        write(&filesystem, replacement.content(), &new);
        device.mark(1);
        replacement.finish(&root_user()).unwrap();
        assert!(read(&filesystem, &target) == new);
        filesystem.sync().unwrap();
        device.mark(2);
        drop(target);
        filesystem.close().unwrap();
        let mut seen = [0_u64; 2];
        for cut in PowerCuts::new(&device.recording(), CutOptions { samples: 8, ..CutOptions::default() }) {
            let image = Arc::new(cut.image.snapshot());
            let filesystem = open(Arc::clone(&image) as _);
            let found = file(&filesystem);
            let content = read(&filesystem, &found);
            let is_new = content == new;
            assert!(is_new || content == noise(OLD, 1), "{}: {} bytes", cut.description, content.len());
            assert!(is_new || cut.mark != Some(2), "{}: what was synced is lost", cut.description);
            seen[usize::from(is_new)] += 1;
            let now = filesystem.attributes().of(&found);
            assert_eq!((now.id, now.mode, now.link_count), (attributes.id, attributes.mode, 2));
            assert_eq!(found.flags(), flags);
            let note =
                filesystem.attributes().extended_attribute(&root_user(), &found, b"user.note").unwrap();
            assert_eq!(note, b"kept");
            drop(found);
            filesystem.close().unwrap();
            own_check(image).unwrap();
        }
        assert!(seen.iter().all(|count| *count > 3), "{seen:?}");
    }
}

#[test]
fn a_replacement_that_is_dropped_leaves_nothing() {
    let device = Arc::new(base(InodeFlags::NONE));
    let filesystem = open(Arc::clone(&device) as _);
    let target = file(&filesystem);
    let before = filesystem.attributes().of(&target);
    let replacement = Replacement::begin(&filesystem, &root_user(), &target).unwrap();
    write(&filesystem, replacement.content(), &noise(NEW, 3));
    let content = replacement.content().id();
    drop(replacement);
    assert_eq!(filesystem.attributes().of(&target), before);
    assert_eq!(filesystem.inode(content).unwrap_err().refusal(), Some(Refusal::NotFound));
    assert!(read(&filesystem, &target) == noise(OLD, 1));
    drop(target);
    filesystem.close().unwrap();
    own_check(device).unwrap();
}

#[test]
fn files_that_no_program_could_cut_are_refused() {
    let device = Arc::new(base(InodeFlags::NONE));
    let filesystem = open(Arc::clone(&device) as _);
    let (caller, root) = (root_user(), filesystem.root().unwrap());
    let target = file(&filesystem);
    let refused = |inode: &Arc<Inode>| {
        Replacement::begin(&filesystem, &caller, inode).err().and_then(|error| error.refusal())
    };
    for flags in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
        filesystem.attributes().set_flags(&caller, &target, flags).unwrap();
        assert_eq!(refused(&target), Some(Refusal::NotPermitted), "{flags}");
        filesystem.attributes().set_flags(&caller, &target, InodeFlags::NONE).unwrap();
    }
    // As a file that fs-verity has sealed; no call sets the flag.
    target.state().item.flags = InodeFlags::VERITY;
    assert_eq!(refused(&target), Some(Refusal::NotPermitted));
    target.state().item.flags = InodeFlags::NONE;
    assert_eq!(refused(&root), Some(Refusal::IsADirectory));
    let link = filesystem.names().create_symbolic_link(&caller, &root, b"link", b"file").unwrap();
    assert_eq!(refused(&link), Some(Refusal::SymbolicLinkLoop));
    assert_eq!(refused(&target), None);
}
