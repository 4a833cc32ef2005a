//! The programs of the two commits, and that a run uses those that it should.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::command::shell;
use crate::row::Row;

/// A program through which a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The command.
    Vlinder,
    /// A program of this crate that calls the library.
    OfBench(&'static str),
    /// The engine for fio, with the library in it.
    FioEngine,
}

/// The programs that a row's first side measures.
///
/// # Errors
/// If they can't be told, and so not be swapped.
pub fn programs(row: &Row) -> Result<Vec<Program>> {
    let needs = row.sides.first().with_context(|| format!("row {} has no side", row.id))?.needs;
    let program = match needs {
        // strace watches the command.
        "vlinder" | "strace" => Program::Vlinder,
        "fio" => Program::FioEngine,
        "grow" | "state-map" | "sparse-file" | "delayed-items" => Program::OfBench(needs),
        other => bail!(
            "row {} measures through {other}, which is not built from a commit: it can't be compared with an earlier one",
            row.id
        ),
    };
    // Every row makes its images with the command.
    Ok(if program == Program::Vlinder { vec![program] } else { vec![Program::Vlinder, program] })
}

/// Programs built at one commit.
#[derive(Serialize)]
pub struct Build {
    /// The commit's full name, with what tells that there are changes beside it.
    pub commit: String,
    /// Where the programs are.
    pub directory: PathBuf,
}

impl Build {
    /// The programs of this checkout, built beside this one.
    pub fn own(programs: &[Program]) -> Result<Self> {
        let root = root()?;
        let directory = crate::command::directory()?;
        let target = target(&directory)?;
        build(&root, target, programs)?;
        let changed = if git(&root, &["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
            ""
        } else {
            " and changes"
        };
        Ok(Self { commit: git(&root, &["rev-parse", "HEAD"])? + changed, directory })
    }

    /// The programs of an earlier commit, and the directory where its checkout, its target directory and the
    /// results are. All of them are kept for the next call.
    pub fn earlier(name: &str, programs: &[Program]) -> Result<(Self, PathBuf)> {
        let root = root()?;
        let commit = git(&root, &["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")])
            .with_context(|| format!("BEFORE={name} names no commit of {}", root.display()))?;
        let own = crate::command::directory()?;
        let directory = target(&own)?.join("bench/before").join(&commit);
        let source = directory.join("source");
        std::fs::create_dir_all(&directory)?;
        if !source.join("Cargo.toml").exists() {
            let path = source.to_str().context("the target directory's name is no text")?;
            // By force: git may still know a checkout there that was removed with the target directory.
            git(&root, &["worktree", "add", "--quiet", "--force", "--detach", path, &commit])?;
        }
        ensure_clean(&source, &commit)?;
        let built = directory.join("target");
        share_fio_source(target(&own)?, &built, programs)?;
        build(&source, &built, programs)
            .with_context(|| format!("building {commit} in {}", source.display()))?;
        Ok((Self { commit, directory: built.join("release") }, directory))
    }
}

/// A checkout that was changed is not the commit that its results would be named after.
fn ensure_clean(source: &Path, commit: &str) -> Result<()> {
    let (head, changes) = (git(source, &["rev-parse", "HEAD"])?, git(source, &["status", "--porcelain"])?);
    if head != commit || !changes.is_empty() {
        bail!(
            "{} is not {commit} as it was committed; remove it: git worktree remove --force {0}",
            source.display()
        );
    }
    Ok(())
}

fn root() -> Result<PathBuf> {
    Ok(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?)
}

/// The target directory of the programs in `directory`.
fn target(directory: &Path) -> Result<&Path> {
    directory.parent().with_context(|| format!("{} is in no target directory", directory.display()))
}

fn git(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("git").arg("-C").arg(directory).args(arguments).output().context("running git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Both engines are built against the same fio, whose source is fetched once.
fn share_fio_source(own: &Path, built: &Path, programs: &[Program]) -> Result<()> {
    if !programs.contains(&Program::FioEngine) {
        return Ok(());
    }
    shell(&format!(
        "mkdir -p {built}/fio-engine; for source in {own}/fio-engine/fio-*/; do
           [ ! -e $source/config-host.h ] || [ -e {built}/fio-engine/$(basename $source) ] || ln -s $(realpath $source) {built}/fio-engine/
         done",
        own = own.display(),
        built = built.display()
    ))
    .map(drop)
}

fn build(source: &Path, target: &Path, programs: &[Program]) -> Result<()> {
    eprintln!("building {}", source.display());
    run_in(source, target, "cargo", &["build", "--release", "--quiet", "-p", "vlinder-cli"])?;
    let mut built = Vec::new();
    for program in programs {
        if built.contains(program) {
            continue;
        }
        built.push(*program);
        match program {
            Program::Vlinder => {}
            Program::OfBench(name) => {
                run_in(
                    source,
                    target,
                    "cargo",
                    &["build", "--release", "--quiet", "-p", "vlinder-bench", "--bin", name],
                )?;
            }
            Program::FioEngine => run_in(source, target, "tools/fio-engine.sh", &[])?,
        }
    }
    Ok(())
}

fn run_in(source: &Path, target: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let path = if program.contains('/') { source.join(program) } else { PathBuf::from(program) };
    let mut command = Command::new(path);
    command.args(arguments).current_dir(source).env("CARGO_TARGET_DIR", target).stdin(Stdio::null());
    // What `cargo run` says of this program is not about the one that is built.
    command.env_remove("LD_LIBRARY_PATH");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    let status = command.status().with_context(|| format!("running {program}"))?;
    if !status.success() {
        bail!("{program} {}: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Makes sure that a run of the row in this process uses the programs in `directory`, and no others.
///
/// # Errors
/// If one is not there, or another would be used.
pub fn ensure_swapped(row: &Row, directory: &Path) -> Result<()> {
    let inside = directory.canonicalize().with_context(|| directory.display().to_string())?;
    for program in programs(row)? {
        let found = match program {
            Program::Vlinder => shell("realpath $(command -v vlinder)")?,
            Program::OfBench(name) => shell(&format!("realpath $(command -v {name})"))?,
            // The library that the engine would load.
            Program::FioEngine => shell(&format!(
                "ldd {}/vlinder.so | grep -o '/[^ ]*libvlinder[^ ]*' | head -1 | xargs realpath",
                crate::rows::fio::engine_directory()?.display()
            ))?,
        };
        let place = match program {
            Program::FioEngine => target(&inside)?.join("fio-engine"),
            Program::Vlinder | Program::OfBench(_) => inside.clone(),
        };
        ensure!(
            Path::new(found.trim()).starts_with(&place),
            "row {} would measure {} instead of what is in {}",
            row.id,
            found.trim(),
            place.display()
        );
    }
    Ok(())
}

/// The files whose allocations are a row's, for a build in `directory`.
pub fn traced(row: &Row, directory: &Path) -> Result<Vec<PathBuf>> {
    programs(row)?
        .into_iter()
        .map(|program| match program {
            Program::Vlinder => Ok(directory.join("vlinder")),
            Program::OfBench(name) => Ok(directory.join(name)),
            Program::FioEngine => Ok(target(directory)?.join("fio-engine/libvlinder.so")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_through_what_it_measures() {
        for mut row in crate::rows::all() {
            assert!(programs(&row).unwrap().contains(&Program::Vlinder), "{}", row.id);
            row.sides[0].needs = "mkfs.btrfs";
            assert!(programs(&row).unwrap_err().to_string().contains("can't be compared"));
        }
    }
}
