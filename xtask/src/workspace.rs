//! What `cargo metadata` says about the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// One package of the workspace.
#[derive(Debug, Clone)]
pub struct Package {
    /// Its full name.
    pub name: String,
    /// Where it lies, below the root.
    pub directory: PathBuf,
    /// `[package.metadata.vlinder] floor`.
    pub floor: Option<u64>,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
    /// Names of its features.
    pub features: Vec<String>,
}

/// One dependency of a package.
#[derive(Debug, Clone)]
pub struct Dependency {
    /// The package's name.
    pub name: String,
    /// True if only tests use it.
    pub is_for_tests: bool,
    /// The features of it that are turned on.
    pub features: Vec<String>,
}

/// The workspace's root directory.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A package that is not of the workspace.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// Its name and version.
    pub name: String,
    /// Its licence expression.
    pub licence: Option<String>,
    /// Where it comes from.
    pub source: String,
}

/// All foreign packages that a build for this kind of machine uses, in tests too.
pub fn foreign_packages() -> Result<Vec<Foreign>> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = metadata(&["--filter-platform", &target])?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let foreign = packages.iter().filter_map(|package| {
        let text = |field: &str| package[field].as_str().map(str::to_owned);
        let source = text("source")?;
        let name = format!("{} {}", text("name").unwrap_or_default(), text("version").unwrap_or_default());
        Some(Foreign { name, licence: text("license"), source })
    });
    Ok(foreign.collect())
}

/// All packages of the workspace.
pub fn packages() -> Result<Vec<Package>> {
    let metadata = metadata(&["--no-deps"])?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    packages.iter().map(package).collect()
}

/// Where cargo builds, made absolute.
pub fn target_directory() -> Result<PathBuf> {
    let metadata = metadata(&["--no-deps"])?;
    Ok(PathBuf::from(metadata["target_directory"].as_str().context("no target directory")?))
}

fn metadata(arguments: &[&str]) -> Result<Value> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root())
        .output()
        .context("cargo metadata can't be run")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The texts of a list.
fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn package(value: &Value) -> Result<Package> {
    let dependencies = value["dependencies"].as_array().into_iter().flatten().map(|dependency| Dependency {
        name: dependency["name"].as_str().unwrap_or_default().to_owned(),
        is_for_tests: dependency["kind"].as_str() == Some("dev"),
        features: names(&dependency["features"]),
    });
    let manifest = Path::new(value["manifest_path"].as_str().context("a package without a manifest")?);
    Ok(Package {
        name: value["name"].as_str().context("a package without a name")?.to_owned(),
        directory: manifest.parent().unwrap_or(manifest).strip_prefix(root())?.to_owned(),
        floor: value["metadata"]["vlinder"]["floor"].as_u64(),
        dependencies: dependencies.collect(),
        features: value["features"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect(),
    })
}
