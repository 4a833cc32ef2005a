//! Chunks, devices, and what is kept of them across mounts.

use vlinder_format::balance::{BalanceFilter, BalanceItem};
use vlinder_format::chunk::{BlockGroupFlags, Chunk};
use vlinder_format::device::{DeviceExtent, DeviceItem};
use vlinder_format::device_replace::DeviceReplace;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::{Key, ObjectId, raid_stripe};
use vlinder_places::times::local_time;

use super::super::keys::object;
use super::super::text::{Context, line, uuid};
use super::printed::Printed;

/// What a group holds and how it is replicated, as btrfs-progs writes it: `METADATA|DUP`, `DATA|single`.
pub fn group_flags(flags: BlockGroupFlags) -> String {
    flags.to_string()
}

/// The lines of a chunk.
pub fn chunk(text: &mut Vec<u8>, chunk: &Chunk) {
    let (length, owner, stripe_length) = (chunk.length, chunk.owner, chunk.stripe_length);
    line!(
        text,
        "\t\tlength {length} owner {owner} stripe_len {stripe_length} type {}",
        group_flags(chunk.flags)
    );
    let (align, width, sector) = (chunk.io_align, chunk.io_width, chunk.sector_size);
    line!(text, "\t\tio_align {align} io_width {width} sector_size {sector}");
    line!(text, "\t\tnum_stripes {} sub_stripes {}", chunk.stripe_count(), chunk.sub_stripes);
    for (number, stripe) in chunk.stripes.iter().enumerate() {
        line!(text, "\t\t\tstripe {number} devid {} offset {}", stripe.device, stripe.physical);
        line!(text, "\t\t\tdev_uuid {}", stripe.device_uuid);
    }
}

pub fn device(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    let device = DeviceItem::decode(data)?;
    let (number, total, used) = (device.device, device.total_bytes, device.bytes_used);
    line!(text, "\t\tdevid {number} total_bytes {total} bytes_used {used}");
    line!(
        text,
        "\t\tio_align {} io_width {} sector_size {} type {}",
        device.io_align,
        device.io_width,
        device.sector_size,
        device.device_type
    );
    let (generation, start, group) = (device.generation, device.start_offset, device.device_group);
    line!(text, "\t\tgeneration {generation} start_offset {start} dev_group {group}");
    line!(text, "\t\tseek_speed {} bandwidth {}", device.seek_speed, device.bandwidth);
    uuid(text, "uuid", device.uuid);
    uuid(text, "fsid", device.fsid);
    Ok(())
}

pub fn extent(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    let extent = DeviceExtent::decode(data)?;
    line!(text, "\t\tdev extent chunk_tree {}", extent.chunk_tree);
    let (object, offset, length) = (extent.chunk_object, extent.chunk_offset, extent.length);
    line!(text, "\t\tchunk_objectid {object} chunk_offset {offset} length {length}");
    uuid(text, "chunk_tree_uuid", extent.chunk_tree_uuid);
    Ok(())
}

pub fn raid_stripe(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    for (number, stride) in raid_stripe::decode(data)?.iter().enumerate() {
        line!(text, "\t\t\tstripe {number} devid {} physical {}", stride.device, stride.physical);
    }
    Ok(())
}

pub fn persistent(text: &mut Vec<u8>, key: &Key, data: &[u8]) -> Printed {
    line!(text, "\t\tpersistent item objectid {} offset {}", object(key.objectid, key.item_type), key.offset);
    if key.objectid != ObjectId::DEVICE_STATS {
        line!(text, "\t\tunknown persistent item objectid {}", key.objectid);
        return Ok(());
    }
    let (errors, rest) = DeviceStatistics::decode(data)?;
    line!(text, "\t\tdevice stats");
    line!(
        text,
        "\t\twrite_errs {} read_errs {} flush_errs {} corruption_errs {} generation {}",
        errors.write_errors,
        errors.read_errors,
        errors.flush_errors,
        errors.corruption_errors,
        errors.generation_errors
    );
    if !rest.is_empty() {
        line!(text, "\t\tunknown stats item bytes {}", rest.len());
    }
    Ok(())
}

pub fn temporary(text: &mut Vec<u8>, key: &Key, data: &[u8]) -> Printed {
    line!(text, "\t\ttemporary item objectid {} offset {}", object(key.objectid, key.item_type), key.offset);
    if key.objectid != ObjectId::BALANCE {
        line!(text, "\t\tunknown temporary item objectid {}", key.objectid);
        return Ok(());
    }
    let balance = BalanceItem::decode(data)?;
    line!(text, "\t\tbalance status flags {}", balance.flags.0);
    for (name, filter) in
        [("DATA", &balance.data), ("METADATA", &balance.metadata), ("SYSTEM", &balance.system)]
    {
        line!(text, "\t\t{name}");
        balance_filter(text, filter);
    }
    Ok(())
}

fn balance_filter(text: &mut Vec<u8>, filter: &BalanceFilter) {
    let (profiles, device, target, flags) =
        (filter.profiles.0, filter.device, filter.target.0, filter.flags.0);
    line!(text, "\t\tprofiles {profiles} devid {device} target {target} flags {flags}");
    line!(
        text,
        "\t\tusage_min {} usage_max {} pstart {} pend {}",
        filter.least_usage,
        filter.most_usage,
        filter.device_start,
        filter.device_end
    );
    line!(
        text,
        "\t\tvstart {} vend {} limit_min {} limit_max {}",
        filter.logical_start,
        filter.logical_end,
        filter.least_chunks,
        filter.most_chunks
    );
    line!(text, "\t\tstripes_min {} stripes_max {}", filter.least_stripes, filter.most_stripes);
}

pub fn replace(text: &mut Vec<u8>, data: &[u8], context: &Context) -> Printed {
    let replace = DeviceReplace::decode(data)?;
    let mode = match replace.read_mode {
        0 => "ALWAYS".to_owned(),
        1 => "AVOID".to_owned(),
        other => format!("unknown({other})"),
    };
    let state = match replace.state {
        0 => "NEVER_STARTED".to_owned(),
        1 => "STARTED".to_owned(),
        2 => "FINISHED".to_owned(),
        3 => "CANCELED".to_owned(),
        4 => "SUSPENDED".to_owned(),
        other => format!("unknown({other})"),
    };
    // btrfs-progs prints the number with its sign.
    let source = replace.source.0.cast_signed();
    let (left, right) = (replace.cursor_left, replace.cursor_right);
    line!(text, "\t\tsrc devid {source} cursor left {left} cursor right {right} mode {mode}");
    let (writes, reads) = (replace.write_errors, replace.uncorrectable_read_errors);
    line!(text, "\t\tstate {state} write errors {writes} uncorrectable read errors {reads}");
    let time = |seconds: u64| format!("{seconds} ({})", local_time(seconds.cast_signed(), &context.zone));
    line!(text, "\t\tstart time {}", time(replace.time_started));
    line!(text, "\t\tstop time {}", time(replace.time_stopped));
    Ok(())
}
