//! What a change of a file's data does besides: to set-id bits, capabilities and times; and where it is
//! refused.

use std::borrow::Cow;

use crate::support::{image, open, root_user};
use vlinder_base::sync::Arc;
use vlinder_fs::data::Allocate;
use vlinder_fs::{
    AttributeMode, Caller, Capabilities, ContentTimes, FileChange, Filesystem, GroupId, Inode, InodeFlags,
    Refusal, SetAttributes, SetTime, Timestamp, UserId, WriteOrigin,
};
use vlinder_testkit::{Scratch, require};

const CAPABILITY: &[u8] = b"security.capability";
const LONG_AGO: Timestamp = Timestamp { seconds: 1_000_000, nanoseconds: 7 };
const OPEN_FILE: WriteOrigin = WriteOrigin::OpenFile { times: ContentTimes::Move };
const KEEPS_TIMES: WriteOrigin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
const TIMES_COME: WriteOrigin = WriteOrigin::OpenFile { times: ContentTimes::ComeLater };

fn ordinary() -> Caller {
    Caller::user(UserId(1000), GroupId(1000))
}

/// A file with data, of long ago, with set-id bits and a capability.
fn privileged(filesystem: &Filesystem, name: &str) -> Arc<Inode> {
    let caller = root_user();
    let file =
        filesystem.names().create_file(&caller, &filesystem.root().unwrap(), name.as_bytes(), 0o666).unwrap();
    filesystem.files().write_at(&caller, &file, 0, Cow::Borrowed(&[1; 9000])).unwrap();
    filesystem
        .attributes()
        .set_extended_attribute(&caller, &file, CAPABILITY, &[1; 20], AttributeMode::Either)
        .unwrap();
    let changes = SetAttributes {
        permissions: Some(0o6755),
        modification_time: Some(SetTime::At(LONG_AGO)),
        change_time: Some(LONG_AGO),
        ..SetAttributes::default()
    };
    filesystem.attributes().set(&caller, &file, &changes).unwrap();
    file
}

fn has_capability(filesystem: &Filesystem, file: &Arc<Inode>) -> bool {
    match filesystem.attributes().extended_attribute(&root_user(), file, CAPABILITY) {
        Ok(value) => value == [1; 20],
        Err(error) => {
            assert_eq!(error.refusal(), Some(Refusal::NoAttribute));
            false
        }
    }
}

/// The permissions, whether there is a capability, and whether the times moved (that of the inode does with
/// its privileges, too).
fn seen(filesystem: &Filesystem, file: &Arc<Inode>) -> (u32, bool, bool) {
    let attributes = filesystem.attributes().of(file);
    let moved = attributes.modification_time != LONG_AGO;
    assert!(!moved || attributes.change_time != LONG_AGO, "both times move");
    (attributes.mode.permissions(), has_capability(filesystem, file), moved)
}

fn refused<T: std::fmt::Debug>(result: vlinder_fs::Result<T>) -> Refusal {
    result.unwrap_err().refusal().unwrap()
}

