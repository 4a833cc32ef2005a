//! A mount's life: how it is made, how it ends well, and how it ends badly.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::alone;
use crate::common::{self, Ended, run, target, tool};
use crate::place::{Place, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use vlinder_base::thread;
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::require;

/// Written, and left to the kernel's cache.
fn write_unsynced(place: &Place) -> Vec<u8> {
    let content: Vec<u8> =
        (0..3_000_000_u32).map(|number| number.wrapping_mul(2_654_435_761) as u8).collect();
    std::fs::write(place.at("unsynced"), &content).unwrap();
    content
}

#[test]
fn signals_unmount_with_everything_durable() {
    let _alone = alone();
    require!(Fuse, Tool("btrfs"), Tool("pgrep"));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = Place::new("signal");
        place.mount("compress=zstd").done();
        let content = write_unsynced(&place);
        let server = place.server();
        kill_process(server, signal).unwrap();
        wait_for("the end of the server", || rustix::process::test_kill_process(server).is_err());
        assert!(!place.is_mounted(), "{signal:?}");
        assert_eq!(place.cat("/unsynced"), content, "{signal:?}");
        btrfs_check_data(&place.image).unwrap();
    }
}

fn foreground(place: &Place) -> Child {
    let child =
        place.command(&["-f"], "defaults").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the mount", || place.is_mounted());
    child
}

#[test]
fn a_foreground_mount_ends_with_signal_or_unmounting() {
    let _alone = alone();
    require!(Fuse, Tool("btrfs"));
    for signal in [Some(Signal::TERM), Some(Signal::INT), Some(Signal::HUP), None] {
        let place = Place::new("foreground");
        let child = foreground(&place);
        let content = write_unsynced(&place);
        match signal {
            Some(signal) => kill_process(Pid::from_child(&child), signal).unwrap(),
            None => {
                place.unmount().done();
            }
        }
        let ended: Ended = child.wait_with_output().unwrap().into();
        let (image, point) = (place.image.display(), place.point.display());
        let said =
            format!("vlinder: {image} is mounted on {point}; Ctrl-C or vlinder umount {point} ends it\n");
        assert_eq!((ended.code, ended.err), (0, said), "{signal:?}");
        assert!(!place.is_mounted());
        assert_eq!(place.cat("/unsynced"), content);
        btrfs_check_data(&place.image).unwrap();
    }
}

#[test]
fn a_signal_detaches_a_busy_mount_and_serves_it_to_the_end() {
    let _alone = alone();
    require!(Fuse, Tool("btrfs"), Tool("pgrep"));
    let place = Place::new("signal-busy");
    place.mount("defaults").done();
    let mut file = std::fs::File::create(place.at("held")).unwrap();
    let server = place.server();
    kill_process(server, Signal::TERM).unwrap();
    wait_for("the mount to leave the tree", || !place.is_mounted());
    file.write_all(b"still served").unwrap();
    file.sync_all().unwrap();
    drop(file);
    wait_for("the end of the server", || rustix::process::test_kill_process(server).is_err());
    assert_eq!(place.cat("/held"), b"still served");
    btrfs_check_data(&place.image).unwrap();
}

#[test]
fn fsynced_data_survive_a_killed_server_and_its_dead_mount() {
    let _alone = alone();
    require!(Fuse, Tool("btrfs"), Tool("pgrep"));
    let place = Place::new("killed");
    place.mount("commit=1").done();
    let server = place.server();
    let directory = place.point.clone();
    // Writes until the server is gone; gives how many files were reported durable.
    let writer = thread::spawn("writer", move || {
        let mut durable = 0_usize;
        loop {
            let written = (|| {
                let mut file = std::fs::File::create(directory.join(format!("file-{durable}")))?;
                file.write_all(&vec![durable as u8; 50_000 + durable])?;
                file.sync_all()?;
                std::fs::write(directory.join("unsynced"), vec![1; 200_000])
            })();
            match written {
                Ok(()) => durable += 1,
                Err(_) => return durable,
            }
        }
    });
    thread::sleep(Duration::from_millis(1500));
    // A process that still has a file of a dead mount open does not keep the mount.
    let held = std::fs::File::open(&place.point).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    let durable = writer.join().unwrap();
    assert!(durable > 3, "only {durable} files were written");
    assert!(place.is_mounted());
    // A killed server closes its devices one by one; until the last is closed, requests are taken up and
    // dropped.
    let answer = loop {
        match rustix::fs::statfs(&place.point).unwrap_err() {
            rustix::io::Errno::CONNABORTED => thread::sleep(Duration::from_millis(1)),
            answer => break answer,
        }
    };
    assert_eq!(answer, rustix::io::Errno::NOTCONN);
    let point = place.point.to_str().unwrap();
    let ended = place.unmount();
    // It is unmounted, and not all is on disk.
    assert_eq!(ended.code, 1, "{}", ended.err);
    for word in [point, place.image.to_str().unwrap(), "had ended before it could commit", "last commit"] {
        assert!(ended.err.contains(word), "{word:?} is not in {:?}", ended.err);
    }
    assert!(!place.is_mounted());
    drop(held);
    btrfs_check_data(&place.image).unwrap();
    // Nothing stands in the way of the next mount.
    place.mount("defaults").done();
    for number in 0..durable {
        let content = std::fs::read(place.at(&format!("file-{number}"))).unwrap();
        assert_eq!(content, vec![number as u8; 50_000 + number], "file {number} of {durable}");
    }
    place.unmount().done();
    btrfs_check_data(&place.image).unwrap();
}

