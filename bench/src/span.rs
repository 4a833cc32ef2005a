//! The timed part of a run, and what is counted while it lasts.
//!
//! An ordinary benchmark counts nothing here: a span is then a clock. A comparison with an earlier commit
//! reads a mount's counters before the clock starts and after it stopped, or, in runs whose time nobody looks
//! at, counts allocations.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::shell;
use crate::host::Host;
use crate::observation::Observation;

/// The name under which a traced span notes how often memory was asked for.
pub const ALLOCATIONS: &str = "allocations";
/// The name under which a span notes all requests that the kernel sent to a mount.
pub const REQUESTS: &str = "requests";
/// The name of a mount's counter of descents into trees.
pub const DESCENTS: &str = "tree.descents";

/// The functions of mimalloc through which Rust's global allocator asks for memory.
const ALLOCATORS: [&str; 6] =
    ["mi_malloc", "mi_zalloc", "mi_realloc", "mi_malloc_aligned", "mi_zalloc_aligned", "mi_realloc_aligned"];

/// The timed part of a run that goes on.
pub struct Span<'a> {
    host: &'a Host,
    mountpoint: Option<String>,
    counters: Option<BTreeMap<String, f64>>,
    tracer: Option<Tracer>,
    start: Instant,
}

impl<'a> Span<'a> {
    /// Starts the clock, after what is watched was prepared. `mountpoint` is that of a mount by vlinder, if
    /// the run has one.
    ///
    /// # Errors
    /// If the mount's counters can't be read, or allocations can't be counted.
    pub fn begin(host: &'a Host, mountpoint: Option<String>) -> Result<Self> {
        host.expect(ALLOCATIONS);
        if mountpoint.is_some() {
            host.expect(REQUESTS);
            host.expect(DESCENTS);
        }
        let counters = match (host.observation(), &mountpoint) {
            (Observation::Counters, Some(mountpoint)) => Some(counters_of(mountpoint)?),
            _ => None,
        };
        let tracer = match host.observation() {
            Observation::Allocations(paths) => Some(Tracer::begin(paths)?),
            _ => None,
        };
        Ok(Self { host, mountpoint, counters, tracer, start: Instant::now() })
    }

    /// Stops the clock, and notes what was counted since it was started.
    ///
    /// # Errors
    /// If what was counted can't be read.
    pub fn end(self) -> Result<Duration> {
        let time = self.start.elapsed();
        if let Some(tracer) = self.tracer {
            self.host.note(ALLOCATIONS, tracer.end()?);
        }
        if let (Some(before), Some(mountpoint)) = (&self.counters, &self.mountpoint) {
            let mut requests = 0.0;
            for (name, value) in counters_of(mountpoint)? {
                let added = value - before.get(&name).copied().unwrap_or_default();
                if name.starts_with("fuse.requests.") {
                    requests += added;
                }
                self.host.note(&name, added);
            }
            self.host.note(REQUESTS, requests);
        }
        Ok(time)
    }
}

/// The counters of a mount by name; of histograms, how often they were added to.
fn counters_of(mountpoint: &str) -> Result<BTreeMap<String, f64>> {
    let text = shell(&format!("vlinder --json stats {mountpoint}"))?;
    let said: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("what vlinder stats said: {text}"))?;
    counters(&said).with_context(|| format!("vlinder stats said no metrics: {text}"))
}

/// The counters in what `vlinder stats --json` says; nothing if it has no metrics.
fn counters(said: &serde_json::Value) -> Option<BTreeMap<String, f64>> {
    let mut counters = BTreeMap::new();
    for (name, metric) in said["metrics"].as_object()? {
        // The most that was ever reached is no count: it can't be told what a span added to it.
        if name.starts_with("space.most_used_permille.") {
            continue;
        }
        let value = &metric["value"];
        if let Some(number) = value.as_f64() {
            counters.insert(name.clone(), number);
        } else if let Some(count) = value["count"].as_f64() {
            counters.insert(format!("{name}, times"), count);
        } else if let Some(devices) = value.as_object() {
            counters.insert(name.clone(), devices.values().filter_map(serde_json::Value::as_f64).sum());
        }
    }
    Some(counters)
}

/// bpftrace, which counts calls by probes that it sets in files: every process that runs them is counted.
struct Tracer {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Tracer {
    fn begin(paths: &[PathBuf]) -> Result<Self> {
        let mut probes = Vec::new();
        for path in paths {
            let listed = shell(&format!("bpftrace -l 'uprobe:{}:mi_*' 2>/dev/null", path.display()))?;
            let found = listed
                .lines()
                .filter(|line| ALLOCATORS.iter().any(|name| line.ends_with(&format!(":{name}"))));
            probes.extend(found.map(str::to_owned));
        }
        if probes.is_empty() {
            bail!("no function of mimalloc in {paths:?}: were they stripped?");
        }
        let script =
            format!("BEGIN {{ printf(\"ready\\n\"); }} {} {{ @calls = count(); }}", probes.join(","));
        let mut process = Command::new("bpftrace")
            .args(["-B", "none", "-e", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting bpftrace")?;
        let mut output = BufReader::new(process.stdout.take().context("bpftrace has no output")?);
        // It prints only when it begins to wait for events, with all probes set.
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            if output.read_line(&mut line)? == 0 {
                bail!("bpftrace ended at once; what it says: bpftrace -e '{script}'");
            }
        }
        Ok(Self { process, output })
    }

    /// Ends it; how many calls there were.
    fn end(mut self) -> Result<f64> {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, rustix::process::Signal::INT)?;
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        self.process.wait()?;
        let calls = said.lines().find_map(|line| line.strip_prefix("@calls: "));
        let calls = calls.with_context(|| format!("bpftrace counted no call: {said}"))?;
        Ok(calls.trim().parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_histograms_and_devices_are_told_apart() {
        let said = serde_json::json!({ "metrics": {
            "tree.descents": { "unit": "", "value": 7 },
            "transaction.commit_time_ns": { "unit": "nanoseconds", "value": { "count": 3, "sum": 900 } },
            "device.read_errors": { "unit": "", "value": { "1": 2, "2": 5 } },
            "space.most_used_permille.names": { "unit": "", "value": 615 },
        } });
        let expected = [
            ("device.read_errors".to_owned(), 7.0),
            ("transaction.commit_time_ns, times".to_owned(), 3.0),
            ("tree.descents".to_owned(), 7.0),
        ];
        assert_eq!(counters(&said), Some(BTreeMap::from(expected)));
        assert_eq!(counters(&serde_json::json!({ "error": {} })), None);
    }
}
