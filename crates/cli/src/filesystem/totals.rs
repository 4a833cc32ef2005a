//! The sums of `filesystem usage`, as btrfs-progs has them (`print_filesystem_usage_overall`,
//! cmds/filesystem-usage.c).

use vlinder_format::chunk::BlockGroupFlags;
use vlinder_places::fullness::Fullness;
use vlinder_transaction::{ChunkShare, KindReport};

/// Where less than this is unallocated, btrfs-progs takes none of it for free.
const MIN_UNALLOCATED_BYTES: u64 = 16 << 20;

/// Sums over all kinds, in bytes of devices unless something else is said.
pub(super) struct Totals {
    /// Of all devices, missing ones included.
    pub(super) device_bytes: u64,
    pub(super) allocated: u64,
    /// The first mebibyte, which no chunk may take, counts here as on Linux.
    pub(super) unallocated: u64,
    pub(super) missing: u64,
    pub(super) slack: u64,
    pub(super) used: u64,
    /// Of data, as df(1) sees it: free in data chunks, and what is not allocated yet.
    pub(super) free: u64,
    /// The same if all that is not allocated became the most redundant profile there is.
    pub(super) least_free: u64,
    pub(super) data_ratio: f64,
    pub(super) metadata_ratio: f64,
}

/// Bytes of devices that the chunks of one content take, and those of them that hold something.
#[derive(Clone, Copy, Default)]
struct Raw {
    chunks: u64,
    used: u64,
}

impl Totals {
    pub(super) fn of(fullness: &Fullness) -> Self {
        let kinds = &fullness.report.kinds;
        let is_mixed = |kind: &KindReport| kind.flags.has(DATA.with(METADATA));
        let has_mixed = kinds.iter().any(is_mixed);
        let [data, metadata, system] =
            [DATA, METADATA, BlockGroupFlags::SYSTEM].map(|content| raw(fullness, content));
        let sum = |amount: &dyn Fn(&Raw) -> u64| {
            let metadata = if has_mixed { 0 } else { amount(&metadata) };
            amount(&data).saturating_add(amount(&system)).saturating_add(metadata)
        };
        let logical = |content: BlockGroupFlags| {
            let of = kinds.iter().filter(|kind| kind.flags.has(content)).map(|kind| kind.total_bytes);
            of.fold(0, u64::saturating_add)
        };
        let data_ratio = ratio(data.chunks, logical(DATA));
        let metadata_ratio = if has_mixed { data_ratio } else { ratio(metadata.chunks, logical(METADATA)) };
        let devices = |amount: &dyn Fn(&vlinder_places::fullness::ShownDevice) -> u64| {
            fullness.devices.iter().map(amount).fold(0, u64::saturating_add)
        };
        let device_bytes = devices(&|device| device.report.total_bytes);
        let allocated = sum(&|raw| raw.chunks);
        let unallocated = device_bytes.saturating_sub(allocated);
        let mut free = divided(data.chunks.saturating_sub(data.used), data_ratio);
        if has_mixed {
            free = free.saturating_sub(fullness.report.linux_reserve_bytes);
        }
        let room = if unallocated < MIN_UNALLOCATED_BYTES { 0 } else { unallocated };
        Self {
            device_bytes,
            allocated,
            unallocated,
            missing: devices(&|device| if device.report.is_missing { device.report.total_bytes } else { 0 }),
            slack: devices(&|device| device.slack_bytes),
            used: sum(&|raw| raw.used),
            free: free.saturating_add(divided(room, data_ratio)),
            least_free: free.saturating_add(divided(room, largest_ratio(fullness))),
            data_ratio,
            metadata_ratio,
        }
    }
}

const DATA: BlockGroupFlags = BlockGroupFlags::DATA;
const METADATA: BlockGroupFlags = BlockGroupFlags::METADATA;

/// Sizes far below 2^53, where a number of bytes has a fraction.
#[allow(clippy::cast_precision_loss, reason = "as btrfs-progs reckons")]
const fn real(bytes: u64) -> f64 {
    bytes as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as btrfs-progs rounds; it is never below 0"
)]
const fn whole(bytes: f64) -> u64 {
    bytes as u64
}

fn ratio(devices: u64, logical: u64) -> f64 {
    if logical == 0 { 1.0 } else { real(devices) / real(logical) }
}

fn divided(bytes: u64, ratio: f64) -> u64 {
    if ratio > 0.0 { whole(real(bytes) / ratio) } else { 0 }
}

/// What the chunks of one content have. Of a profile with parity, how much of the devices a byte takes goes
/// by the number of stripes of its chunk, and how full each chunk is is not known: all are taken for equally
/// full.
fn raw(fullness: &Fullness, content: BlockGroupFlags) -> Raw {
    let mut raw = Raw::default();
    for share in fullness.shares.iter().filter(|share| has_parity(share.flags) && share.flags.has(content)) {
        let bytes = share.device_bytes();
        let of_profile = |amount: &dyn Fn(&KindReport) -> u64| {
            let kinds = fullness.report.kinds.iter().filter(|kind| kind.flags.has(content));
            let kinds = kinds.filter(|kind| kind.flags.profile() == share.flags.profile());
            kinds.map(amount).fold(0, u64::saturating_add)
        };
        let used = ratio(of_profile(&KindReport::occupied_bytes), of_profile(&|kind| kind.total_bytes));
        raw.chunks = raw.chunks.saturating_add(bytes);
        raw.used = whole(real(raw.used) + real(bytes) * used);
    }
    let kinds =
        fullness.report.kinds.iter().filter(|kind| kind.flags.has(content) && !has_parity(kind.flags));
    for kind in kinds {
        let copies = kind.flags.copies();
        raw.chunks = raw.chunks.saturating_add(kind.total_bytes.saturating_mul(copies));
        raw.used = raw.used.saturating_add(kind.occupied_bytes().saturating_mul(copies));
    }
    raw
}

fn has_parity(flags: BlockGroupFlags) -> bool {
    flags.parities() > 0
}

/// Bytes of devices for a byte of the most redundant chunks that there are.
fn largest_ratio(fullness: &Fullness) -> f64 {
    let with_parity = fullness.shares.iter().filter(|share| has_parity(share.flags));
    let with_parity =
        with_parity.map(|share: &ChunkShare| real(share.stripe_count.into()) / real(share.data_stripes()));
    let others = fullness.report.kinds.iter().filter(|kind| !has_parity(kind.flags));
    let others = others.map(|kind| real(kind.flags.copies()));
    with_parity.chain(others).fold(1.0, f64::max)
}
