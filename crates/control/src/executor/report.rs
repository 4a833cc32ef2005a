//! What is told about a mount: who serves it, space, statistics.

use vlinder_base::metrics::Value;
use vlinder_fs::data::{MappedExtent, OpenCache};
use vlinder_fs::{Access, ByteRange};

use super::served_mount::ServedMount;
use crate::ErrorBody;
use crate::peer::Peer;
use crate::protocol::{
    Answer, FileRun, Metric, MetricValue, MountInformation, Name, SpaceDevice, SpaceKind, SpaceRecord,
    SpaceShare,
};

/// Runs of a file told at a time.
const RUNS: usize = 512;

fn run(extent: &MappedExtent) -> FileRun {
    FileRun {
        offset_bytes: extent.offset,
        length_bytes: extent.length,
        logical_bytes: extent.logical.map(|logical| logical.0),
        delalloc: extent.unflushed,
        preallocated: extent.preallocated,
        inline: extent.inline,
        encoded: extent.encoded,
        shared: extent.shared,
        last: extent.last,
    }
}

/// As FS_IOC_FIEMAP, which needs a file that is open.
pub(super) fn file_map(
    mount: &ServedMount,
    peer: &Peer,
    path: &Name,
    from: u64,
) -> Result<Answer, ErrorBody> {
    let caller = mount.caller(peer, 0);
    let inode = mount.resolve(&caller, path)?;
    let at = |error: vlinder_fs::FsError| ErrorBody::from_fs(&error).at(path.to_string());
    mount.filesystem.rights().access(&caller, &inode, Access::READ).map_err(at)?;
    if from == 0 {
        mount.write_back()?;
    }
    let range = ByteRange::new(from, u64::MAX).unwrap_or_default();
    let found = mount.filesystem.files().extent_map(&inode, &OpenCache::new(), range, RUNS).map_err(at)?;
    Ok(Answer::FileMap {
        size_bytes: inode.size(),
        block_bytes: u64::from(mount.filesystem.sector_size()),
        runs: found.iter().map(run).collect(),
    })
}

pub(super) fn information(mount: &ServedMount) -> MountInformation {
    let engine = mount.filesystem.engine();
    MountInformation {
        process: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        devices: mount.facts.devices.iter().map(|path| Name::of_path(path)).collect(),
        mountpoint: Name::of_path(&mount.facts.mountpoint),
        root: mount.filesystem.root_id().root.0,
        read_only: engine.read_only_reason().map(|reason| reason.to_string()),
        uuid: engine.superblock().fsid.to_string(),
        options: mount.facts.options.clone(),
    }
}

pub(super) fn space(mount: &ServedMount) -> Result<Answer, ErrorBody> {
    let report = mount.filesystem.engine().space().map_err(vlinder_fs::FsError::from)?;
    let kinds = report.kinds.iter().map(|kind| SpaceKind {
        flags: kind.flags.0,
        total_bytes: kind.total_bytes,
        used_bytes: kind.occupied_bytes(),
    });
    let devices = report.devices.iter().map(|device| SpaceDevice {
        number: device.number.0,
        path: mount.path_of(device.number),
        total_bytes: device.total_bytes,
        allocated_bytes: device.allocated_bytes,
        is_missing: device.is_missing,
    });
    let shares = mount.filesystem.engine().chunk_shares().map_err(vlinder_fs::FsError::from)?;
    let shares = shares.into_iter().map(|share| SpaceShare {
        flags: share.flags.0,
        device: share.device.0,
        stripe_count: share.stripe_count,
        chunk_bytes: share.chunk_bytes,
    });
    Ok(Answer::Space(SpaceRecord {
        kinds: kinds.collect(),
        unallocated_bytes: report.unallocated_bytes,
        device_bytes: report.device_bytes,
        global_reserve_bytes: report.global_reserve_bytes,
        linux_reserve_bytes: report.linux_reserve_bytes,
        can_make_metadata: report.can_make_metadata,
        data_available_bytes: report.data_available_bytes,
        devices: devices.collect(),
        shares: shares.collect(),
        condition: mount.condition(),
    }))
}

pub(super) fn metrics(mount: &ServedMount) -> Vec<Metric> {
    let samples = mount.filesystem.options().registry.snapshot();
    let metrics = samples.into_iter().map(|sample| Metric {
        name: sample.name.to_owned(),
        help: sample.help.to_owned(),
        unit: sample.unit.name().to_owned(),
        device: None,
        value: match sample.value {
            Value::Counter(value) => MetricValue::Counter { value },
            Value::Gauge(value) => MetricValue::Gauge { value },
            Value::Histogram(histogram) => MetricValue::Histogram {
                count: histogram.count,
                sum: histogram.sum,
                maximum: histogram.maximum,
                buckets: histogram.buckets.iter().map(|bucket| (bucket.highest, bucket.count)).collect(),
            },
        },
    });
    let of_devices = mount.filesystem.device_counters().into_iter().flat_map(|counter| {
        counter.values.into_iter().map(move |(device, value)| Metric {
            name: counter.name.to_owned(),
            help: counter.help.to_owned(),
            unit: String::new(),
            device: Some(device.0),
            value: MetricValue::Counter { value },
        })
    });
    metrics.chain(of_devices).collect()
}
