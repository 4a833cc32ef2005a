//! `inspect-internal dump-tree`.

use std::path::PathBuf;

use clap::Args;
use vlinder_format::features::IncompatFeatures;
use vlinder_format::root_item::RootItem;
use vlinder_format::superblock::Superblock;
use vlinder_format::{ItemType, Key, Logical, ObjectId, RootId};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::options::OptionArguments;
use vlinder_places::session::Session;
use vlinder_places::values::{Choice, number};

use super::block_text;
use super::blocks::Blocks;
use super::chunks;
use super::keys;
use super::text::{Context, Style, line, put};
use super::walk::{Order, Walk};

/// Print the trees of an image as text.
///
/// All trees are printed, or those that the flags choose; keys are spelled out where they have names. Blocks
/// that can't be read are told on standard error and left out; the command then ends with 3.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  vlinder inspect-internal dump-tree -t fs disk.img\n  \
                        vlinder inspect-internal dump-tree -b 30408704 --csum-headers disk.img")]
pub struct DumpTreeArguments {
    #[command(flatten)]
    options: OptionArguments,
    #[command(flatten)]
    parts: PartArguments,
    /// Print only the block at this logical address; may be given several times.
    #[arg(short, long, value_name = "ADDRESS", value_parser = number)]
    block: Vec<u64>,
    /// Print only this tree, by number or name (root, extent, chunk, dev, fs, csum, quota, uuid, free-space,
    /// …).
    #[arg(short, long, value_name = "TREE", value_parser = TREES, hide_possible_values = true, allow_hyphen_values = true)]
    tree: Option<u64>,
    /// With --block: print all blocks below it too.
    #[arg(long)]
    follow: bool,
    /// Use only the devices that are named. (They always are; kept for scripts.)
    #[arg(long)]
    noscan: bool,
    /// Print each tree level by level (the default).
    #[arg(long, overrides_with = "dfs")]
    bfs: bool,
    /// Print each block before those below it.
    #[arg(long)]
    dfs: bool,
    #[command(flatten)]
    style: StyleArguments,
    /// The image, or all devices of the file system.
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
}

/// Which trees are printed.
#[derive(Args, Debug)]
struct PartArguments {
    /// Print only the extent and device trees, and of those only the leaves.
    #[arg(short, long)]
    extents: bool,
    /// Print only the root, chunk and device trees.
    #[arg(short, long)]
    device: bool,
    /// Print only where each tree's root lies.
    #[arg(short, long)]
    roots: bool,
    /// As --roots, and the backup roots.
    #[arg(short = 'R', long)]
    backups: bool,
    /// Print only the UUID tree.
    #[arg(short, long)]
    uuid: bool,
}

/// How items are printed.
#[derive(Args, Debug)]
struct StyleArguments {
    /// Print no names of files, subvolumes and attributes, and no values of attributes.
    #[arg(long)]
    hide_names: bool,
    /// Print the checksums of tree blocks.
    #[arg(long)]
    csum_headers: bool,
    /// Print the checksums of data.
    #[arg(long)]
    csum_items: bool,
}

/// The names that completions offer; more are taken.
pub(super) const TREES: Choice<u64> = Choice::new(
    &[
        "root",
        "extent",
        "chunk",
        "dev",
        "fs",
        "csum",
        "quota",
        "uuid",
        "free-space",
        "block-group",
        "raid-stripe",
        "tree-log",
        "tree-reloc",
        "data-reloc",
    ],
    tree,
);

fn tree(text: &str) -> Result<u64, String> {
    keys::parse_tree(text).ok_or_else(|| format!("{text:?} is no tree; give a number, or a name such as fs"))
}

/// A tree that the root tree, or the tree of logs, points at.
struct Found {
    key: Key,
    root: RootItem,
}

struct Dump<'a> {
    blocks: &'a Blocks,
    session: &'a Session,
    context: Context,
    order: Order,
    status: ExitStatus,
}

/// Runs the verb.
pub fn run(arguments: &DumpTreeArguments, session: &Session) -> Result<ExitStatus, Failure> {
    arguments.options.check()?;
    if session.json {
        return Err(Failure::new(Kind::Unsupported, "a dump of trees has no JSON form")
            .hint("leave --json out; dump-super, rootid, inode-resolve and tree-stats have one"));
    }
    let (blocks, failures) = chunks::open(&arguments.options.name(&arguments.images)?)?;
    let style = Style {
        hide_names: arguments.style.hide_names,
        header_checksums: arguments.style.csum_headers,
        item_checksums: arguments.style.csum_items,
    };
    let context = Context {
        geometry: *blocks.volume.geometry(),
        has_simple_quotas: blocks.superblock.incompat.has(IncompatFeatures::SIMPLE_QUOTA),
        style,
        zone: jiff::tz::TimeZone::system(),
    };
    let order = if arguments.dfs && !arguments.bfs { Order::Depth } else { Order::Levels };
    let mut dump = Dump { blocks: &blocks, session, context, order, status: ExitStatus::Done };
    for failure in &failures {
        dump.complain(failure);
    }
    session.line(concat!("vlinder v", env!("CARGO_PKG_VERSION")))?;
    if arguments.block.is_empty() {
        dump.trees(arguments)?;
    } else {
        dump.single_blocks(arguments)?;
    }
    blocks.confirm()?;
    Ok(dump.status)
}

