//! Which user may ask for what: each request as root, as the one who mounted, as the owner of the files, and
//! as a stranger.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use vlinder_base::sync::{Arc, Mutex};
use vlinder_control::protocol::{MAX_DEDUPE_BYTES, SubvolumeTarget, TrimPlace};
use vlinder_control::{
    Answer, Conversation, ErrorKind, Executor, FilesystemExecutor, KernelNotifier, MountFacts, Peer, Request,
    Unplaced,
};
use vlinder_fs::{Caller, Filesystem, GroupId, InodeId, OpenOptions, SetAttributes, UserId};
use vlinder_testkit::{Scratch, golden};

/// What writing back fails with, once, as the kernel tells it.
#[derive(Default)]
struct NoKernel {
    failure: Mutex<Option<Errno>>,
    /// What storing the rest fails with, once.
    unstored: Mutex<Option<Errno>>,
    /// The mount that is read-only.
    read_only: Mutex<Option<u64>>,
}

impl KernelNotifier for NoKernel {
    fn is_read_only(&self, _: i32, mount: Option<u64>) -> bool {
        mount.is_some() && mount == *self.read_only.lock()
    }

    fn deletions(&self) -> u64 {
        0
    }

    fn wait_for_deletions(&self, _: u64) -> bool {
        false
    }

    fn unplaced(&self) -> Unplaced {
        Unplaced::default()
    }

    fn write_back(&self) -> io::Result<()> {
        self.failure.lock().take().map_or(Ok(()), |errno| Err(errno.into()))
    }

    fn store_the_rest(&self) -> io::Result<()> {
        self.unstored.lock().take().map_or(Ok(()), |errno| Err(errno.into()))
    }

    fn entry_changed(&self, _: InodeId, _: &[u8]) {}

    fn attributes_changed(&self, _: InodeId) {}
}

const MOUNTER: u32 = 1000;
const OWNER: u32 = 2000;
const STRANGER: u32 = 3000;
const PEERS: [u32; 4] = [0, MOUNTER, OWNER, STRANGER];

fn peer(user: u32) -> Peer {
    Peer { user, group: user, groups: Vec::new(), process: 1 }
}

struct Rig {
    executor: FilesystemExecutor,
    filesystem: Filesystem,
    kernel: Arc<NoKernel>,
    _scratch: Scratch,
}

impl Rig {
    /// A directory `theirs` of the owner's with the subvolume `sub` and the closed directory `private`, and
    /// one, `open`, for everybody.
    fn new(options: &str) -> Self {
        let scratch = Scratch::new("rights");
        let image = scratch.join("image");
        golden::unpack("empty", &image).unwrap();
        let filesystem = Filesystem::open(&[&image], OpenOptions::parse(options).unwrap()).unwrap();
        let (root, caller) = (filesystem.root().unwrap(), Caller { umask: 0, ..Caller::superuser() });
        let owner = Caller::user(UserId(OWNER), GroupId(OWNER));
        let theirs = filesystem.names().create_directory(&caller, &root, b"theirs", 0o755).unwrap();
        let change = SetAttributes { user: Some(UserId(OWNER)), ..Default::default() };
        filesystem.attributes().set(&caller, &theirs, &change).unwrap();
        filesystem.names().create_directory(&caller, &root, b"open", 0o777).unwrap();
        filesystem.names().create_directory(&owner, &theirs, b"private", 0o700).unwrap();
        filesystem.names().create_file(&owner, &theirs, b"secret", 0o600).unwrap();
        for name in ["sub", "victim-0", "victim-1000", "victim-2000", "victim-3000"] {
            filesystem.subvolumes().create(&owner, &theirs, name.as_bytes()).unwrap();
        }
        let mountpoint = PathBuf::from("/mnt");
        let facts = MountFacts { devices: vec![image], mountpoint, owner: MOUNTER, options: Vec::new() };
        let kernel = Arc::new(NoKernel::default());
        let executor = FilesystemExecutor::new(filesystem.clone(), kernel.clone(), facts);
        Rig { executor, filesystem, kernel, _scratch: scratch }
    }

    /// The errno that each peer gets; 0 where it may.
    fn judge(&self, request: impl Fn(u32) -> Request) -> [i32; 4] {
        PEERS.map(|user| {
            match self.executor.execute(&peer(user), request(user), &mut Conversation::default()) {
                Ok(_) => 0,
                Err(body) => body.errno,
            }
        })
    }
}

