//! Everything that changes names and attributes, judged by `btrfs check` and by the kernel's own walk.

use std::borrow::Cow;
use std::path::Path;

use crate::support::{self, image, list, open, root_user};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{
    AttributeMode, Caller, DeviceNumber, FileType, Filesystem, FsError, GroupId, Inode, InodeFlags, InodeId,
    NewFileName, OpenOptions, Owners, Refusal, RenameMode, RootId, SetAttributes, SetTime, TimesAlone,
    Timestamp, UserId,
};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require, walk};

/// Closes the file system, and lets `btrfs check` and the kernel look at it: its walk is ours.
fn judge(filesystem: Filesystem, image: &Path) {
    filesystem.maintenance().finish_deletions().unwrap();
    let ours = support::walk(&filesystem);
    filesystem.close().unwrap();
    btrfs_check(image).unwrap();
    if !vlinder_testkit::require::Requirement::KernelBtrfs.is_met() {
        vlinder_testkit::require::skip("operations::judge", "needs the kernel's btrfs");
        return;
    }
    let mount = KernelMount::new(image, "ro").unwrap();
    let options = walk::Options { identity: walk::InodeIdentity::NumberAlone, ..Default::default() };
    let theirs = walk::walk(mount.path(), &options).unwrap();
    let theirs = walk::render(&support::without_placeholder_times(mount.path(), theirs));
    walk::compare(&theirs, &ours).unwrap_or_else(|difference| panic!("{difference}"));
    mount.unmount().unwrap();
}

fn refused<T: std::fmt::Debug>(result: vlinder_fs::Result<T>) -> Refusal {
    let error = result.expect_err("was to be refused");
    error.refusal().unwrap_or_else(|| panic!("{error}"))
}

fn put(filesystem: &Filesystem, directory: &Arc<Inode>, name: &str, content: &[u8]) -> Arc<Inode> {
    let file = filesystem.names().create_file(&root_user(), directory, name.as_bytes(), 0o644).unwrap();
    filesystem.files().write_at(&root_user(), &file, 0, Cow::Borrowed(content)).unwrap();
    file
}

#[test]
fn files_of_every_type_are_made_linked_renamed_and_removed() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("operations");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let file = put(&filesystem, &root, "file", b"content");
    let directory = filesystem.names().create_directory(&caller, &root, b"directory", 0o750).unwrap();
    filesystem.names().create_symbolic_link(&caller, &directory, b"link", b"../file").unwrap();
    let null = DeviceNumber::new(1, 3);
    filesystem.names().create_node(&caller, &root, b"null", FileType::CharacterDevice, 0o666, null).unwrap();
    filesystem
        .names()
        .create_node(&caller, &root, b"disk", FileType::BlockDevice, 0o660, DeviceNumber::new(8, 300))
        .unwrap();
    filesystem
        .names()
        .create_node(&caller, &root, b"fifo", FileType::Fifo, 0o600, DeviceNumber::default())
        .unwrap();
    filesystem
        .names()
        .create_node(&caller, &root, b"socket", FileType::Socket, 0o600, DeviceNumber::default())
        .unwrap();
    filesystem.names().link(&caller, &file, &directory, b"second").unwrap();
    assert_eq!(refused(filesystem.names().link(&caller, &file, &directory, b"second")), Refusal::Exists);
    assert_eq!(refused(filesystem.names().link(&caller, &directory, &root, b"x")), Refusal::NotPermitted);
    assert_eq!(
        refused(filesystem.names().create_file(&caller, &root, &[b'n'; 256], 0o644)),
        Refusal::NameTooLong
    );
    assert_eq!(refused(filesystem.names().create_file(&caller, &file, b"x", 0o644)), Refusal::NotADirectory);
    assert_eq!(refused(filesystem.names().remove_directory(&caller, &root, b"directory")), Refusal::NotEmpty);
    assert_eq!(refused(filesystem.names().unlink(&caller, &root, b"directory")), Refusal::IsADirectory);
    assert_eq!(refused(filesystem.names().unlink(&caller, &root, b"nothing")), Refusal::NotFound);
    put(&filesystem, &root, "doomed", &[7; 100_000]);
    filesystem.names().unlink(&caller, &root, b"doomed").unwrap();
    filesystem.names().unlink(&caller, &root, b"fifo").unwrap();
    filesystem.names().create_directory(&caller, &root, b"empty", 0o755).unwrap();
    filesystem.names().remove_directory(&caller, &root, b"empty").unwrap();
    filesystem.sync().unwrap();
    put(&filesystem, &root, "late", &vec![9; 3 << 20]);
    filesystem.sync().unwrap();
    filesystem.names().unlink(&caller, &root, b"late").unwrap();
    filesystem.names().unlink(&caller, &root, b"file").unwrap();
    assert_eq!(filesystem.attributes().of(&file).link_count, 1);
    // Directory sizes, as Linux counts them: twice the lengths of the names.
    assert_eq!(filesystem.attributes().of(&directory).size_bytes, 2 * ("link".len() + "second".len()) as u64);
    judge(filesystem, &image);
}

