//! What is wanted of each row, as numbers, so that the page can say whether a result gives it; and what the
//! row is called there. The words of a goal stand in the row.

use crate::row::{RowResult, SideResult};

/// Rows that stand together on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Whole images, by verbs of the command.
    Images,
    /// Programs on a mount.
    Mount,
    /// One mechanism each.
    Mechanisms,
    /// The same work in small and large file systems.
    Growth,
}

impl Family {
    /// In the order of the page, each with its heading.
    pub const ALL: [(Self, &str); 4] = [
        (Self::Images, "Whole images"),
        (Self::Mount, "Programs on a mount"),
        (Self::Mechanisms, "Mechanisms"),
        (Self::Growth, "Growth"),
    ];
}

/// One number that a result must keep to.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// This side takes at least so many times as long as vlinder.
    Faster(&'static str, f64),
    /// vlinder takes at most so many times as long as this side.
    Within(&'static str, f64),
    /// From the first of these sides to the second the time grows at most so many times.
    Growth(&'static str, &'static str, f64),
    /// This side takes at most so many seconds.
    Seconds(&'static str, f64),
    /// This side takes at most so many MiB of memory.
    Memory(&'static str, u64),
    /// This side counts at most so many of this.
    Count(&'static str, &'static str, f64),
    /// This side counts at least so many of this.
    CountFrom(&'static str, &'static str, f64),
    /// Of this, vlinder counts at most so many times what this side does.
    CountWithin(&'static str, &'static str, f64),
    /// Two counts of the first side are equal.
    Equal(&'static str, &'static str),
    /// Of the first side the first count is at most the second.
    NoMore(&'static str, &'static str),
    /// From the first of these sides to the second, processor time for all items grows at most as n log n
    /// does: that for one, as the logarithm of the numbers of items.
    LogLinear(Size, Size),
}

/// A side of a row of growth, and how many items it handles.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The side's name.
    pub side: &'static str,
    /// Its items.
    pub items: f64,
}

/// What a row of growth counts as the processor time of one item.
const TIME_OF_ITEM: &str = "processor µs each";

/// A row's place on the page, and its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// The row.
    pub id: &'static str,
    pub family: Family,
    /// The workload in a few words.
    pub title: &'static str,
    /// The sides that are not vlinder's, and whose times are compared with its own.
    pub peers: &'static [&'static str],
    pub bounds: &'static [Bound],
}

impl Bound {
    /// Whether a result keeps to it; none where the result lacks a side or a count.
    fn is_kept(self, result: &RowResult) -> Option<bool> {
        let side = |name: &str| result.sides.iter().find(|side| side.name == name);
        let count = |side: &SideResult, name: &str| side.counts.get(name).copied();
        let own = result.sides.first()?;
        Some(match self {
            Self::Faster(peer, times) => side(peer)?.median_seconds >= times * own.median_seconds,
            Self::Within(of, times) => own.median_seconds <= times * side(of)?.median_seconds,
            Self::Growth(small, large, times) => {
                side(large)?.median_seconds <= times * side(small)?.median_seconds
            }
            Self::Seconds(name, most) => side(name)?.median_seconds <= most,
            Self::Memory(name, mebibytes) => side(name)?.peak_bytes <= mebibytes << 20,
            Self::Count(name, what, most) => count(side(name)?, what)? <= most,
            Self::CountFrom(name, what, least) => count(side(name)?, what)? >= least,
            Self::CountWithin(of, what, times) => count(own, what)? <= times * count(side(of)?, what)?,
            Self::Equal(one, other) => count(own, one)? == count(own, other)?,
            Self::NoMore(one, other) => count(own, one)? <= count(own, other)?,
            Self::LogLinear(small, large) => {
                let [few, many] = [small, large].map(|size| count(side(size.side)?, TIME_OF_ITEM));
                many? <= few? * large.items.ln() / small.items.ln()
            }
        })
    }
}

impl Goal {
    /// Whether a result keeps to all bounds; none where it lacks what one of them speaks of.
    pub fn is_met(&self, result: &RowResult) -> Option<bool> {
        self.bounds.iter().try_fold(true, |met, bound| Some(bound.is_kept(result)? && met))
    }
}

/// The goal of a row.
pub fn of(id: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|goal| goal.id == id)
}

const FUSE: &[&str] = &["fuse2fs", "kernel"];
const KERNEL: &[&str] = &["kernel"];
const COPY: &[&str] = &["kernel mount, cp"];
const MAPS: &[&str] = &["split and remove", "rangemap"];
const MAP: &[Bound] = &[
    Bound::Count("state map", "mean_ns", 200.0),
    Bound::Faster("split and remove", 2.0),
    Bound::Faster("rangemap", 2.0),
];
const MAP_OF_MANY: &[Bound] = &[Bound::Faster("split and remove", 2.0), Bound::Faster("rangemap", 2.0)];
const IN_DIRECTORY: &[Bound] = &[Bound::Growth("in 1,000 files", "in 1,000,000 files", 2.0)];

