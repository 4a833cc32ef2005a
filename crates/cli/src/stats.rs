//! `stats`: counters and histograms of the mechanisms.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value, json};
use vlinder_base::metrics::{HistogramSnapshot, Unit, Value as MetricValue};
use vlinder_control::protocol::ConditionRecord;
use vlinder_places::condition;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::metrics::Reading;
use vlinder_places::object::Object;
use vlinder_places::session::Session;
use vlinder_places::target::Follow;
use vlinder_places::text::counted;

/// Show counters and histograms of the mechanisms.
///
/// Those of a mount tell what it did; those of an image that no mount holds what opening it took.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder stats --openmetrics /mnt")]
pub struct StatsArguments {
    /// Print OpenMetrics text.
    #[arg(long)]
    openmetrics: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// A path of a mount, or an image.
    target: OsString,
}

/// Runs the verb.
pub fn run(arguments: &StatsArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if arguments.openmetrics && session.json {
        return Err(Failure::usage("--json and --openmetrics exclude each other"));
    }
    let images = Images::new(&arguments.images)?;
    let (mut samples, condition) =
        Object::find(&images, &arguments.target, Purpose::Read, Follow::Yes)?.statistics()?;
    images.close()?;
    samples.extend(of_condition(&condition));
    if session.json {
        let condition = condition::object(&condition);
        session.object(json!({ "condition": condition, "metrics": object(&samples) }))?;
    } else if arguments.openmetrics {
        session.bytes(open_metrics(&samples).as_bytes())?;
    } else {
        for line in condition::lines(&condition).into_iter().chain(samples.iter().map(text)) {
            session.line(line)?;
        }
    }
    Ok(ExitStatus::Done)
}

/// What of the condition is a number, for who watches numbers alone.
fn of_condition(condition: &ConditionRecord) -> impl Iterator<Item = Reading> {
    let flag = |is_so: bool| i64::from(is_so);
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let fails = condition.failed_commit.as_ref().is_some_and(|failed| !failed.is_over);
    let all: [(&str, &str, Unit, i64); 5] = [
        (
            "condition.read_only",
            "1 where the file system takes no changes",
            Unit::Count,
            flag(condition.read_only.is_some()),
        ),
        (
            "condition.host_full",
            "1 where the host has no space for the image",
            Unit::Count,
            flag(condition.is_host_full),
        ),
        ("condition.commits_fail", "1 where the last commit failed", Unit::Count, flag(fails)),
        (
            "condition.held_bytes",
            "bytes in memory that found no room",
            Unit::Bytes,
            bytes(condition.held_bytes),
        ),
        (
            "condition.lost_bytes",
            "bytes from the kernel's cache that could not be kept",
            Unit::Bytes,
            bytes(condition.lost_bytes),
        ),
    ];
    all.into_iter().map(|(name, help, unit, value)| Reading {
        name: name.to_owned(),
        help: help.to_owned(),
        unit,
        device: None,
        value: MetricValue::Gauge(value),
    })
}

/// A duration in the unit that leaves one to three digits before the point.
fn duration(nanoseconds: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    match units.into_iter().find(|(unit, _)| nanoseconds >= *unit) {
        Some((unit, name)) => format!("{}.{:02} {name}", nanoseconds / unit, nanoseconds % unit * 100 / unit),
        None => format!("{nanoseconds} ns"),
    }
}

fn text(sample: &Reading) -> String {
    let with_unit = |value: u64| match sample.unit {
        Unit::Nanoseconds => duration(value),
        Unit::Bytes => counted(value, "byte", "bytes"),
        Unit::Count => value.to_string(),
    };
    let name = match sample.device {
        Some(device) => format!("{} (device {device})", sample.name),
        None => sample.name.clone(),
    };
    match &sample.value {
        MetricValue::Counter(value) => format!("{name}: {}", with_unit(*value)),
        MetricValue::Gauge(value) => {
            let sign = if *value < 0 { "-" } else { "" };
            format!("{name}: {sign}{}", with_unit(value.unsigned_abs()))
        }
        MetricValue::Histogram(histogram) if histogram.count == 0 => format!("{name}: never"),
        MetricValue::Histogram(histogram) => {
            let times = counted(histogram.count, "time", "times");
            let quantile = |part| with_unit(histogram.quantile(part));
            format!("{name}: {times}, median {}, 99 % within {}", quantile(0.5), quantile(0.99))
        }
    }
}

/// An object for each name. Where it counts by device, its value is an object too, with the numbers of the
/// devices.
fn object(samples: &[Reading]) -> Value {
    let mut metrics = Map::new();
    for sample in samples {
        let value = match &sample.value {
            MetricValue::Counter(value) => json!(value),
            MetricValue::Gauge(value) => json!(value),
            MetricValue::Histogram(histogram) => histogram_object(histogram),
        };
        let metric = metrics
            .entry(sample.name.clone())
            .or_insert_with(|| json!({ "unit": sample.unit.name(), "value": {} }));
        match sample.device {
            None => metric["value"] = value,
            Some(device) => metric["value"][device.to_string()] = value,
        }
    }
    Value::Object(metrics)
}

