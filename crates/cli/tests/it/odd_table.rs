//! Twenty and more images with one odd thing each, of the kinds names, circles, counts, sizes and attributes:
//! whatever is odd, each verb ends within bounds, and all else in the directory is copied.

use std::process::Command;

use crate::common::{self, Ended, end, target};
use crate::odd::{FS, below, entry, image, inode, rename, text};
use vlinder_device::MemoryDevice;
use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::inode::{DeviceNumber, FileType, InodeItem, Mode, Timestamp};
use vlinder_format::inode_ref;
use vlinder_format::{Generation, ItemType, Key, ObjectId};
use vlinder_fs::{AttributeMode, Caller};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::subject::write_image;
use vlinder_testkit::{Scratch, require};

/// A directory with a file of each kind, names to change, and neighbours that have to stay.
fn base() -> MemoryDevice {
    image(|files| {
        files.create_dir_all("/top/one/two").unwrap();
        files.write("/top/before", "before").unwrap();
        files.write("/top/plain", vec![7; 50_000]).unwrap();
        files.write("/top/small", "small").unwrap();
        files.write(format!("/top/{}", "l".repeat(255)), "long").unwrap();
        files.symlink("before", "/top/link").unwrap();
        let (filesystem, caller) = (files.filesystem(), Caller::superuser());
        let top = files.resolve("/top".as_ref()).unwrap();
        filesystem
            .names()
            .create_node(&caller, &top, b"device", FileType::CharacterDevice, 0o600, DeviceNumber::new(1, 3))
            .unwrap();
        let file = files.open_file("/top/small").unwrap();
        let mode = AttributeMode::Create;
        filesystem
            .attributes()
            .set_extended_attribute(&caller, file.inode(), b"user.name", b"value", mode)
            .unwrap();
        files.write("/top/one/two/inner", "inner").unwrap();
        files.write("/top/behind", "behind").unwrap();
    })
}

/// Changes the inode of a name.
fn change(mutator: &Mutator, name: &str, how: impl Fn(&mut InodeItem)) {
    let found = mutator.find_of(inode(mutator, name), ItemType::INODE_ITEM);
    mutator.change_item(found, |data| {
        let mut item = InodeItem::decode(data).unwrap();
        how(&mut item);
        data.copy_from_slice(&item.encode());
    });
}

/// Makes both entries of a name lead to another inode.
fn lead(mutator: &Mutator, name: &str, to: ObjectId, as_type: Option<DirectoryEntryType>) {
    let index = entry(mutator, name);
    let hash = directory::item_key(index.key.objectid, name.as_bytes());
    for found in [index, mutator.find(FS, |key, _| key == hash)] {
        mutator.change_item(found, |data| {
            data[..Key::SIZE].copy_from_slice(&InodeItem::key(to).encode());
            if let Some(as_type) = as_type {
                data[29] = as_type.0;
            }
        });
    }
}

/// The item with the hash of a name.
fn hashed(mutator: &Mutator, name: &str) -> vlinder_testkit::mutator::Found {
    let key = directory::item_key(entry(mutator, name).key.objectid, name.as_bytes());
    mutator.find(FS, |found, _| found == key)
}

/// Gives the attribute of /top/small another name.
fn rename_attribute(mutator: &Mutator, name: &[u8; 9]) {
    let found = mutator.find_of(inode(mutator, "small"), ItemType::XATTR_ITEM);
    mutator.change_item(found, |data| data[30..39].copy_from_slice(name));
    mutator.set_key(found, Key { offset: directory::item_key(found.key.objectid, name).offset, ..found.key });
}

struct Odd {
    what: &'static str,
    how: fn(&Mutator),
    /// Names that a copy may lack, with what is odd. All, `*`, where a rule of Linux refuses the whole tree
    /// block.
    spoiled: &'static [&'static str],
}

