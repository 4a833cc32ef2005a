use std::io;

use proptest::prelude::*;
use vlinder_codec::compress::{Compression, compress};
use vlinder_format::inode::FileType;
use vlinder_format::{Generation, Uuid};

use super::*;
use crate::wire::{Command, EncodedWrite, Protocol, Snapshot, StreamReader, StreamWriter};

const OWN: Uuid = Uuid([1; 16]);

struct Bytes<'a>(&'a [Vec<u8>]);

impl StreamBytes for Bytes<'_> {
    fn read_exact_at(&self, input: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.copy_from_slice(&self.0[input][offset as usize..][..buffer.len()]);
        Ok(())
    }
}

fn stream(commands: &[Command<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::new(&mut bytes, Protocol::V2);
    writer.begin().unwrap();
    commands.iter().chain(&[Command::End]).for_each(|command| writer.put(command).unwrap());
    writer.flush().unwrap();
    bytes
}

fn subvolume(uuid: Uuid) -> Command<'static> {
    Command::Subvolume { path: b"s", uuid, transid: Generation(1) }
}

fn snapshot(uuid: Uuid, parent_uuid: Uuid) -> Command<'static> {
    let (transid, parent_transid) = (Generation(1), Generation(1));
    Command::Snapshot(Snapshot { path: b"t", uuid, transid, parent_uuid, parent_transid })
}

fn file(path: &[u8]) -> Command<'_> {
    Command::MakeFile { path, inode: None }
}

fn directory(path: &[u8]) -> Command<'_> {
    Command::MakeDirectory { path, inode: None }
}

fn clone_own<'a>(
    path: &'a [u8],
    offset: u64,
    from: &'a [u8],
    source_offset: u64,
    length: u64,
) -> Command<'a> {
    let (source_uuid, source_transid) = (OWN, Generation(1));
    Command::Clone { path, offset, length, source_uuid, source_transid, source_path: from, source_offset }
}

fn indexed(inputs: &[Vec<u8>]) -> Result<StreamIndex, IndexError> {
    let mut index = StreamIndex::new();
    inputs.iter().try_for_each(|input| index.add(&mut StreamReader::new(&input[..])))?;
    Ok(index)
}

