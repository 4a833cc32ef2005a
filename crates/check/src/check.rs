//! The order of the passes.

use vlinder_base::sync::Arc;
use vlinder_codec::compress::CodecError;
use vlinder_device::Device;
use vlinder_format::features::CompatReadOnlyFeatures;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Generation, Level, Logical, Place, RootId};
use vlinder_volume::{Access, OpenRules, Opened, Volume, VolumeError, refuse_two_histories};

use crate::check_state::CheckState;
use crate::checked_tree::CheckedTree;
use crate::checksums::{self, ChecksumTree};
use crate::chunks::{self, DeviceTree, Layout};
use crate::compressed;
use crate::extents::{ExtentPlaces, ExtentTree, GroupItems};
use crate::finding::FindingKind;
use crate::free_space::{FreeSpace, FreeSpaceTree};
use crate::logs;
use crate::options::Options;
use crate::owners::Owners;
use crate::quotas::{self, QuotaTree};
use crate::ranges::Ranges;
use crate::references;
use crate::report::Report;
use crate::roots::{self, Roots};
use crate::shared::Summaries;
use crate::store::StoreError;
use crate::subvolume;
use crate::superblocks::{self, State};
use crate::uuids;
use crate::walk::{ItemVisitor, Nobody, Unasked, walk, walk_leaves};