impl Dump<'_> {
    fn complain(&mut self, failure: &Failure) {
        self.status = ExitStatus::Partial;
        self.session.complain(failure);
    }

    fn single_blocks(&mut self, arguments: &DumpTreeArguments) -> Result<(), Failure> {
        let mut addresses = arguments.block.clone();
        addresses.sort_unstable();
        addresses.dedup();
        for address in addresses {
            let logical = Logical(address);
            if arguments.follow {
                self.tree(logical)?;
                continue;
            }
            match self.blocks.read(logical) {
                Ok(block) => {
                    let mut text = Vec::new();
                    block_text::block(&mut text, &block, &self.context);
                    self.session.bytes(&text)?;
                }
                Err(failure) => self.complain(&failure),
            }
        }
        Ok(())
    }

    /// All blocks of the tree whose root lies here.
    fn tree(&mut self, root: Logical) -> Result<(), Failure> {
        self.print(root, self.order, false)
    }

    fn print(&mut self, root: Logical, order: Order, leaves_only: bool) -> Result<(), Failure> {
        let blocks = self.blocks;
        let mut walk = Walk::in_order(blocks, root, order);
        while let Some(step) = walk.next_block() {
            if self.session.is_output_closed() {
                return Ok(());
            }
            match step {
                Ok(block) if leaves_only && !block.is_leaf() => {}
                Ok(block) => {
                    let mut text = Vec::new();
                    block_text::block(&mut text, &block, &self.context);
                    self.session.bytes(&text)?;
                }
                Err(failure) => self.complain(&failure),
            }
        }
        Ok(())
    }

    fn trees(&mut self, arguments: &DumpTreeArguments) -> Result<(), Failure> {
        let superblock = self.blocks.superblock.clone();
        let fixed = [
            ("root tree", RootId::ROOT_TREE, superblock.root),
            ("chunk tree", RootId::CHUNK_TREE, superblock.chunk_root),
            ("log root tree", RootId::TREE_LOG, superblock.log_root),
        ];
        if let Some(wanted) = arguments.tree
            && let Some((name, _, root)) = fixed.iter().find(|(_, id, _)| id.0 == wanted)
        {
            if root.0 == 0 {
                return Err(Failure::new(Kind::NotFound, format!("the file system has no {name}")));
            }
            self.session.line(name)?;
            return self.tree(*root);
        }
        let roots_only = arguments.parts.roots || arguments.parts.backups;
        if !(arguments.parts.extents || arguments.parts.uuid || arguments.tree.is_some()) {
            for (name, _, root) in fixed.into_iter().filter(|(.., root)| root.0 != 0) {
                self.fixed_tree(name, root, roots_only)?;
            }
        }
        self.found_trees(superblock.root, arguments)?;
        if superblock.has_log() {
            self.found_trees(superblock.log_root, arguments)?;
        }
        if arguments.parts.extents || arguments.parts.device || arguments.parts.uuid {
            return Ok(());
        }
        if arguments.parts.backups {
            self.session.bytes(&old_roots(&superblock))?;
        }
        self.session.line(format!("total bytes {}", superblock.total_bytes))?;
        self.session.line(format!("bytes used {}", superblock.bytes_used))?;
        self.session.line(format!("uuid {}", superblock.fsid))
    }

    fn fixed_tree(&mut self, name: &str, root: Logical, roots_only: bool) -> Result<(), Failure> {
        if !roots_only {
            self.session.line(name)?;
            return self.tree(root);
        }
        match self.blocks.read(root) {
            Ok(block) => self.session.line(format!("{name}: {root} level {}", block.level())),
            Err(failure) => {
                self.complain(&failure);
                Ok(())
            }
        }
    }

    /// The trees that the tree of tree roots at `roots` points at.
    fn found_trees(&mut self, roots: Logical, arguments: &DumpTreeArguments) -> Result<(), Failure> {
        for Found { key, root } in self.find_trees(roots) {
            if arguments.tree.is_some_and(|wanted| key.objectid.0 != wanted)
                || !is_chosen(RootId(key.objectid.0), arguments)
            {
                continue;
            }
            let block = match self.blocks.read(root.address) {
                Ok(block) => block,
                Err(failure) => {
                    self.complain(&failure);
                    continue;
                }
            };
            let mut head = Vec::new();
            let name = if arguments.tree == Some(RootId::BLOCK_GROUP_TREE.0) {
                line!(head, "block group tree");
                ""
            } else {
                tree_name(RootId(key.objectid.0))
            };
            if !name.is_empty() {
                let (key, level) = (keys::key(&key), block.level());
                if arguments.parts.roots || arguments.parts.backups {
                    line!(head, "{name} tree {key} {} level {level}", root.address);
                } else {
                    line!(head, "{name} tree {key} ");
                }
            }
            self.session.bytes(&head)?;
            if arguments.parts.extents {
                self.print(root.address, Order::Depth, true)?;
            } else if !(arguments.parts.roots || arguments.parts.backups) {
                self.tree(root.address)?;
            }
        }
        Ok(())
    }

    fn find_trees(&mut self, roots: Logical) -> Vec<Found> {
        let blocks = self.blocks;
        let mut found = Vec::new();
        let mut walk = Walk::in_order(blocks, roots, Order::Depth);
        while let Some(step) = walk.next_block() {
            // What can't be read was told when the tree itself was printed, or is told by the walk of another
            // call.
            let Ok(block) = step else { continue };
            if !block.is_leaf() {
                continue;
            }
            for slot in 0..block.len() {
                let key = block.key(slot);
                if key.item_type != ItemType::ROOT_ITEM {
                    continue;
                }
                match RootItem::decode(block.data(slot)) {
                    Ok(root) => found.push(Found { key, root }),
                    Err(fault) => {
                        let failure = Failure::new(Kind::Corruption, fault.to_string());
                        self.complain(&failure.at(format!("tree block {roots}, {}", keys::key(&key))));
                    }
                }
            }
        }
        found
    }
}

