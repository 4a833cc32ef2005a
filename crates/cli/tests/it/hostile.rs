//! Hostile images cost bounded time and memory: at most 256 MiB resident, and at most ten times the processor
//! time of the sound image that they were made from, to open, walk, check, restore and mount. Fast: a change
//! and a flood of each kind (`testkit::hostile`). `VLINDER_HOSTILE=SEEDS` adds as many seeded changes and
//! every image of the corpus, and prints the table of docs/reliability.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{run, target};
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::thread;
use vlinder_testkit::hostile::{self, CASES, FLOODED, FLOODS};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::require::{Requirement, corpus};
use vlinder_testkit::subject::write_image;
use vlinder_testkit::{Scratch, require};

const MAX_KIB: u64 = 256 << 10;
const TIMES: f64 = 10.0;
/// Less can't be told from the noise of starting a process.
const MIN_SECONDS: f64 = 0.1;
/// Beyond doubt an endless loop, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const BOUNDS: &str = "cache=96M,dirty=32M";
const ACTIONS: [&str; 5] = ["open", "walk", "check", "restore", "mount"];

/// What an action cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    seconds: f64,
    kib: u64,
    /// What the command ended with.
    code: i32,
}

struct Bench {
    scratch: Scratch,
    mounts: bool,
}

impl Bench {
    fn new() -> Self {
        let scratch = Scratch::in_memory("hostile");
        std::fs::create_dir(scratch.join("point")).unwrap();
        Self { scratch, mounts: Requirement::Fuse.is_met() }
    }

    fn image(&self) -> PathBuf {
        self.scratch.join("image")
    }

    /// What the last command said on standard error.
    fn said(&self) -> String {
        std::fs::read_to_string(self.scratch.join("stderr")).unwrap_or_default()
    }

    /// Runs `vlinder` under GNU time, which has its peak memory and processor time from wait4(2).
    fn measure(&self, words: &[&str], during: impl FnOnce()) -> Result<Cost, String> {
        let account = self.scratch.join("account");
        // What GNU time writes when the command has ended; that of the command before would tell a lie.
        let _ = std::fs::remove_file(&account);
        let mut child = Command::new("time")
            .args(["-q", "-o", account.to_str().unwrap(), "-f", "%U %S %M"])
            .arg(env!("CARGO_BIN_EXE_vlinder"))
            .args(words)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.scratch.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        during();
        let clock = SystemClock::new();
        let start = clock.monotonic();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if clock.monotonic() > start + PATIENCE {
                // GNU time leaves its child alone when it is killed.
                let _ = Command::new("pkill").args(["-KILL", "-P", &child.id().to_string()]).status();
                let _ = child.wait();
                return Err("it does not end".to_owned());
            }
            thread::sleep(Duration::from_millis(2));
        };
        let said = self.said();
        if !status.code().is_some_and(|code| [0, 1, 3].contains(&code)) || said.contains("panicked") {
            return Err(format!("{status}: {}", said.lines().rev().take(4).collect::<Vec<_>>().join(" / ")));
        }
        let account = std::fs::read_to_string(account).unwrap();
        let mut numbers = account.split_whitespace().map(|word| word.parse::<f64>().unwrap());
        let mut next = || numbers.next().unwrap();
        Ok(Cost { seconds: next() + next(), kib: next() as u64, code: status.code().unwrap_or(-1) })
    }

    fn act(&self, action: &str) -> Result<Cost, String> {
        let image = self.image();
        let path = image.to_str().unwrap();
        match action {
            "open" => self.measure(&["subvolume", "get-default", "-o", BOUNDS, path], || {}),
            "walk" => self.measure(&["tree", "-o", BOUNDS, &target(&image, "/")], || {}),
            "check" => self.measure(&["check", path], || {}),
            "restore" => {
                let out = self.scratch.join("out");
                std::fs::create_dir(&out).unwrap();
                let words =
                    ["--quiet", "restore", "-s", "-x", "--options", BOUNDS, path, out.to_str().unwrap()];
                let cost = self.measure(&words, || {});
                std::fs::remove_dir_all(&out).unwrap();
                cost
            }
            _ => self.mount(),
        }
    }

    /// Mounts for writing (a copy: what is done is thrown away), looks at what is there, and unmounts.
    fn mount(&self) -> Result<Cost, String> {
        let (image, point) = (self.scratch.join("mounted"), self.scratch.join("point"));
        let copied =
            Command::new("cp").arg("--sparse=always").args([&self.image(), &image]).status().unwrap();
        assert!(copied.success());
        let words = ["mount", "-f", "-o", BOUNDS, image.to_str().unwrap(), point.to_str().unwrap()];
        let is_mounted = || {
            let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            table.contains(&format!(" {} ", point.display()))
        };
        let cost = self.measure(&words, || {
            let clock = SystemClock::new();
            let start = clock.monotonic();
            while !is_mounted() {
                // A mount that is refused ends by itself.
                let has_ended =
                    std::fs::read_to_string(self.scratch.join("account")).is_ok_and(|text| !text.is_empty());
                if has_ended || clock.monotonic() > start + PATIENCE {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
            let mut look = Command::new("timeout");
            look.args(["60", "find"]).arg(&point).args(["-maxdepth", "3", "-ls"]).stdin(Stdio::null());
            // What a damaged file system shows is not the question; what that costs is.
            let _ = look.output();
            let flooded = point.join(FLOODED.trim_start_matches('/'));
            if flooded.exists() {
                let mut list = Command::new("timeout");
                list.args(["60", "getfattr", "-d"]).arg(&flooded).stdin(Stdio::null());
                let _ = list.output();
            }
            let _ = run([Path::new("umount"), &point]);
            if is_mounted() {
                let _ = Command::new("umount").arg("-l").arg(&point).status();
            }
        });
        std::fs::remove_file(&image).unwrap();
        cost
    }

    /// What every action costs; what breaks a bound goes to `broken`.
    fn judge(
        &self,
        name: &str,
        sound: &BTreeMap<&str, Cost>,
        broken: &mut Vec<String>,
    ) -> BTreeMap<&'static str, Cost> {
        let mut costs = BTreeMap::new();
        for action in ACTIONS {
            if action == "mount" && !self.mounts {
                continue;
            }
            let cost = match self.act(action) {
                Ok(cost) => cost,
                Err(error) => {
                    println!("{action}, {name}: {error}");
                    broken.push(format!("{action}, {name}: {error}"));
                    continue;
                }
            };
            let bound = TIMES * sound.get(action).map_or(f64::MAX, |sound| sound.seconds).max(MIN_SECONDS);
            if cost.kib > MAX_KIB || cost.seconds > bound {
                broken.push(format!(
                    "{action}, {name}: {:.2} s (bound {bound:.2}), {} MiB",
                    cost.seconds,
                    cost.kib >> 10
                ));
            }
            costs.insert(action, cost);
        }
        costs
    }
}