#[test]
fn renames_of_every_kind() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("rename");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let a = filesystem.names().create_directory(&caller, &root, b"a", 0o755).unwrap();
    let b = filesystem.names().create_directory(&caller, &a, b"b", 0o755).unwrap();
    let c = filesystem.names().create_directory(&caller, &root, b"c", 0o755).unwrap();
    put(&filesystem, &a, "one", b"1");
    put(&filesystem, &c, "two", b"22");
    put(&filesystem, &c, "three", &[3; 50_000]);
    let rename = |from: &Arc<Inode>, old: &str, to: &Arc<Inode>, new: &str, mode| {
        filesystem.names().rename(&caller, from, old.as_bytes(), to, new.as_bytes(), mode)
    };
    rename(&a, "one", &a, "uno", RenameMode::Replace).unwrap();
    assert_eq!(refused(rename(&a, "uno", &c, "two", RenameMode::NoReplace)), Refusal::Exists);
    rename(&a, "uno", &c, "two", RenameMode::Replace).unwrap();
    assert_eq!(refused(rename(&root, "a", &b, "below", RenameMode::Replace)), Refusal::InvalidArgument);
    assert_eq!(refused(rename(&c, "two", &root, "a", RenameMode::Replace)), Refusal::IsADirectory);
    assert_eq!(refused(rename(&root, "a", &c, "two", RenameMode::Replace)), Refusal::NotADirectory);
    assert_eq!(refused(rename(&root, "c", &root, "a", RenameMode::Replace)), Refusal::NotEmpty);
    assert_eq!(refused(rename(&a, "b", &root, "a", RenameMode::Replace)), Refusal::NotEmpty);
    assert_eq!(refused(rename(&root, "nothing", &root, "a", RenameMode::Replace)), Refusal::NotFound);
    rename(&c, "three", &a, "b", RenameMode::Exchange).unwrap();
    assert!(filesystem.names().lookup(&caller, &c, b"three").unwrap().is_directory());
    assert_eq!(filesystem.names().lookup_parent(&b).unwrap(), c.id());
    rename(&c, "two", &c, "moved", RenameMode::Whiteout).unwrap();
    let whiteout = filesystem.attributes().of(&filesystem.names().lookup(&caller, &c, b"two").unwrap());
    assert_eq!((whiteout.file_type, whiteout.device_number.0), (FileType::CharacterDevice, 0));
    filesystem.names().create_directory(&caller, &root, b"target", 0o700).unwrap();
    rename(&c, "three", &root, "target", RenameMode::Replace).unwrap();
    // Two names of one file: nothing happens.
    let moved = filesystem.names().lookup(&caller, &c, b"moved").unwrap();
    filesystem.names().link(&caller, &moved, &root, b"same").unwrap();
    rename(&root, "same", &c, "moved", RenameMode::Replace).unwrap();
    assert!(filesystem.names().lookup(&caller, &root, b"same").is_ok());
    filesystem.sync().unwrap();
    rename(&root, "c", &a, "c", RenameMode::Replace).unwrap();
    rename(&c, "moved", &c, "two", RenameMode::Exchange).unwrap();
    judge(filesystem, &image);
}

#[test]
fn names_past_one_reference_item_become_extended_references() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("links");
    let image = image(&scratch, 256, &["-n", "4096"]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let file = put(&filesystem, &root, "file", b"linked");
    let name = |number: u32| format!("a-name-of-some-length-for-a-file-with-many-of-them-{number}");
    for number in 0..600 {
        filesystem.names().link(&caller, &file, &root, name(number).as_bytes()).unwrap();
    }
    assert_eq!(filesystem.attributes().of(&file).link_count, 601);
    filesystem.sync().unwrap();
    for number in (0..600).step_by(3) {
        filesystem.names().unlink(&caller, &root, name(number).as_bytes()).unwrap();
    }
    for number in 0..50 {
        let (from, to) = (name(number * 3 + 1), format!("renamed-{number}"));
        filesystem
            .names()
            .rename(&caller, &root, from.as_bytes(), &root, to.as_bytes(), RenameMode::Replace)
            .unwrap();
    }
    assert_eq!(list(&filesystem, &root).len(), 401);
    judge(filesystem, &image);
}