#[test]
fn privileges_go_and_times_move_with_every_kind_of_change() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("file-change");
    let filesystem = open(&image(&scratch, 256, &[]));
    let source = privileged(&filesystem, "source");
    let write = |caller: &Caller, file: &Arc<Inode>, origin| {
        filesystem.files().write_file(caller, file, 10, Cow::Borrowed(b"changed"), origin).unwrap()
    };
    let allocate = |caller: &Caller, file: &Arc<Inode>, origin| {
        filesystem.files().allocate_file(caller, file, Allocate::PunchHole, 0, 7, origin).unwrap()
    };
    let copy = |caller: &Caller, file: &Arc<Inode>, origin| {
        filesystem.files().copy_file_range(caller, (&source, 0), (file, 100), 7, origin).unwrap()
    };
    type Change<'a> = &'a dyn Fn(&Caller, &Arc<Inode>, WriteOrigin) -> FileChange;
    let changes: [(&str, Change<'_>); 3] = [("write", &write), ("allocate", &allocate), ("copy", &copy)];
    // As Linux has it, capabilities go with any write.
    let cases = [
        ("ordinary", ordinary(), WriteOrigin::Caller, (0o755, false, true)),
        ("opened", ordinary(), OPEN_FILE, (0o755, false, true)),
        ("times-kept", ordinary(), KEEPS_TIMES, (0o755, false, false)),
        ("times-to-come", ordinary(), TIMES_COME, (0o755, false, false)),
        ("root", root_user(), WriteOrigin::Caller, (0o6755, false, true)),
        ("written-back", ordinary(), WriteOrigin::WriteBack, (0o6755, true, false)),
        ("mapped", ordinary(), WriteOrigin::Mapped, (0o6755, true, true)),
    ];
    for (kind, change) in changes {
        for (case, caller, origin, expected) in &cases {
            let file = privileged(&filesystem, &format!("{kind}-{case}"));
            let done = change(caller, &file, *origin);
            assert_eq!(seen(&filesystem, &file), *expected, "{kind} {case}");
            assert_eq!(done, FileChange { length_bytes: 7, mode_changed: expected.0 != 0o6755 });
            assert!(!change(caller, &file, *origin).mode_changed, "{kind} {case}: once only");
        }
    }
    let untouched = privileged(&filesystem, "untouched");
    let nothing = filesystem
        .files()
        .write_file(&ordinary(), &untouched, 0, Cow::Borrowed(b""), WriteOrigin::Caller)
        .unwrap();
    assert_eq!((nothing, seen(&filesystem, &untouched)), (FileChange::default(), (0o6755, true, false)));
    filesystem.close().unwrap();
}

/// The answers were Linux's 6.18 for the same calls on a file of this shape.
#[test]
fn a_hole_in_a_hole_changes_nothing_and_any_other_does() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("hole-in-hole");
    let filesystem = open(&image(&scratch, 256, &[]));
    let files = filesystem.files();
    let size = SetAttributes { size: Some(1 << 20), ..SetAttributes::default() };
    let cases: [(&str, u64, u64, bool); 9] = [
        ("in data", 0, 4096, true),
        ("in a part of a sector with data", 4106, 100, true),
        ("the last sector of data, and a hole", 8192, 16384, true),
        ("a hole", 1 << 19, 8192, false),
        ("a part of a sector of a hole", (1 << 19) + 10, 100, false),
        ("sectors of a hole in part", (1 << 19) + 10, 10_000, false),
        ("behind the end", 2 << 20, 8192, false),
        ("preallocated space", 1 << 17, 4096, true),
        ("preallocated space behind the end", 3 << 20, 4096, true),
    ];
    for is_flushed in [true, false] {
        for (case, offset, length, moves) in cases {
            let file = privileged(&filesystem, &format!("{case}-{is_flushed}"));
            let keep_size = Allocate::Reserve { keep_size: true };
            for at in [1 << 17, 3 << 20] {
                files.allocate_file(&root_user(), &file, keep_size, at, 4096, KEEPS_TIMES).unwrap();
            }
            let again = SetAttributes {
                permissions: Some(0o6755),
                modification_time: Some(SetTime::At(LONG_AGO)),
                change_time: Some(LONG_AGO),
                ..size
            };
            filesystem.attributes().set(&root_user(), &file, &again).unwrap();
            if is_flushed {
                filesystem.sync().unwrap();
            }
            let punched =
                files.allocate_file(&ordinary(), &file, Allocate::PunchHole, offset, length, OPEN_FILE);
            assert_eq!(punched.unwrap(), FileChange { length_bytes: length, mode_changed: moves }, "{case}");
            let permissions = if moves { 0o755 } else { 0o6755 };
            let (found, _, moved) = seen(&filesystem, &file);
            assert_eq!((found, moved), (permissions, moves), "{case}, flushed: {is_flushed}");
        }
    }
    let file = privileged(&filesystem, "refused");
    for (offset, length) in [(0, 0), (u64::MAX - 5, 4096), (1 << 63, 1)] {
        let punched = files.allocate_file(&ordinary(), &file, Allocate::PunchHole, offset, length, OPEN_FILE);
        assert!(punched.is_err(), "{offset}, {length}");
    }
    filesystem.close().unwrap();
}

