//! Every field × every lie × every verb that opens an image: each run ends by itself within ten seconds and
//! 256 MiB, and none by a panic or a signal. A seeded slice is tried each time; `make long JOB=hostile` tries
//! the whole table (`VLINDER_HOSTILE_FIELDS=PART/PARTS`). `VLINDER_HOSTILE_SEED` chooses the slice, and which
//! structure of a kind lies.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::common::{target, verbs_but, vlinder};
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::thread;
use vlinder_device::MemoryDevice;
use vlinder_format::fields::WITHOUT_DATA;
use vlinder_format::{Generation, ItemType, Uuid};
use vlinder_stream::wire::{Command as StreamCommand, Protocol, StreamWriter};
use vlinder_testkit::hostile::lies::{Lie, Target, targets};
use vlinder_testkit::hostile::rich;
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::subject::write_image;
use vlinder_testkit::{Scratch, require};

/// A verb with its words; `IMAGE`, `OUT` and `STREAM` stand for paths.
struct Row {
    words: &'static str,
    /// Whether it may change the image.
    writes: bool,
}

const fn reads(words: &'static str) -> Row {
    Row { words, writes: false }
}

const fn writes(words: &'static str) -> Row {
    Row { words, writes: true }
}

/// Every verb that opens an image.
const ROWS: &[Row] = &[
    reads("ls -l IMAGE:/"),
    reads("ls IMAGE:/many"),
    reads("tree IMAGE:/"),
    reads("stat IMAGE:/linked IMAGE:/many IMAGE:/volume"),
    reads("cat IMAGE:/linked IMAGE:/plain IMAGE:/holes-1 IMAGE:/many/file-1 IMAGE:/many/file-2"),
    reads("filemap IMAGE:/plain"),
    reads("filemap IMAGE:/zeros"),
    reads("dedupe --dry-run IMAGE:/"),
    writes("dedupe IMAGE:/"),
    reads("cp -r IMAGE:/many OUT"),
    reads("cp -a IMAGE:/volume OUT"),
    writes("cp -r IMAGE:/many IMAGE:/copied"),
    writes("mv IMAGE:/plain IMAGE:/moved"),
    writes("rm -r IMAGE:/many"),
    writes("rm IMAGE:/plain IMAGE:/linked"),
    writes("mkdir IMAGE:/made"),
    writes("ln IMAGE:/linked IMAGE:/again"),
    writes("subvolume create IMAGE:/made"),
    writes("subvolume snapshot IMAGE:/volume IMAGE:/made"),
    writes("subvolume delete IMAGE:/shot"),
    reads("subvolume list IMAGE"),
    reads("subvolume show IMAGE:/shot"),
    reads("subvolume get-default IMAGE"),
    writes("subvolume set-default IMAGE:/volume"),
    writes("subvolume sync IMAGE"),
    writes("filesystem sync IMAGE"),
    writes("fstrim IMAGE"),
    reads("filesystem df IMAGE"),
    reads("filesystem usage IMAGE"),
    reads("filesystem du --freed IMAGE:/"),
    reads("filesystem du -s --freed IMAGE:/volume IMAGE:/shot"),
    reads("filesystem du --only-freed IMAGE:/many IMAGE:/shot"),
    reads("filesystem label IMAGE"),
    writes("filesystem label IMAGE name"),
    reads("property get IMAGE:/shot ro"),
    reads("property list IMAGE:/shot"),
    writes("property set IMAGE:/plain compression zstd"),
    reads("check IMAGE"),
    reads("restore IMAGE OUT"),
    reads("restore -s -x -m IMAGE OUT"),
    reads("send IMAGE:/shot"),
    reads("diff IMAGE:/shot IMAGE:/volume"),
    reads("diff --stat IMAGE:/volume IMAGE:/"),
    reads("subvolume find-new IMAGE:/volume 1"),
    reads("send --proto 2 --compressed-data IMAGE:/shot"),
    writes("receive -f STREAM IMAGE:/"),
    reads("receive --partial IMAGE:/"),
    reads("inspect-internal dump-super -f IMAGE"),
    reads("inspect-internal dump-tree IMAGE"),
    reads("inspect-internal tree-stats IMAGE"),
    reads("inspect-internal rootid IMAGE:/volume"),
    reads("inspect-internal inode-resolve 257 IMAGE"),
    reads("inspect-internal logical-resolve 13631488 IMAGE"),
];