/// Names with one CRC-32C: 4 bytes are chosen so that the hash is what it is for another name.
fn colliding_names(count: usize) -> Vec<Vec<u8>> {
    let wanted = vlinder_codec::name_hash::name_hash(b"collision-base....");
    let mut names = vec![b"collision-base....".to_vec()];
    let mut number = 0_u64;
    while names.len() < count {
        number += 1;
        let mut name = format!("c{number:09}").into_bytes();
        // CRC is linear: of the 32 bits behind the prefix, find those that bring the wanted hash.
        let base = vlinder_codec::name_hash::name_hash(&[&name[..], &[0; 4]].concat());
        let mut rows: Vec<(u64, u32)> = (0..32_u32)
            .map(|bit| {
                let tail = (1_u32 << bit).to_le_bytes();
                (vlinder_codec::name_hash::name_hash(&[&name[..], &tail].concat()) ^ base, 1 << bit)
            })
            .collect();
        let mut rest = base ^ wanted;
        let mut solution = 0_u32;
        for bit in (0..32).rev() {
            let Some(position) = rows.iter().position(|(value, _)| value >> bit & 1 == 1) else { continue };
            let (pivot, mask) = rows.swap_remove(position);
            for (value, other) in &mut rows {
                if *value >> bit & 1 == 1 {
                    *value ^= pivot;
                    *other ^= mask;
                }
            }
            if rest >> bit & 1 == 1 {
                rest ^= pivot;
                solution ^= mask;
            }
        }
        name.extend_from_slice(&solution.to_le_bytes());
        if rest == 0 && !name.contains(&0) && !name.contains(&b'/') {
            assert_eq!(vlinder_codec::name_hash::name_hash(&name), wanted);
            names.push(name);
        }
    }
    names
}

#[test]
fn names_with_one_hash_share_an_item_until_it_is_full() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("collisions");
    let image = image(&scratch, 256, &["-n", "4096"]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let names = colliding_names(100);
    let mut made = 0;
    for name in &names {
        match filesystem.names().create_file(&caller, &root, name, 0o644) {
            Ok(_) => made += 1,
            Err(error) => {
                assert_eq!(error.refusal(), Some(Refusal::Overflow));
                break;
            }
        }
    }
    // 44 to 48 bytes an entry in a block of 4096.
    assert!((80..95).contains(&made), "{made}");
    filesystem.names().unlink(&caller, &root, &names[3]).unwrap();
    let renamed =
        filesystem.names().rename(&caller, &root, &names[5], &root, b"elsewhere", RenameMode::Replace);
    renamed.unwrap();
    assert!(filesystem.names().lookup(&caller, &root, &names[4]).is_ok());
    assert_eq!(refused(filesystem.names().lookup(&caller, &root, &names[5])), Refusal::NotFound);
    let attribute = |name: &[u8]| [b"user.", name].concat();
    let inode = filesystem.names().lookup(&caller, &root, b"elsewhere").unwrap();
    for name in &names[..20] {
        let set = filesystem.attributes().set_extended_attribute(
            &caller,
            &inode,
            &attribute(name),
            b"value",
            AttributeMode::Create,
        );
        set.unwrap();
    }
    filesystem.attributes().remove_extended_attribute(&caller, &inode, &attribute(&names[7])).unwrap();
    judge(filesystem, &image);
}

