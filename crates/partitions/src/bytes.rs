//! Little-endian numbers, small reads, and sizes as people read them.

use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceError, DeviceExt};

/// `N` bytes at an offset of a buffer; zeros where it is too short, which no caller lets happen.
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let found = offset.checked_add(N).and_then(|end| bytes.get(offset..end));
    found.and_then(|found| found.try_into().ok()).unwrap_or([0; N])
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array(bytes, offset))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(bytes, offset))
}

/// The bytes of a range; none where the device ends before it does.
pub(crate) fn read(
    device: &dyn Device,
    offset: u64,
    length_bytes: u64,
) -> Result<Option<Vec<u8>>, DeviceError> {
    let end = offset.checked_add(length_bytes);
    let Ok(length) = usize::try_from(length_bytes) else { return Ok(None) };
    match end {
        Some(end) if end <= device.length() => device.read_at(Physical(offset), length).map(Some),
        _ => Ok(None),
    }
}

/// A size in the largest unit of which it has at least one, with one digit behind the point where that is not
/// 0: `64 MiB`, `1.5 GiB`.
pub(crate) fn shown(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut tenths = u128::from(bytes).saturating_mul(10);
    let mut units = UNITS.iter();
    let mut unit = units.next();
    for next in units {
        if tenths < 10_240 {
            break;
        }
        (tenths, unit) = (tenths >> 10, Some(next));
    }
    let (whole, tenth) = (tenths.div_euclid(10), tenths.rem_euclid(10));
    let unit = unit.copied().unwrap_or_default();
    if tenth == 0 { format!("{whole} {unit}") } else { format!("{whole}.{tenth} {unit}") }
}