const NOT_PERMITTED: i32 = 1;
const ACCESS_DENIED: i32 = 13;
const ALL: [i32; 4] = [0; 4];
const PRIVILEGED: [i32; 4] = [0, 0, NOT_PERMITTED, NOT_PERMITTED];

fn sub() -> SubvolumeTarget {
    SubvolumeTarget::Path("theirs/sub".into())
}

#[test]
fn each_request_is_for_whom_linux_allows_it() {
    let rig = Rig::new("");
    let path = |name: &str, user: u32| format!("{name}-{user}").as_str().into();
    let create = |user| Request::SubvolumeCreate { path: path("theirs/new", user), umask: 0 };
    assert_eq!(rig.judge(create), [0, ACCESS_DENIED, 0, ACCESS_DENIED]);
    let snapshot = |user| {
        let source = "theirs/sub".into();
        Request::SubvolumeSnapshot { source, path: path("open/shot", user), read_only: false }
    };
    assert_eq!(rig.judge(snapshot), [0, NOT_PERMITTED, 0, NOT_PERMITTED]);
    let delete = |user| {
        let target = SubvolumeTarget::Path(path("theirs/victim", user));
        Request::SubvolumeDelete { target, commit: false }
    };
    assert_eq!(rig.judge(delete), PRIVILEGED);
    assert_eq!(rig.judge(|_| Request::SubvolumeList), PRIVILEGED);
    let resolve = |_| Request::InodeResolve { path: "theirs".into(), inode: 257 };
    assert_eq!(rig.judge(resolve), PRIVILEGED);
    assert_eq!(rig.judge(|_| Request::SubvolumeSetDefault { target: sub() }), PRIVILEGED);
    assert_eq!(rig.judge(|_| Request::LabelSet { label: "name".into() }), PRIVILEGED);
    let (name, value) = ("ro".to_owned(), "true");
    let ro = |_| Request::PropertySet {
        path: "theirs/sub".into(),
        name: name.clone(),
        value: value.into(),
        force: false,
    };
    assert_eq!(rig.judge(ro), [0, 0, 0, NOT_PERMITTED]);
    let map = |_| Request::FileMap { path: "theirs/secret".into(), from: 0 };
    assert_eq!(rig.judge(map), [0, ACCESS_DENIED, 0, ACCESS_DENIED]);
    assert_eq!(rig.judge(|_| Request::SubvolumeShow { target: sub() }), ALL);
    let by_number = |_| Request::SubvolumeShow { target: SubvolumeTarget::Number(256) };
    assert_eq!(rig.judge(by_number), PRIVILEGED);
    let private = |_| Request::RootId { path: "theirs/private/file".into() };
    let no_such_file = 2;
    assert_eq!(rig.judge(private), [no_such_file, ACCESS_DENIED, no_such_file, ACCESS_DENIED]);
    for open in [
        Request::Mount,
        Request::SubvolumeGetDefault,
        Request::FilesystemSync,
        Request::FilesystemDf,
        Request::FilesystemUsage,
        Request::LabelGet,
        Request::PropertyGet { path: "theirs/sub".into(), name: "ro".into() },
        Request::RootId { path: "theirs/sub".into() },
        Request::Statistics,
    ] {
        assert_eq!(rig.judge(|_| open.clone()), ALL, "{open:?}");
    }
    assert_eq!(rig.judge(|_| Request::Lease), PRIVILEGED);
    assert_eq!(rig.judge(|_| Request::Fstrim { from: None }), PRIVILEGED);
    assert_eq!(rig.judge(|_| Request::Unmount), PRIVILEGED);
}

