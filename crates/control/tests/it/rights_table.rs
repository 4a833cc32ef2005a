//! The table of requests and users in docs/design/rights.md, asked of a real server by real users.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{Gid, Uid};
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread;
use vlinder_control::protocol::{ReceiveRequest, SubvolumeTarget};
use vlinder_control::{
    Answer, Client, ClientError, FilesystemExecutor, KernelNotifier, MountEntry, MountFacts, Request, Server,
    SocketLocation, Unplaced,
};
use vlinder_fs::{Caller, Filesystem, GroupId, InodeId, OpenOptions, SetAttributes, UserId};
use vlinder_testkit::{Scratch, golden, require};

const MOUNTER: u32 = 51_000;
const OWNER: u32 = 52_000;
const STRANGER: u32 = 53_000;
/// The number of the only mount that a client names.
const MOUNT: u64 = 7;

/// A kernel that has nothing cached, and shows the mount as it is told.
struct Kernel {
    is_read_only: AtomicBool,
}

impl KernelNotifier for Kernel {
    fn write_back(&self) -> io::Result<()> {
        Ok(())
    }

    fn store_the_rest(&self) -> io::Result<()> {
        Ok(())
    }

    fn entry_changed(&self, _: InodeId, _: &[u8]) {}

    fn attributes_changed(&self, _: InodeId) {}

    fn unplaced(&self) -> Unplaced {
        Unplaced::default()
    }

    fn deletions(&self) -> u64 {
        0
    }

    fn is_read_only(&self, _: i32, mount: Option<u64>) -> bool {
        mount == Some(MOUNT) && self.is_read_only.load(Ordering::Relaxed)
    }

    fn wait_for_deletions(&self, _: u64) -> bool {
        false
    }
}

/// A server on a file system with a directory `theirs` of the files' owner and one, `open`, for everybody.
struct Rig {
    server: Option<Server>,
    location: SocketLocation,
    victim: u64,
    _scratch: Scratch,
}

impl Rig {
    fn new(is_read_only: bool, allow_other: bool) -> Self {
        let scratch = Scratch::new("rights-table");
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let image = scratch.join("image");
        golden::unpack("empty", &image).unwrap();
        let filesystem = Filesystem::open(&[&image], OpenOptions::parse("").unwrap()).unwrap();
        let (root, caller) = (filesystem.root().unwrap(), Caller { umask: 0, ..Caller::superuser() });
        let owner = Caller::user(UserId(OWNER), GroupId(OWNER));
        let theirs = filesystem.names().create_directory(&caller, &root, b"theirs", 0o755).unwrap();
        let change = SetAttributes { user: Some(UserId(OWNER)), ..Default::default() };
        filesystem.attributes().set(&caller, &theirs, &change).unwrap();
        filesystem.names().create_directory(&caller, &root, b"open", 0o777).unwrap();
        filesystem.names().create_file(&caller, &root, b"public", 0o644).unwrap();
        let private = filesystem.names().create_directory(&owner, &theirs, b"private", 0o700).unwrap();
        filesystem.names().create_file(&owner, &private, b"file", 0o600).unwrap();
        filesystem.names().create_file(&owner, &theirs, b"secret", 0o600).unwrap();
        filesystem.subvolumes().create(&owner, &theirs, b"sub").unwrap();
        filesystem.subvolumes().create(&owner, &theirs, b"victim").unwrap();
        let victim = filesystem.subvolumes().create(&owner, &theirs, b"second").unwrap().root.0;
        let facts = MountFacts {
            devices: vec![image],
            mountpoint: PathBuf::from("/mnt"),
            owner: MOUNTER,
            options: Vec::new(),
        };
        let kernel = Arc::new(Kernel { is_read_only: AtomicBool::new(is_read_only) });
        let executor = FilesystemExecutor::new(filesystem, kernel, facts);
        let location = SocketLocation::in_directory(scratch.join("run"), (7, 9), allow_other);
        let server = Server::start(std::slice::from_ref(&location), Arc::new(executor)).unwrap();
        Self { server: Some(server), location, victim, _scratch: scratch }
    }