#[test]
fn files_made_together_are_those_made_one_by_one_or_none() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("together");
    let image = image(&scratch, 256, &["-n", "4096"]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    // Some share an item, which begins before they come.
    let collisions = colliding_names(40);
    filesystem.names().create_file(&caller, &root, &collisions[0], 0o600).unwrap();
    let names: Vec<Vec<u8>> = collisions[1..]
        .iter()
        .cloned()
        .chain((0..300).map(|number| format!("file-{number}").into_bytes()))
        .collect();
    let times = TimesAlone {
        modification: Some(Timestamp { seconds: 123, nanoseconds: 456 }),
        ..TimesAlone::default()
    };
    let files = |names: &[Vec<u8>]| -> Result<Vec<_>, FsError> {
        let files: Vec<NewFileName<'_>> = names
            .iter()
            .map(|name| NewFileName { caller: &caller, name, permissions: 0o640, times })
            .collect();
        filesystem.names().create_files(&root, &files)
    };
    let made = files(&names).unwrap();
    for (inode, name) in made.iter().zip(&names) {
        assert_eq!(filesystem.names().lookup(&caller, &root, name).unwrap().id(), inode.id());
        let attributes = filesystem.attributes().of(inode);
        assert_eq!(attributes.mode.permissions(), 0o640);
        assert_eq!(Some(attributes.modification_time), times.modification);
        assert_eq!(attributes.access_time, attributes.change_time);
    }
    assert!(made.is_sorted_by_key(|inode| inode.number()), "numbers follow the order");
    assert_eq!(list(&filesystem, &root).len(), names.len() + 1);
    let size = filesystem.attributes().of(&root).size_bytes;
    for refused_names in [
        // One is there already, one comes twice, one is no name.
        [b"new-1".to_vec(), names[7].clone()],
        [b"new-2".to_vec(), b"new-2".to_vec()],
        [b"new-3".to_vec(), b"..".to_vec()],
    ] {
        files(&refused_names).unwrap_err();
        assert_eq!(refused(filesystem.names().lookup(&caller, &root, &refused_names[0])), Refusal::NotFound);
    }
    assert_eq!(files(&[]).unwrap().len(), 0);
    assert_eq!(filesystem.attributes().of(&root).size_bytes, size);
    judge(filesystem, &image);
}

