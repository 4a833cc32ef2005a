//! Counters and histograms, of this process or of a mount's server.

use vlinder_base::metrics::{Sample, Unit, Value as MetricValue};
use vlinder_fs::DeviceCounter;

/// A metric's numbers, of this process or of a mount's server.
pub struct Reading {
    /// Its name, `part.what`.
    pub name: String,
    /// One sentence for people.
    pub help: String,
    /// What its numbers count.
    pub unit: Unit,
    /// The number of the device that they are about, if it is one. Readings of one name follow one another.
    pub device: Option<u64>,
    /// Its numbers.
    pub value: MetricValue,
}

impl From<Sample> for Reading {
    fn from(sample: Sample) -> Self {
        let Sample { name, help, unit, value } = sample;
        Self { name: name.to_owned(), help: help.to_owned(), unit, device: None, value }
    }
}

impl Reading {
    /// A counter of devices, one reading for each.
    pub fn of_devices(counter: DeviceCounter) -> impl Iterator<Item = Self> {
        counter.values.into_iter().map(move |(device, value)| Self {
            name: counter.name.to_owned(),
            help: counter.help.to_owned(),
            unit: Unit::Count,
            device: Some(device.0),
            value: MetricValue::Counter(value),
        })
    }
}
