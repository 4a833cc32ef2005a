//! A file system that is filled and emptied again and again: nothing aborts, deleting always works, and as
//! much fits as with the kernel's btrfs.

use std::process::Command;

use vlinder_testkit::subject::{FullDisk, Load, REFUSALS, Recipe, stored_when_full};
use vlinder_testkit::workload::{Choice, Pattern};
use vlinder_testkit::{Scratch, kernel, require};

const IMAGE_BYTES: u64 = 256 << 20;

/// Fills and empties an image so many times, or as often as `VLINDER_ROUNDS` says.
fn rounds(load: Load, rounds: u64) {
    let rounds = std::env::var("VLINDER_ROUNDS").map_or(rounds, |text| text.parse().unwrap());
    match (FullDisk { image_bytes: IMAGE_BYTES, load, first: 0, rounds }).run() {
        Ok(files) => println!("{load:?}: {rounds} rounds, {files} files in the first"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_disk_is_filled_and_emptied_with_files_of_every_size() {
    require!(LongRun, Tool("btrfs"));
    rounds(Load::Mixed, 5);
}

#[test]
fn a_disk_is_filled_and_emptied_with_small_files() {
    require!(LongRun, Tool("btrfs"));
    rounds(Load::Metadata, 2);
}

#[test]
fn a_disk_is_filled_and_emptied_with_large_files() {
    require!(LongRun, Tool("btrfs"));
    rounds(Load::Data, 5);
}

#[test]
fn a_disk_of_mixed_groups_is_filled_and_emptied() {
    require!(LongRun, Tool("btrfs"));
    for profile in ["single", "dup"] {
        let scratch = Scratch::in_memory("mixed");
        let image = scratch.join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).unwrap();
        let made = Command::new("mkfs.btrfs")
            .args(["-q", "-M", "-d", profile, "-m", profile])
            .arg(&image)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for load in [Load::Mixed, Load::Data] {
            let filled = FullDisk { image_bytes: IMAGE_BYTES, load, first: 0, rounds: 2 }.run_on(&image);
            println!(
                "{profile} {load:?}: {} files",
                filled.unwrap_or_else(|error| panic!("{profile}: {error}"))
            );
        }
    }
}

/// Bytes of data that fit on the kernel's btrfs.
fn stored_by_kernel(load: Load) -> u64 {
    use std::io::Write;
    let scratch = Scratch::in_memory("full");
    let image = scratch.join("image");
    Recipe { device_bytes: IMAGE_BYTES, ..Recipe::default() }.in_file(&image);
    let mount = kernel::KernelMount::new(&image, "").unwrap();
    let choice = Choice::new(1);
    let (mut count, mut refused) = (0, 0);
    while refused < REFUSALS {
        let (size, seed) = (load.size(&choice), choice.any());
        let written = std::fs::File::create(mount.path().join(load.name(count))).and_then(|mut file| {
            let mut at = 0;
            while at < size {
                let length = (size - at).min(1 << 20);
                file.write_all(&Pattern::Random(seed).bytes(at, length))?;
                at += length;
            }
            Ok(())
        });
        refused = if written.is_ok() { 0 } else { refused + 1 };
        count += 1;
    }
    let synced = std::fs::File::open(mount.path()).and_then(|directory| directory.sync_all());
    if let Err(error) = synced {
        println!("the kernel's sync says: {error}");
    }
    let sizes =
        std::fs::read_dir(mount.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let bytes = sizes.sum();
    mount.unmount().unwrap();
    bytes
}

#[test]
fn as_much_fits_as_on_the_kernel_s_btrfs() {
    require!(KernelBtrfs, Tool("btrfs"));
    for load in [Load::Data, Load::Mixed, Load::Metadata] {
        let (ours, theirs) = (stored_when_full(IMAGE_BYTES, load, 1).unwrap(), stored_by_kernel(load));
        println!("{load:?}: {ours} bytes by us, {theirs} by the kernel");
        assert!(ours * 100 >= theirs * 95, "{load:?}: {ours} bytes by us, {theirs} by the kernel");
    }
}
