//! A finished change is what the next look shows, by whatever way either comes: past the page cache, from the kernel's own copy
//! of a listing.

mod rig;

use std::process::Command;

use rig::{Rig, run, shell};
use vlinder_testkit::require;

const WAYS: [&str; 3] = ["", "writeback=off", "threads=1"];

#[test]
fn a_buffered_read_sees_an_asynchronous_direct_write() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/direct_write.py");
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
    for engine in ["libaio", "io_uring"] {
        for options in WAYS {
            let rig = Rig::new(256);
            let mounted = rig.mount(options);
            // Readers come and go, so that the file is bare of pages in between.
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
}
