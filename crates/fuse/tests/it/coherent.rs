//! A finished change is what the next look shows, by whatever way either comes: past the page cache, from the
//! kernel's own copy of a listing.

use std::process::Command;

use crate::rig::{Rig, run, shell};
use vlinder_testkit::require;

const WAYS: [&str; 3] = ["", "writeback=off", "threads=1"];

#[test]
fn a_buffered_read_sees_an_asynchronous_direct_write() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/direct_write.py");
    for options in WAYS {
        let rig = Rig::new(256);
        let mounted = rig.mount(options);
        let said = run(Command::new("python3").arg(script).arg(rig.join("file")));
        assert_eq!(said, "0 stale\n", "{options:?}");
        mounted.unmount();
    }
}

#[test]
fn no_page_stays_old_beside_many_direct_writes_at_once() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("fio"));
    for (engine, options) in [("libaio", ""), ("io_uring", "writeback=off")] {
        let rig = Rig::new(256);
        let mounted = rig.mount(options);
        // Readers come and go, so that the server stops and begins to have pages dropped while writes are
        // under way.
        let script = format!(
            "head -c 8M /dev/zero > file; sync -f file
             (while :; do for k in $(seq 9); do cat file > /dev/null; done; sleep 0.05; done) & reader=$!
             fio --name=w --filename=file --size=8M --rw=randwrite --bs=4k --direct=1 --iodepth=32 \
                 --ioengine={engine} --buffer_pattern=0x55 --time_based --runtime=1 > /dev/null
             fio --name=w --filename=file --size=8M --rw=randwrite --bs=4k --direct=1 --iodepth=32 \
                 --ioengine={engine} --buffer_pattern=0xaa > /dev/null
             kill $reader; wait $reader || true
             tr -d '\\252' < file | wc -c"
        );
        assert_eq!(shell(&rig.mountpoint, &script), "0\n", "{engine} {options:?}");
        mounted.unmount();
    }
}

/// Prints how many names a listing has that is read after a rewind.
const REWIND: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
GETDENTS = ctypes.c_long(217 if os.uname().machine == 'x86_64' else 61)
buffer = ctypes.create_string_buffer(65536)
def listed(fd):
    names = []
    while (length := libc.syscall(GETDENTS, fd, buffer, 65536)) > 0:
        at = 0
        while at < length:
            size = int.from_bytes(buffer.raw[at + 16:at + 18], 'little')
            names.append(buffer.raw[at + 19:at + size].split(b'\0')[0].decode())
            at += size
    assert length == 0
    return set(names) - {'.', '..'}
def make(directory, name): os.close(os.open(f'{directory}/{name}', os.O_CREAT | os.O_WRONLY))

# Opened, never read, rewound.
os.mkdir('a')
fd = os.open('a', os.O_RDONLY)
for k in range(10): make('a', k)
os.lseek(fd, 0, os.SEEK_SET)
assert len(listed(fd)) == 10
# Opened, never read, not rewound: what is listed is kept by the kernel for others.
os.mkdir('b')
fd = os.open('b', os.O_RDONLY)
make('b', 'early')
listed(fd)
assert os.listdir('b') == ['early'], os.listdir('b')
# The kernel answered a whole reading from its own copy.
os.mkdir('c')
for k in range(400): make('c', k)
assert len(os.listdir('c')) == 400
fd = os.open('c', os.O_RDONLY)
assert len(listed(fd)) == 400
make('c', 'later')
os.lseek(fd, 0, os.SEEK_SET)
assert len(listed(fd)) == 401 and len(os.listdir('c')) == 401
# Removed and renamed names, after a rewind and for another.
os.unlink('c/3'); os.rename('c/4', 'c/new')
os.lseek(fd, 0, os.SEEK_SET)
for names in (listed(fd), set(os.listdir('c'))): assert 'new' in names and not names & {'3', '4'} and len(names) == 400
# Each name is renamed as it is read: the listing ends, also one after a rewind.
os.mkdir('d')
for k in range(3000): make('d', k)
for turn in range(2):
    for many, entry in enumerate(os.scandir('d')):
        assert many < 3500, 'it does not end'
        os.rename(entry.path, f'd/{turn}-{many}')
    assert len(os.listdir('d')) == 3000
# A reader in the middle when a name is made, while another begins anew: the kernel must not keep the end of the first.
os.mkdir('e')
for k in range(3000): make('e', f'{k:060}')
first = os.open('e', os.O_RDONLY)
libc.syscall(GETDENTS, first, buffer, 4096)
assert len(os.listdir('e')) == 3000
make('e', 'later')
second = os.open('e', os.O_RDONLY)
libc.syscall(GETDENTS, second, buffer, 4096)
listed(first)
assert len(os.listdir('e')) == 3001, len(os.listdir('e'))
print('done')
"#;

#[test]
fn a_listing_from_the_start_shows_all_that_was_made() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    for options in WAYS {
        let rig = Rig::new(256);
        let mounted = rig.mount(options);
        let said = run(Command::new("python3").args(["-c", REWIND]).current_dir(&rig.mountpoint));
        assert_eq!(said, "done\n", "{options:?}");
        mounted.unmount();
    }
}
