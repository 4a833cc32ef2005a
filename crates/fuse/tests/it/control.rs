//! The control socket on a real mount: subvolumes, snapshots of what the kernel still holds, and the end of a
//! mount.

use crate::rig::{Rig, shell, walk_of};
use vlinder_control::protocol::SubvolumeTarget;
use vlinder_control::{Answer, ClientError, ErrorKind, Request};
use vlinder_testkit::require;

#[test]
fn the_kernel_sees_subvolumes_made_and_deleted_at_once() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("rsync"));
    let rig = Rig::new(512);
    let mounted = rig.mount("");
    let mut client = mounted.client();
    let mut ask = |request: Request| client.request(&request).unwrap();
    // The kernel remembers that these names are not there.
    assert!(!rig.join("one").exists() && !rig.join("shot").exists());
    let Answer::Subvolume(one) = ask(Request::SubvolumeCreate { path: "one".into(), umask: 0o027 }) else {
        panic!()
    };
    assert_eq!(one.number, 256);
    assert_eq!(shell(&rig.mountpoint, "stat -c %a one"), "750\n");
    shell(
        &rig.mountpoint,
        "mkdir one/d; echo before > one/d/file; ln one/d/file one/d/hard; cp -r /etc/apt one/",
    );
    let Answer::Subvolume(shot) =
        ask(Request::SubvolumeSnapshot { source: "one".into(), path: "shot".into(), read_only: true })
    else {
        panic!()
    };
    assert_eq!((shot.read_only, shot.parent_uuid.as_ref()), (true, Some(&one.uuid)));
    shell(
        &rig.mountpoint,
        "echo after > one/d/file; test \"$(cat shot/d/file)\" = before; ! touch shot/new 2>/dev/null",
    );
    ask(Request::SubvolumeSnapshot { source: "shot".into(), path: "one/nested".into(), read_only: false });
    // Hard links are told from files that only share an object id.
    shell(&rig.mountpoint, "test $(find . -name file -printf '%i\n' | sort -u | wc -l) = 3");
    let outside = rig.outside("copy");
    shell(
        &rig.mountpoint,
        &format!(
            "rsync -aH ./ {o}/ && diff -r . {o} && tar cf - . | tar xf - -C /tmp --to-stdout >/dev/null",
            o = outside.display()
        ),
    );
    let Answer::Subvolumes { subvolumes } = ask(Request::SubvolumeList) else { panic!() };
    let paths: Vec<String> = subvolumes.iter().map(|one| one.path.to_string()).collect();
    assert_eq!(paths, ["", "one", "shot", "one/nested"]);
    let Answer::Root { number } = ask(Request::RootId { path: "one/nested/d".into() }) else { panic!() };
    assert_eq!(number, 258);
    ask(Request::PropertySet { path: "shot".into(), name: "ro".into(), value: "false".into(), force: false });
    shell(&rig.mountpoint, "touch shot/new");
    ask(Request::SubvolumeDelete { target: SubvolumeTarget::Path("one/nested".into()), commit: true });
    assert!(!rig.join("one/nested").exists());
    ask(Request::SubvolumeDelete { target: SubvolumeTarget::Number(257), commit: false });
    assert!(!rig.join("shot").exists());
    ask(Request::SubvolumeSync { numbers: vec![] });
    ask(Request::LabelSet { label: "a name".into() });
    let Answer::Label { label } = ask(Request::LabelGet) else { panic!() };
    assert_eq!(label.to_string(), "a name");
    let Answer::Space(space) = ask(Request::FilesystemUsage) else { panic!() };
    assert_eq!(space.device_bytes, 512 << 20);
    let Answer::Statistics { metrics, .. } = ask(Request::Statistics) else { panic!() };
    assert!(!metrics.is_empty());
    let refused = client
        .request(&Request::SubvolumeDelete { target: SubvolumeTarget::Path("one/d".into()), commit: false });
    let Err(ClientError::Server(body)) = refused else { panic!("{refused:?}") };
    assert_eq!(body.kind, ErrorKind::Invalid);
    drop(client);
    let seen = walk_of(&rig.mountpoint);
    mounted.unmount();
    rig.judge(&seen);
}

#[test]
fn a_busy_mount_stays_and_ends_later() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("");
    let file = std::fs::File::create(rig.join("open")).unwrap();
    let refused = mounted.client().unmount();
    assert!(matches!(refused, Err(ClientError::Unmount { is_busy: true, .. })), "{refused:?}");
    std::io::Write::write_all(&mut &file, b"still served").unwrap();
    drop(file);
    let seen = walk_of(&rig.mountpoint);
    mounted.unmount();
    // A client that was told that all is durable can use the image at once.
    rig.judge(&seen);
}

#[test]
fn sync_makes_durable_what_the_kernel_had_cached() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("commit=300");
    let file = std::fs::File::create(rig.join("open")).unwrap();
    std::io::Write::write_all(&mut &file, &[7; 100_000]).unwrap();
    // So much that the server is still taking it when the kernel has handed it over.
    let large = std::fs::File::create(rig.join("large")).unwrap();
    std::io::Write::write_all(&mut &large, &vec![9; 60_000_000]).unwrap();
    let Answer::Synced { .. } = mounted.client().request(&Request::FilesystemSync).unwrap() else { panic!() };
    // What the image holds now, without the end of the mount.
    let cut = rig.outside("cut");
    std::fs::copy(&rig.image, &cut).unwrap();
    vlinder_testkit::kernel::btrfs_check(&cut).unwrap();
    let kernel = vlinder_testkit::kernel::KernelMount::new(&cut, "ro").unwrap();
    assert!(std::fs::read(kernel.path().join("open")).unwrap() == [7; 100_000]);
    assert!(std::fs::read(kernel.path().join("large")).unwrap() == vec![9; 60_000_000]);
    kernel.unmount().unwrap();
    drop((file, large));
    mounted.unmount();
}
