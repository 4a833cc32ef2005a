//! Streams that break off, and go on: the result is that of a stream that did not.

use std::ops::ControlFlow;

use vlinder_fs::{Caller, RenameMode};
use vlinder_stream::receive::{ReceiveError, ReceiveOptions, Receiver, discard};
use vlinder_stream::resume::{ResumeToken, ResumingWriter};
use vlinder_stream::wire::{Command, Protocol, StreamReader, WireError};
use vlinder_testkit::subject::own_check_data;

use crate::kernel_receives::send_into;
use crate::support::{
    self, first, image, open, open_device, partial, receive, receive_with, rest_of, second, subvolume,
    subvolumes, tree,
};

fn delete(filesystem: &vlinder_fs::Filesystem, name: &str) {
    let root = filesystem.root().unwrap();
    filesystem.subvolumes().delete(&Caller::superuser(), &root, name.as_bytes()).unwrap();
    // Else thousands of deleted ones are looked through.
    filesystem.maintenance().finish_deletions().unwrap();
}

/// Receives what came of a stream, sees what is left, and goes on with the rest.
fn break_off(filesystem: &vlinder_fs::Filesystem, stream: &[u8], length: usize, name: &str, expected: &str) {
    let (received, outcome) = receive_with(filesystem, &stream[..length], ReceiveOptions::default());
    assert!(subvolume(filesystem, name).is_none(), "{length}: nothing looks finished");
    let Some(left) = outcome.partial else {
        // Not even the command that makes the subvolume came; an input of no bytes is no stream.
        assert!(received.is_err() || length == 0);
        assert!(partial(filesystem).is_empty());
        return receive(filesystem, stream).unwrap();
    };
    assert!(matches!(received, Err(ReceiveError::Wire(_))), "{length}: {received:?}");
    assert_eq!(partial(filesystem), std::slice::from_ref(&left));
    assert_eq!(left.name, name.as_bytes());
    // Linux takes it for an ordinary subvolume.
    let part = subvolume(filesystem, &format!("{name}.vlinder-partial")).unwrap();
    let part = filesystem.subvolumes().information(part).unwrap();
    assert!(!part.is_read_only && part.received_uuid.is_nil());
    receive(filesystem, &rest_of(stream, left.token.unwrap())).unwrap();
    assert_eq!(tree(filesystem, name), expected, "{length}");
    assert!(partial(filesystem).is_empty());
}

#[test]
fn a_stream_cut_off_at_every_byte_goes_on() {
    let device = vlinder_base::sync::Arc::new(image());
    let filesystem = open_device(device.clone());
    let stream = first();
    receive(&filesystem, &stream).unwrap();
    let expected = tree(&filesystem, "one");
    let before = filesystem.subvolumes().information(subvolume(&filesystem, "one").unwrap()).unwrap();
    delete(&filesystem, "one");
    let is_data = |place: usize| {
        stream[place - 3..(place + 3).min(stream.len())].iter().all(|byte| *byte == stream[place - 1])
    };
    let mut places = 0;
    for length in 0..stream.len() {
        if length > 40 && length + 3 < stream.len() && is_data(length) {
            continue;
        }
        places += 1;
        break_off(&filesystem, &stream, length, "one", &expected);
        let after = filesystem.subvolumes().information(subvolume(&filesystem, "one").unwrap()).unwrap();
        assert_eq!(
            (after.parent_uuid, after.received_uuid, after.send_transaction, after.is_read_only),
            (before.parent_uuid, before.received_uuid, before.send_transaction, true)
        );
        delete(&filesystem, "one");
    }
    println!("cut off at {places} places");
    assert!(places > 1000);
    filesystem.close().unwrap();
    own_check_data(device).unwrap();
}