/// Case R5: what the kernel shows read-only changes through the socket no more than by a system call.
#[test]
fn a_changing_request_is_refused_on_a_read_only_mount() {
    let rig = Rig::new("");
    let set = |path: &str, name: &str, value: &str| Request::PropertySet {
        path: path.into(),
        name: name.to_owned(),
        value: value.into(),
        force: false,
    };
    let create = Request::SubvolumeCreate { path: "open/new".into(), umask: 0 };
    let delete =
        |name: &str| Request::SubvolumeDelete { target: SubvolumeTarget::Path(name.into()), commit: false };
    let changes = [
        create.clone(),
        Request::SubvolumeSnapshot { source: "theirs/sub".into(), path: "open/s".into(), read_only: true },
        Request::SubvolumeSetDefault { target: sub() },
        Request::LabelSet { label: "name".into() },
        Request::Fstrim { from: None },
        set("", "label", "other"),
        set("theirs/sub", "ro", "true"),
        set("theirs/sub", "ro", "false"),
        set("theirs", "compression", "zstd"),
        Request::ByCall { request: Box::new(create) },
        Request::ByCall { request: Box::new(delete("theirs/victim-0")) },
        delete("theirs/victim-1000"),
    ];
    let keeps = [
        Request::Mount,
        Request::SubvolumeList,
        Request::FilesystemSync,
        Request::LabelGet,
        Request::Statistics,
        Request::Remounted { read_only: true },
        Request::Lease,
        Request::LeaseConfirm,
        Request::Remounted { read_only: false },
        Request::Unmount,
    ];
    let mut conversation = Conversation { mount: Some(7), ..Conversation::default() };
    let mut ask = |request: &Request| rig.executor.execute(&peer(0), request.clone(), &mut conversation);
    *rig.kernel.read_only.lock() = Some(7);
    for request in &changes {
        let refused = ask(request).unwrap_err();
        assert_eq!((refused.kind, refused.errno), (ErrorKind::ReadOnly, 30), "{request:?}");
    }
    for request in &keeps {
        assert!(ask(request).is_ok(), "{request:?}");
    }
    // Another mount of the same file system is writable.
    *rig.kernel.read_only.lock() = Some(8);
    for request in &changes {
        assert!(ask(request).is_ok(), "{request:?}");
    }
}

#[test]
fn trimming_goes_on_from_any_place_and_ends_with_the_mount() {
    let rig = Rig::new("");
    let trim = |from| rig.executor.execute(&peer(0), Request::Fstrim { from }, &mut Conversation::default());
    // A slow machine does not come to the end in one request.
    let bytes_from = |mut from: Option<TrimPlace>| {
        let (mut groups, mut unallocated) = (0, 0);
        loop {
            let Answer::Trimmed(record) = trim(from).unwrap() else { panic!() };
            groups += record.group_bytes;
            unallocated += record.unallocated_bytes;
            assert!(record.next.is_none() || record.next > from, "{from:?} {record:?}");
            from = record.next;
            if from.is_none() {
                return (groups, unallocated);
            }
        }
    };
    let generation = rig.filesystem.engine().generation();
    let root = rig.filesystem.root().unwrap();
    rig.filesystem.names().create_file(&Caller::superuser(), &root, b"new", 0o644).unwrap();
    let (groups, unallocated) = bytes_from(None);
    assert!(groups > 0 && unallocated > 0, "{groups} {unallocated}");
    assert!(rig.filesystem.engine().generation() > generation, "no commit");
    for place in [
        TrimPlace::Groups { logical_bytes: u64::MAX },
        TrimPlace::Unallocated { device: 1, offset_bytes: 0 },
        TrimPlace::Unallocated { device: 0, offset_bytes: u64::MAX },
    ] {
        assert_eq!(bytes_from(Some(place)), (0, unallocated), "{place:?}");
    }
    let behind = TrimPlace::Unallocated { device: 1, offset_bytes: u64::MAX };
    assert_eq!(bytes_from(Some(behind)), (0, 0));
    rig.executor.stop();
    let ended = trim(None).unwrap_err();
    assert_eq!(ended.errno, Errno::INTR.raw_os_error());
}

#[test]
fn unmounting_fails_over_what_the_kernel_could_not_hand_over() {
    let rig = Rig::new("");
    *rig.kernel.failure.lock() = Some(Errno::NOSPC);
    let unmount = || rig.executor.execute(&peer(0), Request::Unmount, &mut Conversation::default());
    let error = unmount().unwrap_err();
    assert!(error.message.contains("could not hand over"), "{error:?}");
    assert!(error.hint.is_some());
    // Told once, it may end.
    assert!(matches!(unmount(), Ok(Answer::Prepared { .. })));
}

#[test]
fn what_found_no_room_keeps_nothing_else_from_becoming_durable() {
    let rig = Rig::new("");
    let sync = || rig.executor.execute(&peer(0), Request::FilesystemSync, &mut Conversation::default());
    let make = |name: &[u8]| {
        let root = rig.filesystem.root().unwrap();
        let file = rig.filesystem.names().create_file(&Caller::superuser(), &root, name, 0o644).unwrap();
        rig.filesystem.files().write_at(&Caller::superuser(), &file, 0, b"stored".as_slice().into()).unwrap();
        rig.filesystem.engine().generation()
    };
    for (name, errno, is_stored) in
        [(&b"one"[..], Errno::NOSPC, true), (b"two", Errno::IO, false), (b"three", Errno::NOSPC, true)]
    {
        let before = make(name);
        *rig.kernel.failure.lock() = Some(errno);
        let told = sync().unwrap_err();
        assert_eq!(told.errno, errno.raw_os_error());
        let words = format!("the kernel could not hand over what it had cached: {}", io::Error::from(errno));
        assert_eq!(told.message, words);
        assert_eq!(rig.filesystem.engine().generation() > before, is_stored, "{errno}");
    }
}