#[test]
fn auto_unmount_takes_the_mount_of_a_killed_server_away() {
    let _alone = alone();
    require!(Fuse, Tool("btrfs"), Tool("pgrep"), Tool("fusermount3"));
    let place = Place::new("auto-unmount");
    place.mount("auto_unmount").done();
    std::fs::write(place.at("file"), b"text").unwrap();
    run(["filesystem", "sync", place.point.to_str().unwrap()]).done();
    let server = place.server();
    kill_process(server, Signal::KILL).unwrap();
    wait_for("fusermount3 to unmount", || !place.is_mounted());
    assert_eq!(place.cat("/file"), b"text");
    btrfs_check_data(&place.image).unwrap();
    // And it ends well by the usual way.
    place.mount("auto_unmount").done();
    place.unmount().done();
    assert!(!place.is_mounted());
}

#[test]
fn a_mount_in_use_is_not_unmounted_and_goes_on() {
    let _alone = alone();
    require!(Fuse, Tool("btrfs"));
    let place = Place::new("busy");
    place.mount("defaults").done();
    let mut held = std::fs::File::create(place.at("held")).unwrap();
    let point = place.point.to_str().unwrap();
    place.unmount().failed(1, &[point, "can't be unmounted", "busy"]);
    assert!(place.is_mounted());
    held.write_all(b"text").unwrap();
    drop(held);
    place.unmount().done();
    assert_eq!(place.cat("/held"), b"text");
    btrfs_check_data(&place.image).unwrap();
}

#[test]
fn what_is_no_mount_point_is_not_unmounted() {
    let _alone = alone();
    require!(Fuse);
    let place = Place::new("no-mount");
    let point = place.point.to_str().unwrap();
    place.unmount().failed(1, &[point, "no vlinder is mounted there", "findmnt"]);
    place.mount("defaults").done();
    std::fs::create_dir(place.at("directory")).unwrap();
    let below = place.at("directory");
    run([Path::new("umount"), &below]).failed(1, &["directory", "no vlinder is mounted there"]);
    assert!(place.is_mounted());
    run(["umount", "/proc"]).failed(1, &["/proc", "no vlinder is mounted there"]);
    place.unmount().done();
}

#[test]
fn a_full_file_system_is_unmounted_with_all_that_is_durable() {
    let _alone = alone();
    require!(Fuse, Tool("btrfs"));
    for options in ["dirty=8m", "writeback=off,compress=zstd"] {
        let place = Place::new("full");
        place.mount(options).done();
        let mut durable = Vec::new();
        let mut is_full = false;
        for number in 0..400_u32 {
            let content: Vec<u8> = (0..1_000_000_u32)
                .map(|at| (at ^ number).wrapping_mul(2_654_435_761).to_be_bytes()[0])
                .collect();
            let name = format!("file-{number}");
            let written = std::fs::File::create(place.at(&name)).and_then(|mut file| {
                file.write_all(&content)?;
                file.sync_all()
            });
            match written {
                Ok(()) => durable.push((name, content)),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
                    is_full = true;
                    break;
                }
            }
        }
        assert!(is_full, "128 MiB took {} MB", durable.len());
        place.unmount().done();
        btrfs_check_data(&place.image).unwrap();
        for (name, content) in &durable {
            assert!(place.cat(&format!("/{name}")) == *content, "{name} of {}", durable.len());
        }
    }
}

