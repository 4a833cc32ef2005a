//! The power is cut at every write of a receive: the image is sound, what is there of the subvolume is known
//! as partial, goes on to what an uninterrupted receive makes, or can be discarded.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use vlinder_base::sync::Arc;
use vlinder_device::MemoryDevice;
use vlinder_fs::Filesystem;
use vlinder_stream::receive::{ReceiveOptions, Receiver, discard};
use vlinder_stream::resume::ResumeToken;
use vlinder_stream::wire::StreamReader;
use vlinder_testkit::power_cut::{Cut, CutOptions, PowerCuts};
use vlinder_testkit::simulated::Recording;
use vlinder_testkit::subject::{check_image, own_check_data};
use vlinder_testkit::{Scratch, SimulatedDevice, require};

use crate::support::{
    first, image, open, open_device, partial, receive, receive_with, rest_of, second, subvolume, subvolumes,
    tree,
};

/// Of so many states one is shown to btrfs check.
const SHOWN_OF: u128 = 40;

/// What is done to a file system on a device that records.
fn record_what(base: &MemoryDevice, work: impl FnOnce(&Filesystem)) -> Recording {
    let device = Arc::new(SimulatedDevice::from_image(base.snapshot()));
    let filesystem = open_device(Arc::clone(&device) as _);
    work(&filesystem);
    filesystem.close().unwrap();
    device.recording()
}

/// Receives, with a commit after each of `commit_every` commands.
fn record(base: &MemoryDevice, stream: &[u8], checkpoint_bytes: u64, commit_every: u64) -> Recording {
    record_what(base, |filesystem| {
        let options = ReceiveOptions { checkpoint_bytes, ..ReceiveOptions::default() };
        let receiver = Receiver::new(filesystem, filesystem.root().unwrap()).with_options(options);
        let mut receiver = receiver.watched(|progress| {
            if progress.commands.is_multiple_of(commit_every) {
                filesystem.sync().unwrap();
            }
            ControlFlow::Continue(())
        });
        receiver.receive(&mut StreamReader::new(stream)).unwrap();
    })
}

struct Expected<'a> {
    stream: &'a [u8],
    name: &'a str,
    tree: String,
    others: Vec<String>,
}

/// What a cut left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    Beginning,
    Checkpoint,
    Whole,
}

impl Expected<'_> {
    fn judge(&self, cut: &Cut) -> Result<Left, String> {
        own_check_data(Arc::new(cut.image.snapshot()))?;
        let filesystem = open(&cut.image);
        let left = partial(&filesystem);
        if subvolume(&filesystem, self.name).is_some()
            && left.iter().all(|left| left.name != self.name.as_bytes())
        {
            self.is_whole(&filesystem)?;
            return Ok(Left::Whole);
        }
        let Some(partial) = left.first() else {
            if subvolumes(&filesystem) != self.others {
                return Err(format!("not known as partial: {:?}", subvolumes(&filesystem)));
            }
            return Ok(Left::Nothing);
        };
        if left.len() != 1 {
            return Err(format!("{left:?}"));
        }
        // What is there of a subvolume that has its name already is marked and writable.
        self.go_on(&filesystem, partial.token)?;
        let other = open(&cut.image);
        self.throw_away(other)?;
        Ok(match partial.token {
            Some(token) if token.received.bytes() > 0 => Left::Checkpoint,
            _ => Left::Beginning,
        })
    }

    fn go_on(&self, filesystem: &Filesystem, token: Option<ResumeToken>) -> Result<(), String> {
        let rest = match token {
            Some(token) => rest_of(self.stream, token),
            None => {
                discard(filesystem, &filesystem.root().unwrap(), self.name.as_bytes())
                    .map_err(|error| error.to_string())?;
                self.stream.to_vec()
            }
        };
        receive(filesystem, &rest).map_err(|error| format!("going on: {error}"))?;
        self.is_whole(filesystem)?;
        let mut names = self.others.clone();
        names.push(self.name.to_owned());
        if subvolumes(filesystem) != names {
            return Err(format!("{:?} are there", subvolumes(filesystem)));
        }
        Ok(())
    }

    fn is_whole(&self, filesystem: &Filesystem) -> Result<(), String> {
        let found = tree(filesystem, self.name);
        if found != self.tree {
            return Err(format!("{found}\nin place of\n{}", self.tree));
        }
        let id = subvolume(filesystem, self.name).unwrap();
        let information = filesystem.subvolumes().information(id).unwrap();
        if !information.is_read_only || information.received_uuid.is_nil() {
            return Err("it is not received".to_owned());
        }
        Ok(())
    }

    fn throw_away(&self, filesystem: Filesystem) -> Result<(), String> {
        let gone = discard(&filesystem, &filesystem.root().unwrap(), self.name.as_bytes());
        gone.map_err(|error| format!("discarding: {error}"))?;
        if subvolumes(&filesystem) != self.others {
            return Err(format!("{:?} are there", subvolumes(&filesystem)));
        }
        filesystem.close().map_err(|error| error.to_string())
    }
}

