//! `inspect-internal tree-stats`: how the blocks of a tree lie, and how many there are.
//!
//! A *seek* is a block that does not lie right behind the one read before it among the children of one node
//! (the node itself is the first); a *cluster* is a run of blocks that do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_format::file_extent::{FileExtent, FileExtentContent};
use vlinder_format::root_item::RootItem;
use vlinder_format::{Block, ItemType, Key, Level, Logical, RootId};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::options::OptionArguments;
use vlinder_places::progress::Progress;
use vlinder_places::session::Session;
use vlinder_places::units::{UnitArguments, Units};

use super::blocks::Blocks;
use super::chunks;
use super::dump_tree::TREES;
use super::keys;
use super::text::{line, put};
use super::walk::{Order, Walk};

/// Print how the blocks of each tree lie: sizes, seeks, levels.
///
/// Without --tree: the root, extent, checksum and top-level file trees.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "Example:\n  vlinder inspect-internal tree-stats -b disk.img")]
pub struct TreeStatsArguments {
    #[command(flatten)]
    options: OptionArguments,
    #[command(flatten)]
    units: StatsUnits,
    /// Only this tree, by number or name.
    #[arg(short, long, value_name = "TREE", value_parser = TREES, hide_possible_values = true, allow_hyphen_values = true)]
    tree: Option<u64>,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
    /// The image, or all devices of the file system.
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
}

/// The unit flags without those that collide with --tree.
#[derive(Args, Debug)]
struct StatsUnits {
    /// Show plain numbers of bytes.
    #[arg(short = 'b', long)]
    raw: bool,
}

impl StatsUnits {
    fn units(&self) -> Units {
        if self.raw { Units::Raw } else { UnitArguments::default().units() }
    }
}

/// What a walk counts.
#[derive(Default)]
struct TreeCounts {
    bytes: u64,
    inline_bytes: u64,
    nodes: u64,
    per_level: [u64; Level::COUNT],
    level: u8,
    seeks: Seeks,
    clusters: Clusters,
    lowest: u64,
    highest: u64,
    read_time_us: u64,
}

/// Blocks that do not lie right behind the one read before.
#[derive(Default)]
struct Seeks {
    forward: u64,
    backward: u64,
    bytes: u64,
    by_distance: BTreeMap<u64, u64>,
}

impl Seeks {
    fn total(&self) -> u64 {
        self.forward + self.backward
    }
}

/// Runs of blocks that do.
#[derive(Default)]
struct Clusters {
    count: u64,
    bytes: u64,
    smallest: Option<u64>,
    largest: u64,
}

/// Runs the verb.
pub fn run(arguments: &TreeStatsArguments, session: &Session) -> Result<ExitStatus, Failure> {
    arguments.options.check()?;
    let (blocks, mut failures) = chunks::open(&arguments.options.name(&arguments.images)?)?;
    let wanted: Vec<RootId> = match arguments.tree {
        Some(id) => vec![RootId(id)],
        None => vec![RootId::ROOT_TREE, RootId::EXTENT_TREE, RootId::CHECKSUM_TREE, RootId::FS_TREE],
    };
    let mut objects: Vec<Value> = Vec::new();
    for id in wanted {
        let Some(root) = find_root(&blocks, id) else {
            let failure = Failure::new(Kind::NotFound, format!("the file system has no tree {id}"));
            return Err(failure.hint("list the trees with dump-tree --roots"));
        };
        let counts = count(&blocks, root, &mut failures, session);
        if session.json {
            objects.push(object(id, &counts));
        } else {
            let name = title(id);
            session.line(format!("Calculating size of {name}"))?;
            session.bytes(&text(&counts, arguments.units.units()))?;
        }
    }
    blocks.confirm()?;
    for failure in &failures {
        session.complain(failure);
    }
    if session.json {
        session.object(json!({ "trees": objects }))?;
    }
    Ok(if failures.is_empty() { ExitStatus::Done } else { ExitStatus::Partial })
}

fn title(id: RootId) -> String {
    match id {
        RootId::ROOT_TREE => "root tree".to_owned(),
        RootId::EXTENT_TREE => "extent tree".to_owned(),
        RootId::CHECKSUM_TREE => "csum tree".to_owned(),
        RootId::FS_TREE => "fs tree".to_owned(),
        other => format!("tree {}", keys::object(other.object_id(), ItemType(0))),
    }
}