/// Verbs that open no image, or ask a mount's server instead.
const ELSEWHERE: [&str; 6] = ["mkfs", "mount", "umount", "stats", "generate", "stream"];

/// KiB of private memory that a verb may have.
const MAX_KIB: u32 = 256 << 10;
/// How long a verb may run.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the slice goes on.
const SLICE: Duration = Duration::from_secs(40);
/// Verbs that run on each image of the slice.
const SLICE_ROWS: u64 = 3;
/// What is read of a verb's output. A file of 2^62 zeros is right in its place; nobody has to read all of it.
const MAX_OUTPUT: u64 = 16 << 20;

/// The modification time of an image that no verb has written to.
const UNTOUCHED: SystemTime = SystemTime::UNIX_EPOCH;

/// A stream of a subvolume with a file.
fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut stream = StreamWriter::new(&mut bytes, Protocol::V1);
    stream.begin().unwrap();
    let (uuid, transid) = (Uuid([7; 16]), Generation(9));
    for command in [
        StreamCommand::Subvolume { path: b"received", uuid, transid },
        StreamCommand::MakeFile { path: b"file", inode: Some(257) },
        StreamCommand::Write { path: b"file", offset: 0, data: &[5; 20_000] },
        StreamCommand::SetXattr { path: b"file", name: b"user.name", value: b"value" },
        StreamCommand::End,
    ] {
        stream.put(&command).unwrap();
    }
    stream.flush().unwrap();
    drop(stream);
    bytes
}

/// Where the runs take place.
struct Bench {
    scratch: Scratch,
    clock: SystemClock,
    patience: Duration,
}

impl Bench {
    fn new(patience: Duration) -> Self {
        let scratch = Scratch::in_memory("hostile-fields");
        std::fs::create_dir(scratch.join("out")).unwrap();
        std::fs::write(scratch.join("stream"), stream()).unwrap();
        Self { scratch, clock: SystemClock::new(), patience }
    }

    fn write(&self, image: &MemoryDevice) {
        let path = self.scratch.join("image");
        write_image(image, &path);
        std::fs::File::open(&path).and_then(|file| file.set_modified(UNTOUCHED)).unwrap();
    }

    /// Makes the image again if a verb has written to it. Every write and every truncation moves the time
    /// away from [`UNTOUCHED`], so a verb that refused costs no copy.
    fn write_again(&self, image: &MemoryDevice) {
        if !self.is_untouched() {
            self.write(image);
        }
    }

    fn is_untouched(&self) -> bool {
        let modified = std::fs::metadata(self.scratch.join("image")).and_then(|found| found.modified());
        modified.unwrap() == UNTOUCHED
    }

    /// Runs a verb; why it broke a bound.
    fn run(&self, row: &Row) -> Result<(), String> {
        let (image, out) = (self.scratch.join("image"), self.scratch.join("out"));
        let stream = self.scratch.join("stream");
        let words = row.words.split(' ').map(|word| match word.strip_prefix("IMAGE:") {
            Some(path) => target(&image, path),
            None => word
                .replace("IMAGE", image.to_str().unwrap())
                .replace("OUT", out.to_str().unwrap())
                .replace("STREAM", stream.to_str().unwrap()),
        });
        let ended = self.run_program(Command::new(vlinder().get_program()).args(words));
        std::fs::remove_dir_all(&out).unwrap();
        std::fs::create_dir(&out).unwrap();
        ended
    }