#[test]
fn attributes_flags_and_lists() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("attributes");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let file = put(&filesystem, &root, "file", b"x");
    let set = |name: &[u8], value: &[u8], mode| {
        filesystem.attributes().set_extended_attribute(&caller, &file, name, value, mode)
    };
    set(b"user.one", b"1", AttributeMode::Create).unwrap();
    assert_eq!(refused(set(b"user.one", b"2", AttributeMode::Create)), Refusal::Exists);
    set(b"user.one", b"second", AttributeMode::Replace).unwrap();
    assert_eq!(refused(set(b"user.two", b"", AttributeMode::Replace)), Refusal::NoAttribute);
    set(b"user.empty", b"", AttributeMode::Either).unwrap();
    set(b"trusted.t", &[1; 3000], AttributeMode::Either).unwrap();
    set(b"security.selinux", b"label", AttributeMode::Either).unwrap();
    // As Linux has it, ENOSPC; but it is no larger device that helps.
    let too_long = refused(set(b"user.big", &[0; 16384], AttributeMode::Either));
    assert_eq!((too_long, too_long.errno()), (Refusal::AttributeTooLong, Errno::NOSPC));
    assert_eq!(refused(set(b"user.bigger", &[0; 70000], AttributeMode::Either)), Refusal::TooLarge);
    assert_eq!(refused(set(b"other.x", b"", AttributeMode::Either)), Refusal::NotSupported);
    assert_eq!(refused(set(b"btrfs.compression", b"lz4", AttributeMode::Either)), Refusal::InvalidArgument);
    let directory = filesystem.names().create_directory(&caller, &root, b"compressed", 0o2775).unwrap();
    assert_eq!(filesystem.attributes().of(&directory).mode.0, 0o040775, "mkdir(2) takes no set-id bits");
    let chmod = SetAttributes { permissions: Some(0o2775), ..SetAttributes::default() };
    filesystem.attributes().set(&caller, &directory, &chmod).unwrap();
    filesystem
        .attributes()
        .set_extended_attribute(&caller, &directory, b"btrfs.compression", b"zstd", AttributeMode::Either)
        .unwrap();
    let inherits = put(&filesystem, &directory, "inherits", &[b'a'; 20_000]);
    assert!(inherits.flags().has(InodeFlags::COMPRESS));
    assert_eq!(
        filesystem.attributes().extended_attribute(&caller, &inherits, b"btrfs.compression").unwrap(),
        b"zstd"
    );
    // u::rwx u:1000:rwx g::r-x m::rwx o::r-x
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 5, u32::MAX)];
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    let both: [&[u8]; 2] = [b"system.posix_acl_default", b"system.posix_acl_access"];
    for name in both {
        filesystem
            .attributes()
            .set_extended_attribute(&caller, &directory, name, &acl, AttributeMode::Either)
            .unwrap();
    }
    assert_eq!(filesystem.attributes().of(&directory).mode.0, 0o042775);
    let listed = filesystem.names().create_file(&caller, &directory, b"listed", 0o666).unwrap();
    assert_eq!(filesystem.attributes().of(&listed).mode.0, 0o100664);
    let below = filesystem.names().create_directory(&caller, &directory, b"below", 0o777).unwrap();
    assert_eq!(
        filesystem.attributes().extended_attribute(&caller, &below, b"system.posix_acl_default").unwrap(),
        acl
    );
    // Of a subvolume the list cuts the mode, and stays behind: as Linux did it with this list and a stricter
    // one.
    let masked = Caller { umask: 0o022, ..caller.clone() };
    for (others, name, mode) in [(5_u16, &b"whole"[..], 0o755), (0, b"strict", 0o750)] {
        let mut list = acl.clone();
        let end = list.len() - 6;
        list[end..end + 2].copy_from_slice(&others.to_le_bytes());
        filesystem
            .attributes()
            .set_extended_attribute(&caller, &directory, both[0], &list, AttributeMode::Either)
            .unwrap();
        let made = filesystem.subvolumes().create(&masked, &directory, name).unwrap();
        let made = filesystem.inode(made).unwrap();
        assert_eq!(filesystem.attributes().of(&made).mode.0, 0o40_000 | mode);
        assert!(filesystem.attributes().extended_attribute(&caller, &made, both[0]).is_err());
    }
    let named = Caller::user(UserId(1000), GroupId(1000));
    assert!(filesystem.rights().access(&named, &directory, vlinder_fs::Access::WRITE).is_ok());
    let chmod = SetAttributes { permissions: Some(0o700), ..SetAttributes::default() };
    filesystem.attributes().set(&caller, &directory, &chmod).unwrap();
    assert_eq!(
        refused(filesystem.rights().access(&named, &directory, vlinder_fs::Access::WRITE)),
        Refusal::AccessDenied
    );
    filesystem.attributes().set_flags(&caller, &file, InodeFlags::IMMUTABLE | InodeFlags::NODUMP).unwrap();
    assert_eq!(refused(filesystem.names().unlink(&caller, &root, b"file")), Refusal::NotPermitted);
    assert_eq!(refused(set(b"user.one", b"2", AttributeMode::Either)), Refusal::NotPermitted);
    filesystem.attributes().set_flags(&caller, &file, InodeFlags::APPEND).unwrap();
    assert_eq!(
        refused(filesystem.files().write_at(&caller, &file, 0, Cow::Borrowed(b"y"))),
        Refusal::NotPermitted
    );
    assert_eq!(filesystem.files().append(&caller, &file, Cow::Borrowed(b"yz")).unwrap(), 1);
    filesystem.attributes().set_flags(&caller, &file, InodeFlags::NONE).unwrap();
    judge(filesystem, &image);
}