fn cut_everywhere(expected: &Expected<'_>, recording: Recording) -> BTreeMap<Left, u64> {
    let scratch = Scratch::in_memory("receive-cuts");
    let samples = std::env::var("RECEIVE_CUT_SAMPLES").map_or(1, |text| text.parse().unwrap());
    let options = CutOptions { samples, torn: 1, all_subsets_up_to: 1, ..CutOptions::default() };
    let mut counts = BTreeMap::new();
    let mut shown = 0;
    let mut cuts = PowerCuts::new(&recording, options);
    for cut in cuts.by_ref() {
        let left = expected.judge(&cut).unwrap_or_else(|error| panic!("{error}; {}", cut.description));
        *counts.entry(left).or_insert(0) += 1;
        // Linux's tools read no other copy where the primary superblock is torn.
        if cut.hash % SHOWN_OF == 0 && !cut.description.contains("at 65536 torn") {
            check_image(&scratch, &cut.image).unwrap();
            shown += 1;
        }
    }
    println!("{counts:?}, {shown} shown to btrfs check; {:?}", cuts.summary());
    assert!(shown > 0);
    counts
}

fn expect<'a>(base: &MemoryDevice, stream: &'a [u8], name: &'a str) -> Expected<'a> {
    let filesystem = open(base);
    let others = subvolumes(&filesystem);
    receive(&filesystem, stream).unwrap();
    Expected { stream, name, tree: tree(&filesystem, name), others }
}

#[test]
fn a_cut_at_every_command_leaves_what_goes_on() {
    require!(Tool("btrfs"));
    let (base, stream) = (image(), first());
    let expected = expect(&base, &stream, "one");
    let counts = cut_everywhere(&expected, record(&base, &stream, 1, 1));
    assert!([Left::Nothing, Left::Checkpoint, Left::Whole].iter().all(|left| counts.contains_key(left)));
}

/// Commits that others ask for between two checkpoints leave more than the last checkpoint says.
#[test]
fn a_cut_between_checkpoints_goes_on_from_the_last() {
    require!(Tool("btrfs"));
    let (base, stream) = (image(), first());
    let expected = expect(&base, &stream, "one");
    let counts = cut_everywhere(&expected, record(&base, &stream, 8000, 2));
    assert!(counts.contains_key(&Left::Checkpoint) && counts.contains_key(&Left::Beginning));
}

#[test]
fn a_cut_in_a_change_goes_on_from_its_parent() {
    require!(Tool("btrfs"));
    let base = image();
    {
        let device = Arc::new(base.snapshot());
        let filesystem = open_device(Arc::clone(&device) as _);
        receive(&filesystem, &first()).unwrap();
        filesystem.close().unwrap();
        let stream = second();
        let expected = expect(&device, &stream, "two");
        let counts = cut_everywhere(&expected, record(&device, &stream, 300, 3));
        assert!(counts.contains_key(&Left::Checkpoint));
    }
}

/// An image on which half of a stream was received, with a checkpoint in it, and the token.
fn half_received(stream: &[u8]) -> (MemoryDevice, ResumeToken) {
    let base = Arc::new(image());
    let filesystem = open_device(Arc::clone(&base) as _);
    let options = ReceiveOptions { checkpoint_bytes: 1, ..ReceiveOptions::default() };
    let (_, outcome) = receive_with(&filesystem, &stream[..stream.len() / 2], options);
    filesystem.close().unwrap();
    (base.snapshot(), outcome.partial.unwrap().token.unwrap())
}

#[test]
fn a_cut_while_going_on_keeps_what_was_received() {
    require!(Tool("btrfs"));
    let stream = first();
    let expected = expect(&image(), &stream, "one");
    let (base, token) = half_received(&stream);
    let counts = cut_everywhere(&expected, record(&base, &rest_of(&stream, token), 4000, 3));
    assert!(counts.keys().all(|left| matches!(left, Left::Checkpoint | Left::Whole)), "{counts:?}");
}

#[test]
fn a_cut_while_discarding_leaves_what_can_be_discarded() {
    let stream = first();
    let (base, _) = half_received(&stream);
    let throw_away = |filesystem: &Filesystem| {
        for left in partial(filesystem) {
            discard(filesystem, &filesystem.root().unwrap(), &left.name).unwrap();
        }
        assert_eq!(subvolumes(filesystem), [""; 0]);
    };
    let recording = record_what(&base, |filesystem| {
        throw_away(filesystem);
        filesystem.maintenance().finish_deletions().unwrap();
    });
    let mut counts = [0; 2];
    for cut in PowerCuts::new(&recording, CutOptions { samples: 4, ..CutOptions::default() }) {
        own_check_data(Arc::new(cut.image.snapshot())).unwrap();
        let filesystem = open(&cut.image);
        counts[usize::from(partial(&filesystem).is_empty())] += 1;
        throw_away(&filesystem);
        receive(&filesystem, &stream).unwrap();
    }
    println!("{} times it was there, {} times gone", counts[0], counts[1]);
    assert!(counts.iter().all(|count| *count > 0));
}
