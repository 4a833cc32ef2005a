//! How the inside of a crate is built: circles of files, large types, names that stand for several types.

mod circles;
mod imports;
mod modules;
mod types;

use std::path::PathBuf;

use anyhow::Result;

use self::modules::CrateFiles;
use super::baseline::Measure;
use super::source::Source;
use crate::workspace::Package;

/// All sizes of the structure of all crates.
pub fn measures(packages: &[Package], sources: &[Source]) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for package in packages {
        let head = package.directory.join("src");
        let own: Vec<&Source> = sources
            .iter()
            .filter(|source| source.path.starts_with(&head) && !source.is_test_file())
            .collect();
        let files = CrateFiles::parse(&head, &own)?;
        let name = package.directory.display().to_string();
        measures.extend(circles(&name, &files));
        measures.extend(types::measures(&name, &files));
    }
    Ok(measures)
}

fn circles(name: &str, files: &CrateFiles) -> Vec<Measure> {
    let circles = circles::find(&imports::edges(files));
    let tell = |circle: &Vec<usize>| {
        let paths: Vec<PathBuf> = circle.iter().map(|&file| files.path(file).to_owned()).collect();
        // Its first file names the circle: the name stays while the circle shrinks, as far as it can.
        let first = paths.iter().min().map(|path| path.display().to_string()).unwrap_or_default();
        Measure {
            name: format!("{name}: files in the circle of {first}"),
            size: circle.len(),
            limit: 1,
            advice: "a type sits above its users: move it down, `cargo xtask circles` names the imports",
        }
    };
    circles.iter().map(tell).collect()
}

/// The imports that tie each circle together, a line each.
pub fn describe_circles(packages: &[Package], sources: &[Source]) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for package in packages {
        let head = package.directory.join("src");
        let own: Vec<&Source> = sources
            .iter()
            .filter(|source| source.path.starts_with(&head) && !source.is_test_file())
            .collect();
        let files = CrateFiles::parse(&head, &own)?;
        let edges = imports::edges(&files);
        for circle in circles::find(&edges) {
            lines.push(format!("{}: {} files", package.directory.display(), circle.len()));
            for ((from, to), names) in &edges {
                if circle.contains(from) && circle.contains(to) {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    lines.push(format!(
                        "  {} -> {}: {}",
                        files.path(*from).display(),
                        files.path(*to).display(),
                        names.join(", ")
                    ));
                }
            }
        }
    }
    Ok(lines)
}