#[test]
fn owners_modes_and_times() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("metadata");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let user = Caller { groups: vec![GroupId(50)], ..Caller::user(UserId(1000), GroupId(1000)) };
    let home = filesystem.names().create_directory(&caller, &root, b"home", 0o755).unwrap();
    let change =
        |caller: &Caller, inode: &Arc<Inode>, changes| filesystem.attributes().set(caller, inode, &changes);
    let own =
        SetAttributes { user: Some(UserId(1000)), group: Some(GroupId(1000)), ..SetAttributes::default() };
    change(&caller, &home, own).unwrap();
    let file = filesystem.names().create_file(&user, &home, b"file", 0o666).unwrap();
    assert_eq!(filesystem.attributes().of(&file).mode.0, 0o100644);
    assert_eq!(refused(filesystem.names().create_file(&user, &root, b"x", 0o666)), Refusal::AccessDenied);
    let mode = |permissions| SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    change(&user, &file, mode(0o6755)).unwrap();
    assert_eq!(refused(change(&user, &file, own_by(0))), Refusal::NotPermitted);
    let group = |group| SetAttributes { group: Some(GroupId(group)), ..SetAttributes::default() };
    assert_eq!(refused(change(&user, &file, group(51))), Refusal::NotPermitted);
    // A change of owner or group drops set-id bits, even root's.
    assert_eq!(change(&user, &file, group(50)).unwrap().mode.0, 0o100755);
    change(&caller, &file, mode(0o6755)).unwrap();
    filesystem.files().write_at(&user, &file, 0, Cow::Borrowed(b"dropped by writing")).unwrap();
    assert_eq!(filesystem.attributes().of(&file).mode.0, 0o100755);
    change(&caller, &file, mode(0o4755)).unwrap();
    filesystem.files().write_at(&caller, &file, 0, Cow::Borrowed(b"kept for root")).unwrap();
    assert_eq!(filesystem.attributes().of(&file).mode.0, 0o104755);
    let capability = AttributeMode::Either;
    filesystem
        .attributes()
        .set_extended_attribute(&caller, &file, b"security.capability", &[1; 20], capability)
        .unwrap();
    change(&caller, &file, own_by(7)).unwrap();
    assert_eq!(
        refused(filesystem.attributes().extended_attribute(&caller, &file, b"security.capability")),
        Refusal::NoAttribute
    );
    let before = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
    let times = SetAttributes {
        modification_time: Some(SetTime::At(before)),
        access_time: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    assert_eq!(refused(change(&user, &file, times)), Refusal::NotPermitted);
    assert_eq!(change(&caller, &file, times).unwrap().modification_time, before);
    let shrink = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    assert_eq!(change(&caller, &file, shrink(4)).unwrap().size_bytes, 4);
    assert_eq!(change(&caller, &file, shrink(1 << 20)).unwrap().size_bytes, 1 << 20);
    assert_eq!(refused(change(&caller, &home, shrink(0))), Refusal::IsADirectory);
    let sticky = filesystem.names().create_directory(&caller, &root, b"tmp", 0o1777).unwrap();
    filesystem.names().create_file(&user, &sticky, b"mine", 0o600).unwrap();
    let other = Caller::user(UserId(2000), GroupId(2000));
    assert_eq!(refused(filesystem.names().unlink(&other, &sticky, b"mine")), Refusal::NotPermitted);
    let shared = filesystem.names().create_directory(&caller, &root, b"shared", 0o777).unwrap();
    change(&caller, &shared, group(77)).unwrap();
    change(&caller, &shared, mode(0o2777)).unwrap();
    let inherits = filesystem.names().create_directory(&user, &shared, b"inherits", 0o755).unwrap();
    let shown = filesystem.attributes().of(&inherits);
    assert_eq!((shown.group, shown.mode.0), (GroupId(77), 0o042755));
    judge(filesystem, &image);
}

fn own_by(user: u32) -> SetAttributes {
    SetAttributes { user: Some(UserId(user)), ..SetAttributes::default() }
}

#[test]
fn nameless_files_live_while_open_and_die_after_a_crash() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("orphans");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let file = put(&filesystem, &root, "open", &[1; 300_000]);
    let held = filesystem.files().hold(&file).unwrap();
    filesystem.names().unlink(&caller, &root, b"open").unwrap();
    assert_eq!(support::read(&filesystem, &file).len(), 300_000);
    let temporary = filesystem.names().create_temporary(&caller, &root, 0o600).unwrap();
    filesystem.files().write_at(&caller, temporary.inode(), 0, Cow::Borrowed(b"named later")).unwrap();
    let lost = filesystem.names().create_temporary(&caller, &root, 0o600).unwrap();
    filesystem.files().write_at(&caller, lost.inode(), 0, Cow::Owned(vec![5; 200_000])).unwrap();
    filesystem.sync().unwrap();
    btrfs_check(&image).unwrap();
    // As a crash would leave it: the orphans are there, and go when the copy is opened.
    let copy = scratch.join("copy");
    std::fs::copy(&image, &copy).unwrap();
    let recovered = open(&copy);
    assert!(list(&recovered, &recovered.root().unwrap()).is_empty());
    for number in [file.id(), temporary.inode().id(), lost.inode().id()] {
        assert_eq!(refused(recovered.inode(number)), Refusal::NotFound);
    }
    judge(recovered, &copy);
    filesystem.names().link(&caller, temporary.inode(), &root, b"named").unwrap();
    temporary.close().unwrap();
    held.close().unwrap();
    lost.close().unwrap();
    assert_eq!(refused(filesystem.inode(file.id())), Refusal::NotFound);
    assert_eq!(list(&filesystem, &root).len(), 1);
    judge(filesystem, &image);
}