#[test]
fn a_sync_tells_of_what_it_could_not_store() {
    let rig = Rig::new("");
    let sync = || rig.executor.execute(&peer(0), Request::FilesystemSync, &mut Conversation::default());
    for errno in [Errno::NOSPC, Errno::IO] {
        *rig.kernel.unstored.lock() = Some(errno);
        let told = sync().unwrap_err();
        assert_eq!(told.errno, errno.raw_os_error());
        let words = format!("not all that the kernel had cached could be stored: {}", io::Error::from(errno));
        assert_eq!(told.message, words);
        assert!(matches!(sync(), Ok(Answer::Synced { .. })), "told once");
    }
}

#[test]
fn with_user_subvol_rm_allowed_owners_delete_their_subvolumes() {
    let rig = Rig::new("user_subvol_rm_allowed");
    let delete = |user: u32| {
        let target = SubvolumeTarget::Path(format!("theirs/victim-{user}").as_str().into());
        Request::SubvolumeDelete { target, commit: false }
    };
    assert_eq!(rig.judge(delete), [0, 0, 0, ACCESS_DENIED]);
    let root = Caller::superuser();
    let theirs = rig.filesystem.names().lookup(&root, &rig.filesystem.root().unwrap(), b"theirs").unwrap();
    assert!(rig.filesystem.names().lookup(&root, &theirs, b"victim-3000").is_ok());
}

#[test]
fn one_request_compares_a_bounded_range() {
    let rig = Rig::new("rw");
    let dedupe = |length| {
        let (source, path) = ("open".into(), "open".into());
        let request = Request::FileDedupe { source, source_offset: 0, path, offset: 1 << 62, length };
        rig.executor.execute(&peer(OWNER), request, &mut Conversation::default())
    };
    // A directory is refused after the length was judged.
    assert_eq!(dedupe(MAX_DEDUPE_BYTES).unwrap_err().errno, Errno::ISDIR.raw_os_error());
    for length in [MAX_DEDUPE_BYTES + 1, 1 << 61, u64::MAX] {
        let refused = dedupe(length).unwrap_err();
        assert_eq!(refused.errno, Errno::INVAL.raw_os_error(), "{length}: {refused:?}");
        assert!(refused.hint.is_some() && refused.place.is_some(), "{refused:?}");
    }
}

#[test]
fn values_of_properties_are_bytes() {
    let rig = Rig::new("");
    let label = vlinder_control::Name(b"na\xffme".to_vec());
    let set =
        Request::PropertySet { path: "".into(), name: "label".into(), value: label.clone(), force: false };
    assert_eq!(rig.executor.execute(&peer(0), set, &mut Conversation::default()).unwrap(), Answer::Done);
    let get = Request::PropertyGet { path: "".into(), name: "label".into() };
    assert_eq!(
        rig.executor.execute(&peer(0), get, &mut Conversation::default()).unwrap(),
        Answer::Property { value: Some(label) }
    );
}

#[test]
fn a_lease_lives_as_long_as_the_conversation() {
    let rig = Rig::new("");
    let mut conversation = Conversation::default();
    let mut ask = |request| rig.executor.execute(&peer(MOUNTER), request, &mut conversation);
    assert_eq!(ask(Request::LeaseConfirm).unwrap_err().errno, 22);
    let Answer::Leased { generation, devices } = ask(Request::Lease).unwrap() else { panic!("no lease") };
    let superblock = vlinder_volume::superblock::unpack(&devices[0].superblock.0).unwrap();
    assert_eq!((devices.len(), superblock.generation.0), (1, generation));
    assert_eq!(ask(Request::LeaseConfirm).unwrap(), Answer::Done);
    let leases = || {
        let samples = rig.filesystem.options().registry.snapshot();
        let sample = samples.into_iter().find(|sample| sample.name == "commit.leases").unwrap();
        format!("{:?}", sample.value)
    };
    assert_eq!(leases(), "Gauge(1)");
    ask(Request::Lease).unwrap();
    assert_eq!(leases(), "Gauge(1)");
    drop(conversation);
    assert_eq!(leases(), "Gauge(0)");
}