fn histogram_object(histogram: &HistogramSnapshot) -> Value {
    json!({
        "count": histogram.count,
        "sum": histogram.sum,
        "median": histogram.quantile(0.5),
        "quantile_99": histogram.quantile(0.99),
        "maximum": histogram.maximum,
    })
}

/// The text format of OpenMetrics 1.0: names with underscores under `vlinder_`, the unit as suffix.
fn open_metrics(samples: &[Reading]) -> String {
    let mut text = String::new();
    let mut described = "";
    for sample in samples {
        let plain = sample.name.replace(['.', '-'], "_");
        let mut name = format!("vlinder_{}", plain.strip_suffix("_ns").unwrap_or(&plain));
        let unit = sample.unit.name();
        if !unit.is_empty() && !name.ends_with(&format!("_{unit}")) {
            name = format!("{name}_{unit}");
        }
        let kind = match &sample.value {
            MetricValue::Counter(_) => "counter",
            MetricValue::Gauge(_) => "gauge",
            MetricValue::Histogram(_) => "summary",
        };
        if described != sample.name {
            described = &sample.name;
            text.push_str(&format!("# TYPE {name} {kind}\n"));
            if !unit.is_empty() {
                text.push_str(&format!("# UNIT {name} {unit}\n"));
            }
            let help = sample.help.replace('\\', "\\\\").replace('\n', "\\n");
            text.push_str(&format!("# HELP {name} {help}\n"));
        }
        let label = sample.device.map(|device| format!("{{device=\"{device}\"}}")).unwrap_or_default();
        match &sample.value {
            MetricValue::Counter(value) => text.push_str(&format!("{name}_total{label} {value}\n")),
            MetricValue::Gauge(value) => text.push_str(&format!("{name}{label} {value}\n")),
            MetricValue::Histogram(histogram) => {
                for quantile in [0.5, 0.9, 0.99, 0.999] {
                    let value = histogram.quantile(quantile);
                    text.push_str(&format!("{name}{{quantile=\"{quantile}\"}} {value}\n"));
                }
                text.push_str(&format!("{name}_count {}\n{name}_sum {}\n", histogram.count, histogram.sum));
            }
        }
    }
    text.push_str("# EOF\n");
    text
}

#[cfg(test)]
mod tests {
    use vlinder_format::DeviceId;
    use vlinder_fs::DeviceCounter;

    use super::*;

    #[test]
    fn what_devices_count_is_told_by_device() {
        let values = vec![(DeviceId(1), 5), (DeviceId(2), 0)];
        let counter = DeviceCounter { name: "device.healed", help: "Healed.", values };
        let samples: Vec<Reading> = Reading::of_devices(counter).collect();
        let expected = "# TYPE vlinder_device_healed counter\n# HELP vlinder_device_healed Healed.\n\
                        vlinder_device_healed_total{device=\"1\"} 5\nvlinder_device_healed_total{device=\"2\"} 0\n# EOF\n";
        assert_eq!(open_metrics(&samples), expected);
        assert_eq!(object(&samples), json!({ "device.healed": { "unit": "", "value": { "1": 5, "2": 0 } } }));
        let lines: Vec<String> = samples.iter().map(text).collect();
        assert_eq!(lines, ["device.healed (device 1): 5", "device.healed (device 2): 0"]);
    }

    #[test]
    fn durations_are_shown_in_a_unit_that_fits() {
        let shown = [0, 999, 1_000, 7_602_175, 1_999_999_999, 3_600_000_000_000].map(duration);
        assert_eq!(shown, ["0 ns", "999 ns", "1.00 µs", "7.60 ms", "1.99 s", "3600.00 s"]);
    }

    #[test]
    fn open_metrics_names_its_units_and_ends() {
        let samples = [
            Reading {
                name: "tree.descents".to_owned(),
                help: "Searches.".to_owned(),
                unit: Unit::Count,
                device: None,
                value: MetricValue::Counter(3),
            },
            Reading {
                name: "cache.bytes".to_owned(),
                help: "Memory.".to_owned(),
                unit: Unit::Bytes,
                device: None,
                value: MetricValue::Gauge(-1),
            },
        ];
        let expected = "# TYPE vlinder_tree_descents counter\n# HELP vlinder_tree_descents Searches.\n\
                        vlinder_tree_descents_total 3\n# TYPE vlinder_cache_bytes gauge\n# UNIT vlinder_cache_bytes bytes\n\
                        # HELP vlinder_cache_bytes Memory.\nvlinder_cache_bytes -1\n# EOF\n";
        assert_eq!(open_metrics(&samples), expected);
    }
}