#[test]
fn fsync_and_umount_tell_of_an_image_cut_or_removed() {
    let _alone = alone();
    require!(Fuse, Tool("sync"));
    for (removes, words) in [(false, "was cut to"), (true, "was removed")] {
        for is_synced in [false, true] {
            let place = Place::new("harmed");
            place.mount("commit=300").done();
            if removes {
                std::fs::remove_file(&place.image).unwrap();
            } else {
                let image = std::fs::OpenOptions::new().write(true).open(&place.image).unwrap();
                image.set_len(100 << 20).unwrap();
            }
            std::fs::write(place.at("file"), "content").unwrap();
            if is_synced {
                let synced = Command::new("sync").arg(place.at("file")).output().unwrap();
                assert!(!synced.status.success(), "{words}: fsync reports success");
            } else {
                // A user who hears it first can still save what there is.
                place.unmount().failed(1, &["disk.img", words, "unmount again"]);
                assert_eq!(std::fs::read(place.at("file")).unwrap(), b"content");
            }
            place.unmount().failed(1, &["disk.img", words]);
            assert!(!place.is_mounted(), "{words}");
        }
    }
}

#[test]
fn filesystem_sync_tells_of_an_image_cut_or_removed() {
    let _alone = alone();
    require!(Fuse);
    for (removes, words) in [(false, "was cut to"), (true, "was removed")] {
        let place = Place::new("harmed-synced");
        place.mount("commit=300").done();
        if removes {
            std::fs::remove_file(&place.image).unwrap();
        } else {
            std::fs::OpenOptions::new().write(true).open(&place.image).unwrap().set_len(100 << 20).unwrap();
        }
        std::fs::write(place.at("file"), "content").unwrap();
        let point = place.point.to_str().unwrap();
        run(["filesystem", "sync", point]).failed(1, &["disk.img", words]);
        // Not once only: what is not durable stays so.
        run(["filesystem", "sync", point]).failed(1, &["disk.img", words]);
        place.unmount().failed(1, &["disk.img", words]);
    }
}

#[test]
fn an_image_is_mounted_once_and_the_holder_is_named() {
    let _alone = alone();
    require!(Fuse, Tool("pgrep"));
    let place = Place::new("twice");
    place.mount("defaults").done();
    let other = place.scratch.join("other");
    std::fs::create_dir(&other).unwrap();
    let server = place.server().as_raw_nonzero().to_string();
    for options in ["defaults", "ro"] {
        let again = run([Path::new("mount"), Path::new("-o"), Path::new(options), &place.image, &other]);
        again.failed(1, &[place.image.to_str().unwrap(), "in use", &server, "vlinder"]);
    }
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(other.to_str().unwrap()));
    std::fs::write(place.at("file"), b"text").unwrap();
    place.unmount().done();
    // Readers share.
    let third = place.scratch.join("third");
    std::fs::create_dir(&third).unwrap();
    place.mount("ro").done();
    run([Path::new("mount"), Path::new("-o"), Path::new("ro"), &place.image, &third]).done();
    run([Path::new("umount"), &third]).done();
    place.unmount().done();
}

#[test]
fn everybody_may_use_a_mount_with_allow_other() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"));
    let place = Place::new("allow-other");
    let as_other = |path: &Path| {
        Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "ls"])
            .arg(path)
            .output()
            .unwrap()
    };
    for (options, may) in [("defaults", false), ("allow_other", true)] {
        place.mount(options).done();
        tool("chmod", [Path::new("755"), &place.point, place.scratch.path()]);
        assert_eq!(as_other(&place.point).status.success(), may, "{options}");
        place.unmount().done();
    }
}