#[test]
fn names_without_their_subvolumes_are_directories_of_their_own() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("placeholders");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let outer = filesystem.subvolumes().create(&caller, &root, b"outer").unwrap();
    let inside = filesystem.inode(outer).unwrap();
    filesystem.subvolumes().create(&caller, &inside, b"one").unwrap();
    filesystem.subvolumes().create(&caller, &inside, b"two").unwrap();
    let shot = filesystem.subvolumes().snapshot(&caller, outer.root, &root, b"shot", false).unwrap();
    let shot = filesystem.inode(shot).unwrap();
    let [one, two] = [b"one", b"two"].map(|name| filesystem.names().lookup(&caller, &shot, name).unwrap());
    assert!(one.is_placeholder() && two.is_placeholder());
    assert_ne!(one.id(), two.id());
    filesystem.names().remove_directory(&caller, &shot, b"one").unwrap();
    assert_eq!(refused(filesystem.names().lookup(&caller, &shot, b"one")), Refusal::NotFound);
    let found = filesystem.names().lookup(&caller, &shot, b"two").unwrap();
    assert!(found.is_placeholder() && list(&filesystem, &found).is_empty());
    drop((inside, shot, one, two, found));
    judge(filesystem, &image);
}

#[test]
fn subvolumes_snapshots_and_their_deletion() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("subvolumes");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let first = filesystem.subvolumes().create(&caller, &root, b"first").unwrap();
    let inside = filesystem.inode(first).unwrap();
    put(&filesystem, &inside, "file", &[1; 100_000]);
    put(&filesystem, &inside, "small", b"inline");
    let nested = filesystem.subvolumes().create(&caller, &inside, b"nested").unwrap();
    put(&filesystem, &filesystem.inode(nested).unwrap(), "deep", b"deep");
    let directory = filesystem.names().create_directory(&caller, &root, b"snapshots", 0o755).unwrap();
    let snapshot = filesystem.subvolumes().snapshot(&caller, first.root, &directory, b"one", false).unwrap();
    let frozen = filesystem.subvolumes().snapshot(&caller, first.root, &directory, b"frozen", true).unwrap();
    let ours = filesystem.inode(snapshot).unwrap();
    put(&filesystem, &ours, "only-in-snapshot", b"new");
    filesystem.names().unlink(&caller, &inside, b"file").unwrap();
    assert_eq!(list(&filesystem, &ours).len(), 4);
    let placeholder = filesystem.names().lookup(&caller, &ours, b"nested").unwrap();
    assert!(placeholder.is_placeholder() && list(&filesystem, &placeholder).is_empty());
    assert_eq!(
        refused(filesystem.names().create_file(&caller, &placeholder, b"x", 0o644)),
        Refusal::AccessDenied
    );
    filesystem.names().remove_directory(&caller, &ours, b"nested").unwrap();
    let fixed = filesystem.inode(frozen).unwrap();
    assert_eq!(refused(filesystem.names().create_file(&caller, &fixed, b"x", 0o644)), Refusal::ReadOnly);
    assert_eq!(refused(filesystem.names().unlink(&caller, &fixed, b"file")), Refusal::ReadOnly);
    assert_eq!(
        support::read(&filesystem, &filesystem.names().lookup(&caller, &fixed, b"file").unwrap()),
        [1; 100_000]
    );
    assert_eq!(refused(filesystem.subvolumes().delete(&caller, &root, b"first")), Refusal::NotEmpty);
    filesystem.subvolumes().set_default(&caller, snapshot.root).unwrap();
    assert_eq!(refused(filesystem.subvolumes().delete(&caller, &directory, b"one")), Refusal::NotPermitted);
    let rename = |from: &Arc<Inode>, old: &[u8], to: &Arc<Inode>, new: &[u8]| {
        filesystem.names().rename(&caller, from, old, to, new, RenameMode::Replace)
    };
    rename(&inside, b"nested", &root, b"moved").unwrap();
    rename(&directory, b"one", &directory, b"renamed").unwrap();
    assert_eq!(refused(rename(&inside, b"small", &root, b"small")), Refusal::CrossesSubvolumes);
    filesystem.subvolumes().set_read_only(&caller, nested.root, true, false).unwrap();
    let shown = filesystem.subvolumes().all().unwrap();
    let paths: Vec<_> = shown.iter().map(|one| String::from_utf8_lossy(&one.path).into_owned()).collect();
    assert_eq!(paths, ["", "first", "moved", "snapshots/renamed", "snapshots/frozen"]);
    let of = |id: InodeId| shown.iter().find(|one| one.id == id.root).unwrap();
    assert_eq!(of(snapshot).parent_uuid, of(first).uuid);
    assert!(of(frozen).is_read_only && of(nested).is_read_only && !of(snapshot).is_read_only);
    filesystem.subvolumes().delete(&caller, &root, b"first").unwrap();
    drop((inside, ours));
    filesystem.subvolumes().set_default(&caller, RootId::FS_TREE).unwrap();
    filesystem.maintenance().finish_deletions().unwrap();
    assert_eq!(refused(filesystem.subvolume(first.root)), Refusal::NotFound);
    judge(filesystem, &image);
    let chosen = OpenOptions::parse("subvol=/snapshots/renamed,ro").unwrap();
    let chosen = Filesystem::open(&[&image], chosen).unwrap();
    assert_eq!(list(&chosen, &chosen.root().unwrap()).len(), 3);
}

