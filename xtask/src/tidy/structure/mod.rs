//! How the inside of a crate is built: circles of files, large types, names that stand for several types.

mod circles;
mod imports;
mod modules;
mod types;

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
        measures.push(circles(&name, &files));
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

/// All circles of a crate are one measure: a circle that shrinks, or falls into two, may have no file that
/// could name it from commit to commit.
fn circles(name: &str, files: &CrateFiles) -> Measure {
    let circles = circles::find(&imports::edges(files));
    Measure {
        name: format!("{name}: files in circles"),
        size: circles.iter().map(Vec::len).sum(),
        limit: 0,
        advice: "a type sits above its users: move it down, `cargo xtask circles` names the imports",
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_circle_without_its_first_file_is_a_smaller_measure() {
        let measured = |first: &str| {
            let texts = [
                ("a.rs", first),
                ("b.rs", "use crate::c::C; use crate::a::A; pub struct B;"),
                ("c.rs", "use crate::b::B; pub struct C;"),
            ];
            let sources: Vec<Source> = texts
                .iter()
                .map(|(path, text)| Source::new(Path::new("src").join(path), (*text).into()))
                .collect();
            let files = CrateFiles::parse(Path::new("src"), &sources.iter().collect::<Vec<_>>()).unwrap();
            circles("x", &files)
        };
        let (before, after) = (measured("use crate::b::B; pub struct A;"), measured("pub struct A;"));
        assert_eq!((before.size, after.size), (3, 2));
        assert_eq!(before.name, after.name);
    }
}
