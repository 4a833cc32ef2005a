use proptest::prelude::*;
use vlinder_codec::checksum::crc32c;
use vlinder_format::inode::Timestamp;
use vlinder_format::{Generation, Uuid};

use super::*;

fn written(protocol: Protocol, commands: &[Command<'_>]) -> Vec<u8> {
    let mut output = Vec::new();
    let mut writer = StreamWriter::new(&mut output, protocol);
    writer.begin().unwrap();
    for command in commands {
        writer.put(command).unwrap();
    }
    writer.flush().unwrap();
    let position = writer.position();
    assert_eq!(position, output.len() as u64);
    output
}

/// One command of each kind, with distinct values.
fn one_of_each() -> Vec<Command<'static>> {
    let (uuid, transid) = (Uuid([7; 16]), Generation(99));
    let time = |seconds| Timestamp { seconds, nanoseconds: 999_999_999 };
    let times = Times { access: time(-1), modification: time(2), change: time(3), birth: Some(time(4)) };
    let node = |path| Node { path, inode: Some(260), mode: 0o020_640, device: 0x0012_3456 };
    vec![
        Command::Subvolume { path: b"night", uuid, transid },
        Command::Snapshot(Snapshot {
            path: b"night",
            uuid,
            transid,
            parent_uuid: Uuid([8; 16]),
            parent_transid: Generation(98),
        }),
        Command::MakeFile { path: b"a", inode: Some(257) },
        Command::MakeDirectory { path: b"d", inode: None },
        Command::MakeNode(node(b"n")),
        Command::MakeFifo(node(b"p")),
        Command::MakeSocket(node(b"s")),
        Command::Symlink { path: b"l", inode: Some(300), target: b"../away" },
        Command::Rename { path: b"a", to: b"b/c" },
        Command::Link { path: b"e", existing: b"b/c" },
        Command::Unlink { path: b"e" },
        Command::RemoveDirectory { path: b"d" },
        Command::SetXattr { path: b"a", name: b"user.x", value: b"" },
        Command::RemoveXattr { path: b"a", name: b"user.x" },
        Command::Write { path: b"a", offset: 4096, data: b"content" },
        Command::Clone {
            path: b"a",
            offset: 1,
            length: 2,
            source_uuid: uuid,
            source_transid: transid,
            source_path: b"from",
            source_offset: 3,
        },
        Command::Truncate { path: b"a", size: u64::MAX },
        Command::SetMode { path: b"a", mode: 0o4755 },
        Command::SetOwner { path: b"", uid: 1000, gid: 100 },
        Command::SetTimes { path: b"", times },
        Command::End,
        Command::UpdateExtent { path: b"a", offset: 5, length: 6 },
        Command::Fallocate { path: b"a", mode: 3, offset: 7, length: 8 },
        Command::SetFileAttributes { path: b"a", flags: 0x10 },
        Command::EncodedWrite(EncodedWrite {
            path: b"a",
            offset: 9,
            file_length: 10,
            unencoded_length: 11,
            unencoded_offset: 12,
            compression: 2,
            encryption: 0,
            data: b"packed",
        }),
        Command::EnableVerity { path: b"a", algorithm: 1, block_size: 4096, salt: b"", signature: b"sig" },
    ]
}

#[test]
fn one_command_of_each_kind_comes_back() {
    let commands = one_of_each();
    let kinds: Vec<CommandKind> = commands.iter().map(Command::kind).collect();
    assert_eq!(kinds, CommandKind::ALL, "every kind is tried, in order");
    let stream = written(Protocol::V3, &commands);
    let mut reader = StreamReader::new(&stream[..]);
    assert_eq!(reader.begin().unwrap(), Some(Protocol::V3));
    for command in &commands {
        assert_eq!(reader.next_command(Protocol::V3).unwrap(), *command);
    }
    assert_eq!(reader.position(), stream.len() as u64);
    assert_eq!(reader.begin().unwrap(), None);
}