#[test]
fn a_change_that_is_cut_off_keeps_its_parent() {
    let device = vlinder_base::sync::Arc::new(image());
    let filesystem = open_device(device.clone());
    receive(&filesystem, &first()).unwrap();
    let stream = second();
    receive(&filesystem, &stream).unwrap();
    let expected = tree(&filesystem, "two");
    let parent = filesystem.subvolumes().information(subvolume(&filesystem, "one").unwrap()).unwrap();
    delete(&filesystem, "two");
    for length in (0..stream.len()).step_by(7) {
        break_off(&filesystem, &stream, length, "two", &expected);
        let after = filesystem.subvolumes().information(subvolume(&filesystem, "two").unwrap()).unwrap();
        assert_eq!(after.parent_uuid, parent.uuid, "{length}");
        delete(&filesystem, "two");
    }
    filesystem.close().unwrap();
    own_check_data(device).unwrap();
}

#[test]
fn what_is_interrupted_again_and_again_is_whole_at_last() {
    let filesystem = open(&image());
    let stream = first();
    receive(&filesystem, &stream).unwrap();
    let expected = tree(&filesystem, "one");
    delete(&filesystem, "one");
    let (mut input, mut rounds) = (stream.clone(), 0);
    loop {
        rounds += 1;
        let (mut commands, directory) = (0, filesystem.root().unwrap());
        let options = ReceiveOptions { checkpoint_bytes: 100, ..ReceiveOptions::default() };
        let mut receiver = Receiver::new(&filesystem, directory).with_options(options).watched(|progress| {
            assert!(progress.bytes > 0 && progress.commands > 0);
            commands += 1;
            if commands == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match receiver.receive(&mut StreamReader::new(&input[..])) {
            Ok(_) => break,
            Err(ReceiveError::Interrupted) => {}
            Err(error) => panic!("{error}"),
        }
        let left = receiver.into_outcome().partial.unwrap();
        input = rest_of(&stream, left.token.unwrap());
    }
    assert!(rounds > 10, "{rounds}");
    assert_eq!(tree(&filesystem, "one"), expected);
    assert_eq!(subvolumes(&filesystem), ["one"]);
}

#[test]
fn what_is_discarded_is_gone() {
    let filesystem = open(&image());
    let stream = first();
    for length in [17, 100, 2000, stream.len() - 1] {
        let options = ReceiveOptions { checkpoint_bytes: 1, ..ReceiveOptions::default() };
        let _ = receive_with(&filesystem, &stream[..length], options);
        for left in partial(&filesystem) {
            discard(&filesystem, &filesystem.root().unwrap(), &left.name).unwrap();
        }
        assert_eq!(subvolumes(&filesystem), [""; 0], "{length}");
    }
    let error = discard(&filesystem, &filesystem.root().unwrap(), b"one").unwrap_err();
    assert!(matches!(error, ReceiveError::NoSuchPartial { .. }), "{error}");
}

/// What breaks after so many bytes, as a pipe whose writer is gone by a signal, or a network.
struct BrokenPipe<'a>(&'a [u8]);

impl std::io::Read for BrokenPipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(std::io::ErrorKind::BrokenPipe.into()),
            length => Ok(length),
        }
    }
}

/// Where the commands of a stream end.
fn ends_of_commands(stream: &[u8]) -> Vec<usize> {
    let mut reader = StreamReader::new(stream);
    let protocol = reader.begin().unwrap().unwrap();
    let mut ends = vec![reader.position() as usize];
    while reader.next_command(protocol).unwrap() != Command::End {
        ends.push(reader.position() as usize);
    }
    ends
}

