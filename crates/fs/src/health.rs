//! What went wrong with each device, and what was healed.

use vlinder_format::DeviceId;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_transaction::Engine;
use vlinder_volume::Healing;

/// One counter, of all devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCounter {
    /// Its name, as `part.what`.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// Its value for each device that is there.
    pub values: Vec<(DeviceId, u64)>,
}

/// A counter's name, its help, and where its value is.
type Definition = (&'static str, &'static str, fn(&DeviceStatistics, &Healing) -> u64);

const COUNTERS: [Definition; 8] = [
    ("device.write_errors", "writes that failed, now and in earlier openings", |errors, _| {
        errors.write_errors
    }),
    ("device.read_errors", "reads that failed, now and in earlier openings", |errors, _| errors.read_errors),
    ("device.flush_errors", "flushes that failed, now and in earlier openings", |errors, _| {
        errors.flush_errors
    }),
    (
        "device.corruption_errors",
        "blocks and sectors whose bytes were wrong, now and in earlier openings",
        |errors, _| errors.corruption_errors,
    ),
    (
        "device.generation_errors",
        "blocks of another generation than expected, now and in earlier openings",
        |errors, _| errors.generation_errors,
    ),
    ("device.healed", "bad copies on the device of which a good one was found elsewhere", |_, healing| {
        healing.healed
    }),
    ("device.rewritten", "bad copies on the device that were rewritten from a good one", |_, healing| {
        healing.rewritten
    }),
    ("device.stood_in", "reads in which bytes of the device stood in for a bad copy", |_, healing| {
        healing.stood_in
    }),
];

/// The error counters of the devices, which are stored as Linux stores them (DEV_STATS), and what was
/// healed on them and by them since the file system was opened.
pub(crate) fn device_counters(engine: &Engine) -> Vec<DeviceCounter> {
    let volume = engine.volume();
    let members = volume.members();
    let members: Vec<_> =
        members.iter().map(|member| (member.id, member.statistics(), member.healing())).collect();
    let values = |value: fn(&DeviceStatistics, &Healing) -> u64| {
        members.iter().map(|(device, errors, healing)| (*device, value(errors, healing))).collect()
    };
    COUNTERS.iter().map(|&(name, help, value)| DeviceCounter { name, help, values: values(value) }).collect()
}
