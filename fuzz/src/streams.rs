//! Streams of send, and going on with them.

use std::io::Write;

use vlinder_codec::checksum::crc32c;
use vlinder_format::{Generation, Uuid};
use vlinder_stream::resume::{ResumeToken, ResumingWriter, RunningHash};
use vlinder_stream::wire::{Command, CommandKind, Protocol, StreamReader, StreamWriter};

use crate::input::Input;

const PROTOCOLS: [Protocol; 3] = [Protocol::V1, Protocol::V2, Protocol::V3];

/// Any bytes as streams that follow one another. Each command that is accepted comes back when it is written.
pub fn run(input: &[u8]) {
    let mut reader = StreamReader::new(input);
    while let Ok(Some(protocol)) = reader.begin() {
        while let Ok(command) = reader.next_command(protocol) {
            comes_back(&command, protocol);
            if command == Command::End {
                break;
            }
        }
    }
    assert!(reader.position() <= input.len() as u64, "no byte is read that is not there");
}

/// Any bytes as the attributes of a command, with a checksum that is right.
pub fn edit(input: &[u8]) {
    let mut input = Input(input);
    let (protocol, number) = (input.of(&PROTOCOLS), u16::from(input.u8()));
    let attributes = input.rest();
    let mut bytes = (attributes.len() as u32).to_le_bytes().to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(attributes);
    let checksum = crc32c(0, &bytes);
    bytes[6..10].copy_from_slice(&checksum.to_le_bytes());
    let mut reader = StreamReader::new(&bytes[..]);
    let Ok(command) = reader.next_command(protocol) else { return };
    assert_eq!(Some(command.kind()), CommandKind::from_number(number));
    comes_back(&command, protocol);
}

/// A token's text: any bytes after a 0, which a token that is accepted gives again; or what a token holds,
/// which comes back from its text.
pub fn token(input: &[u8]) {
    let mut input = Input(input);
    if input.u8() == 0 {
        let text = String::from_utf8_lossy(input.rest());
        if let Ok(token) = text.parse::<ResumeToken>() {
            assert_eq!(token.to_string(), text);
        }
        return;
    }
    let mut uuid = || {
        let mut uuid = [0; 16];
        uuid.fill_with(|| input.u8());
        Uuid(uuid)
    };
    let (uuid, parent_uuid) = (uuid(), uuid());
    let (transid, parent_transid) = (Generation(input.u64()), Generation(input.u64()));
    let mut received = RunningHash::default();
    while !input.is_empty() {
        let mut command = vec![0; 10];
        command.extend(input.take(30));
        received.add(&command);
    }
    let protocol = PROTOCOLS[received.bytes() as usize % PROTOCOLS.len()];
    let token = ResumeToken { protocol, uuid, transid, parent_uuid, parent_transid, received };
    assert_eq!(token.to_string().parse(), Ok(token));
}

/// Any bytes as what a sender writes who goes on with a stream: after its place, nothing but the rest comes.
pub fn resume(input: &[u8]) {
    let mut input = Input(input);
    let place = input.below(8);
    let stream = input.rest();
    let mut reader = StreamReader::new(stream);
    let Ok(Some(protocol)) = reader.begin() else { return };
    let mut received = RunningHash::default();
    for _ in 0..place {
        match reader.next_command(protocol) {
            Ok(Command::End) | Err(_) => return,
            Ok(_) => received.add(reader.last_command()),
        }
    }
    let (uuid, transid) = (Uuid([1; 16]), Generation(2));
    let token = ResumeToken { protocol, uuid, transid, parent_uuid: uuid, parent_transid: transid, received };
    let mut writer = ResumingWriter::new(Vec::new(), token);
    writer.write_all(stream).expect("these commands were received");
    let rest = writer.finish().expect("the place was reached");
    let expected = &stream[reader.position() as usize..];
    assert!(rest.ends_with(expected), "the rest comes");
    let mut again = StreamReader::new(&rest[..rest.len() - expected.len()]);
    assert!(matches!(again.begin(), Ok(Some(found)) if found == protocol));
    let text = token.to_string();
    match again.next_command(protocol) {
        Ok(Command::SetXattr { path: b"", value, .. }) => assert_eq!(value, text.as_bytes()),
        other => panic!("{other:?} in place of a token"),
    }
}

/// A command that was read is written, and read again as the same one.
fn comes_back(command: &Command<'_>, protocol: Protocol) {
    let mut output = Vec::new();
    let mut writer = StreamWriter::new(&mut output, protocol);
    writer.begin().and_then(|()| writer.put(command)).and_then(|()| writer.flush()).expect("it was read");
    let mut reader = StreamReader::new(&output[..]);
    assert!(matches!(reader.begin(), Ok(Some(found)) if found == protocol));
    match reader.next_command(protocol) {
        Ok(again) => assert_eq!(again, *command),
        Err(error) => panic!("{command:?}: {error}"),
    }
}