    /// Runs a program within the bounds; why it broke one.
    fn run_program(&self, program: &Command) -> Result<(), String> {
        let script = format!("ulimit -c 0; ulimit -d {MAX_KIB}; exec \"$@\"");
        // By its path: a search would try to execute it in each directory of PATH, some 330,000 times in the
        // whole table.
        let mut child = Command::new("/bin/sh")
            .args(["-c", &script, "sh"])
            .arg(program.get_program())
            .args(program.get_args())
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(self.scratch.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let reader = thread::try_spawn("reader", move || {
            let _ = std::io::copy(&mut output.take(MAX_OUTPUT), &mut std::io::sink());
        });
        let ended = self.wait(&mut child);
        let _ = reader.map(|reader| reader.join());
        let said = String::from_utf8_lossy(&std::fs::read(self.scratch.join("stderr")).unwrap()).into_owned();
        let status = ended?;
        let is_good = status.code().is_some_and(|code| code < 100) && !said.contains("panicked");
        if is_good {
            Ok(())
        } else {
            Err(format!("{status}: {}", said.lines().take(4).collect::<Vec<_>>().join(" / ")))
        }
    }

    fn wait(&self, child: &mut Child) -> Result<std::process::ExitStatus, String> {
        let start = self.clock.monotonic();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return Ok(status);
            }
            if self.clock.monotonic() > start + self.patience {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it does not end within {:?}", self.patience));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs verbs on an image with a lie; false where there is nothing to tell.
    fn judge(
        &self,
        sound: &MemoryDevice,
        target: &Target,
        lie: Lie,
        rows: &[&Row],
        broken: &mut Vec<String>,
    ) -> bool {
        let mutator = Mutator::new(sound);
        if !target.tell(&mutator, lie) {
            return false;
        }
        let image = mutator.device();
        self.write(&image);
        for row in rows {
            if let Err(error) = self.run(row) {
                let line = format!("{} says {lie:?}: {}: {error}", target.name, row.words);
                println!("FAILED {line}");
                broken.push(line);
            }
            self.write_again(&image);
        }
        true
    }
}

/// What the bench is there to find, done by programs of which that is known.
#[test]
fn a_panic_a_signal_a_hang_and_much_memory_are_found() {
    let bench = Bench::new(Duration::from_secs(2));
    let shell = |script: &str| bench.run_program(Command::new("sh").args(["-c", script]));
    assert_eq!(shell("echo out; echo why >&2; exit 1"), Ok(()), "an ordinary refusal");
    let caught = |script: &str, words: &str| {
        let error = shell(script).expect_err(script);
        assert!(error.contains(words), "{script}: {error}");
    };
    caught("exit 101", "101");
    caught("echo 'thread main panicked at x.rs:1' >&2; exit 1", "panicked");
    caught("kill -SEGV $$", "signal");
    caught("exec sleep 60", "does not end");
    let memory = |mebibytes: u64| {
        let program =
            format!("import os\ntry: kept = bytearray({mebibytes} << 20)\nexcept MemoryError: os.abort()\n");
        bench.run_program(Command::new("python3").args(["-c", &program]))
    };
    assert_eq!(memory(128), Ok(()));
    let error = memory(300).expect_err("300 MiB");
    assert!(error.contains("signal"), "{error}");
}

#[test]
fn an_image_is_made_again_when_it_was_written_to() {
    let bench = Bench::new(PATIENCE);
    let image = MemoryDevice::from_bytes(&[7; 65536]);
    bench.write(&image);
    assert!(bench.is_untouched());
    let path = bench.scratch.join("image");
    for script in ["printf x | dd of=\"$0\" conv=notrunc status=none", "truncate -s 4096 \"$0\""] {
        let mut command = Command::new("/bin/sh");
        assert!(command.args(["-c", script, path.to_str().unwrap()]).status().unwrap().success());
        assert!(!bench.is_untouched(), "{script}");
        bench.write_again(&image);
        assert_eq!(std::fs::read(&path).unwrap(), [7; 65536], "{script}");
        assert!(bench.is_untouched());
    }
}

/// A number that the environment gives.
fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[test]
fn lies_cost_bounded_time_and_memory_and_no_panic() {
    require!(LongRun);
    let bench = Bench::new(PATIENCE);
    let sound = rich();
    bench.write(&sound);
    for row in ROWS {
        assert_eq!(bench.run(row), Ok(()), "the sound image: {}", row.words);
        let written = !bench.is_untouched();
        assert!(row.writes || !written, "a verb that reads wrote to the image: {}", row.words);
        bench.write_again(&sound);
    }
    let seed = number("VLINDER_HOSTILE_SEED").unwrap_or(1);
    let targets = targets(&Mutator::new(&sound), seed);
    assert!(targets.len() > 500, "{}", targets.len());
    let (mut images, mut broken) = (0, Vec::new());
    let part = std::env::var("VLINDER_HOSTILE_FIELDS");
    let is_part = part.is_ok();
    if let Ok(part) = part {
        let (part, parts) = part.split_once('/').expect("VLINDER_HOSTILE_FIELDS is PART/PARTS");
        let (part, parts): (usize, usize) = (part.parse().unwrap(), parts.parse().unwrap());
        let rows: Vec<&Row> = ROWS.iter().collect();
        for target in targets.iter().skip(part - 1).step_by(parts) {
            for lie in Lie::ALL {
                images += u64::from(bench.judge(&sound, target, lie, &rows, &mut broken));
            }
        }
    } else {
        let random = SeededRandom::new(seed);
        let below = |bound: usize| usize::try_from(random.next_u64() % bound as u64).unwrap();
        let start = bench.clock.monotonic();
        while bench.clock.monotonic() < start + SLICE {
            let (target, lie) = (&targets[below(targets.len())], Lie::ALL[below(Lie::ALL.len())]);
            let rows = [(); SLICE_ROWS as usize].map(|()| &ROWS[below(ROWS.len())]);
            images += u64::from(bench.judge(&sound, target, lie, &rows, &mut broken));
        }
    }
    let rows = if is_part { ROWS.len() as u64 } else { SLICE_ROWS };
    println!(
        "{} fields, {images} images, {} runs, {} runs broke a bound",
        targets.len(),
        images * rows,
        broken.len()
    );
    assert!(broken.is_empty(), "seed {seed}:\n{}", broken.join("\n"));
}

/// Types of items with data that the image lacks. A file system with stripes in a tree of their own is
/// refused whole.
const LACKING: &[ItemType] = &[ItemType::RAID_STRIPE];

#[test]
fn the_image_has_every_type_of_item_but_those_that_are_named() {
    let targets = targets(&Mutator::new(&rich()), 1);
    let has = |item_type: &ItemType| {
        let name = format!("/{item_type}");
        // A field of its data: an item header alone lies about the key.
        targets.iter().any(|target| {
            let kind = target.name.split_once(&name).map(|(_, rest)| rest);
            kind.is_some_and(|rest| rest.starts_with(['/', ' ']) && !rest.contains("/ItemHeader."))
        })
    };
    let lacking = ItemType::NAMED.iter().copied().filter(|kind| !has(kind) && !WITHOUT_DATA.contains(kind));
    assert_eq!(lacking.collect::<Vec<_>>(), LACKING);
    for kind in ["inline", "regular"] {
        for compression in ["none", "zlib", "lzo", "zstd"] {
            let name = format!("EXTENT_DATA {kind} {compression}/");
            assert!(targets.iter().any(|target| target.name.contains(&name)), "{name}");
        }
    }
    for name in ["EXTENT_DATA preallocated none/", "EXTENT_DATA regular none hole/", "log/"] {
        assert!(targets.iter().any(|target| target.name.contains(name)), "{name}");
    }
}

#[test]
fn no_verb_is_without_a_row() {
    let known = verbs_but(&ELSEWHERE);
    let has_row = |verb: &&String| ROWS.iter().any(|row| row.words.starts_with(&format!("{verb} ")));
    let without: Vec<&String> = known.iter().filter(|verb| !has_row(verb)).collect();
    assert!(without.is_empty(), "{without:?}");
}
