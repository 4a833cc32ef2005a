//! File handles, as NFS and `open_by_handle_at(2)` use them: one leads to its file after the kernel and the
//! server forgot it and after the next mount, and never to another file.

use std::path::Path;
use std::process::Command;

use crate::rig::{Mounted, Rig, run, shell};
use vlinder_control::protocol::MetricValue;
use vlinder_control::{Answer, Request};
use vlinder_testkit::require;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Handle {
    kind: String,
    bytes: String,
}

fn python(arguments: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/handles.py");
    run(Command::new("python3").arg(script).args(arguments)).trim().to_owned()
}

/// The handle of a file.
fn take(path: &Path) -> Handle {
    let said = python(&["take", path.to_str().unwrap()]);
    let (kind, bytes) = said.split_once(' ').unwrap();
    Handle { kind: kind.to_owned(), bytes: bytes.to_owned() }
}

/// What a file holds, where a directory lies and what names it has, or an error's name.
fn open(mountpoint: &Path, handle: &Handle) -> String {
    python(&["open", mountpoint.to_str().unwrap(), &handle.kind, &handle.bytes])
}

fn counted(mounted: &Mounted, name: &str) -> u64 {
    let Answer::Statistics { metrics, .. } = mounted.client().request(&Request::Statistics).unwrap() else {
        panic!()
    };
    let found = metrics.into_iter().find(|metric| metric.name == name).unwrap();
    let MetricValue::Counter { value } = found.value else { panic!() };
    value
}

/// Makes the kernel forget all files that nothing uses, and so the server.
fn forget(mounted: &Mounted) {
    let before = counted(mounted, "fuse.requests.forget");
    vlinder_testkit::eventually("the kernel forgets", || {
        std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        counted(mounted, "fuse.requests.forget") > before
    });
}

fn create(mounted: &Mounted, path: &str) {
    mounted.client().request(&Request::SubvolumeCreate { path: path.into(), umask: 0o022 }).unwrap();
}

fn snapshot(mounted: &Mounted, source: &str, path: &str) {
    let (source, path) = (source.into(), path.into());
    mounted.client().request(&Request::SubvolumeSnapshot { source, path, read_only: false }).unwrap();
}

/// Checks that each handle leads to what it is said to.
fn assert_lead(rig: &Rig, expected: &[(Handle, &str)], when: &str) {
    for (handle, content) in expected {
        assert_eq!(open(&rig.mountpoint, handle), *content, "{when}");
    }
}

#[test]
fn a_handle_survives_what_the_kernel_and_the_server_forget() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    for options in ["", "writeback=off"] {
        let rig = Rig::new(256);
        let mounted = rig.mount(options);
        create(&mounted, "home");
        create(&mounted, "home/nested");
        shell(
            &rig.mountpoint,
            "mkdir -p dir/sub home/deep/er; echo near > dir/sub/near; echo old > home/deep/er/file; \
             ln home/deep/er/file home/second; echo within > home/nested/within; echo top > top",
        );
        snapshot(&mounted, "home", "shot");
        shell(&rig.mountpoint, "echo new > home/deep/er/file");
        let expected = [
            ("top", "top"),
            ("dir/sub/near", "near"),
            ("dir/sub", "dir/sub: near"),
            ("home/deep/er/file", "new"),
            ("home/second", "new"),
            ("shot/deep/er/file", "old"),
            ("shot/deep/er", "shot/deep/er: file"),
            ("shot", "shot: deep nested second"),
            ("home/nested/within", "within"),
            ("home/nested", "home/nested: within"),
        ];
        let handles = expected.map(|(path, content)| (take(&rig.join(path)), content));
        assert_lead(&rig, &handles, "while the kernel has them");
        forget(&mounted);
        assert_lead(&rig, &handles, "after the kernel forgot them");
        // As an NFS client that comes back after a pause: again and again.
        forget(&mounted);
        assert_lead(&rig, &handles, "after the kernel forgot them twice");
        mounted.unmount();
        let mounted = rig.mount(options);
        assert_lead(&rig, &handles, "after the next mount");
        for ((path, _), (handle, _)) in expected.iter().zip(&handles) {
            assert_eq!(take(&rig.join(path)), *handle, "{path}");
        }
        mounted.unmount();
    }
}