/// Why nothing could be checked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The devices do not make a file system that can be opened.
    #[error(transparent)]
    Open(#[from] VolumeError),
    /// The superblock has features that change what the trees mean, in a way that this version does not know.
    #[error("the file system has features that this version can't judge: {}; use a newer vlinder, or btrfs check", .names.join(", "))]
    UnknownFeatures {
        /// Their names or bits.
        names: Vec<String>,
    },
    /// There are data whose compression this program was built without.
    #[error("data can't be judged: {source}, or leave out the check of data")]
    NoCodec {
        /// Which feature is missing.
        source: CodecError,
    },
    /// The temporary space was too small, or failed.
    #[error(transparent)]
    Temporary(#[from] StoreError),
}

/// What the trees mean depends on the incompatible features: with an unknown one nothing that is said of them
/// is worth anything. Linux and `btrfs check` refuse such a file system too (`btrfs_check_features`).
fn known(opened: Opened) -> Result<Opened, CheckError> {
    let unknown = opened.superblock.features().unsupported_for_reading();
    if unknown.is_empty() {
        return Ok(opened);
    }
    Err(CheckError::UnknownFeatures { names: unknown.names() })
}

/// Checks the file system on these devices. Nothing is written.
///
/// # Errors
/// [`CheckError::Open`], [`CheckError::UnknownFeatures`], [`CheckError::NoCodec`],
/// [`CheckError::Temporary`]; everything that is wrong
/// further in is a finding.
pub fn check(devices: Vec<Arc<dyn Device>>, options: &Options<'_>) -> Result<Report, CheckError> {
    let rules = OpenRules { may_miss: options.degraded, history: options.history, ..OpenRules::default() };
    let opened = known(Volume::open_by(devices.clone(), rules, Access::ReadOnly)?)?;
    judge(opened, &devices, State::Newest, options)
}

/// Checks a committed state that is leased while others commit: the one of these superblocks, one for each
/// device in the same order. Nothing is written. The report is worth nothing if the lease was revoked
/// meanwhile.
///
/// # Errors
/// As [`check`].
pub fn check_leased(
    devices: Vec<Arc<dyn Device>>,
    superblocks: Vec<Superblock>,
    options: &Options<'_>,
) -> Result<Report, CheckError> {
    let opened = known(Volume::open_leased(devices.clone(), superblocks)?)?;
    judge(opened, &devices, State::Leased, options)
}

fn judge(
    opened: Opened,
    devices: &[Arc<dyn Device>],
    state: State,
    options: &Options<'_>,
) -> Result<Report, CheckError> {
    let superblock = opened.superblock;
    let mut context = CheckState::new(Arc::new(opened.volume), &superblock, options);
    superblocks::judge(&mut context, devices, &superblock, state);
    let mut layout = chunks::read(&mut context);
    if state == State::Newest {
        refuse_two_histories(&context.judge.volume, &superblock)?;
    }
    let roots = roots::read(&mut context);
    let checked = judge_trees(&mut context, &mut layout, &roots);
    roots::judge(&mut context, &roots);
    chunks::judge(&mut context, &layout);
    if has_free_space_tree(&superblock) {
        checked.free_space.judge(&mut context, &layout, &checked.used);
    }
    checksums::judge(&mut context, &checked.checksums, &checked.data);
    drop(checked);
    if !context.references.is_even() {
        explain_references(&mut context, &mut layout, &roots);
    }
    if let Some(failure) = context.store.failure() {
        return Err(failure.into());
    }
    if let Some(compression) = context.judge.lacks.lock().take() {
        return Err(CheckError::NoCodec { source: CodecError::NotBuiltIn { compression } });
    }
    Ok(context.report)
}

/// What was read on the way, for the comparisons at the end.
struct Checked {
    data: Ranges,
    used: Ranges,
    checksums: Ranges,
    free_space: FreeSpace,
}

fn has_free_space_tree(superblock: &Superblock) -> bool {
    superblock.compat_read_only.has(CompatReadOnlyFeatures::FREE_SPACE_TREE_VALID)
}

/// Walks a tree that must be there.
fn walk_required(context: &mut CheckState<'_>, roots: &Roots, id: RootId, visitor: &mut dyn ItemVisitor) {
    match roots.get(id) {
        Some(tree) => walk(context, &tree, visitor),
        // It is there, and what is wrong with it was found.
        None if roots.faulty.has_root(id) => {}
        None => {
            let place = Place { tree: Some(RootId::ROOT_TREE), ..Place::default() };
            context.find(FindingKind::TreeMissing { tree: id }, place);
        }
    }
}

/// Reads every tree but the chunk tree and the root tree.
fn judge_trees(context: &mut CheckState<'_>, layout: &mut Layout, roots: &Roots) -> Checked {
    let has_groups = context.judge.superblock.compat_read_only.has(CompatReadOnlyFeatures::BLOCK_GROUP_TREE);
    context.owners = quotas::simple_quotas_since(&context.judge, roots).map(Owners::new);
    context.relocates = roots.get(RootId::TREE_RELOCATION).is_some();
    // The extent tree comes first: it says which blocks refer to their children by parent.
    let mut extents = ExtentTree::new(layout, Some(ExtentPlaces::new(context)));
    walk_required(context, roots, RootId::EXTENT_TREE, &mut extents);
    extents.finish(context);
    let data_bytes = if context.options.data_checksums { extents.data_bytes } else { 0 };
    context.expected_bytes = Some(extents.block_bytes.saturating_add(data_bytes));
    let data_extents = extents.data_extents;
    let ExtentPlaces { mut data, used } =
        extents.gathered.take().unwrap_or_else(|| ExtentPlaces::new(context));
    let used = used.finish();
    if has_groups {
        walk_required(context, roots, RootId::BLOCK_GROUP_TREE, &mut GroupItems(layout));
    }
    walk_required(context, roots, RootId::DEVICE_TREE, &mut DeviceTree::new(layout));
    let mut checksums = ChecksumTree { covered: context.gathering() };
    walk_required(context, roots, RootId::CHECKSUM_TREE, &mut checksums);
    let checksums = checksums.covered.finish();
    let mut free_space = FreeSpaceTree::new(context);
    if has_free_space_tree(context.judge.superblock) {
        walk_required(context, roots, RootId::FREE_SPACE_TREE, &mut free_space);
    } else if context.judge.superblock.compat_read_only.has(CompatReadOnlyFeatures::FREE_SPACE_TREE) {
        // Linux wants it (`load_global_roots`), though it does not believe it, and makes it anew.
        walk_required(context, roots, RootId::FREE_SPACE_TREE, &mut Unasked);
    }
    let free_space = free_space.finish();
    uuids::judge(context, roots);
    let quotas = roots.get(RootId::QUOTA_TREE).map(|tree| {
        let mut quotas = QuotaTree::default();
        walk(context, &tree, &mut quotas);
        quotas.judge(context);
        quotas
    });
    for root in roots.iter() {
        let tree = root.tree();
        if root.id.is_subvolume() || root.id == RootId::DATA_RELOCATION_TREE {
            subvolume::judge(context, &tree, roots, &checksums);
        } else if !is_read_by_name(root.id) {
            walk_leaves(context, &tree, &mut Nobody);
        }
    }
    // Nobody asks for them any more.
    context.summaries = Summaries::default();
    compressed::judge(context);
    let logs = logs::read(context, roots);
    logs.judge(context, &used, roots.get(RootId::EXTENT_TREE));
    logs.judge_checksums(context, &checksums);
    logs.extents().for_each(|(start, end)| data.add(start, end));
    let data = data.finish();
    if let Some(quotas) = quotas {
        quotas.judge_usage(context, roots, data_extents);
    }
    Checked { data, used, checksums, free_space }
}

/// Trees that have a pass of their own.
fn is_read_by_name(id: RootId) -> bool {
    [
        RootId::EXTENT_TREE,
        RootId::BLOCK_GROUP_TREE,
        RootId::DEVICE_TREE,
        RootId::CHECKSUM_TREE,
        RootId::FREE_SPACE_TREE,
        RootId::UUID_TREE,
        RootId::QUOTA_TREE,
    ]
    .contains(&id)
}

/// References do not agree: reads all trees again and says which.
fn explain_references(context: &mut CheckState<'_>, layout: &mut Layout, roots: &Roots) {
    if !context.references.collect() {
        context.find(FindingKind::ReferencesNotListed {}, Place::default());
    }
    context.quietly(|context| {
        context.reached.clear();
        let fixed = [
            (
                RootId::CHUNK_TREE,
                context.judge.superblock.chunk_root,
                context.judge.superblock.chunk_root_generation,
                context.judge.superblock.chunk_root_level,
            ),
            (
                RootId::ROOT_TREE,
                context.judge.superblock.root,
                context.judge.superblock.generation,
                context.judge.superblock.root_level,
            ),
        ];
        for (id, logical, generation, level) in fixed {
            walk_leaves(context, &whole(id, logical, generation, level), &mut Nobody);
        }
        for root in roots.iter() {
            if root.id == RootId::EXTENT_TREE {
                walk(context, &root.tree(), &mut ExtentTree::new(layout, None));
            } else {
                walk_leaves(context, &root.tree(), &mut Nobody);
            }
        }
    });
    references::explain(context, roots);
}

fn whole(id: RootId, logical: Logical, generation: Generation, level: Level) -> CheckedTree {
    CheckedTree {
        id,
        logical,
        generation,
        level,
        has_references: true,
        dropped_to: None,
        last_snapshot: None,
    }
}