const ODD: &[Odd] = &[
    // Names.
    Odd {
        what: "a name of 255 bytes that are no text",
        how: |m| rename(m, &"l".repeat(255), &[0xff; 255]),
        spoiled: &[],
    },
    Odd {
        what: "a name that clears a terminal",
        how: |m| rename(m, "plain", b"\x1b[2J\n"),
        spoiled: &["plain"],
    },
    Odd {
        what: "a name that begins with a dash",
        how: |m| rename(m, "plain", b"-rf ."),
        spoiled: &["plain"],
    },
    Odd {
        what: "three dots",
        how: |m| rename(m, "one", b"..."),
        spoiled: &["one", "one/two", "one/two/inner"],
    },
    Odd { what: "a name without its hash", how: |m| m.remove(hashed(m, "plain")), spoiled: &["plain"] },
    Odd { what: "a name without its index", how: |m| m.remove(entry(m, "plain")), spoiled: &["plain"] },
    Odd {
        what: "a name twice in the index",
        how: |m| {
            let found = entry(m, "plain");
            let data = m.block(found.leaf).data(found.slot).to_vec();
            m.insert(FS, directory::index_key(found.key.objectid, DirectoryIndex(900)), &data);
        },
        spoiled: &[],
    },
    Odd {
        what: "an empty name",
        how: |m| {
            let directory = inode(m, "top");
            let entry = DirectoryEntry {
                location: InodeItem::key(inode(m, "plain")),
                transaction: Generation(7),
                entry_type: DirectoryEntryType::REGULAR,
                name: b"",
                data: &[],
            };
            m.insert(FS, directory::index_key(directory, DirectoryIndex(900)), &entry.encode());
        },
        spoiled: &["*"],
    },
    // Circles.
    Odd {
        what: "a directory that leads to the one above",
        how: |m| lead(m, "two", inode(m, "top"), None),
        spoiled: &["one/two", "one/two/inner"],
    },
    Odd {
        what: "a directory that leads to itself",
        how: |m| lead(m, "two", inode(m, "one"), None),
        spoiled: &["one/two", "one/two/inner"],
    },
    Odd {
        what: "a directory whose own name lies in itself",
        how: |m| {
            let two = inode(m, "two");
            let found = m.find_of(two, ItemType::INODE_REF);
            m.set_key(found, inode_ref::key(two, two));
        },
        spoiled: &["one/two", "one/two/inner"],
    },
    Odd {
        what: "a link to itself",
        how: |m| {
            let found = m.find_of(inode(m, "link"), ItemType::EXTENT_DATA);
            m.change_item(found, |data| {
                let start = data.len() - 6;
                data[start..].copy_from_slice(b"./link");
            });
        },
        spoiled: &[],
    },
    Odd {
        what: "a file of which its name says that it is a directory",
        how: |m| lead(m, "plain", inode(m, "plain"), Some(DirectoryEntryType::DIRECTORY)),
        spoiled: &["plain"],
    },
    Odd {
        what: "a directory of which its name says that it is a file",
        how: |m| lead(m, "one", inode(m, "one"), Some(DirectoryEntryType::REGULAR)),
        spoiled: &["one", "one/two", "one/two/inner"],
    },
    Odd {
        what: "a name that leads nowhere",
        how: |m| lead(m, "plain", ObjectId(u64::MAX - 300), None),
        spoiled: &["plain"],
    },
    // Counts.
    Odd {
        what: "2^32-1 names",
        how: |m| change(m, "plain", |item| item.link_count = u32::MAX),
        spoiled: &[],
    },
    Odd {
        what: "a name of a file without names",
        how: |m| change(m, "plain", |item| item.link_count = 0),
        spoiled: &["plain"],
    },
    // Sizes.
    Odd {
        what: "a directory of 2^64-1 bytes",
        how: |m| change(m, "one", |item| item.size_bytes = u64::MAX),
        spoiled: &[],
    },
    Odd {
        what: "a directory of no bytes",
        how: |m| change(m, "one", |item| item.size_bytes = 0),
        spoiled: &[],
    },
    Odd {
        what: "a file of 2^63-1 bytes",
        how: |m| change(m, "plain", |item| item.size_bytes = i64::MAX as u64),
        spoiled: &["plain"],
    },
    Odd {
        what: "a file of 2^64-1 bytes",
        how: |m| change(m, "plain", |item| item.size_bytes = u64::MAX),
        spoiled: &["*"],
    },
    Odd {
        what: "a link of 2^40 bytes",
        how: |m| change(m, "link", |item| item.size_bytes = 1 << 40),
        spoiled: &["link"],
    },
    Odd {
        what: "a link of no bytes",
        how: |m| change(m, "link", |item| item.size_bytes = 0),
        spoiled: &["link"],
    },
    Odd {
        what: "2^64-1 bytes allocated",
        how: |m| change(m, "plain", |item| item.allocated_bytes = u64::MAX),
        spoiled: &[],
    },
    Odd {
        what: "an inline extent that says it is 2^63 bytes",
        how: |m| m.set_u64(m.find_of(inode(m, "small"), ItemType::EXTENT_DATA), 8, 1 << 63),
        spoiled: &["*"],
    },
    // Attributes.
    Odd { what: "an attribute of no kind", how: |m| rename_attribute(m, b"nonsense!"), spoiled: &[] },
    Odd {
        what: "an attribute without a name behind its kind",
        how: |m| rename_attribute(m, b"user.\0\0\0\0"),
        spoiled: &[],
    },
    Odd {
        what: "no type in the mode",
        how: |m| change(m, "plain", |item| item.mode = Mode(0o644)),
        spoiled: &["*"],
    },
    Odd {
        what: "a socket that has extents",
        how: |m| change(m, "plain", |item| item.mode = Mode::new(FileType::Socket, 0o644)),
        spoiled: &["plain"],
    },
    Odd {
        what: "a time behind all calendars, and 2^32-1 nanoseconds",
        how: |m| {
            change(m, "plain", |item| {
                let time = Timestamp { seconds: i64::MAX, nanoseconds: u32::MAX };
                (item.modification_time, item.access_time) = (time, time);
            });
        },
        spoiled: &["plain"],
    },
    Odd {
        what: "a time before all calendars",
        how: |m| {
            change(m, "plain", |item| {
                item.modification_time = Timestamp { seconds: i64::MIN, nanoseconds: 0 };
            });
        },
        spoiled: &["plain"],
    },
    Odd {
        what: "a device of numbers that none has",
        how: |m| change(m, "device", |item| item.device_number = DeviceNumber(u64::MAX)),
        spoiled: &[],
    },
    Odd {
        what: "all flags of an inode",
        how: |m| change(m, "plain", |item| item.flags = vlinder_format::inode::InodeFlags(u64::MAX)),
        spoiled: &["*"],
    },
];