/// The fault of the last of these commands, those before which are right.
#[track_caller]
fn fault(commands: &[Command<'_>]) -> CommandFault {
    let all = [&[subvolume(OWN)], commands].concat();
    let error = indexed(&[stream(&all)]).unwrap_err();
    let whole = stream(&all[..all.len() - 1]).len() - 10;
    assert_eq!(error.offset, whole as u64, "{error}");
    match error.cause {
        IndexFault::Command { fault, .. } => fault,
        cause => panic!("{cause}"),
    }
}

fn content(view: &SubvolumeView<'_>, path: &[u8], inputs: &[Vec<u8>]) -> Result<Vec<u8>, ContentError> {
    let mut bytes = Vec::new();
    let file = view.find(path).unwrap();
    view.read(file, &Bytes(inputs), &mut |part| {
        match part {
            ContentPart::Data(data) => bytes.extend_from_slice(data),
            ContentPart::Hole(length) => bytes.resize(bytes.len() + length as usize, 0),
        }
        true
    })?;
    assert_eq!(view.status(file).size, Some(bytes.len() as u64));
    Ok(bytes)
}

#[test]
fn names_change_as_the_calls_of_linux_change_them() {
    let commands = [
        subvolume(OWN),
        directory(b"d"),
        directory(b"d/e"),
        file(b"d/e/f"),
        Command::Link { path: b"g", existing: b"d/e/f" },
        Command::Rename { path: b"d/e", to: b"h" },
        Command::RemoveDirectory { path: b"d" },
        Command::Symlink { path: b"l", inode: None, target: b"../up" },
        Command::Rename { path: b"g", to: b"h/g" },
        Command::Unlink { path: b"h/f" },
        Command::Rename { path: b"h/g", to: b"h/g" },
        Command::SetOwner { path: b"h/g", uid: 7, gid: 8 },
        Command::SetMode { path: b"", mode: 0o40755 },
    ];
    let inputs = [stream(&commands)];
    let index = indexed(&inputs).unwrap();
    let view = index.subvolumes().next().unwrap();
    let names: Vec<&[u8]> = view.entries(view.root()).map(|(name, _)| name).collect();
    assert_eq!(names, [b"h", b"l"]);
    let status = view.status(view.find(b"h/g").unwrap());
    assert_eq!((status.names, status.owner, status.file_type), (1, Some((7, 8)), Some(FileType::Regular)));
    assert_eq!(view.link_target(view.find(b"l").unwrap()), Some(&b"../up"[..]));
    assert_eq!(view.status(view.root()).permissions, Some(0o755));
    assert_eq!(view.find(b"d"), Err(CommandFault::NotFound));
    assert_eq!(view.find(b"l/x"), Err(CommandFault::NotADirectory));
    assert_eq!((view.file_count(), index.streams()), (4, 1));
}

#[test]
fn commands_that_can_not_be_are_refused_by_name() {
    use CommandFault::*;
    let base = [
        file(b"f"),
        directory(b"d"),
        directory(b"d/e"),
        Command::Write { path: b"f", offset: 0, data: b"abc" },
    ];
    let with = |last: Command<'_>| fault(&[&base[..], &[last]].concat());
    for path in [&b".."[..], b"../x", b"/abs", b"d/../f", b"d//e", b"d/", b"a\0b", b".", &[b'n'; 256]] {
        assert_eq!(with(file(path)), NotAPath, "{}", path.escape_ascii());
    }
    assert_eq!(with(file(b"")), NotAPath);
    assert_eq!(with(Command::Rename { path: b"", to: b"r" }), NotAPath);
    assert_eq!(with(file(b"f")), Exists);
    assert_eq!(with(file(b"f/x")), NotADirectory);
    assert_eq!(with(file(b"n/x")), NotFound);
    assert_eq!(with(Command::Unlink { path: b"d" }), IsADirectory);
    assert_eq!(with(Command::RemoveDirectory { path: b"d" }), NotEmpty);
    assert_eq!(with(Command::RemoveDirectory { path: b"f" }), NotADirectory);
    assert_eq!(with(Command::Rename { path: b"d", to: b"d/e/x" }), IntoItself);
    assert_eq!(with(Command::Rename { path: b"f", to: b"d" }), IsADirectory);
    assert_eq!(with(Command::Rename { path: b"d", to: b"f" }), NotADirectory);
    assert_eq!(with(Command::Link { path: b"x", existing: b"d" }), IsADirectory);
    assert_eq!(with(Command::Truncate { path: b"d", size: 1 }), IsADirectory);
    assert_eq!(with(Command::Truncate { path: b"f", size: 1 << 63 }), TooLong);
    assert_eq!(with(Command::Write { path: b"f", offset: u64::MAX, data: b"x" }), TooLong);
    assert_eq!(with(Command::Fallocate { path: b"f", mode: 8, offset: 0, length: 1 }), UnknownMode);
    assert_eq!(with(Command::Fallocate { path: b"f", mode: 0, offset: 1 << 62, length: 1 << 62 }), TooLong);
    assert_eq!(with(Command::SetOwner { path: b"f", uid: 1 << 32, gid: 0 }), OwnerTooLarge);
    assert_eq!(with(clone_own(b"f", 1, b"f", 0, 2)), Overlaps);
    assert_eq!(with(clone_own(b"f", 0, b"f", 2, 2)), SourceTooShort);
    assert_eq!(with(clone_own(b"f", 0, b"none", 0, 1)), NoSource);
    let packed = EncodedWrite {
        path: b"f",
        offset: 0,
        file_length: 4096,
        unencoded_length: 4096,
        unencoded_offset: 1,
        compression: 2,
        encryption: 0,
        data: b"x",
    };
    assert!(matches!(with(Command::EncodedWrite(packed)), Encoded(_)));
    let huge =
        EncodedWrite { unencoded_length: u64::MAX, file_length: u64::MAX, unencoded_offset: 0, ..packed };
    assert!(matches!(with(Command::EncodedWrite(huge)), Encoded(_)));
    let link = Command::Symlink { path: b"l", inode: None, target: b"/etc" };
    assert_eq!(fault(&[link, file(b"l/passwd")]), NotADirectory);
    assert_eq!(fault(&[link, Command::Write { path: b"l", offset: 0, data: b"x" }]), NotARegularFile);
}

#[test]
fn subvolumes_begin_before_anything_else() {
    let error = indexed(&[stream(&[file(b"f")])]).unwrap_err();
    assert!(matches!(error.cause, IndexFault::Command { fault: CommandFault::NoSubvolume, .. }), "{error}");
    let error = indexed(&[stream(&[])]).unwrap_err();
    assert!(matches!(error.cause, IndexFault::NoSubvolume), "{error}");
    // A second stream does not continue the subvolume of the first.
    let error = indexed(&[[stream(&[subvolume(OWN)]), stream(&[file(b"f")])].concat()]).unwrap_err();
    assert!(matches!(error.cause, IndexFault::Command { fault: CommandFault::NoSubvolume, .. }), "{error}");
    for path in [&b"../s"[..], b"a/b", b"", b".."] {
        let command = Command::Subvolume { path, uuid: OWN, transid: Generation(1) };
        let error = indexed(&[stream(&[command])]).unwrap_err();
        assert!(matches!(error.cause, IndexFault::Command { fault: CommandFault::NotAPath, .. }), "{error}");
    }
}

#[test]
fn a_snapshot_changes_and_its_parent_stays() {
    let second = Uuid([2; 16]);
    let inputs = [
        stream(&[subvolume(OWN), file(b"f"), Command::Write { path: b"f", offset: 0, data: b"first" }]),
        stream(&[
            snapshot(second, OWN),
            Command::Write { path: b"f", offset: 1, data: b"XX" },
            Command::SetXattr { path: b"f", name: b"user.x", value: b"value" },
            file(b"g"),
            // From the parent, in which the bytes are still the old ones.
            clone_own(b"g", 0, b"f", 0, 5),
        ]),
    ];
    let index = indexed(&inputs).unwrap();
    let views: Vec<SubvolumeView<'_>> = index.subvolumes().collect();
    assert_eq!(content(&views[0], b"f", &inputs).unwrap(), b"first");
    assert_eq!(content(&views[1], b"f", &inputs).unwrap(), b"fXXst");
    assert_eq!(content(&views[1], b"g", &inputs).unwrap(), b"first");
    assert_eq!(views[0].find(b"g"), Err(CommandFault::NotFound));
    let changed = views[1].find(b"f").unwrap();
    assert_eq!(views[1].xattr_names(changed).collect::<Vec<_>>(), [b"user.x"]);
    let value = views[1].xattr(changed, b"user.x", &Bytes(&inputs)).unwrap();
    assert_eq!(value.as_deref(), Some(&b"value"[..]));
    assert_eq!(views[0].xattr_names(changed).count(), 0);
    assert_eq!(index.needed().count(), 0);
}

#[test]
fn without_its_base_a_stream_shows_what_it_touches() {
    let inputs = [stream(&[
        snapshot(Uuid([2; 16]), OWN),
        Command::Write { path: b"d/old", offset: 2, data: b"xx" },
        file(b"new"),
        Command::Write { path: b"new", offset: 0, data: b"whole" },
        Command::Rename { path: b"e/was", to: b"is" },
        Command::Unlink { path: b"gone" },
        file(b"cloned"),
        clone_own(b"cloned", 0, b"old", 0, 4096),
        Command::Write { path: b"cut", offset: 0, data: b"abc" },
        Command::Truncate { path: b"cut", size: 3 },
    ])];
    let index = indexed(&inputs).unwrap();
    let view = index.subvolumes().next().unwrap();
    assert_eq!(view.missing_base(), Some(OWN));
    let needed: Vec<NeededSubvolume> = index.needed().collect();
    assert_eq!(needed, [NeededSubvolume { uuid: OWN, transid: Generation(1), is_parent: true }]);
    let names: Vec<&[u8]> = view.entries(view.root()).map(|(name, _)| name).collect();
    assert_eq!(names, [&b"cloned"[..], b"cut", b"d", b"e", b"is", b"new"]);
    assert_eq!(content(&view, b"new", &inputs).unwrap(), b"whole");
    assert_eq!(content(&view, b"cut", &inputs).unwrap(), b"abc");
    for path in [&b"d/old"[..], b"is", b"cloned"] {
        let refused = view.check_content(view.find(path).unwrap()).unwrap_err();
        assert!(matches!(refused, ContentError::Missing { uuid: OWN }), "{refused}");
    }
    let old = view.status(view.find(b"d/old").unwrap());
    assert_eq!((old.size, old.file_type), (None, Some(FileType::Regular)));
    assert_eq!(view.status(view.find(b"is").unwrap()).file_type, None);
}

/// An unknown file that got a second name is no directory; else one could come to lie in itself.
#[test]
fn an_unknown_file_never_lies_in_itself() {
    let begin = snapshot(Uuid([2; 16]), OWN);
    let link = |path, existing| Command::Link { path, existing };
    for last in [
        vec![link(b"a/x", b"a")],
        vec![link(b"b", b"a"), link(b"a/x", b"b")],
        vec![link(b"b", b"a"), file(b"a/x")],
        vec![Command::Rename { path: b"a", to: b"a/x" }],
    ] {
        indexed(&[stream(&[&[begin], &last[..]].concat())]).unwrap_err();
    }
}

#[test]
fn a_stream_without_data_is_listed_and_not_read() {
    let update = Command::UpdateExtent { path: b"f", offset: 0, length: 9 };
    let inputs = [stream(&[subvolume(OWN), file(b"f"), update])];
    let index = indexed(&inputs).unwrap();
    let view = index.subvolumes().next().unwrap();
    let file = view.find(b"f").unwrap();
    assert_eq!(view.status(file).size, Some(9));
    assert!(matches!(view.check_content(file), Err(ContentError::NotSent)));
}

/// A stream of 130 commands whose files would fill 2^62 bytes with copies of eight.
#[test]
fn clones_that_double_take_little_memory() {
    let mut commands =
        vec![subvolume(OWN), file(b"f"), Command::Write { path: b"f", offset: 0, data: b"12345678" }];
    commands.extend((3..62).map(|power| clone_own(b"f", 1 << power, b"f", 0, 1 << power)));
    let inputs = [stream(&commands)];
    let index = indexed(&inputs).unwrap();
    let view = index.subvolumes().next().unwrap();
    let file = view.find(b"f").unwrap();
    assert_eq!(view.status(file).size, Some(1 << 62));
    let mut parts = 0;
    let taken = view.read(file, &Bytes(&inputs), &mut |part| {
        assert_eq!(part, ContentPart::Data(b"12345678"));
        parts += 1;
        parts < 1000
    });
    taken.unwrap();
    assert_eq!(parts, 1000);
}

/// A directory of many names, and snapshots of it that change one each, do not cost all names each.
#[test]
fn snapshots_share_what_they_do_not_change() {
    let names: Vec<Vec<u8>> = (0..20_000).map(|number| format!("name{number}").into_bytes()).collect();
    let mut commands = vec![subvolume(Uuid([0; 16]))];
    commands.extend(names.iter().map(|name| file(name)));
    let uuid = |number: u32| Uuid([number.to_le_bytes(); 4].concat().try_into().unwrap());
    for number in 1..5000 {
        commands.push(snapshot(uuid(number), uuid(number - 1)));
        commands.push(Command::Unlink { path: &names[number as usize] });
    }
    let index = indexed(&[stream(&commands)]).unwrap();
    let counts: Vec<u64> = index.subvolumes().map(|view| view.file_count()).collect();
    assert_eq!((counts[0], counts[4999]), (20_001, 15_002));
}

#[derive(Clone, Debug)]
enum Change {
    Write(u8, u16, Vec<u8>),
    Encoded(u8, u16, u16, u16),
    Truncate(u8, u16),
    Punch(u8, u16, u16),
    Reserve(u8, u16, u16),
    Clone(u8, u16, u8, u16, u16),
    Snapshot,
}

fn change() -> impl Strategy<Value = Change> {
    let number = 0_u16..5000;
    prop_oneof![
        3 => (0_u8..3, number.clone(), prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(f, o, d)| Change::Write(f, o, d)),
        2 => (0_u8..3, number.clone(), 0_u16..2000, 0_u16..2000).prop_map(|(f, o, s, l)| Change::Encoded(f, o, s, l)),
        1 => (0_u8..3, number.clone()).prop_map(|(f, s)| Change::Truncate(f, s)),
        1 => (0_u8..3, number.clone(), number.clone()).prop_map(|(f, o, l)| Change::Punch(f, o, l)),
        1 => (0_u8..3, number.clone(), number.clone()).prop_map(|(f, o, l)| Change::Reserve(f, o, l)),
        3 => (0_u8..3, number.clone(), 0_u8..3, number.clone(), number).prop_map(|(f, o, g, p, l)| Change::Clone(f, o, g, p, l)),
        1 => Just(Change::Snapshot),
    ]
}

fn put(model: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if !data.is_empty() {
        model.resize(model.len().max(offset + data.len()), 0);
        model[offset..offset + data.len()].copy_from_slice(data);
    }
}

proptest! {
    /// Files hold what the same changes make of arrays, in the last subvolume and in each before it.
    #[test]
    fn content_is_what_arrays_would_hold(changes in prop::collection::vec(change(), 1..40)) {
        const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];
        let plain: Vec<u8> = (0..4096_u32).map(|number| (number / 64) as u8).collect();
        let mut packed = Vec::new();
        prop_assert!(compress(Compression::Zstd, 3, &plain, 4096, 4095, &mut packed).unwrap());
        let uuid = |number: usize| Uuid([number as u8 + 1; 16]);
        let mut commands: Vec<Command<'_>> = [subvolume(uuid(0))].into_iter().chain(NAMES.map(file)).collect();
        let mut models = vec![[const { Vec::new() }; 3]];
        for change in &changes {
            let current = models.len() - 1;
            let model = &mut models[current];
            match change {
                Change::Write(f, offset, data) => {
                    put(&mut model[usize::from(*f)], (*offset).into(), data);
                    commands.push(Command::Write { path: NAMES[usize::from(*f)], offset: (*offset).into(), data });
                }
                Change::Encoded(f, offset, start, length) => {
                    let (start, length) = (usize::from(*start), usize::from(*length));
                    put(&mut model[usize::from(*f)], (*offset).into(), &plain[start..start + length]);
                    commands.push(Command::EncodedWrite(EncodedWrite {
                        path: NAMES[usize::from(*f)],
                        offset: (*offset).into(),
                        file_length: length as u64,
                        unencoded_length: 4096,
                        unencoded_offset: start as u64,
                        compression: 2,
                        encryption: 0,
                        data: &packed,
                    }));
                }
                Change::Truncate(f, size) => {
                    model[usize::from(*f)].resize((*size).into(), 0);
                    commands.push(Command::Truncate { path: NAMES[usize::from(*f)], size: (*size).into() });
                }
                Change::Punch(f, offset, length) => {
                    let file = &mut model[usize::from(*f)];
                    let start = file.len().min((*offset).into());
                    let end = file.len().min(usize::from(*offset) + usize::from(*length));
                    file[start..end].fill(0);
                    let (path, offset, length) = (NAMES[usize::from(*f)], (*offset).into(), (*length).into());
                    commands.push(Command::Fallocate { path, mode: 3, offset, length });
                }
                Change::Reserve(f, offset, length) => {
                    let file = &mut model[usize::from(*f)];
                    file.resize(file.len().max(usize::from(*offset) + usize::from(*length)), 0);
                    let (path, offset, length) = (NAMES[usize::from(*f)], (*offset).into(), (*length).into());
                    commands.push(Command::Fallocate { path, mode: 0, offset, length });
                }
                Change::Clone(f, offset, g, from, length) => {
                    let (f, g, from, length) = (usize::from(*f), usize::from(*g), usize::from(*from), usize::from(*length));
                    let length = length.min(model[g].len().saturating_sub(from));
                    let overlaps = f == g && usize::from(*offset) < from + length && from < usize::from(*offset) + length;
                    if length == 0 || overlaps {
                        continue;
                    }
                    let data = model[g][from..from + length].to_vec();
                    put(&mut model[f], (*offset).into(), &data);
                    commands.push(Command::Clone {
                        path: NAMES[f],
                        offset: (*offset).into(),
                        length: length as u64,
                        source_uuid: uuid(current),
                        source_transid: Generation(1),
                        source_path: NAMES[g],
                        source_offset: from as u64,
                    });
                }
                Change::Snapshot => {
                    commands.push(snapshot(uuid(current + 1), uuid(current)));
                    models.push(models[current].clone());
                }
            }
        }
        let inputs = [stream(&commands)];
        let index = indexed(&inputs).unwrap();
        for (view, model) in index.subvolumes().zip(&models) {
            for (name, expected) in NAMES.iter().zip(model) {
                prop_assert_eq!(&content(&view, name, &inputs).unwrap(), expected);
            }
        }
        prop_assert_eq!(index.subvolumes().count(), models.len());
    }
}