/// All rows of the page, in its order.
pub const GOALS: &[Goal] = &[
    goal(
        Family::Images,
        "U1",
        "50,000 text files made into an image",
        &["mkfs.btrfs --rootdir"],
        &[
            Bound::Faster("mkfs.btrfs --rootdir", 5.0),
            Bound::Within("vlinder's own reader, nothing written", 1.5),
        ],
    ),
    goal(
        Family::Images,
        "U2",
        "the same, compressed with zstd:3",
        &["kernel mount, cp -r, sync"],
        &[Bound::Within("zstd -3 of all bytes, all processors", 1.4)],
    ),
    goal(
        Family::Images,
        "U3",
        "all of it unpacked again",
        &["btrfs restore", "kernel mount, cp -r"],
        &[Bound::Faster("btrfs restore", 2.0), Bound::Faster("kernel mount, cp -r", 2.0)],
    ),
    goal(
        Family::Images,
        "U4",
        "full send of the tree",
        &["btrfs send"],
        &[Bound::Faster("btrfs send", 4.0), Bound::Memory("vlinder send", 128)],
    ),
    goal(
        Family::Images,
        "U5",
        "the tree received into a fresh image",
        &["btrfs receive, umount"],
        &[Bound::Faster("btrfs receive, umount", 5.0)],
    ),
    goal(
        Family::Images,
        "U6",
        "check of 1.4 GB of metadata",
        &["btrfs check"],
        &[Bound::Faster("btrfs check", 5.0), Bound::Memory("vlinder check", 256)],
    ),
    goal(
        Family::Images,
        "U8",
        "one file of an image of 1 PiB read",
        &["kernel, 1 PiB, 100,000 chunks"],
        &[
            Bound::Seconds("1 PiB, 100,000 chunks", 0.01),
            Bound::Count("1 PiB, 100,000 chunks", "device reads", 40.0),
            Bound::Seconds("1 PiB, 10,000 chunks", 0.01),
            Bound::Count("1 PiB, 10,000 chunks", "device reads", 40.0),
            Bound::Seconds("1 PiB", 0.01),
            Bound::Count("1 PiB", "device reads", 40.0),
            Bound::Seconds("1 TiB", 0.01),
            Bound::Count("1 TiB", "device reads", 40.0),
            Bound::Seconds("1 GiB", 0.01),
            Bound::Count("1 GiB", "device reads", 40.0),
        ],
    ),
    goal(Family::Mount, "F1", "`cp -r` of 50,000 files", FUSE, &[Bound::Faster("fuse2fs", 3.0)]),
    goal(Family::Mount, "F2", "`find -ls`, warm", FUSE, &[Bound::Faster("fuse2fs", 8.0)]),
    goal(Family::Mount, "F3", "`tar`, warm", FUSE, &[Bound::Faster("fuse2fs", 8.0)]),
    goal(Family::Mount, "F4", "`rm -r`", FUSE, &[Bound::Faster("fuse2fs", 3.0)]),
    goal(
        Family::Mount,
        "F6A",
        "2,000 × 4 KiB overwritten, fsync after each",
        KERNEL,
        &[Bound::Faster("kernel", 0.5)],
    ),
    goal(
        Family::Mount,
        "F6B",
        "2,000 × a file made, written, fsync",
        KERNEL,
        &[Bound::Faster("kernel", 0.5)],
    ),
    goal(
        Family::Mount,
        "M1",
        "memory while `find -ls` walks 1,000,000 files",
        &[],
        &[Bound::Memory("defaults", 384), Bound::Memory("cache=96M,dirty=32M", 192)],
    ),
    goal(
        Family::Mechanisms,
        "S1A",
        "sparse file of 131,072 extents copied, cold",
        COPY,
        &[Bound::Faster("kernel mount, cp", 12.0), Bound::Within("plain read of the same bytes", 1.5)],
    ),
    goal(Family::Mechanisms, "S1B", "the same, warm", COPY, &[Bound::Faster("kernel mount, cp", 8.0)]),
    goal(Family::Mechanisms, "S1C", "the same, not flushed", COPY, &[Bound::Faster("kernel mount, cp", 8.0)]),
    goal(
        Family::Mechanisms,
        "S1D",
        "the same for 128 to 4,096 MiB, by extent",
        &[],
        &[
            Bound::Count("cold", "4096 MiB: tree.descents per extent", 0.1),
            Bound::Count("cold", "4096 MiB: tree.blocks_read per extent", 0.1),
            Bound::Count("unflushed", "4096 MiB: delalloc.states_visited per extent", 8.0),
        ],
    ),
    goal(
        Family::Mechanisms,
        "S2-100",
        "100 files, every other one removed",
        &["library, delayed_batch off"],
        &[
            Bound::Count("library", "insert batches", 2.0),
            Bound::CountWithin("library, delayed_batch off", "insert time, µs", 1.0 / 3.0),
        ],
    ),
    goal(
        Family::Mechanisms,
        "S2-100000",
        "100,000 files, the same",
        &["delayed_batch off"],
        &[Bound::NoMore("insert batches", "leaves of the tree")],
    ),
    goal(
        Family::Mechanisms,
        "S3",
        "fio: commits beside random writes",
        &["block_group_skip off"],
        &[
            Bound::CountFrom("vlinder, fio engine", "commits", 24.0),
            Bound::Equal("group items updated", "groups that differ from one superblock to the next"),
            Bound::CountWithin("block_group_skip off", "group phase of a commit, ns", 0.82),
        ],
    ),
    goal(
        Family::Mechanisms,
        "S4a-200000",
        "full send of 200,000 inline files",
        &["btrfs send"],
        &[Bound::Faster("btrfs send", 5.0), Bound::Memory("vlinder send", 128)],
    ),
    goal(
        Family::Mechanisms,
        "S4b-200000",
        "incremental send, 200,000 files and 25 % more",
        &["btrfs send -p"],
        &[Bound::Faster("btrfs send -p", 5.0), Bound::Memory("vlinder send -p", 128)],
    ),
    goal(
        Family::Mechanisms,
        "S4a-500000",
        "full send of 500,000 inline files",
        &["btrfs send"],
        &[Bound::Faster("btrfs send", 5.0), Bound::Memory("vlinder send", 128)],
    ),
    goal(
        Family::Mechanisms,
        "S4b-500000",
        "incremental send, 500,000 files and 25 % more",
        &["btrfs send -p"],
        &[Bound::Faster("btrfs send -p", 5.0), Bound::Memory("vlinder send -p", 128)],
    ),
    goal(
        Family::Mechanisms,
        "S5a",
        "fio: random writes of 12 threads",
        &["kernel, libaio"],
        &[Bound::Faster("kernel, libaio", 10.0)],
    ),
    goal(Family::Mechanisms, "S5B-1", "state map, random writes, one thread", MAPS, MAP),
    goal(Family::Mechanisms, "S5B-12", "state map, random writes, 12 threads", MAPS, MAP_OF_MANY),
    goal(Family::Mechanisms, "S5B-FLUSH-1", "state map, long flushes, one thread", MAPS, MAP),
    goal(Family::Mechanisms, "S5B-FLUSH-12", "state map, long flushes, 12 threads", MAPS, MAP_OF_MANY),
    goal(Family::Growth, "G1", "10,000 look-ups in one directory", &[], IN_DIRECTORY),
    goal(Family::Growth, "G2", "10,000 files made in one directory", &[], IN_DIRECTORY),
    goal(Family::Growth, "G3", "10,000 random files of one directory removed", &[], IN_DIRECTORY),
    goal(Family::Growth, "G3L", "the same in the order of the listing", &[], IN_DIRECTORY),
    goal(
        Family::Growth,
        "G3S",
        "10,000 of 1,000,000 files removed",
        &[],
        &[Bound::Growth("from directories of 1,000", "from one of 1,000,000", 2.0)],
    ),
    goal(
        Family::Growth,
        "G4",
        "check under snapshots",
        &[],
        &[Bound::Growth("10 snapshots", "1,000 snapshots", 100.0), Bound::Memory("1,000 snapshots", 256)],
    ),
    goal(
        Family::Growth,
        "G5",
        "check of empty files",
        &[],
        &[Bound::Growth("1,000 files", "1,000,000 files", 1000.0), Bound::Memory("1,000,000 files", 256)],
    ),
    goal(
        Family::Growth,
        "G6",
        "snapshots of one subvolume",
        &[],
        &[Bound::LogLinear(size("10", 10.0), size("10,000", 1e4)), Bound::Memory("10,000", 384)],
    ),
    goal(
        Family::Growth,
        "G7",
        "extents of one file",
        &[],
        &[Bound::LogLinear(size("1,000", 1e3), size("4,000,000", 4e6)), Bound::Memory("4,000,000", 384)],
    ),
    goal(
        Family::Growth,
        "G8",
        "chunks of 1 GiB",
        &[],
        &[Bound::LogLinear(size("10", 10.0), size("100,000", 1e5)), Bound::Memory("100,000", 384)],
    ),
    // An item is a block of 4 KiB, of which a MiB has 256.
    goal(
        Family::Growth,
        "G9",
        "MiB written at random with dirty=32M",
        &[],
        &[Bound::LogLinear(size("32", 32.0 * 256.0), size("256", 256.0 * 256.0)), Bound::Memory("256", 384)],
    ),
    goal(
        Family::Growth,
        "G10",
        "files made in one directory",
        &[],
        &[Bound::LogLinear(size("1,000", 1e3), size("10,000,000", 1e7)), Bound::Memory("10,000,000", 384)],
    ),
];

