//! The text of a stream, compared byte for byte with what btrfs-progs prints of the same file.

use std::path::Path;
use std::process::Command;

use vlinder_format::inode::Timestamp;
use vlinder_format::{Generation, Uuid};
use vlinder_stream::dump::{DumpError, DumpOptions, dump};
use vlinder_stream::wire::{
    Command as StreamCommand, EncodedWrite, Node, Protocol, Snapshot, StreamReader, StreamWriter, Times,
    WireError,
};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

/// Made by the kernel in a subvolume, then changed.
const FIRST: &str = r#"
    mkdir -p 'd d/e'; printf x > 'd d/sp ace'; printf x > $'new\nline'; printf x > 'back\slash'; printf x > grün
    printf x > $'odd\a\b\e\f\r\t\v\x01\x7f\xff'; mkfifo p; mknod c c 4 300; mknod b b 259 70000
    ln -s $'to \n there' l; ln grün 'd d/hard link'; mkdir x; long=x/$(printf 'n%.0s' {1..255}); : > $long
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'
    setfattr -n user.odd -v 0x000a1b20ff41 grün; setfattr -n user.empty p 2>/dev/null || true
    setfattr -n $'user.a \n\xff' -v $'b \t\xfe' grün; setfattr -n user.gone -v 1 l 2>/dev/null || setfattr -n user.gone -v 1 x
    chown 7:8 grün; chmod 6755 grün; chmod 1777 x; touch -d '1960-01-01 00:00:00.5' x; touch -d 2106-02-07 'd d'
    head -c 300000 /dev/urandom > random; yes | head -c 600000 > yes; truncate -s 1g sparse; echo end >> sparse
    xfs_io -f -c 'falloc 0 1m' -c 'falloc -k 1m 1m' -c 'pwrite -q 4k 8k' reserved; sync
    cp --reflink=always random clone; cp --reflink=always random 'clone of a name'
"#;
const THEN: &str = r#"
    mv 'd d' 'e e'; rm p c; rmdir 'e e/e'; setfattr -x user.odd grün; mv b $'b\x02'; truncate -s 5 clone
    xfs_io -c 'fpunch 4k 64k' -c 'pwrite -q 100k 4k' random; chattr +C +i x 2>/dev/null || true; : > empty
    xfs_io -c 'reflink random 128k 512k 64k' yes >/dev/null; ln -sf other l; sync
"#;

