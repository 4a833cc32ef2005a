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

/// A crate with its files.
struct Parsed {
    name: String,
    files: CrateFiles,
}

/// All sizes of the structure of all crates.
pub fn measures(packages: &[Package], sources: &[Source]) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for Parsed { name, files } in parse(packages, sources)? {
        measures.extend(circles(&name, &files));
        measures.extend(types::measures(&name, &files));
    }
    Ok(measures)
}

/// Structs with many fields, a line each.
pub fn wide_types(packages: &[Package], sources: &[Source]) -> Result<Vec<String>> {
    Ok(parse(packages, sources)?.iter().flat_map(|Parsed { name, files }| types::wide(name, files)).collect())
}

fn parse(packages: &[Package], sources: &[Source]) -> Result<Vec<Parsed>> {
    let of_package = |package: &Package| {
        let head = package.directory.join("src");
        let is_own = |source: &&Source| source.path.starts_with(&head) && !source.is_test_file();
        let own: Vec<&Source> = sources.iter().filter(is_own).collect();
        Ok(Parsed { name: package.directory.display().to_string(), files: CrateFiles::parse(&head, &own)? })
    };
    packages.iter().map(of_package).collect()
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
    for Parsed { name, files } in parse(packages, sources)? {
        let edges = imports::edges(&files);
        for circle in circles::find(&edges) {
            lines.push(format!("{name}: {} files", circle.len()));
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