/// A shell in a mount namespace of its own, with the names that mount(8) and umount(8) look for in /sbin, and
/// a table of file systems.
fn shell_with_helpers(place: &Place, fstab: &str, script: &str) -> Ended {
    let directory = place.scratch.path().display();
    std::fs::write(place.scratch.join("fstab"), fstab).unwrap();
    let program = env!("CARGO_BIN_EXE_vlinder");
    let prelude = format!(
        "sbin=$(realpath /sbin); mkdir -p {directory}/sbin {directory}/others; mount --bind $sbin {directory}/others; \
         for one in {directory}/others/*; do ln -s $one {directory}/sbin/; done; \
         ln -s {program} {directory}/sbin/mount.fuse.vlinder; ln -s {program} {directory}/sbin/umount.fuse.vlinder; \
         mount --bind {directory}/sbin $sbin; mount --bind {directory}/fstab /etc/fstab; cd {directory}; {script}"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-euc", &prelude]).env("LC_ALL", "C");
    common::end(&mut command)
}

#[test]
fn an_entry_of_fstab_mounts_by_the_helper() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"), Tool("unshare"), Tool("mount"), Tool("setpriv"));
    let place = Place::new("fstab");
    run(["subvolume", "create", &target(&place.image, "/sub")]).done();
    let (image, point) = (place.image.display(), place.point.display());
    let (absent, second) = (place.scratch.join("absent.img"), place.scratch.join("second"));
    std::fs::create_dir(&second).unwrap();
    let fstab = format!(
        "{image} {point} fuse.vlinder subvol=/sub,compress=zstd,allow_other,noatime,nosuid,nofail,x-systemd.automount,\
         x-gvfs-hide 0 0\n{} {} fuse.vlinder defaults,nofail 0 0\n",
        absent.display(),
        second.display()
    );
    let script = format!(
        r#"
mount -a
findmnt -no FSTYPE,OPTIONS {point}
yes abc | head -c 2000000 > {point}/written
chmod 755 {point}/.. {point}
setpriv --reuid 65534 --regid 65534 --clear-groups head -c 3 {point}/written; echo
mount -o remount,ro {point} 2>read-only.err
findmnt -no OPTIONS {point} | grep -o '^r[ow]'
! touch {point}/refused 2>/dev/null
mount -o remount,rw {point} 2>/dev/null
touch {point}/taken
umount {point}
mount -o ro {point}
! touch {point}/refused 2>/dev/null
! mount -o remount,rw {point} 2>remount.err
ls {point}
umount {point}
! mount -t fuse.vlinder -o frob {image} {point} 2>unknown.err
mount -t fuse.vlinder -o ro {image} {point}
ls {point}
umount {point}
"#
    );
    let ended = shell_with_helpers(&place, &fstab, &script);
    assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
    let text = ended.text();
    let mut lines = text.lines();
    let first = lines.next().unwrap();
    for word in ["fuse.vlinder", "rw,", "nosuid", "noatime", "allow_other", "default_permissions"] {
        assert!(first.contains(word), "{word} is not in {first:?}");
    }
    assert_eq!(lines.collect::<Vec<_>>(), ["abc", "ro", "taken", "written", "sub"], "{}", ended.err);
    let said = |name: &str| std::fs::read_to_string(place.scratch.join(name)).unwrap();
    // The options of fstab come along, and are those of the mount already.
    assert_eq!(said("read-only.err"), "");
    assert!(said("remount.err").contains("mount it for writing"), "{}", said("remount.err"));
    assert!(said("unknown.err").contains("frob"), "{}", said("unknown.err"));
    // umount(8) asked the server, so that all was durable when it ended.
    assert_eq!(place.cat("/sub/written").len(), 2_000_000);
    let compressed = run(["stat", &target(&place.image, "/sub/written")]).done();
    assert!(!compressed.out.is_empty());
    btrfs_check_data(&place.image).unwrap();
}

#[test]
fn a_mount_made_read_only_is_durable_and_reading_keeps_it() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"));
    let place = Place::new("remount");
    place.mount("strictatime").done();
    let content = write_unsynced(&place);
    let remount = [Path::new("mount"), Path::new("-o"), Path::new("remount,ro"), &place.image, &place.point];
    run(remount).done();
    let before = run(["inspect-internal", "dump-super", place.image.to_str().unwrap()]).done().text();
    assert_eq!(std::fs::read(place.at("unsynced")).unwrap(), content);
    assert!(std::fs::write(place.at("refused"), b"").is_err());
    let accessed = std::fs::metadata(place.at("unsynced")).unwrap();
    run(["filesystem", "sync", place.point.to_str().unwrap()]).done();
    let after = run(["inspect-internal", "dump-super", place.image.to_str().unwrap()]).done().text();
    assert_eq!(before, after);
    let server = place.server();
    kill_process(server, Signal::KILL).unwrap();
    wait_for("the end of the server", || rustix::process::test_kill_process(server).is_err());
    assert_eq!(place.unmount().code, 0);
    assert_eq!(place.cat("/unsynced"), content);
    btrfs_check_data(&place.image).unwrap();
    place.mount("ro").done();
    let found = std::fs::metadata(place.at("unsynced")).unwrap();
    assert_eq!((found.atime(), found.atime_nsec()), (accessed.atime(), accessed.atime_nsec()));
    place.unmount().done();
}

/// Most threads of such a mount never have a request: their end tells nobody.
#[test]
fn a_mount_with_many_threads_and_few_requests_ends() {
    let _alone = alone();
    require!(Fuse);
    let place = Place::new("many-threads");
    for requests in 0..4 {
        let mut server =
            place.command(&["-f"], "threads=8").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the mount", || place.is_mounted());
        for request in 0..requests {
            std::fs::create_dir(place.at(&format!("{requests}-{request}"))).unwrap();
        }
        // The kernel's umount, which asks the server nothing; an ordinary user has fusermount3 for it.
        common::end(Command::new("fusermount3").arg("-u").arg(&place.point)).done();
        let mut ended = None;
        wait_for("the server's end", || {
            ended = server.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success());
    }
    place.mount("defaults").done();
    assert_eq!(std::fs::read_dir(&place.point).unwrap().count(), 6);
    place.unmount().done();
}