/// What this program sends goes on when it is sent again: the bytes are the same, and those that were
/// received are held back.
#[test]
fn what_is_sent_again_goes_on_after_a_broken_pipe() {
    let source = open(&image());
    receive(&source, &first()).unwrap();
    receive(&source, &second()).unwrap();
    source.sync().unwrap();
    let target = open(&image());
    for (parent, name) in [(None, "one"), (Some(&b"one"[..]), "two")] {
        let mut stream = Vec::new();
        send_into(&source, parent, name.as_bytes(), &mut stream);
        receive(&target, &stream).unwrap();
        let expected = tree(&target, name);
        delete(&target, name);
        for end in ends_of_commands(&stream) {
            let mut receiver = Receiver::new(&target, target.root().unwrap());
            let error = receiver.receive(&mut StreamReader::new(BrokenPipe(&stream[..end]))).unwrap_err();
            assert!(matches!(error, ReceiveError::Wire(WireError::Io(_))), "{error}");
            assert!(subvolume(&target, name).is_none());
            let mut again = Vec::new();
            match receiver.into_outcome().partial {
                Some(left) => {
                    let mut writer = ResumingWriter::new(&mut again, left.token.unwrap());
                    send_into(&source, parent, name.as_bytes(), &mut writer);
                    writer.finish().unwrap();
                    assert!(again.len() < stream.len() - end + 400, "{} after {end}", again.len());
                }
                None => again.clone_from(&stream),
            }
            receive(&target, &again).unwrap();
            assert_eq!(tree(&target, name), expected, "{name}: {end}");
            delete(&target, name);
        }
        receive(&target, &stream).unwrap();
    }
}

/// Receives a part with a checkpoint, and gives its token.
fn receive_part(filesystem: &vlinder_fs::Filesystem, stream: &[u8]) -> ResumeToken {
    let options = ReceiveOptions { checkpoint_bytes: 1, ..ReceiveOptions::default() };
    let (_, outcome) = receive_with(filesystem, &stream[..2000], options);
    outcome.partial.unwrap().token.unwrap()
}

/// The power may fail between the steps that end a receive.
#[test]
fn what_has_its_name_already_and_no_mark_goes_on() {
    let filesystem = open(&image());
    let (root, caller, stream) = (filesystem.root().unwrap(), Caller::superuser(), first());
    receive(&filesystem, &stream).unwrap();
    let expected = tree(&filesystem, "one");
    delete(&filesystem, "one");
    let token = receive_part(&filesystem, &stream);
    let partial_name = b"one.vlinder-partial";
    filesystem.names().rename(&caller, &root, partial_name, &root, b"one", RenameMode::NoReplace).unwrap();
    assert_eq!(partial(&filesystem)[0].token, Some(token));
    receive(&filesystem, &rest_of(&stream, token)).unwrap();
    assert_eq!(tree(&filesystem, "one"), expected);
    assert_eq!(subvolumes(&filesystem), ["one"]);
}

#[test]
fn a_checkpoint_beside_what_is_whole_is_told_and_discarded() {
    let filesystem = open(&image());
    let stream = first();
    let token = receive_part(&filesystem, &stream);
    delete(&filesystem, "one.vlinder-partial");
    let named = ReceiveOptions { name: Some(b"other".to_vec()), ..ReceiveOptions::default() };
    receive_with(&filesystem, &stream, named).0.unwrap();
    let (root, caller) = (filesystem.root().unwrap(), Caller::superuser());
    filesystem.names().rename(&caller, &root, b"other", &root, b"one", RenameMode::NoReplace).unwrap();
    let before = tree(&filesystem, "one");
    let error = receive(&filesystem, &rest_of(&stream, token)).unwrap_err();
    assert!(matches!(error, ReceiveError::NameTaken { ref name } if name == b"one"), "{error}");
    assert_eq!(tree(&filesystem, "one"), before);
    discard(&filesystem, &root, b"one").unwrap();
    assert_eq!(subvolumes(&filesystem), ["one"]);
    assert_eq!(tree(&filesystem, "one"), before);
}

