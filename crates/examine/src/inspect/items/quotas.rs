//! Quota groups.

use vlinder_format::quota::{QuotaGroupInfo, QuotaGroupLimit, QuotaStatus, QuotaStatusFlags};

use super::super::text::{Context, line, put};
use super::printed::Printed;

pub fn status(text: &mut Vec<u8>, data: &[u8], context: &Context) -> Printed {
    let status = QuotaStatus::decode(data)?;
    let mut flags = if status.flags.has(QuotaStatusFlags::ON) { "ON" } else { "OFF" }.to_owned();
    for (flag, name) in [
        (QuotaStatusFlags::SIMPLE, "|SIMPLE_MODE"),
        (QuotaStatusFlags::RESCAN, "|SCANNING"),
        (QuotaStatusFlags::INCONSISTENT, "|INCONSISTENT"),
    ] {
        if status.flags.has(flag) {
            flags.push_str(name);
        }
    }
    let (version, generation, scan) = (status.version, status.generation, status.rescan_progress);
    put!(text, "\t\tversion {version} generation {generation} flags {flags} scan {scan}");
    match status.enable_generation {
        Some(generation) if context.has_simple_quotas => line!(text, " enable_gen {generation}"),
        _ => line!(text, ""),
    }
    Ok(())
}

pub fn info(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    let info = QuotaGroupInfo::decode(data)?;
    line!(text, "\t\tgeneration {}", info.generation);
    let (bytes, compressed) = (info.referenced_bytes, info.referenced_compressed_bytes);
    line!(text, "\t\treferenced {bytes} referenced_compressed {compressed}");
    let (bytes, compressed) = (info.exclusive_bytes, info.exclusive_compressed_bytes);
    line!(text, "\t\texclusive {bytes} exclusive_compressed {compressed}");
    Ok(())
}

pub fn limit(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    let limit = QuotaGroupLimit::decode(data)?;
    line!(text, "\t\tflags {:x}", limit.flags.0);
    // btrfs-progs prints these with their sign: "no limit" is -1 in old file systems.
    let signed = u64::cast_signed;
    let (referenced, exclusive) = (signed(limit.most_referenced_bytes), signed(limit.most_exclusive_bytes));
    line!(text, "\t\tmax_referenced {referenced} max_exclusive {exclusive}");
    let (referenced, exclusive) =
        (signed(limit.reserved_referenced_bytes), signed(limit.reserved_exclusive_bytes));
    line!(text, "\t\trsv_referenced {referenced} rsv_exclusive {exclusive}");
    Ok(())
}