/// Runs a verb with 256 MiB and ten seconds.
fn limited(words: &[&str]) -> Ended {
    let limits = "ulimit -c 0; ulimit -d 262144; ulimit -t 10; exec timeout 30 \"$0\" \"$@\"";
    end(Command::new("sh").args(["-c", limits, env!("CARGO_BIN_EXE_vlinder")]).args(words))
}

#[test]
fn one_odd_thing_harms_nothing_else_and_every_verb_ends() {
    require!(LongRun);
    let sound = base();
    let scratch = Scratch::in_memory("odd-table");
    let (path, other) = (scratch.join("image"), scratch.join("other"));
    let kept = ["before", "behind", "small", "plain", "link", "one", "one/two", "one/two/inner"];
    let mut wrong = Vec::new();
    for odd in ODD {
        let mutator = Mutator::new(&sound);
        (odd.how)(&mutator);
        let mutated = mutator.device().snapshot();
        let top = target(&path, "/top");
        for (number, words) in [
            &["ls", "-lR", &*top][..],
            &["--json", "ls", "-R", &*top],
            &["tree", &*top],
            &["--json", "tree", &*top],
            &["stat", &target(&path, "/top/plain"), &target(&path, "/top/link")],
            &["check", text(&path)],
            &["cp", "-r", &*top, "OUT"],
            &["cp", "-a", &*top, "OUT"],
            &["cp", "-a", &*top, &target(&other, "/")],
            &["--quiet", "restore", "-m", "-x", "-S", text(&path), "OUT"],
            &["mv", &target(&path, "/top/one"), &target(&path, "/moved")],
            &["rm", "-r", &*top],
        ]
        .into_iter()
        .enumerate()
        {
            let out = scratch.join(format!("out-{number}"));
            std::fs::create_dir(&out).unwrap();
            write_image(&mutated, &path);
            if number == 8 {
                common::make_image(&other);
            }
            let words: Vec<&str> =
                words.iter().map(|word| if *word == "OUT" { text(&out) } else { word }).collect();
            let ended = limited(&words);
            let case = format!(
                "{}: {:?}: {} {}",
                odd.what,
                words,
                ended.code,
                ended.err.get(..300).unwrap_or(&ended.err)
            );
            if ![0, 1, 3].contains(&ended.code) || ended.err.contains("panicked") {
                wrong.push(case.clone());
            }
            // Nothing that could be an order to a terminal is shown as it is.
            if ended.text().contains('\x1b') || ended.err.contains('\x1b') {
                wrong.push(format!("an escape: {case}"));
            }
            if (6..8).contains(&number) || number == 9 {
                let top = out.join("top");
                let found = if top.is_dir() { below(&top) } else { Default::default() };
                let is_spoiled = |name: &&str| odd.spoiled.contains(name) || odd.spoiled == ["*"];
                let missing: Vec<_> =
                    kept.iter().filter(|name| !is_spoiled(name) && !found.contains(**name)).collect();
                if !missing.is_empty() {
                    wrong.push(format!("{missing:?} are missing: {case}"));
                }
            }
            std::fs::remove_dir_all(&out).unwrap();
        }
        let _ = std::fs::remove_file(&other);
    }
    assert!(ODD.len() >= 20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
