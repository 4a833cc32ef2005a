//! Streams of send.

use vlinder_codec::checksum::crc32c;
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