#[test]
fn a_deleted_files_handle_is_stale_though_its_number_is_reused() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    let rig = Rig::new(256);
    let mounted = rig.mount("");
    create(&mounted, "gone");
    shell(&rig.mountpoint, "mkdir dir; echo lost > gone/lost; echo first > file; stat -c %i file > number");
    let files = ["file", "dir", "gone", "gone/lost"].map(|path| take(&rig.join(path)));
    // The highest number goes, so that the next mount gives it again.
    shell(&rig.mountpoint, "rm -r dir gone; cat number > /dev/null; rm file");
    let number = std::fs::read_to_string(rig.join("number")).unwrap();
    std::fs::rename(rig.join("number"), rig.outside("number")).unwrap_or_else(|_| {
        std::fs::remove_file(rig.join("number")).unwrap();
    });
    let assert_stale = |when: &str| {
        for handle in &files {
            assert_eq!(open(&rig.mountpoint, handle), "ESTALE", "{when}");
        }
    };
    assert_stale("at once");
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    assert_stale("when the kernel forgot");
    mounted.unmount();
    let mounted = rig.mount("");
    assert_stale("after the next mount");
    // Until the number comes once more.
    let script = format!(
        "for k in $(seq 20); do echo again > f$k; stat -c %i f$k; done > numbers; grep -qx {} numbers",
        number.trim()
    );
    shell(&rig.mountpoint, &script);
    assert_stale("while the number names another file");
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    assert_stale("when the kernel has neither");
    mounted.unmount();
}

#[test]
fn a_handle_of_one_subvolume_never_opens_a_file_of_another() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    let rig = Rig::new(256);
    let mounted = rig.mount("");
    create(&mounted, "@a");
    create(&mounted, "@b");
    // The same numbers in the same transactions, as far as possible.
    let script = "for k in 1 2 3; do for s in . @a @b; do mkdir $s/d$k; echo $s/$k > $s/d$k/f; done; done";
    shell(&rig.mountpoint, script);
    snapshot(&mounted, "@a", "@shot");
    shell(&rig.mountpoint, "for k in 1 2 3; do echo @shot/$k > @shot/d$k/f; done");
    mounted.unmount();
    // Each file's handle in each mount that shows it: what opens it must be the same file.
    let mounts = ["", "subvol=@a", "subvol=@b", "subvol=@shot"];
    let mut taken = Vec::new();
    for options in mounts {
        let mounted = rig.mount(options);
        let prefixes: &[&str] = if options.is_empty() { &[".", "@a", "@b", "@shot"] } else { &["."] };
        for prefix in prefixes {
            for name in ["d1", "d1/f", "d2/f", "d3", "d3/f"] {
                let path = rig.join(&format!("{prefix}/{name}"));
                let handle = take(&path);
                let content = open(&rig.mountpoint, &handle);
                let place = Path::new(prefix).join(name);
                taken.push((options, handle, content, place));
            }
        }
        mounted.unmount();
    }
    for options in mounts {
        let mounted = rig.mount(options);
        for round in ["with nothing in the kernel", "with all in the kernel"] {
            for (from, handle, content, place) in &taken {
                let found = open(&rig.mountpoint, handle);
                let is_file = place.ends_with("f");
                if options == *from {
                    assert_eq!(found, *content, "{place:?} on its own mount {options:?} {round}");
                } else if is_file && found != "ESTALE" {
                    assert_eq!(found, *content, "{place:?} of {from:?} on {options:?} {round}");
                } else {
                    // A directory that lies outside of what is mounted has no place there.
                    assert_eq!(found, "ESTALE", "{place:?} of {from:?} on {options:?} {round}");
                }
            }
            shell(&rig.mountpoint, "find . -ls > /dev/null");
        }
        mounted.unmount();
    }
}

#[test]
fn a_handle_of_an_absent_subvolume_never_leads_to_another() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    let rig = Rig::new(256);
    let mounted = rig.mount("");
    create(&mounted, "home");
    create(&mounted, "home/one");
    create(&mounted, "home/two");
    snapshot(&mounted, "home", "shot");
    let names = ["one", "two"];
    let handles = names.map(|name| take(&rig.join(&format!("shot/{name}"))));
    // What is open the kernel keeps, though another test drops its caches.
    let held = names.map(|name| std::fs::File::open(rig.join(&format!("shot/{name}"))).unwrap());
    for (name, handle) in names.iter().zip(&handles) {
        assert_eq!(open(&rig.mountpoint, handle), format!("shot/{name}:"), "while the kernel has it");
    }
    drop(held);
    mounted.unmount();
    let mounted = rig.mount("");
    // Their numbers go by the order in which they are looked up.
    shell(&rig.mountpoint, "stat shot/two shot/one > /dev/null");
    for handle in &handles {
        assert_eq!(open(&rig.mountpoint, handle), "ESTALE");
    }
    mounted.unmount();
}