const fn size(side: &'static str, items: f64) -> Size {
    Size { side, items }
}

const fn goal(
    family: Family,
    id: &'static str,
    title: &'static str,
    peers: &'static [&'static str],
    bounds: &'static [Bound],
) -> Goal {
    Goal { id, family, title, peers, bounds }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, seconds and counts.
    type TestSide<'a> = (&'a str, f64, &'a [(&'a str, f64)]);

    fn result(sides: &[TestSide<'_>]) -> RowResult {
        let side = |(name, seconds, counts): &TestSide<'_>| SideResult {
            name: (*name).into(),
            seconds: vec![*seconds],
            median_seconds: *seconds,
            peak_bytes: 7 << 20,
            ratio: 1.0,
            counts: counts.iter().map(|(name, value)| ((*name).into(), *value)).collect(),
        };
        RowResult {
            id: "X".into(),
            workload: String::new(),
            goal: String::new(),
            commit: String::new(),
            command: String::new(),
            files: 1,
            machine: None,
            sides: sides.iter().map(side).collect(),
        }
    }

    #[test]
    fn bounds_are_kept_up_to_their_number() {
        let result = result(&[("own", 2.0, &[("n", 4.0), ("m", 4.0)]), ("peer", 6.0, &[("n", 8.0)])]);
        let cases = [
            (Bound::Faster("peer", 3.0), Bound::Faster("peer", 3.1)),
            (Bound::Within("peer", 0.34), Bound::Within("peer", 0.33)),
            (Bound::Growth("own", "peer", 3.0), Bound::Growth("own", "peer", 2.9)),
            (Bound::Seconds("peer", 6.0), Bound::Seconds("peer", 5.9)),
            (Bound::Memory("own", 7), Bound::Memory("own", 6)),
            (Bound::Count("peer", "n", 8.0), Bound::Count("peer", "n", 7.0)),
            (Bound::CountFrom("peer", "n", 8.0), Bound::CountFrom("peer", "n", 9.0)),
            (Bound::CountWithin("peer", "n", 0.5), Bound::CountWithin("peer", "n", 0.4)),
        ];
        for (kept, broken) in cases {
            assert_eq!((kept.is_kept(&result), broken.is_kept(&result)), (Some(true), Some(false)));
        }
        assert_eq!(Bound::Equal("n", "m").is_kept(&result), Some(true));
        assert_eq!(Bound::NoMore("n", "m").is_kept(&result), Some(true));
        let timed = |few, many| {
            let counts = [[(TIME_OF_ITEM, few)], [(TIME_OF_ITEM, many)]];
            let result = self::result(&[("10", 1.0, &counts[0]), ("1,000", 1.0, &counts[1])]);
            Bound::LogLinear(size("10", 10.0), size("1,000", 1e3)).is_kept(&result)
        };
        assert_eq!((timed(1.0, 2.9), timed(1.0, 3.1)), (Some(true), Some(false)), "log 1,000 is 3 × log 10");
        assert_eq!(Bound::Faster("nobody", 1.0).is_kept(&result), None, "the side did not run");
        assert_eq!(Bound::Count("own", "nothing", 1.0).is_kept(&result), None);
    }

    #[test]
    fn each_row_has_a_goal_about_its_own_sides() {
        for row in crate::rows::all() {
            let goal = of(row.id).unwrap_or_else(|| panic!("{} has no goal", row.id));
            assert!(!goal.bounds.is_empty(), "{}", row.id);
            let is_side = |name: &str| row.sides.iter().any(|side| side.name == name);
            for bound in goal.bounds {
                let names: Vec<&str> = match *bound {
                    Bound::Growth(small, large, _) => vec![small, large],
                    Bound::Equal(..) | Bound::NoMore(..) => vec![],
                    Bound::LogLinear(small, large) => vec![small.side, large.side],
                    Bound::Faster(side, _)
                    | Bound::Within(side, _)
                    | Bound::Seconds(side, _)
                    | Bound::Memory(side, _)
                    | Bound::Count(side, ..)
                    | Bound::CountFrom(side, ..)
                    | Bound::CountWithin(side, ..) => vec![side],
                };
                names.iter().for_each(|name| assert!(is_side(name), "{}: {name}", row.id));
            }
            goal.peers.iter().for_each(|peer| assert!(is_side(peer), "{}: {peer}", row.id));
        }
        for goal in GOALS {
            assert!(crate::rows::all().iter().any(|row| row.id == goal.id), "{} is no row", goal.id);
        }
    }
}