    /// A request for each row of the table, in an order in which none spoils the next.
    fn requests(&self) -> Vec<(&'static str, Request)> {
        let at = |name: &str| SubvolumeTarget::Path(name.into());
        let set = |path: &str, name: &str, value: &str| Request::PropertySet {
            path: path.into(),
            name: name.to_owned(),
            value: value.into(),
            force: false,
        };
        let create = |path: &str| Request::SubvolumeCreate { path: path.into(), umask: 0 };
        vec![
            ("`mount`", Request::Mount),
            ("`subvolume-create`", create("theirs/new")),
            (
                "`subvolume-snapshot`",
                Request::SubvolumeSnapshot {
                    source: "theirs/sub".into(),
                    path: "open/shot".into(),
                    read_only: false,
                },
            ),
            ("`by-call`", Request::ByCall { request: Box::new(create("theirs/called")) }),
            ("`call-outcome`", Request::CallOutcome),
            ("`subvolume-list`", Request::SubvolumeList),
            ("`subvolume-show`", Request::SubvolumeShow { target: at("theirs/sub") }),
            (
                "`subvolume-show` by number",
                Request::SubvolumeShow { target: SubvolumeTarget::Number(self.victim) },
            ),
            ("`subvolume-set-default`", Request::SubvolumeSetDefault { target: at("theirs/sub") }),
            ("`subvolume-get-default`", Request::SubvolumeGetDefault),
            ("`subvolume-sync`", Request::SubvolumeSync { numbers: Vec::new() }),
            ("`filesystem-sync`", Request::FilesystemSync),
            ("`fstrim`", Request::Fstrim { from: None }),
            ("`filesystem-df`", Request::FilesystemDf),
            ("`filesystem-usage`", Request::FilesystemUsage),
            ("`label-get`", Request::LabelGet),
            ("`label-set`", Request::LabelSet { label: "name".into() }),
            ("`property-get`", Request::PropertyGet { path: "theirs/sub".into(), name: "ro".to_owned() }),
            ("`property-set` of `label`", set("", "label", "other")),
            ("`property-set` of `compression`", set("theirs", "compression", "zstd")),
            ("`property-set` of `ro`", set("theirs/sub", "ro", "true")),
            ("`root-id`", Request::RootId { path: "theirs/sub".into() }),
            ("`root-id` behind a closed directory", Request::RootId { path: "theirs/private/file".into() }),
            ("`inode-resolve`", Request::InodeResolve { path: "theirs".into(), inode: 257 }),
            ("`file-map`", Request::FileMap { path: "theirs/secret".into(), from: 0 }),
            (
                "`file-dedupe`",
                Request::FileDedupe {
                    source: "theirs/secret".into(),
                    source_offset: 0,
                    path: "theirs/secret".into(),
                    offset: 0,
                    length: 0,
                },
            ),
            (
                "`file-dedupe` into a file of others",
                Request::FileDedupe {
                    source: "public".into(),
                    source_offset: 0,
                    path: "public".into(),
                    offset: 0,
                    length: 0,
                },
            ),
            ("`statistics`", Request::Statistics),
            ("`receive`", Request::Receive { directory: "theirs".into(), how: ONE_ERROR }),
            ("`receive-parts`", Request::ReceiveParts { directory: "theirs".into() }),
            (
                "`receive-discard`",
                Request::ReceiveDiscard { directory: "theirs".into(), name: "nothing".into() },
            ),
            ("`lease`", Request::Lease),
            ("`lease-confirm`", Request::LeaseConfirm),
            ("`subvolume-delete`", Request::SubvolumeDelete { target: at("theirs/victim"), commit: false }),
            (
                "`subvolume-delete` by number",
                Request::SubvolumeDelete { target: SubvolumeTarget::Number(self.victim), commit: false },
            ),
            ("`remounted`", Request::Remounted { read_only: false }),
            ("`unmount`", Request::Unmount),
        ]
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.finish(Ok(()));
        }
    }
}

