//! What is refused before a stream's first command: parents that are not here, or were changed.

use std::ops::ControlFlow;

use vlinder_format::{Generation, Uuid};
use vlinder_fs::Caller;
use vlinder_stream::receive::{ReceiveError, ReceiveOptions, Receiver, SourceChange};
use vlinder_stream::wire::{Command, Protocol, Snapshot, StreamReader};

use crate::support::{self, FIRST, SECOND, first, image, open, receive, receive_with, second, subvolumes};

#[test]
fn a_missing_parent_is_named_with_what_is_there() {
    let filesystem = open(&image());
    let error = receive(&filesystem, &second()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&FIRST.to_string()) && text.contains("transaction 7"), "{text}");
    assert!(text.contains("nothing here was received"), "{text}");
    assert_eq!(subvolumes(&filesystem), [""; 0]);
    // A snapshot of what is missing, received; it is told.
    receive(&filesystem, &first()).unwrap();
    let other = Snapshot {
        path: b"other",
        uuid: SECOND,
        transid: Generation(9),
        parent_uuid: Uuid([5; 16]),
        parent_transid: Generation(3),
    };
    let error =
        receive(&filesystem, &support::stream(Protocol::V1, &[Command::Snapshot(other)])).unwrap_err();
    let ReceiveError::MissingSource { uuid, transid, ref present } = error else { panic!("{error}") };
    assert_eq!((uuid, transid), (Uuid([5; 16]), Generation(3)));
    assert_eq!(present.len(), 1);
    assert_eq!((&present[0].path[..], present[0].received_uuid), (&b"one"[..], FIRST));
    assert!(
        error.to_string().contains(&format!("one (UUID {}, received from {FIRST} at 7)", present[0].uuid))
    );
    assert_eq!(subvolumes(&filesystem), ["one"]);
}

#[test]
fn a_parent_that_was_changed_is_refused_and_nothing_is_made() {
    let filesystem = open(&image());
    receive(&filesystem, &first()).unwrap();
    let one = support::subvolume(&filesystem, "one").unwrap();
    let caller = Caller::superuser();
    let before = filesystem.subvolumes().information(one).unwrap();
    assert!(before.is_read_only);
    assert_eq!((before.received_uuid, before.send_transaction), (FIRST, Generation(7)));
    assert!(before.receive_transaction >= before.change_transaction && before.receive_time.seconds > 0);
    // As a program that ignores the read-only flag would: made writable by force, it is received no more.
    filesystem.subvolumes().set_read_only(&caller, one, false, true).unwrap();
    filesystem.sync().unwrap();
    let root = filesystem.inode(vlinder_fs::InodeId::root_of(one)).unwrap();
    filesystem.names().create_file(&caller, &root, b"new", 0o600).unwrap();
    filesystem.sync().unwrap();
    let error = receive(&filesystem, &second()).unwrap_err();
    assert!(matches!(error, ReceiveError::MissingSource { uuid, .. } if uuid == FIRST), "{error}");
    assert_eq!(subvolumes(&filesystem), ["one"]);
}

