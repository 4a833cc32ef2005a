//! Space that runs out at every place of a workload: nothing aborts, no space is lost, deleting always works.
//!
//! Data and metadata share their groups here, so that one number says how much is free. An image is filled to
//! the last sector; then it gets 0, 1, 2 … sectors back, and each time the workload runs against that:
//! whatever it allocates or reserves, at some of these numbers it is the first thing that finds no room. It
//! ends where the whole workload finds room. `NO_SPACE_STEP` is the step between the numbers, 1 for all.

use std::os::unix::fs::FileExt;
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_check::{Options, check};
use vlinder_device::MemoryDevice;
use vlinder_fs::data::Allocate;
use vlinder_fs::path::Files;
use vlinder_fs::{
    AttributeMode, Caller, ContentTimes, Filesystem, FsError, OpenOptions, Refusal, RenameMode, WriteOrigin,
};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{Scratch, require};

const SECTOR: u64 = 4096;
const IMAGE_BYTES: u64 = 24 << 20;
/// A workload that does not find room with this many sectors never will.
const MAX_SECTORS: u64 = 3000;
/// Free sectors that trees which were cut and grown again may take more than before.
const SLACK_SECTORS: u64 = 24;
/// One image in so many goes before `btrfs check` too.
const CHECKED_BY_LINUX: u64 = 40;

type Outcome = Result<(), FsError>;
type Workload = fn(&Files) -> Vec<Outcome>;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| byte()).collect()
}

/// The same operation with the numbers up to `count`.
fn times(count: u64, mut operation: impl FnMut(u64) -> Outcome) -> Vec<Outcome> {
    (0..count).map(&mut operation).collect()
}

/// Works on a file, which may not be there for want of space.
fn with_file(files: &Files, path: &str, work: impl FnOnce(&vlinder_fs::path::File) -> Outcome) -> Outcome {
    let file = files.options().read(true).write(true).create(true).open(path)?;
    work(&file)
}

fn allocate(files: &Files, path: &str, what: Allocate, offset: u64, length: u64) -> Outcome {
    with_file(files, path, |file| {
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Move };
        files
            .filesystem()
            .files()
            .allocate_file(&Caller::superuser(), file.inode(), what, offset, length, origin)
            .map(drop)
    })
}