/// As `setattr_should_drop_sgid` (fs/attr.c) has it: where the group can't execute the file, its members keep
/// the bit.
#[test]
fn set_group_id_without_execution_stays_for_members_alone() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("set-group-id");
    let filesystem = open(&image(&scratch, 256, &[]));
    let (root, keeper) = (root_user(), Capabilities::FSETID);
    let group = SetAttributes { group: Some(GroupId(7)), ..SetAttributes::default() };
    let member = Caller { groups: vec![GroupId(7)], ..ordinary() };
    let capable = Caller { capabilities: keeper, ..ordinary() };
    let owner = Caller { capabilities: Capabilities::CHOWN, ..ordinary() };
    let file = filesystem.names().create_file(&root, &filesystem.root().unwrap(), b"file", 0o666).unwrap();
    filesystem.attributes().set(&root, &file, &group).unwrap();
    let left = |permissions, change: &dyn Fn()| {
        let set = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        filesystem.attributes().set(&root, &file, &set).unwrap();
        change();
        filesystem.attributes().of(&file).mode.permissions()
    };
    let cases = [
        (&root, 0o6666, 0o2666),
        (&member, 0o2666, 0o2666),
        (&capable, 0o6666, 0o2666),
        (&ordinary(), 0o666, 0o666),
    ];
    for (caller, after_write, after_chown) in cases {
        let write = || {
            let bytes = Cow::Borrowed(&b"x"[..]);
            filesystem.files().write_file(caller, &file, 0, bytes, OPEN_FILE).map(drop).unwrap();
        };
        assert_eq!(left(0o6666, &write), after_write, "{caller:?}");
        let may_chown =
            Caller { capabilities: caller.capabilities.with(owner.capabilities), ..caller.clone() };
        let chown = || {
            filesystem.attributes().set(&may_chown, &file, &group).map(drop).unwrap();
        };
        assert_eq!(left(0o6666, &chown), after_chown, "{caller:?}");
        // With execution nobody keeps it.
        assert_eq!(left(0o2676, &chown), 0o676, "{caller:?}");
    }
    let kept = SetAttributes { keeps_set_id: true, ..group };
    let chown = || {
        filesystem.attributes().set(&root, &file, &kept).map(drop).unwrap();
    };
    assert_eq!(left(0o6755, &chown), 0o6755, "the kernel has seen to it");
    filesystem.close().unwrap();
}

#[test]
fn what_may_not_change_refuses_and_keeps_its_privileges() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("file-change-refused");
    let filesystem = open(&image(&scratch, 256, &[]));
    let caller = root_user();
    let root = filesystem.root().unwrap();
    let frozen = privileged(&filesystem, "frozen");
    let source = privileged(&filesystem, "source");
    let growing = privileged(&filesystem, "growing");
    filesystem.attributes().set_flags(&caller, &growing, InodeFlags::APPEND).unwrap();
    let write = |file, offset, origin| {
        filesystem.files().write_file(&ordinary(), file, offset, Cow::Borrowed(b"x"), origin)
    };
    let allocate =
        |file, what, origin| filesystem.files().allocate_file(&ordinary(), file, what, 0, 9, origin);
    let copy =
        |file, origin| filesystem.files().copy_file_range(&ordinary(), (&source, 0), (file, 9000), 9, origin);

    assert_eq!(refused(write(&growing, 0, WriteOrigin::Caller)), Refusal::NotPermitted);
    assert_eq!(refused(allocate(&growing, Allocate::PunchHole, OPEN_FILE)), Refusal::NotPermitted);
    assert_eq!(refused(copy(&growing, WriteOrigin::Caller)), Refusal::NotPermitted);
    assert_eq!(seen(&filesystem, &growing).0, 0o6755);
    write(&growing, 9000, WriteOrigin::Caller).unwrap();
    write(&growing, 0, OPEN_FILE).unwrap();
    allocate(&growing, Allocate::Reserve { keep_size: true }, OPEN_FILE).unwrap();

    filesystem.attributes().set_flags(&caller, &frozen, InodeFlags::IMMUTABLE).unwrap();
    assert_eq!(refused(write(&frozen, 9000, WriteOrigin::Caller)), Refusal::NotPermitted);
    let reserve = Allocate::Reserve { keep_size: true };
    assert_eq!(refused(allocate(&frozen, reserve, OPEN_FILE)), Refusal::NotPermitted);
    assert_eq!(refused(copy(&frozen, OPEN_FILE)), Refusal::NotPermitted);
    assert_eq!(refused(write(&root, 0, WriteOrigin::Caller)), Refusal::IsADirectory);
    assert_eq!(seen(&filesystem, &frozen).0, 0o6755);
    write(&frozen, 9000, WriteOrigin::WriteBack).unwrap();

    let id = filesystem.subvolumes().create(&caller, &root, b"read-only").unwrap();
    let subvolume = filesystem.inode(id).unwrap();
    let file = filesystem.names().create_file(&caller, &subvolume, b"file", 0o666).unwrap();
    filesystem.subvolumes().set_read_only(&caller, id.root, true, false).unwrap();
    for origin in [WriteOrigin::Caller, OPEN_FILE, KEEPS_TIMES, WriteOrigin::WriteBack] {
        assert_eq!(refused(write(&file, 0, origin)), Refusal::ReadOnly);
        assert_eq!(refused(allocate(&file, reserve, origin)), Refusal::ReadOnly);
        assert_eq!(refused(copy(&file, origin)), Refusal::ReadOnly);
    }
    filesystem.close().unwrap();
}