/// A stream with commands of many kinds, and where each of them begins; the header is the first.
fn small_stream() -> (Vec<u8>, Vec<usize>) {
    let commands = [
        subvolume(OWN),
        directory(b"d"),
        file(b"d/f"),
        Command::SetXattr { path: b"d/f", name: b"user.x", value: b"v" },
        Command::Write { path: b"d/f", offset: 3, data: b"content" },
        Command::Link { path: b"g", existing: b"d/f" },
        Command::Symlink { path: b"l", inode: Some(5), target: b"d" },
        clone_own(b"g", 20, b"d/f", 0, 9),
        Command::Rename { path: b"g", to: b"h" },
        Command::Truncate { path: b"h", size: 1 },
        Command::Unlink { path: b"d/f" },
        Command::RemoveDirectory { path: b"d" },
    ];
    let starts = (0..=commands.len()).map(|count| stream(&commands[..count]).len() - 10);
    (stream(&commands), [0].into_iter().chain(starts).collect())
}

/// But for the version in the header, which no checksum covers.
#[test]
fn every_flipped_bit_is_found_where_it_is() {
    let (whole, starts) = small_stream();
    indexed(std::slice::from_ref(&whole)).unwrap();
    for position in (0..whole.len()).filter(|position| !(13..17).contains(position)) {
        let start = starts.iter().rfind(|start| **start <= position).unwrap();
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[position] ^= 1 << bit;
            let error = indexed(&[flipped]).unwrap_err();
            assert_eq!(error.offset, *start as u64, "bit {bit} of byte {position}: {error}");
        }
    }
}

