//! Files share extents of the same bytes: what is shared, what is refused to whom, and that nothing else
//! changes. The cases of `as_linux_does` were tried with FIDEDUPERANGE on Linux 6.18.

use std::borrow::Cow;

use proptest::prelude::*;
use vlinder_base::metrics::Value;
use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_fs::data::{Allocate, OpenCache};
use vlinder_fs::{
    ByteRange, Caller, ContentTimes, Filesystem, GroupId, Inode, InodeFlags, OpenOptions, Refusal,
    SetAttributes, UserId, WriteOrigin,
};
use vlinder_testkit::subject::{Recipe, own_check};

use crate::support::{read, root_user};

const SECTOR: u64 = 4096;

struct Place {
    device: Arc<MemoryDevice>,
    filesystem: Filesystem,
}

impl Place {
    fn new() -> Self {
        let device = Arc::new(Recipe { device_bytes: 256 << 20, ..Recipe::default() }.in_memory());
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as Arc<dyn Device>], options);
        Self { device, filesystem: filesystem.unwrap() }
    }

    fn file(&self, name: &str, flags: InodeFlags, bytes: &[u8]) -> Arc<Inode> {
        let root = self.filesystem.root().unwrap();
        let file = self.filesystem.names().create_file(&root_user(), &root, name.as_bytes(), 0o644).unwrap();
        self.filesystem.attributes().set_flags(&root_user(), &file, flags).unwrap();
        self.write(&file, 0, bytes);
        file
    }

    fn write(&self, file: &Arc<Inode>, offset: u64, bytes: &[u8]) {
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
        self.filesystem.files().write_file(&root_user(), file, offset, Cow::Borrowed(bytes), origin).unwrap();
    }

    /// The addresses of a file's runs.
    fn addresses(&self, file: &Arc<Inode>) -> Vec<(u64, u64, Option<u64>, bool)> {
        let whole = ByteRange::new(0, u64::MAX).unwrap();
        let runs = self.filesystem.files().extent_map(file, &OpenCache::new(), whole, usize::MAX).unwrap();
        runs.iter()
            .map(|run| (run.offset, run.length, run.logical.map(|place| place.0), run.shared))
            .collect()
    }

    fn dedupe(
        &self,
        caller: &Caller,
        from: (&Arc<Inode>, u64),
        to: (&Arc<Inode>, u64),
        length: u64,
    ) -> Result<bool, Refusal> {
        let deduped = self.filesystem.files().dedupe_range(caller, from, to, length);
        deduped.map_err(|error| error.refusal().unwrap_or_else(|| panic!("{error}")))
    }

    /// A counter, or how often a histogram was told something.
    fn counted(&self, name: &str) -> u64 {
        let samples = self.filesystem.options().registry.snapshot();
        match samples.iter().find(|sample| sample.name == name).map(|sample| &sample.value) {
            Some(Value::Counter(count)) => *count,
            Some(Value::Histogram(histogram)) => histogram.count,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn end(self) {
        self.filesystem.close().unwrap();
        own_check(Arc::new(self.device.snapshot())).unwrap();
    }
}

/// What it is, source and target with their offsets, the length, and how it ends.
type Case<'a> = (&'a str, (&'a Arc<Inode>, u64), (&'a Arc<Inode>, u64), u64, Result<bool, Refusal>);