/// A sender that has a received copy itself names the transaction of that copy.
#[test]
fn another_transaction_is_taken_and_a_writable_parent_is_not() {
    let filesystem = open(&image());
    receive(&filesystem, &first()).unwrap();
    let caller = Caller::superuser();
    let one = support::subvolume(&filesystem, "one").unwrap();
    filesystem.subvolumes().set_received(&caller, one, (FIRST, Generation(6)), b"trusted.none").unwrap();
    receive(&filesystem, &second()).unwrap();
    filesystem.subvolumes().delete(&caller, &filesystem.root().unwrap(), b"two").unwrap();
    // Its own UUID, writable.
    let live = filesystem.subvolumes().create(&caller, &filesystem.root().unwrap(), b"live").unwrap();
    let information = filesystem.subvolumes().information(live.root).unwrap();
    let made = Snapshot {
        path: b"two",
        uuid: SECOND,
        transid: Generation(9),
        parent_uuid: information.uuid,
        parent_transid: information.change_transaction,
    };
    let stream = support::stream(Protocol::V1, &[Command::Snapshot(made)]);
    let error = receive(&filesystem, &stream).unwrap_err();
    let ReceiveError::ChangedSource { uuid, change: SourceChange::Writable, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(uuid, information.uuid);
    assert!(
        error.to_string().contains(&format!("{uuid} is not what the stream is made for: it is writable")),
        "{error}"
    );
    assert_eq!(subvolumes(&filesystem), ["one", "live"]);
    filesystem.subvolumes().set_read_only(&caller, live.root, true, false).unwrap();
    receive(&filesystem, &stream).unwrap();
}

#[test]
fn a_missing_source_of_a_clone_is_named_and_the_rest_stays() {
    let filesystem = open(&image());
    let clone = Command::Clone {
        path: b"f",
        offset: 0,
        length: 4096,
        source_uuid: SECOND,
        source_transid: Generation(9),
        source_path: b"f",
        source_offset: 0,
    };
    let made = [support::begin(b"one"), Command::MakeFile { path: b"f", inode: None }, clone];
    let (received, outcome) =
        receive_with(&filesystem, &support::stream(Protocol::V1, &made), ReceiveOptions::default());
    let error = received.unwrap_err();
    assert!(matches!(error, ReceiveError::MissingSource { uuid, .. } if uuid == SECOND), "{error}");
    assert_eq!(outcome.partial.unwrap().name, b"one");
}

#[test]
fn a_name_that_is_taken_is_refused_whole_or_in_part() {
    let filesystem = open(&image());
    receive(&filesystem, &first()).unwrap();
    let error = receive(&filesystem, &first()).unwrap_err();
    assert!(error.to_string().contains("File exists") || error.to_string().contains("exist"), "{error}");
    let stream = support::stream(Protocol::V1, &[support::begin(b"part")]);
    receive(&filesystem, &stream[..stream.len() - 10]).unwrap_err();
    let error = receive(&filesystem, &stream).unwrap_err();
    let left = support::partial(&filesystem)[0].token.unwrap();
    let ReceiveError::PartialExists { ref name, ref token } = error else { panic!("{error}") };
    assert_eq!((&name[..], token.as_deref()), (&b"part"[..], Some(&left)));
    assert!(error.to_string().contains(&format!("send --resume {left})")), "{error}");
    let named = ReceiveOptions { name: Some(b"other".to_vec()), ..ReceiveOptions::default() };
    receive_with(&filesystem, &stream, named).0.unwrap();
    // Another file has the name of what would be partial.
    let root = filesystem.root().unwrap();
    filesystem.names().create_file(&Caller::superuser(), &root, b"third.vlinder-partial", 0o600).unwrap();
    let named = ReceiveOptions { name: Some(b"third".to_vec()), ..ReceiveOptions::default() };
    let error = receive_with(&filesystem, &stream, named).0.unwrap_err();
    assert!(error.to_string().contains("third.vlinder-partial"), "{error}");
    assert!(subvolumes(&filesystem).contains(&"other".to_owned()));
}

#[test]
fn a_stream_without_data_makes_nothing_that_counts_as_received() {
    let filesystem = open(&image());
    let named = [
        support::begin(b"one"),
        Command::MakeFile { path: b"f", inode: None },
        Command::UpdateExtent { path: b"f", offset: 0, length: 4096 },
        Command::Truncate { path: b"f", size: 4096 },
    ];
    let error = receive(&filesystem, &support::stream(Protocol::V1, &named)).unwrap_err();
    assert!(error.to_string().contains("--no-data"), "{error}");
    assert_eq!(subvolumes(&filesystem), ["one.vlinder-partial", "one.vlinder-checkpoint-0"]);
}

/// A user's own subvolumes may have the names that receiving gives to its checkpoints: those of another
/// store, say, that were received here.
#[test]
fn what_has_the_name_of_a_checkpoint_is_never_deleted() {
    let filesystem = open(&image());
    let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
    for (number, name) in ["one.vlinder-checkpoint-0", "one.vlinder-checkpoint-1", "one.vlinder-partial"]
        .into_iter()
        .enumerate()
    {
        let precious = filesystem.subvolumes().create(&caller, &root, name.as_bytes()).unwrap();
        let made = filesystem.inode(precious).unwrap();
        filesystem.names().create_file(&caller, &made, b"precious", 0o600).unwrap();
        // Whether it is read-only or not.
        filesystem.subvolumes().set_read_only(&caller, precious.root, number == 0, false).unwrap();
        let error = receive(&filesystem, &first()).unwrap_err();
        let is_told = match &error {
            ReceiveError::InTheWay { name: told } => told == name.as_bytes(),
            // An unmarked writable one of this name is what a power cut leaves.
            ReceiveError::PartialExists { name: told, .. } => told == b"one" && number == 2,
            _ => false,
        };
        assert!(is_told, "{name}: {error}");
        assert_eq!(subvolumes(&filesystem), [name]);
        filesystem.subvolumes().set_read_only(&caller, precious.root, false, false).unwrap();
        filesystem.subvolumes().delete(&caller, &root, name.as_bytes()).unwrap();
    }
    // One that comes while receiving is under way, between two commands.
    let stream = first();
    let mut made = None;
    let mut receiver = Receiver::new(&filesystem, filesystem.root().unwrap()).watched(|progress| {
        if progress.commands == 3 {
            let name = b"one.vlinder-checkpoint-0";
            made = Some(filesystem.subvolumes().create(&caller, &root, name).unwrap());
        }
        ControlFlow::Continue(())
    });
    receiver.receive(&mut StreamReader::new(&stream[..])).unwrap();
    drop(receiver);
    assert!(filesystem.inode(made.unwrap()).is_ok());
    assert_eq!(subvolumes(&filesystem), ["one", "one.vlinder-checkpoint-0"]);
}

#[test]
fn what_another_receiver_works_on_is_refused_as_under_way() {
    let filesystem = open(&image());
    let stream = support::stream(Protocol::V1, &[support::begin(b"one")]);
    receive(&filesystem, &stream[..stream.len() - 10]).unwrap_err();
    let part = support::subvolume(&filesystem, "one.vlinder-partial").unwrap();
    let under_way = filesystem.subvolumes().begin_receiving(part).unwrap();
    let is_refused = |error: ReceiveError| match error {
        ReceiveError::UnderWay { name } => name == b"one",
        other => panic!("{other}"),
    };
    assert!(is_refused(receive(&filesystem, &stream).unwrap_err()));
    let token = support::partial(&filesystem)[0].token.unwrap();
    assert!(is_refused(receive(&filesystem, &support::rest_of(&stream, token)).unwrap_err()));
    let discard = || vlinder_stream::receive::discard(&filesystem, &filesystem.root().unwrap(), b"one");
    assert!(is_refused(discard().unwrap_err()));
    drop(under_way);
    discard().unwrap();
    receive(&filesystem, &stream).unwrap();
}

#[test]
fn errors_that_are_borne_leave_what_is_no_parent() {
    let filesystem = open(&image());
    let stream = support::stream(
        Protocol::V1,
        &[
            support::begin(b"one"),
            Command::Unlink { path: b"none" },
            Command::MakeFile { path: b"f", inode: None },
            Command::RemoveDirectory { path: b"none" },
        ],
    );
    let options = |max_errors| ReceiveOptions { max_errors, ..ReceiveOptions::default() };
    for max_errors in [1, 2] {
        let (received, outcome) = receive_with(&filesystem, &stream, options(max_errors));
        assert!(received.is_err());
        assert_eq!(outcome.error_count, max_errors - 1);
        vlinder_stream::receive::discard(&filesystem, &filesystem.root().unwrap(), b"one").unwrap();
    }
    for max_errors in [3, 0] {
        let (received, outcome) = receive_with(&filesystem, &stream, options(max_errors));
        received.unwrap();
        assert_eq!((outcome.error_count, outcome.errors.len(), outcome.received[0].is_whole), (2, 2, false));
        let one = filesystem.subvolumes().information(outcome.received[0].id).unwrap();
        assert!(one.is_read_only && one.received_uuid.is_nil());
        assert!(matches!(receive(&filesystem, &second()).unwrap_err(), ReceiveError::MissingSource { .. }));
        filesystem.subvolumes().delete(&Caller::superuser(), &filesystem.root().unwrap(), b"one").unwrap();
    }
}
