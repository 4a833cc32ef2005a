//! Floors, and who may depend on what.

use std::collections::BTreeMap;

use crate::workspace::Package;

/// Packages that stand outside the floors.
const OUTSIDE: [&str; 4] = ["vlinder-testkit", "vlinder-bench", "vlinder-fuzz", "vlinder-xtask"];

/// Crates that only these packages may name: they are the doors to what is not deterministic, or belong to
/// the edge.
const RESERVED: [(&str, &[&str]); 4] = [
    ("parking_lot", &["vlinder-base"]),
    ("rayon", &["vlinder-base"]),
    ("quick_cache", &["vlinder-base"]),
    ("anyhow", &["vlinder-cli", "vlinder-xtask", "vlinder-bench"]),
];

/// What is wrong with the packages' dependencies.
pub fn check(packages: &[Package]) -> Vec<String> {
    let floors: BTreeMap<&str, Option<u64>> =
        packages.iter().map(|package| (package.name.as_str(), package.floor)).collect();
    let mut findings = Vec::new();
    for package in packages {
        let name = package.name.as_str();
        if package.floor.is_none() && !OUTSIDE.contains(&name) {
            findings.push(format!(
                "{name} has no floor: add [package.metadata.vlinder] floor = N to its manifest"
            ));
        }
        for dependency in &package.dependencies {
            let used = dependency.name.as_str();
            let allowed = RESERVED.iter().find(|(reserved, _)| *reserved == used).map(|(_, allowed)| allowed);
            if allowed.is_some_and(|allowed| !allowed.contains(&name)) {
                findings.push(format!("{name} depends on {used}, which only {allowed:?} may name"));
            }
            let Some(used_floor) = floors.get(used) else { continue };
            findings.extend(judge(package, used, *used_floor, dependency.is_for_tests));
        }
    }
    findings
}

fn judge(package: &Package, used: &str, used_floor: Option<u64>, is_for_tests: bool) -> Option<String> {
    let name = &package.name;
    if used == "vlinder-testkit" {
        let is_right = is_for_tests || ["vlinder-bench", "vlinder-fuzz"].contains(&name.as_str());
        return (!is_right)
            .then(|| format!("{name} uses the testkit outside its tests: make it a dev-dependency"));
    }
    match (package.floor, used_floor) {
        (None, _) => None,
        (Some(_), None) => Some(format!("{name} uses {used}, which stands outside the floors")),
        (Some(own), Some(other)) if other < own => None,
        (Some(own), Some(other)) => {
            Some(format!("{name} (floor {own}) uses {used} (floor {other}): only lower floors may be used"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, floor: Option<u64>, uses: &[(&str, bool)]) -> Package {
        let dependency = |(name, is_for_tests): &(&str, bool)| Dependency {
            name: (*name).to_owned(),
            is_for_tests: *is_for_tests,
            features: Vec::new(),
        };
        Package {
            name: name.to_owned(),
            directory: name.into(),
            floor,
            dependencies: uses.iter().map(dependency).collect(),
            features: Vec::new(),
        }
    }

    #[test]
    fn only_lower_floors_and_the_testkit_in_tests() {
        let base = package("vlinder-base", Some(0), &[("parking_lot", false)]);
        let testkit = package("vlinder-testkit", None, &[("vlinder-tree", false)]);
        let good = package("vlinder-tree", Some(4), &[("vlinder-base", false), ("vlinder-testkit", true)]);
        assert_eq!(check(&[base.clone(), testkit.clone(), good.clone()]), Vec::<String>::new());
        for (floor, uses) in [
            (Some(4), ("vlinder-tree", false)),
            (Some(3), ("vlinder-tree", false)),
            (Some(3), ("vlinder-tree", true)),
            (Some(5), ("vlinder-testkit", false)),
            (Some(5), ("anyhow", false)),
            (Some(5), ("rayon", true)),
            (None, ("vlinder-base", false)),
        ] {
            let bad = package("vlinder-volume", floor, &[uses]);
            let found = check(&[base.clone(), testkit.clone(), good.clone(), bad]);
            assert_eq!(found.len(), 1, "{floor:?} {uses:?}: {found:?}");
        }
    }
}