fn noise(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn the_same_bytes_are_shared_and_nothing_else_changes() {
    let place = Place::new();
    let bytes = noise(1_000_000, 1);
    let source = place.file("source", InodeFlags::NONE, &bytes);
    let target = place.file("target", InodeFlags::NONE, &bytes);
    place.filesystem.sync().unwrap();
    let before = place.filesystem.attributes().of(&target);
    // What is dirty in memory is compared, and written first.
    place.write(&source, 0, &bytes[..5000]);
    assert_ne!(place.addresses(&source), place.addresses(&target));
    assert_eq!(place.dedupe(&root_user(), (&source, 0), (&target, 0), 1_000_000), Ok(true));
    let (one, other) = (place.addresses(&source), place.addresses(&target));
    assert_eq!(one, other);
    assert!(one.iter().all(|run| run.3), "{one:?}");
    assert_eq!(place.filesystem.attributes().of(&target), before);
    assert!(read(&place.filesystem, &target) == bytes);
    // A write to one is not seen in the other.
    place.write(&source, 8192, &noise(4096, 2));
    assert!(read(&place.filesystem, &target) == bytes);
    assert_eq!(place.dedupe(&root_user(), (&source, 0), (&target, 0), 1_000_000), Ok(false));
    assert!(read(&place.filesystem, &target) == bytes);
    place.end();
}

#[test]
fn ranges_and_files_are_refused_as_linux_does() {
    let place = Place::new();
    let bytes = noise(1_000_000, 1);
    let mut other_tail = bytes.clone();
    other_tail[999_999] ^= 1;
    let source = place.file("a", InodeFlags::NONE, &bytes);
    let same = place.file("b", InodeFlags::NONE, &bytes);
    let plain = |name: &str, bytes: &[u8]| place.file(name, InodeFlags::NONE, bytes);
    let without_checksums = place.file("nc", InodeFlags::NODATACOW | InodeFlags::NODATASUM, &bytes);
    let (tail, zeros) = (plain("tail", &other_tail), plain("zeros", &vec![0; 1 << 20]));
    let (hole, tiny, tiny_too) = (plain("hole", b""), plain("t1", b"tiny\n"), plain("t2", b"tiny\n"));
    let grow = SetAttributes { size: Some(1 << 20), ..SetAttributes::default() };
    place.filesystem.attributes().set(&root_user(), &hole, &grow).unwrap();
    let reserved = plain("pre", b"");
    let origin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
    let reserve = Allocate::Reserve { keep_size: false };
    place.filesystem.files().allocate_file(&root_user(), &reserved, reserve, 0, 1 << 20, origin).unwrap();
    let immutable = plain("im", &bytes);
    place.filesystem.attributes().set_flags(&root_user(), &immutable, InodeFlags::IMMUTABLE).unwrap();
    let appended = plain("app", &bytes);
    place.filesystem.attributes().set_flags(&root_user(), &appended, InodeFlags::APPEND).unwrap();
    let (mib, invalid) = (1 << 20, Err(Refusal::InvalidArgument));
    let cases: [Case<'_>; 19] = [
        ("equal", (&source, 0), (&same, 0), 1_000_000, Ok(true)),
        ("without checksums", (&source, 0), (&without_checksums, 0), 1_000_000, invalid),
        ("immutable", (&source, 0), (&immutable, 0), 1_000_000, Err(Refusal::NotPermitted)),
        ("append-only", (&source, 0), (&appended, 0), 1_000_000, Ok(true)),
        ("the last byte differs", (&source, 0), (&tail, 0), 1_000_000, Ok(false)),
        ("in the tree", (&tiny, 0), (&tiny_too, 0), 5, Ok(true)),
        ("preallocated", (&reserved, 0), (&zeros, 0), mib, Ok(true)),
        ("onto preallocated", (&zeros, 0), (&reserved, 0), mib, Ok(true)),
        ("a hole", (&hole, 0), (&zeros, 0), mib, Ok(true)),
        ("itself", (&source, 0), (&source, 0), SECTOR, invalid),
        ("elsewhere in itself", (&source, 0), (&source, SECTOR), SECTOR, Ok(false)),
        ("shifted", (&source, 0), (&same, SECTOR), 995_904, Ok(false)),
        ("a length inside of both", (&source, SECTOR), (&same, SECTOR), SECTOR + 1, Ok(true)),
        ("no border", (&source, 1), (&same, 1), SECTOR, invalid),
        ("behind the end", (&source, 0), (&same, 0), 2_000_000, invalid),
        ("nothing", (&source, 0), (&same, 0), 0, Ok(true)),
        ("whole sectors", (&source, 0), (&appended, 0), 999_424, Ok(true)),
        ("less than the rest", (&source, 0), (&appended, 0), 999_937, Ok(true)),
        ("a directory", (&source, 0), (&place.filesystem.root().unwrap(), 0), 1, Err(Refusal::IsADirectory)),
    ];
    for (name, from, to, length, expected) in cases {
        let before =
            (to.0.file_type() == vlinder_fs::FileType::Regular).then(|| read(&place.filesystem, to.0));
        assert_eq!(place.dedupe(&root_user(), from, to, length), expected, "{name}");
        assert!(before.is_none_or(|before| read(&place.filesystem, to.0) == before), "{name}");
    }
    assert_eq!(place.addresses(&zeros), [], "the hole took its place");
    drop((source, same, tail, zeros, hole, tiny, tiny_too, reserved, immutable, appended, without_checksums));
    place.end();
}

#[test]
fn snapshots_take_part_for_their_files_owners_and_root() {
    let place = Place::new();
    let (bytes, root) = (noise(200_000, 3), place.filesystem.root().unwrap());
    let (user, stranger) =
        (Caller::user(UserId(1000), GroupId(1000)), Caller::user(UserId(2000), GroupId(2000)));
    let source = place.file("source", InodeFlags::NONE, &bytes);
    let made = place.filesystem.subvolumes().create(&root_user(), &root, b"sub").unwrap();
    let names = place.filesystem.names();
    let directory = names.lookup(&root_user(), &root, b"sub").unwrap();
    for (name, mode) in [("own", 0o444), ("closed", 0o000)] {
        let file = names.create_file(&root_user(), &directory, name.as_bytes(), mode).unwrap();
        place.write(&file, 0, &bytes);
        let give = SetAttributes { user: Some(UserId(1000)), ..SetAttributes::default() };
        place.filesystem.attributes().set(&root_user(), &file, &give).unwrap();
    }
    place.filesystem.subvolumes().snapshot(&root_user(), made.root, &root, b"frozen", true).unwrap();
    let frozen = names.lookup(&root_user(), &root, b"frozen").unwrap();
    let in_snapshot = |name: &str| names.lookup(&root_user(), &frozen, name.as_bytes()).unwrap();
    let (own, closed) = (in_snapshot("own"), in_snapshot("closed"));
    let all = |caller: &Caller, file| place.dedupe(caller, (&source, 0), (file, 0), 200_000);
    assert_eq!(all(&stranger, &own), Err(Refusal::NotPermitted));
    assert_eq!(all(&user, &closed), Err(Refusal::AccessDenied));
    assert_eq!(all(&user, &own), Ok(true));
    assert_eq!(all(&root_user(), &closed), Ok(true));
    assert_eq!(
        (place.addresses(&own), place.addresses(&closed)),
        (place.addresses(&source), place.addresses(&source))
    );
    assert!(read(&place.filesystem, &own) == bytes);
    // The source has to be open for reading.
    assert_eq!(place.dedupe(&user, (&closed, 0), (&own, 0), 4096), Err(Refusal::AccessDenied));
    drop((source, directory, frozen, own, closed));
    place.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Files of few different sectors; each call says what a comparison of the bytes says.
    #[test]
    fn a_range_is_shared_exactly_where_its_bytes_are_the_same(
        sectors in proptest::collection::vec(0..3_u8, 8..40),
        other in proptest::collection::vec(0..3_u8, 8..40),
        tail in 1..4096_usize,
        calls in proptest::collection::vec((any::<bool>(), 0..40_u64, 0..40_u64, 1..12_u64), 1..20),
    ) {
        let place = Place::new();
        let of = |sectors: &[u8]| {
            let mut bytes: Vec<u8> = sectors.iter().flat_map(|seed| noise(4096, u32::from(*seed))).collect();
            bytes.truncate(bytes.len() - 4096 + tail);
            bytes
        };
        let contents = [of(&sectors), of(&other)];
        let files = [place.file("one", InodeFlags::NONE, &contents[0]), place.file("two", InodeFlags::NONE, &contents[1])];
        for (is_back, from, to, count) in calls {
            let (source, target) = (usize::from(is_back), usize::from(!is_back));
            let (from, to) = (from * SECTOR, to * SECTOR);
            let left = (contents[source].len() as u64).saturating_sub(from).min((contents[target].len() as u64).saturating_sub(to));
            let length = (count * SECTOR).min(left);
            if length == 0 {
                continue;
            }
            let range = |file: usize, start: u64| &contents[file][start as usize..(start + length) as usize];
            let expected = range(source, from) == range(target, to);
            prop_assert_eq!(place.dedupe(&root_user(), (&files[source], from), (&files[target], to), length), Ok(expected));
            for (file, content) in files.iter().zip(&contents) {
                prop_assert!(&read(&place.filesystem, file) == content);
            }
        }
        drop(files);
        place.end();
    }
}

#[test]
fn a_clone_of_no_length_goes_to_the_end() {
    let place = Place::new();
    let bytes = noise(300_001, 5);
    let (source, target) =
        (place.file("source", InodeFlags::NONE, &bytes), place.file("target", InodeFlags::NONE, b""));
    let origin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
    place.filesystem.files().clone_range(&root_user(), (&source, 4096), (&target, 0), 0, origin).unwrap();
    assert!(read(&place.filesystem, &target) == bytes[4096..]);
    drop((source, target));
    place.end();
}

/// Whether an extent is shared is known at its second place, however many there are.
#[test]
fn an_extent_at_many_places_is_mapped_in_few_steps() {
    const PLACES: u64 = 4096;
    let place = Place::new();
    let file = place.file("file", InodeFlags(0), &[7; SECTOR as usize]);
    let mut length = SECTOR;
    while length < PLACES * SECTOR {
        let (files, origin) = (place.filesystem.files(), WriteOrigin::OpenFile { times: ContentTimes::Stay });
        files.clone_range(&root_user(), (&file, 0), (&file, length), length, origin).unwrap();
        length *= 2;
    }
    place.filesystem.sync().unwrap();
    let before = place.counted("tree.descents");
    let (files, cache) = (place.filesystem.files(), OpenCache::new());
    let runs = files.extent_map(&file, &cache, ByteRange::new(0, u64::MAX).unwrap(), 100).unwrap();
    let taken = place.counted("tree.descents") - before;
    assert!(runs.len() == 100 && runs.iter().all(|run| run.shared), "{}", runs.len());
    println!("{taken} descents");
    assert!(taken < 40, "{taken} descents for one extent");
    place.end();
}

/// No commit comes while a handle is open, so a long map is made under several.
#[test]
fn a_map_of_many_extents_lets_commits_come_between() {
    const EXTENTS: u64 = 2500;
    let place = Place::new();
    let file = place.file("file", InodeFlags(0), &[]);
    for number in 0..EXTENTS {
        place.write(&file, number * 2 * SECTOR, &[7; SECTOR as usize]);
    }
    place.filesystem.sync().unwrap();
    let before = place.counted("transaction.begin_wait_time_ns");
    let mapped = place.addresses(&file).len() as u64;
    let begun = place.counted("transaction.begin_wait_time_ns") - before;
    assert_eq!(mapped, EXTENTS);
    assert!((3..10).contains(&begun), "{begun} handles");
    place.end();
}