/// Where a tree's root block lies, after the root tree or the superblock.
fn find_root(blocks: &Blocks, id: RootId) -> Option<Logical> {
    match id {
        RootId::ROOT_TREE => return Some(blocks.superblock.root),
        RootId::CHUNK_TREE => return Some(blocks.superblock.chunk_root),
        _ => {}
    }
    let mut walk = Walk::in_order(blocks, blocks.superblock.root, Order::Depth);
    while let Some(step) = walk.next_block() {
        let Ok(block) = step else { continue };
        if !block.is_leaf() {
            continue;
        }
        let first = Key::new(id.object_id(), ItemType::ROOT_ITEM, 0);
        let slot = block.search(&first).unwrap_or_else(|slot| slot);
        if slot < block.len() {
            let key = block.key(slot);
            if key.objectid == first.objectid && key.item_type == ItemType::ROOT_ITEM {
                return RootItem::decode(block.data(slot)).ok().map(|root| root.address);
            }
        }
    }
    None
}

fn count(blocks: &Blocks, root: Logical, failures: &mut Vec<Failure>, session: &Session) -> TreeCounts {
    let progress = Progress::new(session, "reading", None);
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let node_size = u64::from(blocks.volume.geometry().node_size);
    let mut counts = TreeCounts { lowest: root.0, highest: root.0, ..TreeCounts::default() };
    counts.clusters.largest = node_size;
    let mut walk = Walk::in_order(blocks, root, Order::Depth);
    while let Some(step) = walk.next_block() {
        progress.add(node_size);
        match step {
            Ok(block) => counts.add(&block, node_size),
            Err(failure) => failures.push(failure),
        }
    }
    if counts.clusters.smallest.is_none() {
        counts.clusters.count = 1;
    }
    let elapsed = clock.monotonic().saturating_sub(start);
    counts.read_time_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    counts
}

impl TreeCounts {
    fn add(&mut self, block: &Block, node_size: u64) {
        self.bytes += node_size;
        self.nodes += 1;
        self.per_level[block.level().index()] += 1;
        self.level = self.level.max(block.level().0);
        if block.is_leaf() {
            self.inline_bytes += inline_bytes(block);
        } else {
            self.add_children(block, node_size);
        }
    }

    fn add_children(&mut self, node: &Block, node_size: u64) {
        let mut last = node.logical().0;
        let mut cluster = node_size;
        for child in node.children() {
            let place = child.logical.0;
            let expected = last.saturating_add(node_size);
            if expected == place {
                cluster += node_size;
            } else {
                let distance = expected.abs_diff(place);
                self.seeks.bytes = self.seeks.bytes.saturating_add(distance);
                *self.seeks.by_distance.entry(distance).or_default() += 1;
                let seeks = if last < place { &mut self.seeks.forward } else { &mut self.seeks.backward };
                *seeks += 1;
                if cluster != node_size {
                    let clusters = &mut self.clusters;
                    clusters.bytes += cluster;
                    clusters.count += 1;
                    clusters.smallest = Some(clusters.smallest.unwrap_or(u64::MAX).min(cluster));
                    clusters.largest = clusters.largest.max(cluster);
                }
                cluster = node_size;
            }
            last = place;
            self.lowest = self.lowest.min(place);
            self.highest = self.highest.max(place);
        }
    }
}

/// Bytes of files that lie in a leaf.
fn inline_bytes(leaf: &Block) -> u64 {
    let extents = (0..leaf.len()).filter(|slot| leaf.key(*slot).item_type == ItemType::EXTENT_DATA);
    let bytes = extents.filter_map(|slot| match FileExtent::decode(leaf.data(slot)).ok()?.content {
        FileExtentContent::Inline(data) => u64::try_from(data.len()).ok(),
        _ => None,
    });
    bytes.sum()
}

