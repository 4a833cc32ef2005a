//! docs/metrics.md lists every counter, gauge, histogram, probe and switch; here it is compared with the
//! code: metrics and switches by whole rows, probes by name. (The requests of the kernel are compared by
//! `fuse`.)

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{image, open};
use vlinder_fs::{OpenOptions, SWITCHES};
use vlinder_testkit::{Scratch, metrics_page, require};

/// The names in the first column of the tables under a heading.
fn listed(heading: &str) -> BTreeSet<String> {
    let name = |row: &String| row.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    metrics_page::rows(heading).iter().filter_map(name).collect()
}

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn every_metric_is_on_the_page_as_the_code_describes_it() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("metrics");
    let filesystem = open(&image(&scratch, 256, &[]));
    let samples = filesystem.engine().registry().snapshot();
    let counted: Vec<String> = samples.iter().map(metrics_page::row_of).collect();
    assert_eq!(metrics_page::rows("Counters"), counted);
    let of_devices = filesystem.device_counters();
    let of_devices: Vec<String> =
        of_devices.iter().map(|it| format!("| `{}` | counter | – | {} |", it.name, it.help)).collect();
    assert_eq!(metrics_page::rows("Each device"), of_devices);
}

#[test]
fn every_switch_is_on_the_page_as_the_code_describes_it() {
    let row = |(name, help): &(&str, &str)| format!("| `{name}` | {help} |");
    assert_eq!(metrics_page::rows("Switches"), SWITCHES.iter().map(row).collect::<Vec<_>>());
    for (name, _) in SWITCHES {
        assert!(OpenOptions::parse(&format!("disable={name}")).is_ok(), "{name}");
    }
}

#[test]
fn every_probe_is_on_the_page_and_no_other() {
    let mut files = Vec::new();
    for crate_directory in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        let directory = crate_directory.unwrap().path();
        if directory.file_name().is_some_and(|name| name != "base") {
            sources(&directory.join("src"), &mut files);
        }
    }
    let mut fired = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (at, opening) in text.match_indices("probe!(") {
            let name: String = text[at + opening.len()..]
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            fired.insert(name);
        }
    }
    assert_eq!(listed("Probes"), fired);
}
