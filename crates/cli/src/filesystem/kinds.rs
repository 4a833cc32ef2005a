//! The kinds of space: content and profile, in the orders and words of btrfs-progs.

use serde_json::{Value, json};
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_transaction::{KindReport, SpaceReport};

/// `Data`, `Metadata`, `System`, `Data+Metadata`.
pub(super) fn content(flags: BlockGroupFlags) -> &'static str {
    let mixed = BlockGroupFlags::DATA.with(BlockGroupFlags::METADATA);
    match flags.content() {
        content if content.has(mixed) => "Data+Metadata",
        BlockGroupFlags::DATA => "Data",
        BlockGroupFlags::METADATA => "Metadata",
        BlockGroupFlags::SYSTEM => "System",
        _ => "unknown",
    }
}

/// `single`, `DUP`, `RAID1` ….
pub(super) fn profile(flags: BlockGroupFlags) -> String {
    match flags.profile() {
        BlockGroupFlags(0) => "single".to_owned(),
        profile => profile.to_string(),
    }
}

pub(super) fn kind_object(kind: &KindReport) -> Value {
    json!({
        "content": content(kind.flags),
        "profile": profile(kind.flags),
        "total_bytes": kind.total_bytes,
        "used_bytes": kind.occupied_bytes(),
    })
}

/// By content as Linux lists them: data, system, metadata.
pub(super) fn sorted(report: &SpaceReport) -> Vec<&KindReport> {
    let mut kinds: Vec<&KindReport> = report.kinds.iter().collect();
    kinds.sort_by_key(|kind| (kind.flags.content().0, kind.flags.profile().0));
    kinds
}

/// By content as `filesystem usage` lists them: data, metadata, system.
pub(super) fn by_content(report: &SpaceReport) -> Vec<&KindReport> {
    let mut kinds = sorted(report);
    kinds.sort_by_key(|kind| (kind.flags.has(BlockGroupFlags::SYSTEM), kind.flags.content().0));
    kinds
}
