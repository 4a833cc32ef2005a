//! Connections of many users over a real socket. A thread takes another user for itself alone, so these need
//! root.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;

use rustix::mount::MountFlags;
use rustix::process::Uid;
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_testkit::{Scratch, require};

use super::*;
use crate::connections::{MAX_OF_ANOTHER, MAX_OF_OTHERS};
use crate::{Client, ClientError, MountEntry, Name};

const STRANGER: u32 = 54_321;
const OWNER: u32 = 54_320;

struct Fake;

impl Executor for Fake {
    fn execute(&self, _: &Peer, request: Request, _: &mut Conversation) -> Result<Answer, ErrorBody> {
        Ok(match request {
            // Far more than a socket holds, and more than a slow reader takes in time.
            Request::LabelGet => Answer::Label { label: Name(vec![b'x'; 4 << 20]) },
            Request::Unmount => Answer::Prepared { process: 1, is_durable: true },
            _ => Answer::Done,
        })
    }
}

struct Rig {
    _scratch: Scratch,
    location: SocketLocation,
    server: Server,
}

/// A server whose mount belongs to `owner`.
fn rig(owner: u32, patience: Patience) -> Rig {
    let scratch = Scratch::new("connections");
    let location = SocketLocation::in_directory(scratch.join("run"), (7, 9), true);
    let server = Server::start_with(std::slice::from_ref(&location), Arc::new(Fake), patience).unwrap();
    server.shared.state.lock().connections = Connections::new(owner);
    Rig { _scratch: scratch, location, server }
}

/// A mount that is nowhere.
fn entry() -> MountEntry {
    MountEntry {
        id: 0,
        device: (7, 9),
        root: PathBuf::from("/"),
        mountpoint: PathBuf::from("/nowhere"),
        filesystem_type: "fuse.vlinder".into(),
        source: PathBuf::from("image"),
        owner: Some(OWNER),
        allow_other: false,
        read_only: false,
        flags: MountFlags::empty(),
    }
}

/// Does something as a user, in a thread of its own.
fn as_user<T: Send + 'static>(user: u32, job: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn("user", move || {
        let user = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        job()
    })
    .join()
    .unwrap()
}

impl Rig {
    fn streams_of(&self, user: u32, count: usize) -> Vec<UnixStream> {
        let path = self.location.path();
        as_user(user, move || (0..count).map(|_| UnixStream::connect(&path).unwrap()).collect())
    }

    fn client_of(&self, user: u32) -> Client {
        let stream = self.streams_of(user, 1).pop().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Client::with_stream(stream, entry())
    }

    /// Asks as a user.
    fn ask(&self, user: u32) -> Result<Answer, ClientError> {
        self.client_of(user).request(&Request::FilesystemSync)
    }
}

fn assert_refused(result: Result<Answer, ClientError>, words: &str) {
    let Err(ClientError::Server(body)) = result else { panic!("{result:?}") };
    assert_eq!(body.kind, ErrorKind::Busy, "{body}");
    assert!(body.to_string().contains(words) && body.to_string().contains("try again"), "{body}");
}

/// Case R4.
#[test]
fn idle_connections_of_others_lock_out_nobody() {
    require!(Root);
    let rig = rig(OWNER, Patience::default());
    let idle = rig.streams_of(STRANGER, 100);
    for user in [OWNER, 0] {
        assert_eq!(rig.ask(user).unwrap(), Answer::Done, "{user}");
        let prepared = rig.client_of(user).request(&Request::Unmount).unwrap();
        assert!(matches!(prepared, Answer::Prepared { .. }), "{user}: {prepared:?}");
    }
    assert_refused(rig.ask(STRANGER), "too many connections of user 54321");
    assert_eq!(rig.ask(STRANGER + 1).unwrap(), Answer::Done);
    // Many users, each within the share.
    let more = (1..20).map(|user| rig.streams_of(STRANGER + user, MAX_OF_ANOTHER)).collect::<Vec<_>>();
    assert!(more.len() * MAX_OF_ANOTHER > MAX_OF_OTHERS);
    assert_refused(rig.ask(STRANGER + 20), "too many connections of all users");
    for user in [OWNER, 0] {
        assert_eq!(rig.ask(user).unwrap(), Answer::Done, "{user}");
    }
    drop((idle, more));
    rig.server.finish(Ok(()));
}

#[test]
fn connections_that_end_make_room_for_others_of_their_user() {
    require!(Root);
    let rig = rig(OWNER, Patience::default());
    let mut idle = rig.streams_of(STRANGER, MAX_OF_ANOTHER);
    assert_refused(rig.ask(STRANGER), "too many connections of user 54321");
    idle.pop();
    let clock = SystemClock::new();
    while rig.ask(STRANGER).is_err() {
        assert!(clock.monotonic() < Duration::from_secs(10), "no room came");
        thread::sleep(Duration::from_millis(5));
    }
    rig.server.finish(Ok(()));
}

