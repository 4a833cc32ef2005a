//! What a mount tells when it can't store what it was given, and that nothing of it is lost where the host
//! gets space again.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use crate::common::{run, target, tool};
use vlinder_testkit::{Scratch, eventually, require};

const PIECE: usize = 1 << 20;

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// A host's file system of 24 MiB with an image of 256 MiB on it, which is mounted. All of it ends with the
/// test.
struct Small {
    host: PathBuf,
    image: PathBuf,
    point: PathBuf,
    _scratch: Scratch,
}

impl Small {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let (host, point) = (scratch.join("host"), scratch.join("mount"));
        std::fs::create_dir(&host).unwrap();
        std::fs::create_dir(&point).unwrap();
        tool("mount", ["-t", "tmpfs", "-o", "size=24m", "tmpfs", text(&host)]);
        let image = host.join("disk.img");
        let small = Self { host, image, point, _scratch: scratch };
        run(["mkfs", "-q", "-b", "256M", text(&small.image)]).done();
        run(["mount", text(&small.image), text(&small.point)]).done();
        small
    }

    fn enlarge(&self) {
        tool("mount", ["-o", "remount,size=1g", text(&self.host)]);
    }

    /// Writes pieces into one file until one is refused; how many were accepted.
    fn fill(&self) -> usize {
        let mut file = File::create(self.point.join("pieces")).unwrap();
        for number in 0..400 {
            if let Err(error) = file.write_all(&piece(number)) {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                return number;
            }
            // As long as the device has room, the kernel is ahead of it.
            vlinder_base::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("nobody was told that the host is full");
    }

    /// As the kernel has them of the mount.
    fn flags(&self) -> String {
        let table = std::fs::read_to_string("/proc/mounts").unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(1) == Some(text(&self.point))).unwrap();
        line.split(' ').nth(3).unwrap().to_owned()
    }

    fn condition(&self) -> serde_json::Value {
        run(["--json", "filesystem", "usage", text(&self.point)]).done().json()["condition"].clone()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = vlinder_testkit::kernel::unmount(&self.point);
        let _ = vlinder_testkit::kernel::unmount(&self.host);
    }
}

fn piece(number: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = vec![u8::try_from(number % 251).unwrap(); PIECE];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

#[test]
fn what_was_accepted_is_stored_when_a_full_host_has_space() {
    require!(Root, Fuse);
    let small = Small::new("condition");
    let (point, image) = (text(&small.point).to_owned(), text(&small.image).to_owned());
    assert_eq!(small.condition()["failed_commit"], serde_json::Value::Null);
    assert!(!run(["filesystem", "df", &point]).done().text().contains("Host full"));
    let flags_before = small.flags();
    let accepted = small.fill();
    run(["filesystem", "sync", &point]).failed(1, &["host's file system", "free some space there"]);
    let condition = small.condition();
    assert_eq!(condition["host_full"], true, "{condition}");
    assert_eq!(condition["read_only"], serde_json::Value::Null, "{condition}");
    assert!(condition["held_bytes"].as_u64().unwrap() > 0, "{condition}");
    assert_eq!(condition["lost_bytes"], 0, "{condition}");
    assert_eq!(condition["failed_commit"]["over"], false, "{condition}");
    for verb in [&["filesystem", "df"][..], &["filesystem", "usage"], &["stats"]] {
        let told = run(verb.iter().copied().chain([point.as_str()])).done().text();
        assert!(told.contains("Host full: ") && told.contains("Failed commit: "), "{verb:?}: {told}");
    }
    run(["umount", &point]).failed(1, &["free some space on the host, then unmount again"]);
    let made_read_only = ["mount", "-o", "remount,ro,noexec", &image, &point];
    run(made_read_only).failed(1, &["can't be remounted", "it goes on as it was mounted"]);
    assert_eq!(small.flags(), flags_before, "what the kernel says is what was told");
    small.enlarge();
    eventually("the host's space is found", || {
        small.condition()["host_full"] == false || {
            File::create(small.point.join("later")).and_then(|mut file| file.write_all(b"x")).ok();
            false
        }
    });
    run(["filesystem", "sync", &point]).done();
    let condition = small.condition();
    assert_eq!((&condition["held_bytes"], &condition["failed_commit"]["over"]), (&0.into(), &true.into()));
    assert_eq!(condition["lost_bytes"], 0, "{condition}");
    run(["umount", &point]).done();
    let read = run(["cat", &target(&small.image, "/pieces")]).done().out;
    for (number, found) in read.chunks(PIECE).take(accepted).enumerate() {
        assert!(found == piece(number), "piece {number}");
    }
    assert!(read.len() >= accepted * PIECE, "{} bytes of {accepted} pieces", read.len());
    run(["check", &image]).done();
}