fn worst(costs: &[BTreeMap<&'static str, Cost>], action: &str) -> Cost {
    let all = costs.iter().filter_map(|costs| costs.get(action));
    all.fold(Cost::default(), |worst, cost| Cost {
        seconds: worst.seconds.max(cost.seconds),
        kib: worst.kib.max(cost.kib),
        code: worst.code.max(cost.code),
    })
}

fn print_table(name: &str, sound: &BTreeMap<&'static str, Cost>, costs: &[BTreeMap<&'static str, Cost>]) {
    for action in ACTIONS {
        let (worst, sound) = (worst(costs, action), sound.get(action).copied().unwrap_or_default());
        println!(
            "| {name} | {} | {action} | {:.2} s, {} MiB | {:.2} s | {} MiB |",
            costs.len(),
            sound.seconds,
            sound.kib >> 10,
            worst.seconds,
            worst.kib >> 10
        );
    }
}

#[test]
fn hostile_images_cost_bounded_time_and_memory() {
    require!(LongRun, Tool("time"), Tool("pkill"), Tool("find"), Tool("getfattr"));
    let bench = Bench::new();
    let seeds = std::env::var("VLINDER_HOSTILE")
        .ok()
        .map(|seeds| seeds.parse::<u64>().expect("VLINDER_HOSTILE is a number"));
    let sound_image = hostile::sound(if seeds.is_some() { 20_000 } else { 2_000 });
    write_image(&sound_image, &bench.image());
    let mut broken = Vec::new();
    let sound = bench.judge("the sound image", &BTreeMap::new(), &mut broken);
    assert!(sound.values().all(|cost| cost.code == 0), "the sound image is none: {sound:?} {}", bench.said());
    let mut costs = Vec::new();
    for case in CASES {
        let mutator = Mutator::new(&sound_image);
        (case.make)(&mutator);
        write_image(&mutator.device(), &bench.image());
        costs.push(bench.judge(case.name, &sound, &mut broken));
    }
    print_table("a change of each kind", &sound, &costs);
    let mut costs = Vec::new();
    for flood in FLOODS {
        write_image(&(flood.make)(&sound_image), &bench.image());
        costs.push(bench.judge(flood.name, &sound, &mut broken));
    }
    print_table("a flood of each kind", &sound, &costs);
    if let Some(seeds) = seeds {
        let mut costs = Vec::new();
        for seed in 0..seeds {
            let mutator = Mutator::new(&sound_image);
            hostile::random_change(&mutator, seed);
            write_image(&mutator.device(), &bench.image());
            costs.push(bench.judge(&format!("seed {seed}"), &sound, &mut broken));
        }
        print_table("seeded changes", &sound, &costs);
        require!(Corpus, Tool("xz"), Tool("btrfs-image"));
        judge_corpus(&bench, &sound, &mut broken);
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Every image of the corpus.
fn judge_corpus(bench: &Bench, sound: &BTreeMap<&'static str, Cost>, broken: &mut Vec<String>) {
    let mut costs = Vec::new();
    let mut pending = vec![corpus().unwrap()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if unpack(&path, bench) {
            costs.push(bench.judge(&path.display().to_string(), sound, broken));
        }
    }
    assert!(costs.len() > 50, "{}", costs.len());
    print_table("the corpus", sound, &costs);
}

/// Makes the raw image of a file of the corpus, if it is one.
fn unpack(file: &Path, bench: &Bench) -> bool {
    let (raw, place) = (bench.image(), bench.scratch.path());
    let _ = std::fs::remove_file(&raw);
    let (name, raw, place) = (file.display().to_string(), raw.display(), place.display());
    let script = if name.ends_with(".raw.xz") {
        format!("xz -dc '{name}' | cp --sparse=always /dev/stdin '{raw}'")
    } else if name.ends_with(".img") || name.ends_with(".btrfs-image") {
        format!("btrfs-image -r '{name}' '{raw}'")
    } else if name.ends_with(".img.xz") {
        format!("xz -dc '{name}' > '{place}/dump' && btrfs-image -r '{place}/dump' '{raw}'")
    } else if name.ends_with(".tar.xz") {
        format!("tar -C '{place}' -xJf '{name}' && mv '{place}'/*.img '{raw}'")
    } else {
        return false;
    };
    let done = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    true
}