#[test]
fn numbers_have_no_gaps_and_lead_back() {
    for (index, kind) in CommandKind::ALL.iter().enumerate() {
        assert_eq!(usize::from(kind.number()), index + 1);
        assert_eq!(CommandKind::from_number(kind.number()), Some(*kind));
    }
    for (index, attribute) in AttributeType::ALL.iter().enumerate() {
        assert_eq!(usize::from(attribute.number()), index + 1);
        assert_eq!(AttributeType::from_number(attribute.number()), Some(*attribute));
    }
    assert_eq!((CommandKind::from_number(0), CommandKind::from_number(27)), (None, None));
    assert_eq!((AttributeType::from_number(0), AttributeType::from_number(36)), (None, None));
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let stream = written(Protocol::V1, &[Command::Truncate { path: b"ab", size: 0x0102 }]);
    assert_eq!(&stream[..17], b"btrfs-stream\0\x01\0\0\0");
    let command = &stream[17..];
    assert_eq!(command[..6], [18, 0, 0, 0, 17, 0], "length of the attributes, kind");
    assert_eq!(command[10..16], [15, 0, 2, 0, b'a', b'b'], "path");
    assert_eq!(command[16..], [4, 0, 8, 0, 2, 1, 0, 0, 0, 0, 0, 0], "size");
    let mut without_checksum = command.to_vec();
    without_checksum[6..10].fill(0);
    assert_eq!(command[6..10], crc32c(0, &without_checksum).to_le_bytes());
}

#[test]
fn data_have_a_length_in_version_1_alone() {
    let write = Command::Write { path: b"f", offset: 0, data: b"xyz" };
    let first = written(Protocol::V1, &[write]);
    let second = written(Protocol::V2, &[write]);
    assert_eq!(first.len(), second.len() + 2);
    assert!(first.ends_with(&[19, 0, 3, 0, b'x', b'y', b'z']));
    assert!(second.ends_with(&[19, 0, b'x', b'y', b'z']));
    let long = vec![1; 100_000];
    let write = Command::Write { path: b"f", offset: 0, data: &long };
    let stream = written(Protocol::V2, &[write]);
    let mut reader = StreamReader::new(&stream[..]);
    reader.begin().unwrap();
    assert_eq!(reader.next_command(Protocol::V2).unwrap(), write);
    let mut writer = StreamWriter::new(Vec::new(), Protocol::V1);
    let refused = writer.put(&write).unwrap_err();
    assert!(matches!(refused, WireError::DoesNotFit { bytes: 100_000, .. }), "{refused}");
    assert_eq!(writer.position(), 0);
}

#[test]
fn a_birth_time_is_left_out_of_version_1() {
    let time = Timestamp { seconds: 5, nanoseconds: 6 };
    let times = Times { access: time, modification: time, change: time, birth: Some(time) };
    let stream = written(Protocol::V1, &[Command::SetTimes { path: b"", times }]);
    let mut reader = StreamReader::new(&stream[..]);
    reader.begin().unwrap();
    let Command::SetTimes { times, .. } = reader.next_command(Protocol::V1).unwrap() else { panic!() };
    assert_eq!(times.birth, None);
}

#[test]
fn a_command_of_a_later_version_is_refused() {
    let fallocate = Command::Fallocate { path: b"f", mode: 0, offset: 0, length: 1 };
    let refused = StreamWriter::new(Vec::new(), Protocol::V1).put(&fallocate).unwrap_err();
    assert!(matches!(refused, WireError::NotInProtocol { kind: CommandKind::Fallocate }), "{refused}");
    let stream = written(Protocol::V2, &[fallocate]);
    let read = StreamReader::new(&stream[17..]).next_command(Protocol::V1).unwrap_err();
    assert!(matches!(read, WireError::UnknownCommand { number: 23 }), "{read}");
}

#[test]
fn every_cut_is_told_and_none_is_taken_for_an_end() {
    let stream = written(Protocol::V2, &one_of_each()[..25]);
    for cut in 1..stream.len() {
        let mut reader = StreamReader::new(&stream[..cut]);
        let mut read = || -> Result<(), WireError> {
            reader.begin()?.expect("something is there");
            loop {
                reader.next_command(Protocol::V2)?;
            }
        };
        let error = read().unwrap_err();
        assert!(matches!(error, WireError::Truncated | WireError::Unfinished), "{cut}: {error}");
    }
}

#[test]
fn every_changed_bit_of_a_command_is_found() {
    let command = Command::Rename { path: b"a", to: b"b" };
    let stream = written(Protocol::V1, &[command, Command::End]);
    for bit in 17 * 8..stream.len() * 8 {
        let mut changed = stream.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let mut reader = StreamReader::new(&changed[..]);
        reader.begin().unwrap();
        let read = reader
            .next_command(Protocol::V1)
            .map(|_| ())
            .and_then(|()| reader.next_command(Protocol::V1).map(|_| ()));
        assert!(read.is_err(), "bit {bit}");
    }
}