/// Whether the flags that choose groups of trees choose this one.
fn is_chosen(id: RootId, arguments: &DumpTreeArguments) -> bool {
    let (extents, device, uuid) = (arguments.parts.extents, arguments.parts.device, arguments.parts.uuid);
    match id {
        RootId::EXTENT_TREE => !device && !uuid,
        RootId::DEVICE_TREE => !uuid,
        RootId::UUID_TREE => !extents && !device,
        _ => !(extents || device || uuid),
    }
}

/// The first word of a tree's title.
fn tree_name(id: RootId) -> &'static str {
    match id {
        RootId::ROOT_TREE => "root",
        RootId::EXTENT_TREE => "extent",
        RootId::CHUNK_TREE => "chunk",
        RootId::DEVICE_TREE => "device",
        RootId::FS_TREE => "fs",
        RootId(6) => "directory",
        RootId::CHECKSUM_TREE => "checksum",
        RootId::QUOTA_TREE => "quota",
        RootId::UUID_TREE => "uuid",
        RootId::FREE_SPACE_TREE => "free space",
        RootId::BLOCK_GROUP_TREE => "block group",
        RootId::RAID_STRIPE_TREE => "raid stripe",
        RootId::TREE_LOG => "log",
        RootId::TREE_RELOCATION => "reloc",
        RootId::DATA_RELOCATION_TREE => "data reloc",
        _ if id.0 == ObjectId::ORPHAN.0 => "orphan",
        _ if id.0 == ObjectId::EXTENT_CHECKSUM.0 => "extent checksum",
        _ => "file",
    }
}

/// The backup roots as `dump-tree --backups` prints them.
fn old_roots(superblock: &Superblock) -> Vec<u8> {
    let mut text = Vec::new();
    for (slot, backup) in superblock.backup_roots.iter().enumerate() {
        line!(text, "btrfs root backup slot {slot}");
        line!(text, "\ttree root gen {} block {}", backup.tree_root_generation, backup.tree_root);
        for (name, generation, root) in [
            ("extent root", backup.extent_root_generation, backup.extent_root),
            ("chunk root", backup.chunk_root_generation, backup.chunk_root),
            ("device root", backup.device_root_generation, backup.device_root),
            ("csum root", backup.checksum_root_generation, backup.checksum_root),
            ("fs root", backup.fs_root_generation, backup.fs_root),
        ] {
            line!(text, "\t\t{name} gen {generation} block {root}");
        }
        put!(text, "\t\t{} used {} total ", backup.bytes_used, backup.total_bytes);
        line!(text, "{} devices", backup.device_count);
    }
    text
}