fn text(counts: &TreeCounts, units: Units) -> Vec<u8> {
    let mut text = Vec::new();
    let average = |sum: u64, number: u64| sum.checked_div(number).unwrap_or(0);
    line!(text, "\tTotal size: {}", units.show(counts.bytes));
    line!(text, "\t\tInline data: {}", units.show(counts.inline_bytes));
    line!(text, "\tTotal seeks: {}", counts.seeks.total());
    line!(text, "\t\tForward seeks: {}", counts.seeks.forward);
    line!(text, "\t\tBackward seeks: {}", counts.seeks.backward);
    line!(text, "\t\tAvg seek len: {}", units.show(average(counts.seeks.bytes, counts.seeks.total())));
    histogram(&mut text, counts);
    line!(text, "\tTotal clusters: {}", counts.clusters.count);
    line!(
        text,
        "\t\tAvg cluster size: {}",
        units.show(average(counts.clusters.bytes, counts.clusters.count))
    );
    line!(text, "\t\tMin cluster size: {}", units.show(counts.clusters.smallest.unwrap_or(0)));
    line!(text, "\t\tMax cluster size: {}", units.show(counts.clusters.largest));
    line!(text, "\tTotal disk spread: {}", units.show(counts.highest - counts.lowest));
    let (seconds, rest) = (counts.read_time_us / 1_000_000, counts.read_time_us % 1_000_000);
    line!(text, "\tTotal read time: {seconds} s {rest} us");
    line!(text, "\tLevels: {}", counts.level + 1);
    line!(text, "\tTotal nodes: {}", counts.nodes);
    let levels = &counts.per_level[..=usize::from(counts.level)];
    for (level, nodes) in levels.iter().enumerate() {
        put!(text, "\t\tOn level {level}: {nodes:>8}");
        if level > 0 {
            put!(text, "  (avg fanout {})", average(levels[level - 1], *nodes));
        }
        line!(text, "");
    }
    text
}

/// Seeks by distance: a distance with more than two ticks (of 5 % of all seeks each) has a row of its own,
/// those between share one.
fn histogram(text: &mut Vec<u8>, counts: &TreeCounts) {
    let total = counts.seeks.total();
    if total < 20 {
        return;
    }
    let tick = total / 20;
    let longest = counts.seeks.by_distance.last_key_value().map_or(0, |(distance, _)| *distance);
    let width = longest.to_string().len();
    line!(text, "\tSeek histogram");
    let mut row = |first: u64, last: u64, count: u64| {
        let bar = usize::try_from(count / tick).unwrap_or(0);
        let bar = if bar == 0 { "|".to_owned() } else { "#".repeat(bar) };
        line!(text, "\t\t{first:>width$} - {last:>width$}: {count:>width$} {bar}");
    };
    let mut group: Option<(u64, u64, u64)> = None;
    for (distance, count) in &counts.seeks.by_distance {
        let is_tall = count / tick > 2;
        if !is_tall && group.is_none_or(|(_, _, grouped)| grouped / tick <= 2) {
            let (first, _, grouped) = group.unwrap_or((*distance, 0, 0));
            group = Some((first, *distance, grouped + count));
            continue;
        }
        if let Some((first, last, grouped)) = group.take() {
            row(first, last, grouped);
        }
        // A low distance that finds a full group ends the group, and has no row itself.
        if is_tall {
            row(*distance, *distance, *count);
        }
    }
    if let Some((first, last, grouped)) = group {
        row(first, last, grouped);
    }
}

fn object(id: RootId, counts: &TreeCounts) -> Value {
    json!({
        "tree": id.0,
        "total_bytes": counts.bytes,
        "inline_bytes": counts.inline_bytes,
        "forward_seeks": counts.seeks.forward,
        "backward_seeks": counts.seeks.backward,
        "seek_bytes": counts.seeks.bytes,
        "clusters": counts.clusters.count,
        "cluster_bytes": counts.clusters.bytes,
        "smallest_cluster_bytes": counts.clusters.smallest.unwrap_or(0),
        "largest_cluster_bytes": counts.clusters.largest,
        "spread_bytes": counts.highest - counts.lowest,
        "read_time_us": counts.read_time_us,
        "levels": counts.level + 1,
        "nodes": counts.nodes,
        "nodes_per_level": &counts.per_level[..=usize::from(counts.level)],
    })
}