#[test]
fn every_cut_is_found_where_it_is() {
    let (whole, starts) = small_stream();
    for cut in 1..whole.len() {
        let error = indexed(&[whole[..cut].to_vec()]).unwrap_err();
        let start = starts.iter().rfind(|start| **start <= cut).unwrap();
        let header = if cut < 17 { 0 } else { *start };
        assert_eq!(error.offset, header as u64, "cut at {cut}: {error}");
        assert!(matches!(error.cause, IndexFault::Wire(_)), "{error}");
    }
    // What follows the end is no stream.
    let error = indexed(&[[&whole[..], b"trailing bytes of a file"].concat()]).unwrap_err();
    assert_eq!(error.offset, whole.len() as u64, "{error}");
}

#[test]
fn commands_in_another_order_are_found() {
    let (whole, starts) = small_stream();
    let bounds: Vec<usize> = starts.iter().copied().chain([whole.len()]).collect();
    let piece = |number: usize| &whole[bounds[number]..bounds[number + 1]];
    // The others change the same file in ways that do not meet.
    for number in (1..bounds.len() - 2).filter(|number| ![4, 5, 6, 7, 10].contains(number)) {
        let mut pieces: Vec<&[u8]> = (0..bounds.len() - 1).map(piece).collect();
        pieces.swap(number, number + 1);
        indexed(&[pieces.concat()]).expect_err(&format!("commands {number} and {} exchanged", number + 1));
    }
}

