//! A mistake of ours that ends in a panic loses nothing that was durable, commits no half of a change, and
//! leaves nobody waiting.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicI64, Ordering};
use vlinder_base::{channel, thread};
use vlinder_device::{Description, Device, DeviceError, MemoryDevice, Request, Ticket};
use vlinder_format::Physical;
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, FsError, OpenOptions};
use vlinder_testkit::subject::{Recipe, own_check};

/// Nothing of this takes longer than a second or two.
const DEADLINE: Duration = Duration::from_secs(120);
const FIRST_ROUND: u8 = 1;
const LAST_ROUND: u8 = 3;
const PLANTED: &str = "a planted mistake";

/// A device whose call of some number panics, as a mistake in what leads there would.
struct Mistaken {
    inner: MemoryDevice,
    /// How many calls go well first.
    left: AtomicI64,
}

impl Mistaken {
    fn call(&self) {
        assert!(self.left.fetch_sub(1, Ordering::Relaxed) != 0, "{PLANTED}");
    }
}

impl Device for Mistaken {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.call();
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.call();
        self.inner.flush()
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, length_bytes)
    }
}

fn content(name: &str, round: u8) -> Vec<u8> {
    (0..50_000_u32).map(|at| (at >> 6) as u8 ^ round ^ name.as_bytes()[0]).collect()
}

/// What happened to one file system.
#[derive(Default)]
struct Story {
    /// Files whose content was promised to be durable.
    durable: Vec<(&'static str, u8)>,
    /// Steps that panicked.
    broken: usize,
    /// Why it was read-only at the end.
    read_only: Option<String>,
}

struct Scene<'a> {
    files: &'a Files,
    story: Story,
}

impl Scene<'_> {
    /// Does something; whether it went well.
    fn step(&mut self, work: impl FnOnce(&Files) -> Result<(), FsError>) -> bool {
        match catch_unwind(AssertUnwindSafe(|| work(self.files))) {
            Ok(result) => result.is_ok(),
            Err(payload) => {
                let message = payload.downcast_ref::<String>().cloned().unwrap_or_default();
                assert!(message.contains(PLANTED), "{message}");
                self.story.broken += 1;
                false
            }
        }
    }

    /// Writes a file whole, in place of what it had, and makes it durable by its own fsync or with all else.
    fn write(&mut self, name: &'static str, round: u8, by_fsync: bool) {
        let is_durable = self.step(|files| {
            let file = files.options().write(true).create(true).open(name)?;
            file.write_at(&content(name, round), 0)?;
            if by_fsync { file.sync_all() } else { files.sync() }
        });
        if is_durable {
            self.story.durable.retain(|(known, _)| *known != name);
            self.story.durable.push((name, round));
        }
    }
}

/// Changes of every kind that others may come to wait for.
fn play(files: &Files) -> Story {
    let mut scene = Scene { files, story: Story::default() };
    for round in FIRST_ROUND..=LAST_ROUND {
        scene.write("a", round, true);
        scene.write("b", round, false);
        scene.write("c", round, true);
        scene.step(|files| {
            files.write("moving", content("moving", round))?;
            files.rename("moving", "moved")?;
            files.create_subvolume(format!("subvolume {round}"))?;
            files.sync()
        });
    }
    scene.story.read_only = files.filesystem().engine().read_only_reason().map(|reason| reason.to_string());
    scene.story
}

/// Plays on a copy of the image whose device panics at a call (never, if negative); gives how many calls
/// there were, too.
fn run(image: &MemoryDevice, at: i64) -> (Story, i64) {
    let device = Arc::new(Mistaken { inner: image.snapshot(), left: AtomicI64::new(-1) });
    let (sender, receiver) = channel::bounded(1);
    let actor = {
        let device = Arc::clone(&device);
        thread::spawn("plays", move || {
            // Small, so that there is something to read.
            let options = OpenOptions::parse("commit=100000,cache=2M").unwrap();
            let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options).unwrap();
            let files = Files::new(filesystem, Caller::superuser());
            device.left.store(at, Ordering::Relaxed);
            let story = play(&files);
            let closed = catch_unwind(AssertUnwindSafe(|| files.close()));
            sender.send((story, closed.is_ok())).unwrap_or_else(|_| panic!("somebody waits"));
        })
    };
    let played = receiver.recv_timeout(DEADLINE);
    let (mut story, has_closed) =
        played.unwrap_or_else(|_| panic!("the mistake at call {at} left somebody waiting for ever"));
    actor.join().unwrap();
    story.broken += usize::from(!has_closed);
    let calls = at - device.left.load(Ordering::Relaxed);
    let remaining = Arc::new(device.inner.snapshot());
    own_check(Arc::clone(&remaining) as _).unwrap_or_else(|error| panic!("mistake at call {at}: {error}"));
    let filesystem =
        Filesystem::open_devices(vec![remaining as _], OpenOptions::parse("ro").unwrap()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    for (name, round) in &story.durable {
        let bytes = files.read(name).unwrap_or_else(|error| panic!("mistake at call {at}: {name}: {error}"));
        // A later write may have come as well, though nobody was promised that.
        let is_there = (*round..=LAST_ROUND).any(|round| bytes == content(name, round));
        assert!(is_there, "mistake at call {at}: {name} is not what was durable");
    }
    (story, calls)
}

#[test]
fn a_panic_at_any_device_call_loses_nothing_and_strands_nobody() {
    let image = Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory();
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.to_string().contains(PLANTED) {
            default_hook(info);
        }
    }));
    let (calm, calls) = run(&image, -1);
    assert_eq!((calm.broken, calm.durable.len()), (0, 3));
    assert_eq!(calm.read_only, None);
    let (mut read_only, mut went_on) = (0, 0);
    for at in 0..calls {
        let (story, _) = run(&image, at);
        assert_eq!(story.broken, 1, "call {at}");
        match story.read_only {
            Some(reason) => {
                assert!(reason.contains("a mistake in this program broke off"), "call {at}: {reason}");
                read_only += 1;
            }
            None => {
                // All that came after it is durable; it may have been the last write of one file.
                let newest = story.durable.iter().filter(|(_, round)| *round == LAST_ROUND).count();
                assert!(newest >= 2, "call {at}: {:?}", story.durable);
                went_on += 1;
            }
        }
    }
    println!("{calls} calls: {read_only} made the file system read-only, {went_on} did not");
    assert!(read_only > 20 && went_on > 0);
}
