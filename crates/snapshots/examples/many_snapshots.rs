//! Makes an image of many files and many snapshots, each with a few changes:
//! `cargo run --release -p vlinder-snapshots --example many_snapshots -- IMAGE SNAPSHOTS FILES`.
//!
//! What `filesystem du` takes on it is measured by hand, with `/usr/bin/time -v`. Half of the files lie in
//! the tree, the others have preallocated extents, so that the image holds little more than its tree blocks.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;

use vlinder_base::sync::Arc;
use vlinder_fs::data::Allocate;
use vlinder_fs::{Caller, Filesystem, Inode, OpenOptions, RootId, WriteOrigin};
use vlinder_testkit::subject::Recipe;
use vlinder_testkit::workload::Choice;
use vlinder_volume::Profile;

/// Files of a directory.
const FILES_OF_DIRECTORY: u64 = 1000;
/// Files changed between two snapshots, and as many made, and deleted.
const CHANGES: u64 = 4;
const SECTOR: u64 = 4096;

struct Work {
    filesystem: Filesystem,
    caller: Caller,
    source: RootId,
    choice: Choice,
    files: u64,
}

type Done<T> = Result<T, Box<dyn Error>>;

impl Work {
    fn directory(&self, number: u64) -> Done<Arc<Inode>> {
        let root = self.filesystem.inode(vlinder_fs::InodeId::root_of(self.source))?;
        let name = format!("directory-{}", number / FILES_OF_DIRECTORY);
        let names = self.filesystem.names();
        match names.lookup(&self.caller, &root, name.as_bytes()) {
            Ok(directory) => Ok(directory),
            Err(_) => Ok(names.create_directory(&self.caller, &root, name.as_bytes(), 0o755)?),
        }
    }

    fn make(&self, number: u64) -> Done<()> {
        let (directory, name) = (self.directory(number)?, format!("file-{number}"));
        let file = self.filesystem.names().create_file(&self.caller, &directory, name.as_bytes(), 0o644)?;
        self.fill(&file, number)
    }

    fn fill(&self, file: &Arc<Inode>, number: u64) -> Done<()> {
        let files = self.filesystem.files();
        if number.is_multiple_of(2) {
            files.write_at(&self.caller, file, 0, Cow::Owned(vec![b'x'; 300]))?;
        } else {
            let what = Allocate::Reserve { keep_size: false };
            let place = self.choice.below(8) * SECTOR;
            files.allocate_file(&self.caller, file, what, place, SECTOR, WriteOrigin::Caller)?;
        }
        Ok(())
    }

    fn change(&mut self) -> Done<()> {
        for _ in 0..CHANGES {
            let number = self.choice.below(self.files);
            let (directory, name) = (self.directory(number)?, format!("file-{number}"));
            let names = self.filesystem.names();
            if let Ok(file) = names.lookup(&self.caller, &directory, name.as_bytes()) {
                self.fill(&file, number)?;
            }
            let gone = self.choice.below(self.files);
            let (directory, name) = (self.directory(gone)?, format!("file-{gone}"));
            // It may be gone already.
            let _ = names.unlink(&self.caller, &directory, name.as_bytes());
            self.make(self.files)?;
            self.files += 1;
        }
        Ok(())
    }
}

fn main() -> Done<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, snapshots, files] = arguments.as_slice() else {
        return Err("usage: many_snapshots IMAGE SNAPSHOTS FILES".into());
    };
    let (image, snapshots, files): (&Path, u64, u64) = (Path::new(image), snapshots.parse()?, files.parse()?);
    let recipe = Recipe { device_bytes: 32 << 30, metadata_profile: Profile::Single, ..Recipe::default() };
    recipe.in_file(image);
    let filesystem = Filesystem::open(&[image], OpenOptions::default())?;
    let caller = Caller { umask: 0, ..Caller::superuser() };
    let top = filesystem.root()?;
    let source = filesystem.subvolumes().create(&caller, &top, b"source")?.root;
    let mut work = Work { filesystem, caller, source, choice: Choice::new(1), files };
    for number in 0..files {
        work.make(number)?;
    }
    for snapshot in 0..snapshots {
        work.change()?;
        let name = format!("snapshot-{snapshot:04}");
        work.filesystem.subvolumes().snapshot(&work.caller, source, &top, name.as_bytes(), true)?;
    }
    drop(top);
    work.filesystem.close()?;
    Ok(())
}
