//! Tokens as text, and the rest of a stream.

use std::io::Write;

use proptest::prelude::*;
use vlinder_format::{Generation, Uuid};

use super::{ResumeError, ResumeToken, ResumingWriter, RunningHash, TOKEN_ATTRIBUTE, TokenError, base64};
use crate::wire::{Command, Protocol, StreamReader, StreamWriter};

fn token(received: RunningHash) -> ResumeToken {
    ResumeToken {
        protocol: Protocol::V2,
        uuid: Uuid([1; 16]),
        transid: Generation(7),
        parent_uuid: Uuid([2; 16]),
        parent_transid: Generation(5),
        received,
    }
}

/// A stream, and what was received after its header and each of its commands.
fn stream() -> (Vec<u8>, Vec<RunningHash>) {
    let mut stream = Vec::new();
    let mut writer = StreamWriter::new(&mut stream, Protocol::V2);
    writer.begin().unwrap();
    writer.put(&Command::Subvolume { path: b"s", uuid: Uuid([1; 16]), transid: Generation(7) }).unwrap();
    for number in 0..5_u8 {
        writer.put(&Command::MakeFile { path: &[b'a' + number], inode: None }).unwrap();
        let data = vec![number; 1 << (3 * number)];
        writer.put(&Command::Write { path: &[b'a' + number], offset: 0, data: &data }).unwrap();
    }
    writer.put(&Command::End).unwrap();
    writer.flush().unwrap();
    drop(writer);
    let (mut reader, mut hash) = (StreamReader::new(&stream[..]), RunningHash::default());
    let protocol = reader.begin().unwrap().unwrap();
    let mut places = vec![hash];
    while reader.next_command(protocol).unwrap() != Command::End {
        hash.add(reader.last_command());
        places.push(hash);
    }
    (stream, places)
}

#[test]
fn letters_are_those_of_the_standard() {
    for (bytes, letters) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
        assert_eq!(base64::encode(bytes.as_bytes()), letters);
        assert_eq!(base64::decode(letters).unwrap(), bytes.as_bytes());
    }
    assert_eq!(base64::encode(&[0xfb, 0xff]), "-_8");
    for wrong in ["Z", "Zh", "Zm9v=", "Zm9", "Zm 9v", "Zg==", "+/8"] {
        assert_eq!(base64::decode(wrong), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn bytes_come_back_from_letters(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(base64::decode(&base64::encode(&bytes)), Some(bytes));
    }

    #[test]
    fn a_token_comes_back_from_its_text(
        protocol in 1..=3_u32, uuids in any::<([u8; 16], [u8; 16])>(), numbers in any::<(u64, u64, u64)>(), hash in any::<[u8; 32]>(),
    ) {
        let token = ResumeToken {
            protocol: Protocol::from_number(protocol).unwrap(),
            uuid: Uuid(uuids.0),
            transid: Generation(numbers.0),
            parent_uuid: Uuid(uuids.1),
            parent_transid: Generation(numbers.1),
            received: RunningHash::stored(numbers.2, hash),
        };
        prop_assert_eq!(token.to_string().parse(), Ok(token));
    }
}

#[test]
fn a_token_that_was_changed_is_refused() {
    let text = token(stream().1[3]).to_string();
    assert!(text.len() < 140 && !text.contains(char::is_whitespace), "{text}");
    assert_eq!(text[1..].parse::<ResumeToken>(), Err(TokenError::Prefix));
    assert_eq!(text[..text.len() - 1].parse::<ResumeToken>(), Err(TokenError::Letters));
    assert_eq!(format!("{text}A").parse::<ResumeToken>(), Err(TokenError::Letters));
    for place in "vlinder1-".len()..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        assert!(String::from_utf8(changed).unwrap().parse::<ResumeToken>().is_err(), "{place}");
    }
}

/// Whatever pieces the stream is written in, its rest comes from every place between two commands.
#[test]
fn the_rest_comes_from_each_place_in_pieces_of_any_size() {
    let (stream, places) = stream();
    for place in &places {
        let token = token(*place);
        for size in [1, 3, 16, 17, 18, 26, 27, 28, 100, stream.len()] {
            let mut writer = ResumingWriter::new(Vec::new(), token);
            stream.chunks(size).for_each(|piece| writer.write_all(piece).unwrap());
            let rest = writer.finish().unwrap();
            let mut reader = StreamReader::new(&rest[..]);
            assert_eq!(reader.begin().unwrap(), Some(Protocol::V2));
            let text = token.to_string();
            let first = Command::SetXattr { path: b"", name: TOKEN_ATTRIBUTE, value: text.as_bytes() };
            assert_eq!(reader.next_command(Protocol::V2).unwrap(), first);
            let from = stream.len() - (rest.len() - reader.position() as usize);
            assert_eq!(from as u64, 17 + place.bytes());
            assert_eq!(rest[reader.position() as usize..], stream[from..]);
        }
    }
}

#[test]
fn another_stream_is_refused_before_anything_is_passed_on() {
    let (stream, places) = stream();
    let refused = |stream: &[u8], received| {
        let mut output = Vec::new();
        let mut writer = ResumingWriter::new(&mut output, token(received));
        let written = writer.write_all(stream);
        let error = match written {
            Err(error) => *error.get_ref().unwrap().downcast_ref::<ResumeError>().unwrap(),
            Ok(()) => writer.finish().map(drop).unwrap_err(),
        };
        assert!(output.is_empty());
        error
    };
    let place = places[4];
    let bytes = place.bytes();
    for changed in 17..17 + bytes as usize {
        // A length, or what the checksum guards. The checksum itself is the reader's to compare.
        let mut other = stream.clone();
        other[changed] ^= 1;
        let mut lengths = ResumingWriter::new(Vec::new(), token(place));
        if lengths.write_all(&other).is_ok() {
            let mut reader = StreamReader::new(&other[..]);
            let protocol = reader.begin().unwrap().unwrap();
            assert!(std::iter::from_fn(|| Some(reader.next_command(protocol).is_err())).take(9).any(|e| e));
            continue;
        }
        refused(&other, place);
    }
    let mut other = stream.clone();
    other[17 + bytes as usize - 1] ^= 1;
    assert_eq!(refused(&other, place), ResumeError::Differs { bytes });
    let between = RunningHash::stored(bytes + 1, *place.hash());
    assert_eq!(refused(&stream, between), ResumeError::NoSuchPlace { bytes: bytes + 1 });
    assert_eq!(refused(&stream[..17 + 30], place), ResumeError::NoSuchPlace { bytes });
    assert_eq!(refused(&[0xff; 40], place), ResumeError::NoStream);
}