/// The mark is in every snapshot of a partial subvolume.
#[test]
fn a_snapshot_of_what_is_partial_stays() {
    let filesystem = open(&image());
    let (root, caller, stream) = (filesystem.root().unwrap(), Caller::superuser(), first());
    let token = receive_part(&filesystem, &stream);
    let part = subvolume(&filesystem, "one.vlinder-partial").unwrap();
    filesystem.subvolumes().snapshot(&caller, part, &root, b"kept", false).unwrap();
    receive(&filesystem, &rest_of(&stream, token)).unwrap();
    assert_eq!(subvolumes(&filesystem), ["kept", "one"]);
    assert!(partial(&filesystem).is_empty());
}

#[test]
fn the_rest_of_another_stream_is_refused() {
    let filesystem = open(&image());
    let stream = first();
    let (_, outcome) = receive_with(&filesystem, &stream[..2000], ReceiveOptions::default());
    let token = outcome.partial.unwrap().token.unwrap();
    let (_, longer) = {
        let other = open(&image());
        receive_with(&other, &stream[..12_000], ReceiveOptions::default())
    };
    let rest = rest_of(&stream, longer.partial.unwrap().token.unwrap());
    let error = receive(&filesystem, &rest).unwrap_err();
    assert!(matches!(error, ReceiveError::NothingToResume { .. }), "{error}");
    assert!(error.to_string().contains(&token.to_string()), "{error}");
    // Nothing was touched.
    receive(&filesystem, &rest_of(&stream, token)).unwrap();
}

/// The attribute that marks a partial subvolume is the receiver's: a stream can't set it, nor remove it.
#[test]
fn a_stream_can_neither_fake_nor_remove_the_token() {
    let filesystem = open(&image());
    let name = vlinder_stream::resume::TOKEN_ATTRIBUTE;
    let commands = [
        support::begin(b"one"),
        Command::SetXattr { path: b"", name, value: b"vlinder1-x one" },
        Command::RemoveXattr { path: b"", name },
        Command::MakeFile { path: b"f", inode: None },
        Command::SetXattr { path: b"f", name, value: b"kept" },
    ];
    let stream = support::stream(Protocol::V1, &commands);
    let (received, outcome) =
        receive_with(&filesystem, &stream[..stream.len() - 10], ReceiveOptions::default());
    received.unwrap_err();
    assert_eq!(outcome.warning_count, 1);
    let left = partial(&filesystem);
    assert_eq!(left[0].token.unwrap().received.bytes(), stream.len() as u64 - 27);
    receive(&filesystem, &rest_of(&stream, left[0].token.unwrap())).unwrap();
    let text = tree(&filesystem, "one");
    assert_eq!(text.matches("trusted.vlinder.receive").count(), 1, "{text}");
}

#[test]
fn streams_that_follow_one_another_are_all_received() {
    let filesystem = open(&image());
    let all = [first(), second()].concat();
    let (received, outcome) = receive_with(&filesystem, &all, ReceiveOptions::default());
    received.unwrap();
    let names: Vec<&[u8]> = outcome.received.iter().map(|received| &received.name[..]).collect();
    assert_eq!(names, [b"one", b"two"]);
    assert_eq!(outcome.progress.bytes, all.len() as u64);
    // Cut off in the second, that one goes on.
    delete(&filesystem, "two");
    delete(&filesystem, "one");
    let (received, outcome) = receive_with(&filesystem, &all[..all.len() - 300], ReceiveOptions::default());
    received.unwrap_err();
    assert_eq!(outcome.received.len(), 1);
    let token = outcome.partial.unwrap().token.unwrap();
    receive(&filesystem, &rest_of(&second(), token)).unwrap();
    assert_eq!(subvolumes(&filesystem), ["one", "two"]);
    // And the first end command ends all, if that is asked for.
    delete(&filesystem, "two");
    delete(&filesystem, "one");
    let options = ReceiveOptions { ends_at_end_command: true, ..ReceiveOptions::default() };
    receive_with(&filesystem, &all, options).0.unwrap();
    assert_eq!(subvolumes(&filesystem), ["one"]);
}