const WORKLOADS: &[(&str, Workload)] = &[
    ("empty files", |files| times(60, |n| files.write(format!("/made/file-{n}"), b""))),
    ("directories", |files| times(60, |n| files.create_dir_all(format!("/made/{}/{n}", n % 7)))),
    ("inline files", |files| times(40, |n| files.write(format!("/made/small-{n}"), noise(n, 1500)))),
    ("a large file", |files| {
        times(24, |n| with_file(files, "/made/large", |file| file.write_at(&noise(n, 65536), n * 65536)))
    }),
    ("overwriting", |files| {
        times(40, |n| {
            with_file(files, "/old/data", |file| {
                file.write_at(&noise(n, 9000), n * 37 % 40 * SECTOR)?;
                if n % 8 == 0 { file.sync_all() } else { Ok(()) }
            })
        })
    }),
    ("appending with fsync", |files| {
        times(30, |n| {
            with_file(files, "/made/journal", |file| {
                file.write_at(&noise(n, 700), n * 700)?;
                file.sync_all()
            })
        })
    }),
    ("direct writes", |files| {
        times(20, |n| {
            let (one, two) = (noise(n, 4096), noise(n + 100, 8192));
            with_file(files, "/made/direct", |file| {
                file.write_direct(&[(n * 7 % 20 * 16384, &one), (n * 3 % 20 * 16384 + 4096, &two)])
            })
        })
    }),
    ("renames over one another", |files| {
        times(40, |n| {
            files.write("/made/new", noise(n, 300))?;
            files.rename("/made/new", format!("/made/kept-{}", n % 5))
        })
    }),
    ("names of one file", |files| {
        if let Err(error) = files.write("/made/one", b"one") {
            return vec![Err(error)];
        }
        times(60, |n| files.hard_link("/made/one", format!("/made/{n}-{}", "name".repeat(40))))
    }),
    ("symbolic links", |files| times(40, |n| files.symlink("target/".repeat(200), format!("/made/{n}")))),
    ("attributes", |files| {
        let inode = files.resolve("/old/data".as_ref()).unwrap();
        times(30, |n| {
            let (caller, name) = (Caller::superuser(), format!("user.attribute-{n}"));
            let value = noise(n, 900);
            let mode = AttributeMode::Either;
            files.filesystem().attributes().set_extended_attribute(
                &caller,
                &inode,
                name.as_bytes(),
                &value,
                mode,
            )
        })
    }),
    ("snapshots of what changes", |files| {
        times(12, |n| {
            files.snapshot("/old", format!("/made/snapshot-{n}"), n % 2 == 0)?;
            with_file(files, "/old/data", |file| file.write_at(&noise(n, 5000), n * 8192))
        })
    }),
    ("subvolumes made and deleted", |files| {
        times(12, |n| {
            files.create_subvolume(format!("/made/subvolume-{n}"))?;
            files.write(format!("/made/subvolume-{n}/file"), noise(n, 6000))?;
            if n % 3 == 0 { files.delete_subvolume(format!("/made/subvolume-{n}")) } else { Ok(()) }
        })
    }),
    ("copies that share", |files| {
        times(20, |n| files.copy("/old/data", format!("/made/copy-{n}")).map(drop))
    }),
    ("preallocation", |files| {
        let reserve = Allocate::Reserve { keep_size: false };
        times(16, |n| {
            allocate(files, "/made/reserved", reserve, n * 200_000, 100_000)?;
            with_file(files, "/made/reserved", |file| file.write_at(&noise(n, 30_000), n * 200_000 + 5000))
        })
    }),
    ("holes", |files| {
        times(30, |n| allocate(files, "/old/data", Allocate::PunchHole, n * 5 % 40 * SECTOR + 100, 5000))
    }),
    ("zeroed ranges", |files| {
        let zero = Allocate::ZeroRange { keep_size: true };
        times(20, |n| allocate(files, "/old/data", zero, n * 3 % 40 * SECTOR + 1000, 9000))
    }),
    ("truncation both ways", |files| {
        times(24, |n| {
            with_file(files, "/made/cut", |file| {
                file.write_at(&noise(n, 50_000), n * 1000)?;
                file.set_len(n * 3001 % 40_000)?;
                if n % 6 == 0 { file.sync_all() } else { Ok(()) }
            })
        })
    }),
    ("compressed files", |files| {
        files
            .filesystem()
            .attributes()
            .set_extended_attribute(
                &Caller::superuser(),
                &files.resolve("/made".as_ref()).unwrap(),
                b"btrfs.compression",
                b"zstd",
                AttributeMode::Either,
            )
            .ok();
        times(12, |n| files.write(format!("/made/text-{n}"), format!("line {n} of a text\n").repeat(4000)))
    }),
    ("exchanged names", |files| {
        let filesystem = files.filesystem();
        times(30, |n| {
            files.write("/made/one", noise(n, 100))?;
            files.create_dir_all("/made/other")?;
            files.write("/made/other/two", noise(n, 5000))?;
            let (work, other) = (files.resolve("/made".as_ref())?, files.resolve("/made/other".as_ref())?);
            filesystem.names().rename(
                &Caller::superuser(),
                &work,
                b"one",
                &other,
                b"two",
                RenameMode::Exchange,
            )
        })
    }),
    ("files removed and made", |files| {
        times(40, |n| {
            files.write(format!("/made/turn-{}", n % 6), noise(n, 12_000))?;
            if n % 2 == 1 {
                files.remove_file(format!("/made/turn-{}", (n * 5) % 6)).or_else(ignore_absence)
            } else {
                Ok(())
            }
        })
    }),
    ("commits in between", |files| {
        times(20, |n| {
            files.write(format!("/made/committed-{n}"), noise(n, 20_000))?;
            files.sync()
        })
    }),
];

fn ignore_absence(error: FsError) -> Outcome {
    if error.refusal() == Some(Refusal::NotFound) { Ok(()) } else { Err(error) }
}

fn open(image: &Arc<MemoryDevice>) -> Files {
    let device = Arc::clone(image);
    let options = OpenOptions::parse("commit=3600").unwrap();
    Files::new(Filesystem::open_devices(vec![device as _], options).unwrap(), Caller::superuser())
}

/// An image without a free sector: `/filler` has them, `/old` has what the workloads change.
fn full_image() -> Arc<MemoryDevice> {
    let scratch = Scratch::in_memory("no-space");
    let path = scratch.join("image");
    std::fs::File::create(&path).unwrap().set_len(IMAGE_BYTES).unwrap();
    let made = Command::new("mkfs.btrfs").args(["-q", "-M", "-n", "4096"]).arg(&path).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let image = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
    let files = open(&image);
    files.create_subvolume("/old").unwrap();
    files.create_dir("/made").unwrap();
    files.write("/old/data", noise(1, 40 * SECTOR as usize)).unwrap();
    files.sync().unwrap();
    let filler = files.create("/filler").unwrap();
    // Each sector an extent of its own: one that is cut in part stays taken as a whole.
    let mut at = 0;
    // What a commit gives back can be filled again.
    for _ in 0..3 {
        while is_room(filler.write_direct(&[(at, &noise(at, SECTOR as usize))])) {
            at += SECTOR;
        }
        files.sync().unwrap();
    }
    drop(filler);
    files.close().unwrap();
    image
}

