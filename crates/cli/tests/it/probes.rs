//! The scripts in `tools/bpftrace` on a live mount: they attach, and they count what the mount counts itself.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{make_image, run};
use vlinder_base::thread;
use vlinder_testkit::{Scratch, require};

/// A mount of a fresh image, which ends with the test.
struct Mount {
    point: PathBuf,
    image: PathBuf,
    _scratch: Scratch,
}

impl Mount {
    fn new(name: &str, options: &str) -> Self {
        let scratch = Scratch::new(name);
        let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
        make_image(&image);
        std::fs::create_dir(&point).unwrap();
        run([Path::new("mount"), Path::new("-o"), Path::new(options), &image, &point]).done();
        Self { point, image, _scratch: scratch }
    }

    /// The process that serves it: the one whose arguments name the image.
    fn server(&self) -> u32 {
        let names_image = |process: &u32| {
            std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| {
                line.split(|byte| *byte == 0).any(|word| word == self.image.as_os_str().as_encoded_bytes())
            })
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        let mut numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        numbers.find(names_image).expect("a server")
    }

    fn counted(&self, name: &str) -> u64 {
        let stats = run(["stats", "--json", self.point.to_str().unwrap()]).done().json();
        let value = &stats["metrics"][name]["value"];
        value.as_u64().or_else(|| value["count"].as_u64()).unwrap_or_else(|| panic!("no {name} in {stats}"))
    }

    fn sync(&self) {
        run(["filesystem", "sync", self.point.to_str().unwrap()]).done();
    }

    /// A hundred files made, every other one removed, sync.
    fn make_and_remove(&self, directory: &str) {
        let directory = self.point.join(directory);
        std::fs::create_dir(&directory).unwrap();
        for number in 1..=100 {
            std::fs::File::create(directory.join(format!("file_{number}"))).unwrap();
        }
        for number in (1..=100).step_by(2) {
            std::fs::remove_file(directory.join(format!("file_{number}"))).unwrap();
        }
        self.sync();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run([Path::new("umount"), &self.point]);
    }
}

/// What a script prints of `work`; it is attached for so long before.
fn traced(script: &str, mount: &Mount, wait: Duration, work: impl FnOnce()) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bpftrace").join(script);
    let bpftrace: Child = Command::new("bpftrace")
        .arg(script)
        .args(["-p", &mount.server().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(wait);
    work();
    let process = rustix::process::Pid::from_child(&bpftrace);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let output = bpftrace.wait_with_output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The number behind `@name: ` or, of statistics, behind `count `.
fn number(printed: &str, name: &str) -> Option<u64> {
    let rest = printed.split(&format!("@{name}: ")).nth(1)?;
    let rest = rest.strip_prefix("count ").unwrap_or(rest);
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// How long bpftrace may need to attach; where a machine is so busy that it needs longer, the next try waits
/// longer.
const WAITS_SECONDS: [u64; 3] = [3, 10, 30];

#[test]
fn a_script_counts_the_batches_of_delayed_items_of_a_live_mount() {
    require!(Root, Fuse, Tool("bpftrace"));
    let batches = |name: &str, options: &str| {
        let mount = Mount::new(name, options);
        for (attempt, wait) in WAITS_SECONDS.into_iter().enumerate() {
            mount.sync();
            let before = mount.counted("delayed_items.insert_batches");
            let printed = traced("delayed-items.bt", &mount, Duration::from_secs(wait), || {
                mount.make_and_remove(&format!("testdir{attempt}"));
            });
            let counted = mount.counted("delayed_items.insert_batches") - before;
            if let Some(batches) = number(&printed, "insert_batches") {
                assert_eq!(batches, counted, "{printed}");
                assert!(number(&printed, "insert_total_time_us").is_some(), "{printed}");
                return batches;
            }
            println!("not attached after {wait} s: {printed}");
        }
        panic!("bpftrace saw nothing");
    };
    // A commit by age in between would add a batch of its own.
    let on = batches("probes-batches", "commit=300");
    let off = batches("probes-batches-off", "commit=300,disable=delayed_batch");
    assert!(on <= 2, "{on} batches");
    assert!((50..=53).contains(&off), "{off} batches with the mechanism off");
}

#[test]
fn a_script_shows_how_long_clears_of_state_bits_take() {
    require!(Root, Fuse, Tool("bpftrace"));
    let mount = Mount::new("probes-clear", "commit=300");
    for (attempt, wait) in WAITS_SECONDS.into_iter().enumerate() {
        mount.sync();
        let before = mount.counted("extent_state.clear_time_ns");
        let printed = traced("clear-histogram.bt", &mount, Duration::from_secs(wait), || {
            for number in 0..20 {
                std::fs::write(mount.point.join(format!("file{attempt}-{number}")), vec![7; 100_000])
                    .unwrap();
            }
            mount.sync();
        });
        let counted = mount.counted("extent_state.clear_time_ns") - before;
        if let Some(clears) = number(&printed, "clear_stats_ns") {
            assert_eq!(clears, counted, "{printed}");
            assert!(clears >= 20, "{printed}");
            assert!(printed.contains("@clear_ns:") && printed.contains("@@@"), "{printed}");
            return;
        }
        println!("not attached after {wait} s: {printed}");
    }
    panic!("bpftrace saw nothing");
}
