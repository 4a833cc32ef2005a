//! Archives of enemies do no harm: each is refused with what is wrong, or does what it says within the image.

use std::path::Path;

use proptest::prelude::*;
use vlinder_admin::mkfs::{ArchiveFault, MkfsError, read_source};
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::Ordering;
use vlinder_base::thread;
use vlinder_testkit::Scratch;

use crate::mkfs::{filled, make};
use crate::packed::Packed;

fn fault_of(scratch: &Scratch, bytes: &[u8]) -> ArchiveFault {
    let archive = scratch.join("archive.tar");
    std::fs::write(&archive, bytes).unwrap();
    match make(&filled(&archive), &scratch.join("image")).unwrap_err() {
        MkfsError::Archive { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

#[test]
fn names_that_lead_out_are_refused() {
    let scratch = Scratch::new("hostile-names");
    let new = Packed::default;
    let leads_out = |bytes: Packed| {
        let fault = fault_of(&scratch, &bytes.end());
        assert!(matches!(fault, ArchiveFault::LeadsOut { .. }), "{fault}");
    };
    leads_out(new().file("../x", b""));
    leads_out(new().file("a/../../x", b""));
    leads_out(new().file("..", b""));
    leads_out(new().directory("../"));
    leads_out(new().file("a", b"").hard_link("b", "../../etc/passwd"));
    leads_out(new().records(&[("path", b"x/../../y")]).file("harmless", b""));
    leads_out(new().entry(b"long", b'L', b"", 6, b"../../").file("harmless", b""));
    for through in [
        new().link("a", "/etc").file("a/passwd", b""),
        new().link("a", "..").file("a/passwd", b""),
        new().link("a", "b").link("b", "a").file("a/passwd", b""),
        new().link("a", "x/../..").hard_link("b", "a/etc/passwd"),
    ] {
        let fault = fault_of(&scratch, &through.end());
        assert!(matches!(fault, ArchiveFault::ThroughLink { .. }), "{fault}");
    }
    for target in ["etc/passwd", "/etc/passwd", "itself", "directory"] {
        let fault = fault_of(&scratch, &new().directory("directory").hard_link("itself", target).end());
        assert!(matches!(fault, ArchiveFault::NoTarget { .. }), "{target}: {fault}");
    }
    let fault = fault_of(&scratch, &new().file("a", b"").file("a/b", b"").end());
    assert!(matches!(fault, ArchiveFault::NotInDirectory { .. }), "{fault}");
    let fault = fault_of(&scratch, &new().file("a/b", b"").file("a", b"").end());
    assert!(matches!(fault, ArchiveFault::NotEmpty { .. }), "{fault}");
}

#[test]
fn lengths_are_judged_before_memory_is_taken() {
    let scratch = Scratch::new("hostile-lengths");
    let new = Packed::default;
    for kind in [b'L', b'K', b'x', b'g'] {
        for size in [1 << 30, 1 << 40, i64::MAX as u64] {
            let fault = fault_of(&scratch, &new().entry(b"long", kind, b"", size, b"x").end());
            assert!(matches!(fault, ArchiveFault::TooLong { .. }), "{fault}");
        }
    }
    // What is for every entry is copied for each.
    let comment = vec![b'a'; 100_000];
    let global = |packed: Packed| packed.global_records(&[("comment", &comment)]);
    let fault = fault_of(&scratch, &global(global(global(new()))).file("x", b"").end());
    assert!(matches!(fault, ArchiveFault::TooLong { .. }), "{fault}");
    let long = vec![b'a'; 100_000];
    let fault = fault_of(&scratch, &new().records(&[("path", &long)]).file("x", b"").end());
    assert!(matches!(fault, ArchiveFault::TooLong { .. }), "{fault}");
    for size in [1_000_000, 1 << 40, i64::MAX as u64] {
        let fault = fault_of(&scratch, &new().entry(b"a", b'0', b"", size, b"short").end());
        assert!(matches!(fault, ArchiveFault::Incomplete), "{fault}");
    }
    let fault = fault_of(&scratch, &new().file("a", b"content").0[..600]);
    assert!(matches!(fault, ArchiveFault::Incomplete), "{fault}");
    let mut damaged = new().file("a", b"content").file("b", b"").end();
    damaged[1030] ^= 1;
    let fault = fault_of(&scratch, &damaged);
    assert!(matches!(fault, ArchiveFault::Damaged), "{fault}");
}

#[test]
fn maps_of_sparse_files_are_judged() {
    let scratch = Scratch::new("hostile-maps");
    let map = |map: &str, size: &str, content: &[u8]| {
        Packed::default()
            .records(&[("GNU.sparse.size", size.as_bytes()), ("GNU.sparse.map", map.as_bytes())])
            .file("sparse", content)
            .end()
    };
    for (ranges, size) in [
        ("0,5", "4"),
        ("3,5,0,0", "10"),
        ("0,4,2,1", "10"),
        ("18446744073709551615,5", "10"),
        ("0,3", "10"),
        ("0,18446744073709551615,0,6", "10"),
        ("0,5", "18446744073709551615"),
    ] {
        let fault = fault_of(&scratch, &map(ranges, size, b"12345"));
        assert!(matches!(fault, ArchiveFault::SparseMap { .. }), "{ranges}: {fault}");
    }
    for head in ["99999999999999999999999\n", "1000000000\n", "x\n", "18446744073709551615\n", "-1\n"] {
        let bytes = Packed::default()
            .records(&[
                ("GNU.sparse.major", b"1"),
                ("GNU.sparse.minor", b"0"),
                ("GNU.sparse.realsize", b"4096"),
            ])
            .file("sparse", &[head.as_bytes(), &[0; 1000]].concat())
            .end();
        let fault = fault_of(&scratch, &bytes);
        assert!(matches!(fault, ArchiveFault::SparseMap { .. }), "{head}: {fault}");
    }
    // A file of many tebibytes that holds nothing takes nothing.
    let archive = scratch.join("archive.tar");
    std::fs::write(&archive, map("0,5,4398046511104,0", "4398046511104", b"12345")).unwrap();
    make(&filled(&archive), &scratch.join("image")).unwrap();
    let files = vlinder_fs::path::Files::open(scratch.join("image")).unwrap();
    assert_eq!(files.metadata("/sparse").unwrap().size_bytes, 1 << 42);
}

#[test]
fn what_is_no_archive_is_said_to_be_none() {
    let scratch = Scratch::new("hostile-none");
    for bytes in [&b""[..], b"short", &[7; 5000]] {
        let fault = fault_of(&scratch, bytes);
        assert!(matches!(fault, ArchiveFault::NoArchive), "{fault}");
    }
    for (magic, name) in [(&b"\xfd7zXZ\0"[..], "xz"), (b"BZh9", "bzip2")] {
        let fault = fault_of(&scratch, &[magic, &[0; 600]].concat());
        assert!(fault.to_string().contains(&format!("{name} -dc")), "{fault}");
    }
    let fault = fault_of(&scratch, &Packed::default().entry(b"part", b'M', b"", 0, b"").end());
    assert!(matches!(fault, ArchiveFault::UnknownType { kind: 'M', .. }), "{fault}");
    assert!(!scratch.join("image").exists());
}

/// An archive with one of everything that the reader knows.
fn known() -> Vec<u8> {
    Packed::default()
        .directory("./")
        .file("a/b/c", b"content")
        .hard_link("a/hard", "a/b/c")
        .link("to", "a/b")
        .file("to/d", &[1; 2000])
        .records(&[("SCHILY.xattr.user.x", b"1"), ("mtime", b"5.25"), ("uid", b"70000")])
        .entry(b"null", b'3', b"", 0, b"")
        .records(&[("GNU.sparse.size", b"9000"), ("GNU.sparse.map", b"0,5,8000,0")])
        .file("sparse", b"12345")
        .entry(b"long", b'L', b"", 5, b"name\0")
        .entry(b"fifo", b'6', b"", 0, b"")
        .end()
}

fn with_right_sums(mut bytes: Vec<u8>) -> Vec<u8> {
    for block in bytes.as_chunks_mut::<512>().0 {
        if block[257..262] == *b"ustar" {
            block[148..156].copy_from_slice(b"        ");
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        }
    }
    bytes
}

fn read(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    // That it ends is what is asked.
    let _ = read_source(path, Some(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn reading_a_changed_archive_ends(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        sums in any::<bool>(),
    ) {
        let mut bytes = known();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let scratch = Scratch::new("hostile-changed");
        read(&scratch.join("archive"), &if sums { with_right_sums(bytes) } else { bytes });
    }
}

#[test]
fn the_archive_that_is_changed_is_a_good_one() {
    let scratch = Scratch::new("hostile-good");
    std::fs::write(scratch.join("archive"), known()).unwrap();
    let read = read_source(&scratch.join("archive"), Some(1)).unwrap();
    assert_eq!((read.entries, read.data_bytes), (9, 7 + 7 + 2000 + 5));
}

/// A pipe with a name.
fn pipe(scratch: &Scratch) -> std::path::PathBuf {
    let path = scratch.join("pipe");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    path
}

#[test]
fn waiting_for_a_pipe_can_be_interrupted() {
    let scratch = Scratch::new("hostile-pipe");
    let pipe = pipe(&scratch);
    for is_open in [false, true] {
        let options = filled(&pipe);
        let interrupted = Arc::clone(&options.interrupted);
        let writer = is_open.then(|| std::fs::File::options().read(true).write(true).open(&pipe).unwrap());
        let stopping = thread::spawn("interrupting", move || {
            thread::sleep(std::time::Duration::from_millis(200));
            interrupted.store(true, Ordering::Relaxed);
        });
        let error = make(&options, &scratch.join("image")).unwrap_err();
        assert!(matches!(error, MkfsError::Interrupted), "{error}");
        stopping.join().unwrap();
        drop(writer);
    }
}

#[test]
fn a_pipe_whose_writer_comes_late_is_read_to_its_end() {
    let scratch = Scratch::new("late-pipe");
    let pipe = pipe(&scratch);
    let packed = Packed::default().file("a", &[b'x'; 200_000]).end();
    let writing = thread::spawn("writer", {
        let pipe = pipe.clone();
        move || {
            thread::sleep(std::time::Duration::from_millis(300));
            std::fs::write(pipe, packed).unwrap();
        }
    });
    make(&filled(&pipe), &scratch.join("image")).unwrap();
    writing.join().unwrap();
    let files = vlinder_fs::path::Files::open(scratch.join("image")).unwrap();
    assert_eq!(files.read("/a").unwrap(), [b'x'; 200_000]);
}

#[test]
fn an_archive_of_no_bytes_from_a_pipe_is_refused() {
    let scratch = Scratch::new("empty-pipe");
    let pipe = pipe(&scratch);
    let writing = thread::spawn("writer", {
        let pipe = pipe.clone();
        move || drop(std::fs::File::options().write(true).open(pipe).unwrap())
    });
    let error = make(&filled(&pipe), &scratch.join("image")).unwrap_err();
    writing.join().unwrap();
    assert!(matches!(error, MkfsError::Archive { fault: ArchiveFault::NoArchive, .. }), "{error}");
}

#[test]
fn an_archive_without_its_end_is_told() {
    let scratch = Scratch::new("endless-archive");
    let (archive, packed) = (scratch.join("archive.tar"), Packed::default().file("a", b"content"));
    let notes = |bytes: &[u8]| {
        std::fs::write(&archive, bytes).unwrap();
        let image = scratch.join("image");
        let report = make(&filled(&archive), &image).unwrap();
        std::fs::remove_file(image).unwrap();
        report.notes.iter().filter(|note| note.contains("no end mark")).count()
    };
    assert_eq!(notes(&packed.0.clone()), 1);
    assert_eq!(notes(&packed.end()), 0);
}

#[cfg(feature = "zlib")]
#[test]
fn what_stands_behind_an_archive_is_read_to_its_end() {
    use std::io::Write;
    let scratch = Scratch::new("behind-the-end");
    let mut packed = Packed::default().file("a", b"content").end();
    // More than a pipe and the buffers take.
    packed.resize(4 << 20, 0);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&packed).unwrap();
    let compressed = encoder.finish().unwrap();

    let mut damaged = compressed.clone();
    let place = damaged.len() - 6;
    damaged[place] ^= 1;
    let fault = fault_of(&scratch, &damaged);
    assert!(matches!(fault, ArchiveFault::Host { .. }), "{fault}");
    let fault = fault_of(&scratch, &compressed[..place]);
    assert!(matches!(fault, ArchiveFault::Incomplete), "{fault}");
    let archive = scratch.join("archive.tgz");
    std::fs::write(&archive, [&compressed[..], &[0; 1024]].concat()).unwrap();
    make(&filled(&archive), &scratch.join("image")).unwrap();

    let pipe = pipe(&scratch);
    let writing = thread::spawn("writer", {
        let pipe = pipe.clone();
        move || std::fs::write(pipe, packed)
    });
    make(&filled(&pipe), &scratch.join("other-image")).unwrap();
    writing.join().unwrap().unwrap();
}
