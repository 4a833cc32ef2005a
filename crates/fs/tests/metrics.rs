//! docs/metrics.md lists every counter, gauge, histogram, probe and switch; here it is compared with the code.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use support::{image, open};
use vlinder_testkit::{Scratch, require};

fn page() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md")).unwrap()
}

/// The names in the first column of the tables under a heading.
fn listed(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let rows =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned));
    rows.collect()
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
fn every_metric_is_on_the_page_and_every_one_on_the_page_is_there() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("metrics");
    let filesystem = open(&image(&scratch, 256, &[]));
    let counted: BTreeSet<String> =
        filesystem.engine().registry().snapshot().into_iter().map(|sample| sample.name.to_owned()).collect();
    assert_eq!(listed(&page(), "Counters"), counted);
    let of_devices =
        filesystem.device_counters().into_iter().map(|counter| counter.name.to_owned()).collect();
    assert_eq!(listed(&page(), "Each device"), of_devices);
}

#[test]
fn every_probe_is_on_the_page_and_every_one_on_the_page_is_there() {
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
    assert_eq!(listed(&page(), "Probes"), fired);
}
