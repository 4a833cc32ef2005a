//! Parameters of which no file system can be made.

use vlinder_volume::Profile;

/// What can't be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// The device is too short for its chunks.
    #[error(
        "{found} bytes are too few for data {data}, metadata {metadata}: {} are needed; {}",
        in_mebibytes(*.needed),
        advice(.smaller, *.found)
    )]
    DeviceTooSmall {
        /// Bytes of the device.
        found: u64,
        /// Bytes that are needed.
        needed: u64,
        /// Of data.
        data: Profile,
        /// Of metadata.
        metadata: Profile,
        /// Options of `mkfs` with which fewer bytes are enough, and how many, most first.
        smaller: Vec<(&'static str, u64)>,
    },
    /// Not a power of two from 4 KiB to 64 KiB.
    #[error("sector size {found} is not a power of two from 4096 to 65536")]
    SectorSize {
        /// Given.
        found: u32,
    },
    /// Not a power of two from the sector size to 64 KiB.
    #[error("node size {found} is not a power of two from the sector size {sector_size} to 65536")]
    NodeSize {
        /// Given.
        found: u32,
        /// Given.
        sector_size: u32,
    },
    /// Only single and DUP can be made.
    #[error("profile {found} needs several devices, which is not supported yet; use single or DUP")]
    Profile {
        /// Given.
        found: Profile,
    },
    /// Mixed groups have one profile.
    #[error("mixed groups need the same profile for data ({data}) and metadata ({metadata})")]
    MixedProfiles {
        /// Given.
        data: Profile,
        /// Given.
        metadata: Profile,
    },
    /// In mixed groups a tree block is as large as a sector.
    #[error("mixed groups need a node size equal to the sector size {sector_size}, not {node_size}")]
    MixedNodeSize {
        /// Given.
        node_size: u32,
        /// Given.
        sector_size: u32,
    },
    /// block-group-tree without what it needs.
    #[error("feature block-group-tree needs free-space-tree and no-holes")]
    BlockGroupTreeNeeds,
}

/// Whole MiB, and bytes where that is not exact.
fn in_mebibytes(bytes: u64) -> String {
    match (bytes >> 20, bytes % (1 << 20)) {
        (whole, 0) => format!("{whole} MiB"),
        _ => format!("{bytes} bytes"),
    }
}

/// What to do about a size that is too small: the options with which it would do, or how far it is from the
/// least.
fn advice(smaller: &[(&'static str, u64)], found: u64) -> String {
    let enough: Vec<&str> =
        smaller.iter().filter(|(_, needed)| *needed <= found).map(|(option, _)| *option).collect();
    match smaller.last() {
        _ if !enough.is_empty() => format!("give more, or {}", enough.join(" or ")),
        Some((option, needed)) => format!("give more (with {option}, {} are enough)", in_mebibytes(*needed)),
        None => "give more".to_owned(),
    }
}