#[test]
fn listings_are_stable_while_names_come_and_go() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("listing");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    for number in 0..100 {
        filesystem.names().create_file(&caller, &root, format!("f{number}").as_bytes(), 0o644).unwrap();
    }
    let open_directory = filesystem.names().open_directory(&caller, &root).unwrap();
    let mut seen = Vec::new();
    let mut next = 0;
    loop {
        let records = open_directory.read(next, 10).unwrap();
        let Some(last) = records.last() else { break };
        next = last.offset + 1;
        for record in records.into_iter().filter(|record| record.offset > 1) {
            // Each name listed is renamed: were the new ones listed too, this would never end.
            let new = [b"x-".as_slice(), &record.name].concat();
            filesystem
                .names()
                .rename(&caller, &root, &record.name, &root, &new, RenameMode::Replace)
                .unwrap();
            seen.push(record.name);
        }
        filesystem.sync().unwrap();
    }
    assert_eq!(seen, (0..100).map(|number| format!("f{number}").into_bytes()).collect::<Vec<_>>());
    assert_eq!(list(&filesystem, &root).len(), 100);
    judge(filesystem, &image);
}

#[test]
fn a_removed_directory_takes_no_names_while_it_is_open() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("dead");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let file = put(&filesystem, &root, "file", b"x");
    let directory = filesystem.names().create_directory(&caller, &root, b"directory", 0o755).unwrap();
    let open_directory = filesystem.names().open_directory(&caller, &directory).unwrap();
    filesystem.names().remove_directory(&caller, &root, b"directory").unwrap();
    assert_eq!(refused(filesystem.names().create_file(&caller, &directory, b"x", 0o644)), Refusal::NotFound);
    assert_eq!(refused(filesystem.names().link(&caller, &file, &directory, b"x")), Refusal::NotFound);
    let renamed = filesystem.names().rename(&caller, &root, b"file", &directory, b"x", RenameMode::Replace);
    assert_eq!(refused(renamed), Refusal::NotFound);
    filesystem.sync().unwrap();
    drop(open_directory);
    assert_eq!(refused(filesystem.inode(directory.id())), Refusal::NotFound);
    judge(filesystem, &image);
}

#[test]
fn with_owners_me_all_is_ours_and_what_is_stored_stays() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("owners");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let file = put(&filesystem, &root, "file", b"x");
    let changes = SetAttributes {
        user: Some(UserId(4711)),
        group: Some(GroupId(4712)),
        permissions: Some(0o600),
        ..Default::default()
    };
    filesystem.attributes().set(&root_user(), &file, &changes).unwrap();
    drop((file, root));
    filesystem.close().unwrap();
    let options = OpenOptions { owners: Owners::Me, ..OpenOptions::default() };
    let filesystem = Filesystem::open(&[&image], options).unwrap();
    let root = filesystem.root().unwrap();
    let us = UserId(rustix::process::geteuid().as_raw());
    let caller = Caller { capabilities: vlinder_fs::Capabilities::NONE, ..Caller::user(us, GroupId(0)) };
    let file = filesystem.names().lookup(&caller, &root, b"file").unwrap();
    assert_eq!(filesystem.attributes().of(&file).user, us);
    filesystem.rights().access(&caller, &file, vlinder_fs::Access::WRITE).unwrap();
    let taken = filesystem.attributes().set(&caller, &file, &own_by(us.0 + 1));
    assert_eq!(refused(taken), Refusal::NotPermitted);
    drop((file, root));
    filesystem.close().unwrap();
    let filesystem = open(&image);
    let file = filesystem.names().lookup(&root_user(), &filesystem.root().unwrap(), b"file").unwrap();
    assert_eq!(filesystem.attributes().of(&file).user, UserId(4711));
}
