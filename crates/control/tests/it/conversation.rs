//! A client and a server over a real socket, with an executor that only answers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::thread;
use vlinder_control::{
    Answer, Client, ClientError, Conversation, ErrorBody, ErrorKind, Executor, FrameError, MountEntry, Peer,
    Request, Server, SocketLocation,
};
use vlinder_testkit::Scratch;

#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<(u32, Request)>>,
}

impl Executor for Fake {
    fn execute(&self, peer: &Peer, request: Request, _: &mut Conversation) -> Result<Answer, ErrorBody> {
        self.asked.lock().push((peer.user, request.clone()));
        match request {
            Request::FilesystemSync => Ok(Answer::Synced { generation: 17 }),
            Request::Unmount => Ok(Answer::Prepared { process: 1, is_durable: true }),
            Request::LabelGet => Err(ErrorBody::new(Errno::ROFS, "no").at("here").hint("do that")),
            _ => Ok(Answer::Done),
        }
    }
}

struct Rig {
    _scratch: Scratch,
    location: SocketLocation,
    fake: Arc<Fake>,
    server: Server,
}

fn rig() -> Rig {
    let scratch = Scratch::new("control");
    let location = SocketLocation::in_directory(scratch.join("run"), (7, 9), false);
    let fake = Arc::new(Fake::default());
    let server = Server::start(std::slice::from_ref(&location), fake.clone()).unwrap();
    Rig { _scratch: scratch, location, fake, server }
}

impl Rig {
    fn stream(&self) -> UnixStream {
        UnixStream::connect(self.location.path()).unwrap()
    }

    fn client(&self) -> Client {
        Client::with_stream(self.stream(), mount_of(rustix::process::geteuid().as_raw()))
    }
}

fn mount_of(owner: u32) -> MountEntry {
    MountEntry {
        id: 0,
        device: (7, 9),
        root: PathBuf::from("/"),
        mountpoint: PathBuf::from("/nowhere"),
        filesystem_type: "fuse.vlinder".into(),
        source: PathBuf::from("image"),
        owner: Some(owner),
        allow_other: false,
        read_only: false,
        flags: MountFlags::empty(),
    }
}

#[test]
fn requests_are_answered_in_order_with_the_kernels_peer() {
    let rig = rig();
    let mut client = rig.client();
    assert_eq!(client.request(&Request::FilesystemSync).unwrap(), Answer::Synced { generation: 17 });
    let refused = client.request(&Request::LabelGet);
    let Err(ClientError::Server(body)) = refused else { panic!("{refused:?}") };
    assert_eq!((body.kind, body.errno), (ErrorKind::ReadOnly, 30));
    assert_eq!(body.to_string(), "here: no; do that");
    assert_eq!(client.request(&Request::Mount).unwrap(), Answer::Done);
    let user = rustix::process::geteuid().as_raw();
    let asked: Vec<u32> = rig.fake.asked.lock().iter().map(|(user, _)| *user).collect();
    assert_eq!(asked, [user, user, user]);
    rig.server.finish(Ok(()));
}

/// A device number is given to the next mount while the server of the one before has still to commit.
#[test]
fn a_server_that_ends_leaves_the_socket_of_the_next_mount_alone() {
    let mut rig = rig();
    let next = Server::start(std::slice::from_ref(&rig.location), Arc::new(Fake::default())).unwrap();
    rig.server.close();
    assert_eq!(rig.client().request(&Request::Mount).unwrap(), Answer::Done);
    next.finish(Ok(()));
    assert!(!rig.location.path().exists());
}