/// All that comes on a stream until its end.
fn heard(mut stream: &UnixStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn a_connection_that_asks_nothing_is_ended_in_words() {
    let limit = Duration::from_millis(300);
    let rig = rig(
        rustix::process::geteuid().as_raw(),
        Patience { first: limit, next: limit, ..Patience::default() },
    );
    let mute = UnixStream::connect(rig.location.path()).unwrap();
    let mut half = UnixStream::connect(rig.location.path()).unwrap();
    half.write_all(&[200, 0, 0, 0, b'{']).unwrap();
    for stream in [&mute, &half] {
        let said = heard(stream);
        assert!(said.contains("no request came for 300ms") && said.contains("try again"), "{said}");
    }
    // A client that asks too late hears of it.
    let late = UnixStream::connect(rig.location.path()).unwrap();
    let mut client = Client::with_stream(late, entry());
    thread::sleep(limit * 3);
    assert_refused(client.request(&Request::Mount), "no request came");
    rig.server.finish(Ok(()));
}

#[test]
fn only_root_and_the_owner_may_be_silent_between_requests() {
    require!(Root);
    let limit = Duration::from_millis(300);
    let rig = rig(OWNER, Patience { next: limit, ..Patience::default() });
    let mut clients = [STRANGER, OWNER, 0].map(|user| rig.client_of(user));
    for client in &mut clients {
        client.request(&Request::Mount).unwrap();
    }
    thread::sleep(limit * 3);
    let [stranger, owner, root] = &mut clients;
    assert_refused(stranger.request(&Request::Mount), "no request came");
    assert_eq!(owner.request(&Request::Mount).unwrap(), Answer::Done);
    assert_eq!(root.request(&Request::Mount).unwrap(), Answer::Done);
    rig.server.finish(Ok(()));
}

/// Once the mount has ended nothing but its clients keeps the server.
#[test]
fn a_client_that_does_not_read_its_answer_keeps_no_server() {
    let patience = Patience { answer: Duration::from_millis(300), ..Patience::default() };
    let rig = rig(rustix::process::geteuid().as_raw(), patience);
    let mut stream = UnixStream::connect(rig.location.path()).unwrap();
    let body = br#"{"schema":"vlinder.control/1","request":{"verb":"label-get"}}"#;
    stream.write_all(&u32::try_from(body.len()).unwrap().to_le_bytes()).unwrap();
    stream.write_all(body).unwrap();
    // The answer has begun.
    stream.read_exact(&mut [0; 4]).unwrap();
    let reader = thread::spawn("slow-reader", move || {
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let clock = SystemClock::new();
    rig.server.finish(Ok(()));
    assert!(clock.monotonic() < Duration::from_secs(3), "{:?}", clock.monotonic());
    reader.join().unwrap();
}

/// Case R7.
#[test]
fn a_place_that_can_not_be_used_is_passed_over() {
    use std::os::unix::fs::symlink;
    let scratch = Scratch::new("places");
    let at = |name: &str| SocketLocation::in_directory(scratch.join(name), (7, 9), false);
    let unusable = [at("open"), at("link"), at("file"), at("absent/run"), at(&"long".repeat(30))];
    std::fs::create_dir(scratch.join("open")).unwrap();
    std::fs::set_permissions(scratch.join("open"), std::fs::Permissions::from_mode(0o777)).unwrap();
    symlink("/", scratch.join("link")).unwrap();
    std::fs::write(scratch.join("file"), b"").unwrap();
    let server = Server::start(&unusable, Arc::new(Fake)).unwrap();
    assert_eq!(server.path(), None, "an unusable place was used");
    let address = SocketAddr::from_abstract_name(server.told_name().unwrap()).unwrap();
    let stream = UnixStream::connect_addr(&address).unwrap();
    assert_eq!(Client::with_stream(stream, entry()).request(&Request::Mount).unwrap(), Answer::Done);
    server.finish(Ok(()));
    assert!(UnixStream::connect_addr(&address).is_err(), "it has ended");
    assert!(matches!(Server::start(&[], Arc::new(Fake)), Err(ServerError::NoPlace { .. })));
    let mut locations = unusable.to_vec();
    locations.extend([at("first"), at("second")]);
    let server = Server::start(&locations, Arc::new(Fake)).unwrap();
    assert_eq!((server.path(), server.told_name()), (Some(&*at("first").path()), None));
    assert!(!at("second").directory.exists());
    let stream = UnixStream::connect(server.path().unwrap()).unwrap();
    assert_eq!(Client::with_stream(stream, entry()).request(&Request::Mount).unwrap(), Answer::Done);
    server.finish(Ok(()));
}

#[test]
fn a_place_of_another_user_is_passed_over() {
    require!(Root);
    let scratch = Scratch::new("places-of-others");
    let at = |name: &str| SocketLocation::in_directory(scratch.join(name), (7, 9), false);
    std::fs::create_dir(scratch.join("theirs")).unwrap();
    std::os::unix::fs::chown(scratch.join("theirs"), Some(STRANGER), None).unwrap();
    let server = Server::start(&[at("theirs"), at("own")], Arc::new(Fake)).unwrap();
    assert_eq!(server.path(), Some(&*at("own").path()));
    server.finish(Ok(()));
}

/// A name has no mode, and everybody can read it in /proc/net/unix.
#[test]
fn a_name_that_the_mount_tells_is_valid_where_the_mount_is() {
    require!(Root);
    let scratch = Scratch::new("told-names");
    for (for_everybody, user, expected) in
        [(false, 0, true), (false, OWNER, true), (false, STRANGER, false), (true, STRANGER, true)]
    {
        let unusable = SocketLocation::in_directory(scratch.join("absent/run"), (7, 9), for_everybody);
        let server = as_user(OWNER, move || Server::start(&[unusable], Arc::new(Fake)).unwrap());
        let address = SocketAddr::from_abstract_name(server.told_name().unwrap()).unwrap();
        let asked = as_user(user, move || {
            let stream = UnixStream::connect_addr(&address).unwrap();
            Client::with_stream(stream, entry()).request(&Request::Mount)
        });
        match asked {
            Ok(answer) => assert!(expected && answer == Answer::Done, "{user} {for_everybody}"),
            Err(ClientError::Server(refused)) => {
                assert!(
                    !expected && refused.errno == Errno::ACCESS.raw_os_error(),
                    "{user} {for_everybody}: {refused:?}"
                );
            }
            Err(error) => panic!("{user} {for_everybody}: {error}"),
        }
        server.finish(Ok(()));
    }
}
