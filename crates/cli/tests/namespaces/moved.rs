//! `filesystem sync` of a mount that is no longer where it was made, or is seen in several places.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::alone;
use crate::common::{self, run, target, tool, vlinder};
use crate::place::Place;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::require;

/// A mount below a place that is private: the kernel moves no other.
struct Movable {
    place: Place,
    private: PathBuf,
}

impl Movable {
    fn new(name: &str) -> Self {
        let place = Place::new(name);
        let private = place.scratch.join("private");
        let movable = Self { place, private };
        for directory in [movable.private.clone(), movable.first(), movable.second()] {
            std::fs::create_dir(directory).unwrap();
        }
        rustix::mount::mount_bind(&movable.private, &movable.private).unwrap();
        rustix::mount::mount_change(&movable.private, MountPropagationFlags::PRIVATE).unwrap();
        // The directories that were made lie below the mount as well.
        let mut command = vlinder();
        command.args(["mount", "-o", "commit=300"]).arg(&movable.place.image).arg(movable.first());
        common::end(&mut command).done();
        movable
    }

    fn first(&self) -> PathBuf {
        self.private.join("first")
    }

    fn second(&self) -> PathBuf {
        self.private.join("second")
    }

    /// What the image has of a file, without the mount.
    fn stored(&self, name: &str) -> Option<Vec<u8>> {
        let copy = self.place.scratch.join("copy.img");
        std::fs::copy(&self.place.image, &copy).unwrap();
        let read = run(["cat", &target(&copy, &format!("/{name}"))]);
        (read.code == 0).then_some(read.out)
    }

    /// Writes a file that stays open, and syncs by a path.
    #[track_caller]
    fn check_sync(&self, at: &Path, by: &Path, name: &str) {
        let content = name.repeat(100_000).into_bytes();
        let mut file = File::create(at.join(name)).unwrap();
        file.write_all(&content).unwrap();
        assert_ne!(self.stored(name).as_deref(), Some(&*content), "nothing asked for it");
        run([Path::new("filesystem"), Path::new("sync"), by]).done();
        assert!(self.stored(name).as_deref() == Some(&*content), "{name} is not durable");
    }

    fn end(self, at: &Path) {
        run([Path::new("umount"), at]).done();
        btrfs_check_data(&self.place.image).unwrap();
    }
}

impl Drop for Movable {
    fn drop(&mut self) {
        for point in [self.second(), self.first(), self.private.clone()] {
            let _ = rustix::mount::unmount(&point, UnmountFlags::DETACH);
        }
    }
}

#[test]
fn a_mount_that_was_moved_is_synced_where_it_is() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"));
    let movable = Movable::new("moved");
    let (first, second) = (movable.first(), movable.second());
    movable.check_sync(&first, &first, "before");
    tool("mount", ["--move", first.to_str().unwrap(), second.to_str().unwrap()]);
    movable.check_sync(&second, &second, "after");
    // Not where it was: that is a directory of the host.
    let failed = run([Path::new("filesystem"), Path::new("sync"), &first]);
    assert_ne!(failed.code, 0, "{failed:?}");
    movable.end(&second);
}

#[test]
fn a_bound_mount_is_synced_by_each_of_its_places() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"));
    let movable = Movable::new("bound-sync");
    let (first, second) = (movable.first(), movable.second());
    std::fs::create_dir(first.join("below")).unwrap();
    rustix::mount::mount_bind(first.join("below"), &second).unwrap();
    movable.check_sync(&first, &second, "root-by-below");
    movable.check_sync(&first, &first.join("below"), "by-directory");
    rustix::mount::unmount(&second, UnmountFlags::empty()).unwrap();
    rustix::mount::mount_bind(&first, &second).unwrap();
    movable.check_sync(&first, &second, "first-by-second");
    movable.check_sync(&second, &first, "second-by-first");
    // The place that the server knows goes.
    rustix::mount::unmount(&first, UnmountFlags::empty()).unwrap();
    movable.check_sync(&second, &second, "left");
    movable.end(&second);
}
