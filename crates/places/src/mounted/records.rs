//! What a mount's server tells, as the types that the printers take.

use vlinder_base::metrics::{Bucket, HistogramSnapshot, Unit, Value};
use vlinder_control::protocol::{
    FileRun, Metric, MetricValue, SpaceRecord, SubvolumeRecord, Time, TrimRecord,
};
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::inode::Timestamp;
use vlinder_format::root_item::RootFlags;
use vlinder_format::{DeviceId, Generation, Logical, ObjectId, RootId, Uuid};
use vlinder_fs::data::MappedExtent;
use vlinder_fs::{InodeId, SubvolumeInformation};
use vlinder_transaction::{ChunkShare, DeviceReport, KindReport, SpaceReport, Trimmed};

use crate::metrics::Reading;

fn time(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// A UUID as the server writes it; nil for none.
fn uuid(text: Option<&str>) -> Uuid {
    text.and_then(Uuid::parse).unwrap_or_default()
}

/// A subvolume. Its name's index and when an inode last changed are not told, and nothing shows them.
pub fn subvolume(record: SubvolumeRecord) -> SubvolumeInformation {
    let parent = record.parent.zip(record.directory);
    SubvolumeInformation {
        id: RootId(record.number),
        parent: parent.map(|(root, number)| InodeId::new(RootId(root), ObjectId(number))),
        name: record.name.0,
        index: DirectoryIndex::default(),
        path: record.path.0,
        generation: Generation(record.generation),
        creation_transaction: Generation(record.creation_generation),
        change_transaction: Generation(record.change_generation),
        send_transaction: Generation(record.send_generation),
        receive_transaction: Generation(record.receive_generation),
        creation_time: time(record.creation_time),
        change_time: Timestamp::default(),
        send_time: time(record.send_time),
        receive_time: time(record.receive_time),
        uuid: uuid(Some(&record.uuid)),
        parent_uuid: uuid(record.parent_uuid.as_deref()),
        received_uuid: uuid(record.received_uuid.as_deref()),
        flags: RootFlags(record.flags),
        is_read_only: record.read_only,
        is_deleted: record.deleted,
    }
}

/// What was given back.
pub fn trimmed(record: &TrimRecord) -> Trimmed {
    Trimmed {
        group_bytes: record.group_bytes,
        unallocated_bytes: record.unallocated_bytes,
        refused_bytes: record.refused_bytes,
    }
}

/// A run of a file.
pub fn run(run: &FileRun) -> MappedExtent {
    MappedExtent {
        offset: run.offset_bytes,
        length: run.length_bytes,
        logical: run.logical_bytes.map(Logical),
        unflushed: run.delalloc,
        preallocated: run.preallocated,
        inline: run.inline,
        encoded: run.encoded,
        shared: run.shared,
        last: run.last,
    }
}

/// Space. The server tells of bytes that hold something alone.
pub fn space(record: &SpaceRecord) -> SpaceReport {
    let kinds = record.kinds.iter().map(|kind| KindReport {
        flags: BlockGroupFlags(kind.flags),
        total_bytes: kind.total_bytes,
        used_bytes: kind.used_bytes,
        pinned_bytes: 0,
        reserved_bytes: 0,
        seed_free_bytes: 0,
    });
    let devices = record.devices.iter().map(|device| DeviceReport {
        number: DeviceId(device.number),
        total_bytes: device.total_bytes,
        allocated_bytes: device.allocated_bytes,
        is_missing: device.is_missing,
    });
    SpaceReport {
        kinds: kinds.collect(),
        devices: devices.collect(),
        unallocated_bytes: record.unallocated_bytes,
        device_bytes: record.device_bytes,
        global_reserve_bytes: record.global_reserve_bytes,
        linux_reserve_bytes: record.linux_reserve_bytes,
        data_available_bytes: record.data_available_bytes,
        can_make_metadata: record.can_make_metadata,
    }
}

/// What chunks have on each device.
pub fn shares(record: &SpaceRecord) -> Vec<ChunkShare> {
    let shares = record.shares.iter().map(|share| ChunkShare {
        flags: BlockGroupFlags(share.flags),
        device: DeviceId(share.device),
        stripe_count: share.stripe_count,
        chunk_bytes: share.chunk_bytes,
    });
    shares.collect()
}

/// A counter, gauge or histogram.
pub fn reading(metric: Metric) -> Reading {
    let units = [Unit::Count, Unit::Nanoseconds, Unit::Bytes];
    let value = match metric.value {
        MetricValue::Counter { value } => Value::Counter(value),
        MetricValue::Gauge { value } => Value::Gauge(value),
        MetricValue::Histogram { count, sum, maximum, buckets } => {
            let buckets =
                buckets.into_iter().map(|(highest, count)| Bucket { lowest: highest, highest, count });
            Value::Histogram(HistogramSnapshot {
                count,
                sum,
                minimum: 0,
                maximum,
                buckets: buckets.collect(),
            })
        }
    };
    Reading {
        name: metric.name,
        help: metric.help,
        // A unit of a newer server's has no name here, and its numbers stand for themselves.
        unit: units.into_iter().find(|unit| unit.name() == metric.unit).unwrap_or(Unit::Count),
        device: metric.device,
        value,
    }
}