fn mount_entry() -> MountEntry {
    MountEntry {
        id: MOUNT,
        device: (7, 9),
        root: PathBuf::from("/"),
        mountpoint: PathBuf::from("/mnt"),
        filesystem_type: "fuse.vlinder".into(),
        source: PathBuf::from("/image"),
        owner: Some(MOUNTER),
        allow_other: false,
        read_only: false,
        flags: MountFlags::empty(),
    }
}

fn connected(socket: &Path) -> Result<Client, Errno> {
    match UnixStream::connect(socket) {
        Ok(stream) => Ok(Client::with_stream(stream, mount_entry())),
        Err(error) => Err(Errno::from_io_error(&error).unwrap()),
    }
}

fn name_of(errno: i32) -> String {
    let known =
        [(1, "EPERM"), (2, "ENOENT"), (13, "EACCES"), (22, "EINVAL"), (30, "EROFS"), (95, "EOPNOTSUPP")];
    known
        .iter()
        .find(|(number, _)| *number == errno)
        .map_or(errno.to_string(), |(_, name)| (*name).to_owned())
}

const ONE_ERROR: ReceiveRequest = ReceiveRequest { max_errors: 1, ends_at_end_command: false };

/// What is said to a request; no stream follows one that is about streams.
fn said(client: &mut Client, request: &Request) -> Result<Answer, ClientError> {
    match request {
        Request::Receive { .. } => client.upload(request, &mut io::empty()),
        _ => client.request(request),
    }
}

/// What all requests of a new server come to for a user.
fn outcomes(user: u32, is_read_only: bool, allow_other: bool) -> Vec<(String, String)> {
    let rig = Rig::new(is_read_only, allow_other);
    let (socket, requests) = (rig.location.path(), rig.requests());
    let ask_all = move || {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
        // Of this thread alone: what the kernel then tells of the peer is that user.
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let mut client = connected(&socket);
        let mut ask = |request: &Request| match &mut client {
            Err(errno) => name_of(errno.raw_os_error()),
            Ok(client) => match said(client, request) {
                Ok(_) => "done".to_owned(),
                Err(ClientError::Server(body)) => name_of(body.errno),
                Err(error) => error.to_string(),
            },
        };
        requests.iter().map(|(row, request)| ((*row).to_owned(), ask(request))).collect::<Vec<_>>()
    };
    thread::spawn("peer", ask_all).join().unwrap()
}

/// The page; the tests of a process read it a few times.
fn page() -> &'static str {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/rights.md");
    std::fs::read_to_string(path).unwrap().leak()
}

/// The rows of the page's table of requests, without its head.
fn table() -> Vec<Vec<String>> {
    let lines = page().lines().skip_while(|line| !line.starts_with("| request |"));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn each_request_is_answered_to_each_user_as_the_table_says() {
    require!(Root);
    let columns = [
        ("root", 0, false, true),
        ("mount's owner", MOUNTER, false, true),
        ("files' owner", OWNER, false, true),
        ("stranger", STRANGER, false, true),
        ("no allow_other", STRANGER, false, false),
        ("ro: root", 0, true, true),
        ("ro: stranger", STRANGER, true, true),
    ];
    let table = table();
    let mut differences = Vec::new();
    for (index, (column, user, is_read_only, allow_other)) in columns.into_iter().enumerate() {
        let found = outcomes(user, is_read_only, allow_other);
        let expected: Vec<_> = table.iter().map(|row| (row[0].clone(), row[index + 1].clone())).collect();
        assert_eq!(found.len(), expected.len(), "a row for each request, and a request for each row");
        for (found, expected) in found.into_iter().zip(expected) {
            if found != expected {
                differences.push(format!("{column}: {found:?}, on the page {expected:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// The names of all verbs are what the decoder says that it knows.
#[test]
fn no_request_is_without_a_row() {
    let refused = serde_json::from_str::<Request>(r#"{"verb":"?"}"#).unwrap_err().to_string();
    let names = refused.split_once("expected one of ").unwrap().1;
    let known: BTreeSet<_> = names.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(known.len() > 20, "{refused}");
    let told: BTreeSet<_> = table().iter().map(|row| row[0].split('`').nth(1).unwrap().to_owned()).collect();
    assert_eq!(told, known);
}