/// What btrfs-progs prints of a stream, with the local time that is `TZ`.
fn text_of_progs(stream: &Path, zone: &str) -> Vec<u8> {
    let mut command = Command::new("btrfs");
    command.args(["receive", "--dump", "-f"]).arg(stream).env("TZ", zone);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn text(stream: &[u8], utc_offset: i32) -> Vec<u8> {
    let mut output = Vec::new();
    let options = DumpOptions { utc_offset: &|_| utc_offset, escapes_all: false };
    dump(&mut StreamReader::new(stream), &options, &mut output).unwrap();
    output
}

#[track_caller]
fn compare(stream: &Path, zone: &str, utc_offset: i32) -> String {
    let (expected, found) = (text_of_progs(stream, zone), text(&std::fs::read(stream).unwrap(), utc_offset));
    let lines = |text: &[u8]| -> Vec<String> {
        text.split(|byte| *byte == b'\n').map(|line| line.escape_ascii().to_string()).collect()
    };
    for (found, expected) in lines(&found).iter().zip(lines(&expected)) {
        assert_eq!(*found, expected, "{}", stream.display());
    }
    assert_eq!(found.len(), expected.len());
    String::from_utf8_lossy(&found).into_owned()
}

fn bash(directory: &Path, script: &str) {
    let output = Command::new("bash").args(["-euc", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_kernels_streams_are_printed_as_progs_prints_them() {
    require!(
        KernelBtrfs,
        Tool("btrfs"),
        Tool("mkfs.btrfs"),
        Tool("setfattr"),
        Tool("xfs_io"),
        Tool("python3")
    );
    let scratch = Scratch::in_memory("stream-dump");
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    bash(Path::new("/"), &format!("mkfs.btrfs -q {}", image.display()));
    let mount = KernelMount::new(&image, "compress-force=lzo").unwrap();
    bash(mount.path(), "btrfs subvolume create v >/dev/null");
    bash(&mount.path().join("v"), FIRST);
    bash(mount.path(), "btrfs subvolume snapshot -r v 'first shot' >/dev/null");
    bash(&mount.path().join("v"), THEN);
    bash(mount.path(), "btrfs subvolume snapshot -r v second >/dev/null");
    let mut kinds = String::new();
    let calls = [
        "'first shot'",
        "-p 'first shot' second",
        "--proto 2 'first shot'",
        "--proto 2 --compressed-data 'first shot'",
        "--proto 2 --compressed-data -p 'first shot' second",
        "--no-data -p 'first shot' second",
    ];
    for call in calls {
        let stream = scratch.join("stream");
        bash(mount.path(), &format!("btrfs send -q -f {} {call}", stream.display()));
        kinds += &compare(&stream, "UTC", 0);
        compare(&stream, "LOC-05:30", 19_800);
        compare(&stream, "LOC9:30", -34_200);
    }
    mount.unmount().unwrap();
    let seen = |name: &str| kinds.lines().any(|line| line.split(' ').next() == Some(name));
    let never = ["fallocate", "fileattr", "enable_verity", "end"];
    for kind in vlinder_stream::wire::CommandKind::ALL.iter().filter(|kind| !never.contains(&kind.name())) {
        assert!(seen(kind.name()), "the kernel sent no {kind}");
    }
}

/// What the kernel never sends, or only in versions that are rare.
#[test]
fn made_commands_are_printed_as_progs_prints_them() {
    require!(Tool("btrfs"));
    let scratch = Scratch::new("stream-dump-made");
    let stream = scratch.join("stream");
    let (uuid, transid) = (Uuid([0xab; 16]), Generation(u64::MAX));
    let time = |seconds| Timestamp { seconds, nanoseconds: 999_999_999 };
    let times =
        Times { access: time(-1), modification: time(1 << 40), change: time(0), birth: Some(time(4)) };
    let long = vec![b'y'; 2000];
    let commands = [
        StreamCommand::Subvolume { path: b"night shift/", uuid, transid },
        StreamCommand::Fallocate { path: b"f", mode: u32::MAX, offset: u64::MAX, length: 1 << 63 },
        StreamCommand::Fallocate { path: b"f", mode: 3, offset: 7, length: 8 },
        StreamCommand::SetFileAttributes { path: b"f/", flags: 0x1234 },
        StreamCommand::SetTimes { path: b"", times },
        StreamCommand::SetMode { path: b"f\0g", mode: u64::MAX },
        StreamCommand::SetOwner { path: &long, uid: u64::MAX, gid: 1 << 40 },
        StreamCommand::MakeNode(Node { path: b"n", inode: Some(1), mode: u64::MAX, device: u64::MAX }),
        StreamCommand::SetXattr { path: b"f", name: b"user.\0x", value: b"a\0b" },
        StreamCommand::SetXattr { path: b"exactly-twentythree-let", name: b"", value: b"" },
        StreamCommand::SetXattr { path: b"exactly-twentyfour-letter", name: b"", value: b"" },
        StreamCommand::Symlink { path: b"l", inode: Some(5), target: b"../ up\0lost" },
        StreamCommand::EncodedWrite(EncodedWrite {
            path: b"f",
            offset: 1 << 63,
            file_length: u64::MAX,
            unencoded_length: 11,
            unencoded_offset: 12,
            compression: u32::MAX,
            encryption: 9,
            data: b"packed",
        }),
        StreamCommand::Snapshot(Snapshot {
            path: b"a/b",
            uuid,
            transid,
            parent_uuid: Uuid([1; 16]),
            parent_transid: Generation(0),
        }),
        StreamCommand::Unlink { path: b"../../x" },
        StreamCommand::RemoveDirectory { path: b"/etc" },
        StreamCommand::End,
    ];
    let mut writer = StreamWriter::new(std::fs::File::create(&stream).unwrap(), Protocol::V2);
    writer.begin().unwrap();
    commands.iter().for_each(|command| writer.put(command).unwrap());
    writer.flush().unwrap();
    let lines = compare(&stream, "UTC", 0);
    assert_eq!(lines.lines().count(), commands.len() - 1);
}

#[test]
fn streams_that_follow_one_another_are_all_printed() {
    let (uuid, transid) = (Uuid([1; 16]), Generation(1));
    let mut bytes = Vec::new();
    for name in [b"a", b"b"] {
        let mut writer = StreamWriter::new(&mut bytes, Protocol::V3);
        writer.begin().unwrap();
        writer.put(&StreamCommand::Subvolume { path: name, uuid, transid }).unwrap();
        let verity = StreamCommand::EnableVerity {
            path: b"f",
            algorithm: 1,
            block_size: 4096,
            salt: b"12",
            signature: b"",
        };
        writer.put(&verity).unwrap();
        writer.put(&StreamCommand::End).unwrap();
        writer.flush().unwrap();
    }
    let expected = "\
        subvol          ./a                             uuid=01010101-0101-0101-0101-010101010101 transid=1\n\
        enable_verity   ./a/f                           algorithm=1 block_size=4096 salt_len=2 sig_len=0\n\
        subvol          ./b                             uuid=01010101-0101-0101-0101-010101010101 transid=1\n\
        enable_verity   ./b/f                           algorithm=1 block_size=4096 salt_len=2 sig_len=0\n";
    assert_eq!(String::from_utf8(text(&bytes, 0)).unwrap(), expected);
}

#[test]
fn a_cut_is_told_with_its_place_after_what_came_before() {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::new(&mut bytes, Protocol::V1);
    writer.begin().unwrap();
    writer.put(&StreamCommand::SetXattr { path: b"a", name: b"user.\n", value: b"\x1b[2J" }).unwrap();
    writer.put(&StreamCommand::Unlink { path: b"b" }).unwrap();
    let whole = writer.position();
    writer.put(&StreamCommand::End).unwrap();
    writer.flush().unwrap();
    let mut output = Vec::new();
    let options = DumpOptions { utc_offset: &|_| 0, escapes_all: true };
    let cut = &bytes[..whole as usize + 3];
    let error = dump(&mut StreamReader::new(cut), &options, &mut output).unwrap_err();
    assert!(matches!(error, DumpError::Wire { offset, error: WireError::Truncated } if offset == whole));
    let expected = "set_xattr       ./a                             name=user.\\n data=\\e[2J len=4\n\
        unlink          ./b\n";
    assert_eq!(String::from_utf8(output).unwrap(), expected);
}