/// Whether there was room; nothing else may go wrong.
fn is_room(outcome: Outcome) -> bool {
    match outcome {
        Ok(()) => true,
        Err(error) if error.refusal() == Some(Refusal::NoSpace) => false,
        Err(error) => panic!("{error}"),
    }
}

fn check_all(image: &MemoryDevice, what: &str) {
    let options = Options { data_checksums: true, ..Options::default() };
    let report = check(vec![Arc::new(image.snapshot()) as _], &options).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
}

fn linux_checks(image: &MemoryDevice) {
    let scratch = Scratch::in_memory("no-space-check");
    let path = scratch.join("image");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(IMAGE_BYTES).unwrap();
    for (place, bytes) in image.written_chunks() {
        file.write_all_at(&bytes, place.0).unwrap();
    }
    btrfs_check_data(&path).unwrap();
}

/// Removes all that a workload may have made.
fn clear(files: &Files) -> Outcome {
    let names: Vec<_> = files.read_dir("/made")?.collect::<Result<_, _>>()?;
    for entry in names {
        let path = entry.path();
        if entry.metadata()?.is_subvolume() {
            files.delete_subvolume(&path)?;
        } else if entry.metadata()?.is_dir() {
            files.remove_dir_all(&path)?;
        } else {
            files.remove_file(&path)?;
        }
    }
    files.sync()?;
    while files.filesystem().engine().clean(1000)? {}
    files.sync()
}

/// Runs a workload with so many sectors free; gives whether it found room all the way.
fn run(full: &MemoryDevice, (name, workload): (&str, Workload), sectors: u64) -> bool {
    let what = format!("{name} with {sectors} sectors");
    let image = Arc::new(full.snapshot());
    let files = open(&image);
    let filler = files.options().write(true).open("/filler").unwrap();
    let rest = filler.inode().size().saturating_sub(sectors * SECTOR);
    if sectors > 0 {
        filler.set_len(rest).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    files.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
    let before = files.filesystem().statistics().unwrap();

    let refused = workload(&files).into_iter().map(is_room).filter(|room| !room).count();
    assert_eq!(files.filesystem().engine().read_only_reason(), None, "{what}");
    files.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
    check_all(&image, &what);
    if sectors.is_multiple_of(CHECKED_BY_LINUX) {
        linux_checks(&image);
    }
    clear(&files).unwrap_or_else(|error| panic!("{what}: deleting: {error}"));
    // What the workload changed outside of its directory goes too, so that the sum is that from before.
    drop(filler);
    files.remove_file("/filler").unwrap_or_else(|error| panic!("{what}: deleting: {error}"));
    files.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
    check_all(&image, &what);
    let after = files.filesystem().statistics().unwrap();
    let filler_sectors = rest / SECTOR;
    assert!(
        after.free_blocks + SLACK_SECTORS + OLD_SECTORS >= before.free_blocks + filler_sectors,
        "{what}: {} sectors free, and {} of the filler, at first; {} at the end",
        before.free_blocks,
        filler_sectors,
        after.free_blocks
    );
    files.close().unwrap();
    refused == 0
}

/// What overwriting, names and attributes may add to the files that stay.
const OLD_SECTORS: u64 = 60;

/// Every workload whose number leaves this rest when divided by four.
fn sweep(rest: usize) {
    let step = std::env::var("NO_SPACE_STEP").map_or(29, |text| text.parse().unwrap());
    let full = full_image();
    for (_, (name, workload)) in WORKLOADS.iter().enumerate().filter(|(number, _)| number % 4 == rest) {
        let mut refusals = 0;
        let mut sectors = 0;
        while !run(&full, (name, *workload), sectors) {
            refusals += 1;
            sectors += step;
            assert!(sectors < MAX_SECTORS, "{name}: no room with {sectors} sectors");
        }
        println!("{name}: room from {sectors} sectors on, refused with {refusals} smaller numbers");
        assert!(refusals > 0, "{name}: a full image had room for all of it");
    }
}

#[test]
fn first_quarter_of_the_workloads() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    sweep(0);
}

#[test]
fn second_quarter_of_the_workloads() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    sweep(1);
}

#[test]
fn third_quarter_of_the_workloads() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    sweep(2);
}

#[test]
fn last_quarter_of_the_workloads() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    sweep(3);
}

#[test]
fn there_are_twenty_workloads() {
    assert!(WORKLOADS.len() >= 20);
}