proptest! {
    /// Any commands on a few paths end in an index or in an error, and what is in the index can be looked at.
    #[test]
    fn any_commands_are_judged_without_a_panic(
        steps in prop::collection::vec((0_u8..13, 0_usize..8, 0_usize..8, any::<u64>(), any::<u64>()), 1..40),
        has_base in any::<bool>(),
    ) {
        const PATHS: [&[u8]; 8] = [b"", b"a", b"a/b", b"a/b/c", b"d", b"../x", b"d/e", b"a//b"];
        let first = if has_base { subvolume(OWN) } else { snapshot(OWN, Uuid([9; 16])) };
        let mut bytes = stream(&[first]);
        bytes.truncate(bytes.len() - 10);
        let mut index = StreamIndex::new();
        for (kind, one, other, offset, length) in steps {
            let (path, to) = (PATHS[one], PATHS[other]);
            // Small numbers more often than huge ones.
            let (offset, length) = (offset >> (offset % 64), length >> (length % 64));
            let command = match kind {
                0 => file(path),
                1 => directory(path),
                2 => Command::Symlink { path, inode: None, target: to },
                3 => Command::Rename { path, to },
                4 => Command::Link { path, existing: to },
                5 => Command::Unlink { path },
                6 => Command::RemoveDirectory { path },
                7 => Command::Write { path, offset, data: b"xyz" },
                8 => clone_own(path, offset, to, length, length / 2),
                9 => Command::Truncate { path, size: length },
                10 => Command::Fallocate { path, mode: offset as u32 % 32, offset, length },
                11 => Command::UpdateExtent { path, offset, length },
                _ => Command::SetOwner { path, uid: offset, gid: length },
            };
            let more = stream(&[command]);
            let mut tried = bytes.clone();
            tried.extend_from_slice(&more[17..]);
            let mut next = StreamIndex::new();
            // A command that is refused is left out, so that the rest has something to stand on.
            if next.add(&mut StreamReader::new(&tried[..])).is_ok() {
                bytes.extend_from_slice(&more[17..more.len() - 10]);
                index = next;
            }
        }
        for view in index.subvolumes() {
            let mut found = 1;
            let mut directories = vec![view.root()];
            let mut names = std::collections::HashMap::new();
            while let Some(directory) = directories.pop() {
                for (_, file) in view.entries(directory) {
                    directories.push(file);
                    if names.insert(file, names.get(&file).copied().unwrap_or(0) + 1).is_none() {
                        found += 1;
                    }
                }
            }
            prop_assert_eq!(found, view.file_count(), "every file has a name");
            for (file, count) in names {
                prop_assert_eq!(view.status(file).names, count);
                let _ = view.check_content(file);
            }
        }
    }
}
