//! No room in the middle of a stream.

use std::ops::ControlFlow;

use vlinder_fs::{Caller, Refusal};
use vlinder_stream::receive::{ReceiveError, ReceiveOptions, Receiver, discard};
use vlinder_stream::wire::{Command, Protocol, StreamReader};
use vlinder_testkit::subject::own_check;

use crate::support::{
    self, begin, open_device, partial, receive, receive_with, rest_of, small_image, subvolumes, tree,
};

/// Data that does not compress, more than the image has room for.
fn large() -> Vec<u8> {
    let mut state = 1_u64;
    let data: Vec<u8> = (0..48_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let path = b"f";
    let mut made = vec![begin(b"one"), Command::MakeFile { path, inode: None }];
    made.extend((0..3000).map(|number| Command::Write { path, offset: number * 48_000, data: &data }));
    support::stream(Protocol::V1, &made)
}

/// The beginning of that, and an end.
fn beginning(least_bytes: usize) -> Vec<u8> {
    let all = large();
    let (mut reader, mut length) = (StreamReader::new(&all[..]), 0);
    let protocol = reader.begin().unwrap().unwrap();
    while length < least_bytes {
        reader.next_command(protocol).unwrap();
        length = reader.position() as usize;
    }
    [&all[..length], &all[all.len() - 10..]].concat()
}

#[test]
fn a_full_image_keeps_what_came_until_it_is_discarded() {
    let device = vlinder_base::sync::Arc::new(small_image());
    let filesystem = open_device(device.clone());
    let options = ReceiveOptions { checkpoint_bytes: 16 << 20, ..ReceiveOptions::default() };
    let (received, outcome) = receive_with(&filesystem, &large(), options);
    let error = received.unwrap_err();
    let ReceiveError::Command { error: inner, .. } = &error else { panic!("{error}") };
    assert_eq!(inner.refusal(), Some(Refusal::NoSpace), "{error}");
    assert!(error.to_string().contains("space"), "{error}");
    let left = outcome.partial.unwrap();
    let token = left.token.unwrap();
    println!("{} bytes of commands fit", token.received.bytes());
    assert!(token.received.bytes() > 30 << 20, "{token:?}");
    assert!(!filesystem.is_read_only());
    assert_eq!(partial(&filesystem), [left]);
    filesystem.sync().unwrap();
    own_check(vlinder_base::sync::Arc::new(device.snapshot())).unwrap();
    discard(&filesystem, &filesystem.root().unwrap(), b"one").unwrap();
    assert_eq!(subvolumes(&filesystem), [""; 0]);
    filesystem.close().unwrap();
    own_check(device.clone()).unwrap();
    // There is room again.
    let filesystem = open_device(device);
    receive(&filesystem, &support::first()).unwrap();
}

#[test]
fn a_stream_goes_on_once_there_is_room() {
    let device = vlinder_base::sync::Arc::new(small_image());
    let filesystem = open_device(device);
    let root = filesystem.root().unwrap();
    let caller = Caller::superuser();
    let filler = filesystem.names().create_file(&caller, &root, b"filler", 0o600).unwrap();
    let mut offset = 0;
    // As much as leaves room for a part.
    while offset < 16 << 20 {
        filesystem.files().write_at(&caller, &filler, offset, vec![5; 1 << 20].into()).unwrap();
        offset += 1 << 20;
    }
    filesystem.sync().unwrap();
    let stream = beginning(40 << 20);
    let (received, outcome) = receive_with(&filesystem, &stream, ReceiveOptions::default());
    assert!(matches!(received, Err(ReceiveError::Command { .. })), "{received:?}");
    println!("{:?}", outcome.progress);
    drop(filler);
    filesystem.names().unlink(&caller, &root, b"filler").unwrap();
    filesystem.sync().unwrap();
    receive(&filesystem, &rest_of(&stream, outcome.partial.unwrap().token.unwrap())).unwrap();
    let resumed = tree(&filesystem, "one");
    filesystem.subvolumes().delete(&caller, &root, b"one").unwrap();
    filesystem.sync().unwrap();
    receive(&filesystem, &stream).unwrap();
    let size = |text: &str| text.split(" size ").nth(2).unwrap().split(' ').next().unwrap().to_owned();
    let sum = |text: &str| text.trim_end().rsplit(' ').next().unwrap().to_owned();
    let whole = tree(&filesystem, "one");
    assert_eq!((size(&resumed), sum(&resumed)), (size(&whole), sum(&whole)));
}

/// After a power cut, what came after the checkpoint is there once more until it is deleted.
#[test]
fn going_on_takes_the_room_of_what_it_deletes() {
    let device = vlinder_base::sync::Arc::new(small_image());
    let filesystem = open_device(device.clone());
    let stream = beginning(40 << 20);
    let options = ReceiveOptions { checkpoint_bytes: 20 << 20, ..ReceiveOptions::default() };
    let mut cut = None;
    let receiver = Receiver::new(&filesystem, filesystem.root().unwrap()).with_options(options);
    let mut receiver = receiver.watched(|progress| {
        if cut.is_none() && progress.bytes > 37 << 20 {
            filesystem.sync().unwrap();
            cut = Some(device.snapshot());
        }
        ControlFlow::Continue(())
    });
    receiver.receive(&mut StreamReader::new(&stream[..])).unwrap();
    drop(receiver);
    let expected = tree(&filesystem, "one");
    let device = vlinder_base::sync::Arc::new(cut.unwrap());
    let filesystem = open_device(device.clone());
    let token = partial(&filesystem)[0].token.unwrap();
    assert!((20 << 20..21 << 20).contains(&token.received.bytes()), "{token:?}");
    receive(&filesystem, &rest_of(&stream, token)).unwrap();
    let content = |text: &str| text.trim_end().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(content(&tree(&filesystem, "one")), content(&expected));
    filesystem.close().unwrap();
    own_check(device).unwrap();
}