/// A command with its checksum right.
fn sealed(kind: u16, attributes: &[u8]) -> Vec<u8> {
    let mut bytes = (attributes.len() as u32).to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(attributes);
    let checksum = crc32c(0, &bytes);
    bytes[6..10].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn error_of(kind: u16, attributes: &[u8]) -> WireError {
    StreamReader::new(&sealed(kind, attributes)[..]).next_command(Protocol::V1).unwrap_err()
}

#[test]
fn attributes_that_lie_are_refused_by_name() {
    let kind = CommandKind::Unlink;
    assert!(matches!(error_of(11, &[]), WireError::Missing { attribute: AttributeType::Path, .. }));
    assert!(matches!(error_of(11, &[15, 0, 2, 0, b'a']), WireError::Overlong { .. }));
    assert!(matches!(error_of(11, &[15]), WireError::Overlong { .. }));
    assert!(matches!(error_of(11, &[36, 0, 0, 0]), WireError::UnknownAttribute { number: 36, .. }));
    assert!(matches!(error_of(11, &[0, 0, 0, 0]), WireError::UnknownAttribute { number: 0, .. }));
    let twice = [15, 0, 1, 0, b'a', 15, 0, 1, 0, b'b'];
    assert!(matches!(error_of(11, &twice), WireError::Repeated { attribute: AttributeType::Path, .. }));
    let short = [15, 0, 1, 0, b'a', 4, 0, 4, 0, 1, 2, 3, 4];
    assert!(matches!(error_of(17, &short), WireError::WrongLength { bytes: 4, .. }));
    assert_eq!(kind.to_string(), "unlink");
    let huge = [0, 0, 0x20, 0, 11, 0, 0, 0, 0, 0];
    let error = StreamReader::new(&huge[..]).next_command(Protocol::V1).unwrap_err();
    assert!(matches!(error, WireError::TooLong { bytes: 0x20_0000 }), "{error}");
}

/// Only a beginning of a header says that a stream was cut off; a sentence or a shorter file is none.
#[test]
fn a_few_bytes_are_a_cut_stream_or_none() {
    let header = super::header::encode(Protocol::V1);
    for cut in 1..header.len() {
        let error = StreamReader::new(&header[..cut]).begin().unwrap_err();
        assert!(matches!(error, WireError::Truncated), "{cut}: {error}");
        let mut other = header[..cut].to_vec();
        if let Some(byte) = other.get_mut(cut.min(13) - 1) {
            *byte ^= 1;
        }
        let error = StreamReader::new(&other[..]).begin().unwrap_err();
        assert!(matches!(error, WireError::NotAStream), "{cut}: {error}");
    }
    assert!(matches!(StreamReader::new(&[][..]).begin(), Ok(None)));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u16..30) {
        for protocol in [Protocol::V1, Protocol::V2, Protocol::V3] {
            let _ = StreamReader::new(&sealed(kind, &bytes)[..]).next_command(protocol);
            let _ = StreamReader::new(&bytes[..]).next_command(protocol);
            let _ = StreamReader::new(&bytes[..]).begin();
        }
    }
}

/// Gives a few bytes at a time, and counts what it gave.
struct Dripping<'a> {
    bytes: &'a [u8],
    at_a_time: usize,
}

impl std::io::Read for Dripping<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.at_a_time.min(buffer.len());
        self.bytes.read(&mut buffer[..length])
    }
}

#[test]
fn one_stream_is_read_to_its_end_and_no_byte_behind_it() {
    let mut commands = one_of_each();
    commands.retain(|command| !matches!(command, Command::End));
    commands.push(Command::End);
    let one = written(Protocol::V3, &commands);
    let begins = one.len() - COMMAND_HEAD_BYTES;
    for following in [&b""[..], b"x", &one] {
        let both = [&one, following].concat();
        for at_a_time in [1, 3, 9, 10, 11, 100_000] {
            let mut input = Dripping { bytes: &both, at_a_time };
            let mut came = Vec::new();
            std::io::Read::read_to_end(&mut OneStream::new(&mut input), &mut came).unwrap();
            assert!(came == one && input.bytes == following, "{at_a_time} bytes at a time");
        }
    }
    // Cut off, all of it comes, for its reader to judge.
    for cut in [0, 1, HEADER_BYTES, HEADER_BYTES + 1, begins - 1, begins, begins + 1] {
        let mut came = Vec::new();
        std::io::Read::read_to_end(&mut OneStream::new(&one[..cut]), &mut came).unwrap();
        assert!(came == one[..cut], "cut at {cut}");
    }
    // Nor is more read of a command than one may have.
    let long = [&one[..HEADER_BYTES], &u32::MAX.to_le_bytes(), &[0; 2 << 20]].concat();
    let mut came = Vec::new();
    std::io::Read::read_to_end(&mut OneStream::new(&long[..]), &mut came).unwrap();
    assert_eq!(came.len(), HEADER_BYTES + COMMAND_HEAD_BYTES + MAX_COMMAND_BYTES);
}
