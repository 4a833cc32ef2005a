//! Inodes in memory: no more than the options say, whatever was written.

use crate::support::image;
use vlinder_base::sync::{Arc, Weak};
use vlinder_fs::data::flush_all;
use vlinder_fs::path::Files;
use vlinder_fs::{Inode, OpenOptions, SetAttributes, SetTime, Timestamp};
use vlinder_testkit::{Scratch, require};

const CACHED: usize = 256;
const FILES: usize = 4 * CACHED;

/// Each is dirty outside a transaction for a while, since writing grows it; what follows brings it into one.
#[test]
fn files_that_were_written_are_forgotten_before_a_commit() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("inode-cache");
    let image = image(&scratch, 256, &[]);
    let options = OpenOptions { cached_inodes: Some(CACHED), ..OpenOptions::default() };
    let files = Files::open_with(&image, options).unwrap();
    let times = SetAttributes {
        modification_time: Some(SetTime::At(Timestamp { seconds: 7, nanoseconds: 0 })),
        ..SetAttributes::default()
    };
    let modified = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(7);
    let commits = files.filesystem().engine().generation();
    let mut made: Vec<Weak<Inode>> = Vec::new();
    for number in 0..FILES {
        let name = format!("/{number}");
        files.write(&name, [number as u8; 5000]).unwrap();
        files.set_attributes(&name, &times).unwrap();
        made.push(Arc::downgrade(files.open_file(&name).unwrap().inode()));
        if number % 64 == 63 {
            flush_all(files.filesystem()).unwrap();
        }
    }
    assert_eq!(files.filesystem().engine().generation(), commits, "nothing was committed");
    let held = made.iter().filter(|inode| inode.strong_count() > 0).count();
    assert!(held <= 2 * CACHED, "{held} of {FILES} inodes are in memory, where {CACHED} may be cached");
    for number in 0..FILES {
        assert_eq!(files.read(format!("/{number}")).unwrap(), [number as u8; 5000]);
        assert_eq!(files.metadata(format!("/{number}")).unwrap().modified(), modified);
    }
    files.close().unwrap();
}