#[test]
fn an_unknown_verb_goes_on_and_another_schema_ends_the_talk() {
    let rig = rig();
    let mut stream = rig.stream();
    let mut ask = |body: &str| {
        stream.write_all(&u32::try_from(body.len()).unwrap().to_le_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    };
    let answer = ask(r#"{"schema":"vlinder.control/1","request":{"verb":"fly"}}"#);
    assert!(answer.contains(r#""kind":"usage""#), "{answer}");
    let answer = ask(r#"{"schema":"vlinder.control/1","request":{"verb":"mount"}}"#);
    assert!(answer.contains("done"), "{answer}");
    let answer = ask(r#"{"schema":"vlinder.control/2","request":{"verb":"mount"}}"#);
    assert!(answer.contains("vlinder.control/2") && answer.contains(r#""kind":"usage""#), "{answer}");
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    rig.server.finish(Ok(()));
}

#[test]
fn rude_clients_harm_nobody() {
    let rig = rig();
    rig.stream().write_all(&u32::MAX.to_le_bytes()).unwrap();
    rig.stream().write_all(&[9, 0, 0, 0, b'{']).unwrap();
    drop(rig.stream());
    let silent = rig.stream();
    assert_eq!(rig.client().request(&Request::Mount).unwrap(), Answer::Done);
    rig.server.finish(Ok(()));
    drop(silent);
}

#[test]
fn one_who_unmounts_hears_how_it_ended() {
    for end in [Ok(()), Err(ErrorBody::new(Errno::IO, "the device is gone"))] {
        let rig = rig();
        let mut stream = rig.stream();
        let body = br#"{"schema":"vlinder.control/1","request":{"verb":"unmount"}}"#;
        stream.write_all(&u32::try_from(body.len()).unwrap().to_le_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let reader = thread::spawn("reader", move || {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            String::from_utf8_lossy(&all).into_owned()
        });
        // The answer comes before the mount ends.
        while rig.fake.asked.lock().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(300));
        rig.server.finish(end.clone());
        let heard = reader.join().unwrap();
        assert!(heard.contains("prepared"), "{heard}");
        let expected = if end.is_ok() { "finished" } else { "the device is gone" };
        assert!(heard.contains(expected), "{heard}");
    }
}

#[test]
fn the_socket_is_the_owners_alone_and_goes_with_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let rig = rig();
    let path = rig.location.path();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    rig.server.finish(Ok(()));
    assert!(!path.exists());
}

#[test]
fn a_path_on_no_mount_of_ours_is_told_apart() {
    let refused = Client::connect(&PathBuf::from("/proc"));
    assert!(matches!(refused, Err(ClientError::NotMounted { .. })), "{refused:?}");
    let missing = Client::connect(&PathBuf::from("/no/such/path"));
    assert!(matches!(missing, Err(ClientError::Path { .. })), "{missing:?}");
}

/// The device number of a mount that has ended is given to the next one, whose server puts its socket in the
/// same place.
#[test]
fn an_unmounter_hears_its_end_though_another_server_came() {
    let mut rig = rig();
    let mut stream = rig.stream();
    let body = br#"{"schema":"vlinder.control/1","request":{"verb":"unmount"}}"#;
    stream.write_all(&u32::try_from(body.len()).unwrap().to_le_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = || {
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut body = vec![0; usize::try_from(u32::from_le_bytes(length)).unwrap()];
        stream.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    };
    assert!(answer().contains("prepared"));
    rig.server.close();
    std::fs::write(rig.location.path(), "").unwrap();
    thread::sleep(Duration::from_millis(700));
    rig.server.finish(Ok(()));
    assert!(answer().contains("finished"));
}

/// A client of a server that says nothing but these bytes, and the mount's owner as the client knows it.
fn client_of(owner: u32, said: &[u8]) -> (Client, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(said).unwrap();
    (Client::with_stream(ours, mount_of(owner)), theirs)
}

fn too_long(outcome: Result<Answer, ClientError>) -> Option<u32> {
    match outcome {
        Err(ClientError::Conversation { source: FrameError::TooLong { most, .. }, .. }) => Some(most),
        _ => None,
    }
}

/// Case R6: the length of an answer is the server's word, and the server may be anybody's.
#[test]
fn an_answer_that_is_too_long_is_not_taken() {
    let me = rustix::process::geteuid().as_raw();
    let stranger = me + 54_321;
    for (owner, request, length, most) in [
        (me, Request::Mount, 1 << 29, 1 << 20),
        (stranger, Request::Mount, 1 << 29, 1 << 20),
        (stranger, Request::SubvolumeList, 1 << 29, 8 << 20),
        (me, Request::SubvolumeList, (1 << 29) + 1, 1 << 29),
    ] {
        let (mut client, server) = client_of(owner, &u32::to_le_bytes(length));
        // Where the length is not judged, the client waits for so many bytes: what it then gets is their end.
        server.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(too_long(client.request(&request)), Some(most), "{owner} {request:?}");
    }
    let (mut client, server) = client_of(me, &u32::to_le_bytes(16 << 20));
    server.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(too_long(client.request(&Request::SubvolumeList)), None);
}

/// Case R6: what a server says reaches a terminal.
#[test]
fn texts_of_an_answer_hold_no_control_characters() {
    let error = r#"{"kind":"busy","errno":16,"place":"p\u001b[2J","message":"m\n","hint":"h\u009b"}"#;
    let said = format!(r#"{{"schema":"vlinder.control/1","result":{{"error":{error}}}}}"#);
    let frame = [&u32::try_from(said.len()).unwrap().to_le_bytes(), said.as_bytes()].concat();
    let (mut client, _server) = client_of(1, &frame);
    let Err(ClientError::Server(body)) = client.request(&Request::LabelGet) else { panic!("no error") };
    assert_eq!(body.to_string(), r"p\033[2J: m\012; h\302\233");
    let answer = r#"{"answer":"mount","process":1,"version":"\u001bc","devices":["a\nb"],"mountpoint":"","root":5,
        "read_only":"\u0007","uuid":"\u0007","options":["\u0007"]}"#;
    let said = format!(r#"{{"schema":"vlinder.control/1","result":{{"answer":{answer}}}}}"#);
    let frame = [&u32::try_from(said.len()).unwrap().to_le_bytes(), said.as_bytes()].concat();
    let (mut client, _server) = client_of(1, &frame);
    let Ok(Answer::Mount(told)) = client.request(&Request::Mount) else { panic!("no answer") };
    assert_eq!((told.version.as_str(), told.uuid.as_str()), (r"\033c", r"\007"));
    assert_eq!(
        (told.read_only.as_deref(), told.options.as_slice()),
        (Some(r"\007"), &[r"\007".to_owned()][..])
    );
    // Names are bytes, and escaped where they are shown.
    assert_eq!(told.devices[0].0, b"a\nb");
}
