//! Chores of this repository: `cargo xtask tidy` (what the compiler does not check), `cargo xtask test`
//! (everything fast, counted), `cargo xtask status` (a page made of data), `cargo xtask user-test USER` (the
//! built tests again, as somebody who is not root), `cargo xtask long JOB` (long runs, each judged strictly).
//!
//! It must not know how the engine works; it sees manifests, sources and test results.

mod long;
mod status;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str =
    "usage: cargo xtask tidy [--bless] | circles | status | test [quick] | user-test USER | long JOB
  tidy            floors, forbidden names, structure, growth, documents; --bless lowers the accepted sizes
  status          makes docs/status.md of docs/status.toml
  circles         names the imports that tie files of a crate into circles
  test            format, clippy, tidy and all tests; the last line is `N passed, N failed, N skipped`
  test quick      format, tidy, and the tests that need neither root nor the kernel's mounts
  user-test USER  builds the tests and runs them as that user (needs root)
  long JOB        full, full-fill, full-one-process, full-snapshots, full-scatter, full-stress, full-images,
                  programs, memory, unmount, strangers, setid or hostile, as root; MINUTES, SEED, RESUME=1 and
                  LIST=1 are read from the environment";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tidy"] => tidy::run(),
        ["tidy", "--bless"] => tidy::bless().map(|()| true),
        ["status"] => status::write().map(|()| true),
        ["circles"] => tidy::circles(),
        ["test"] => test::run(),
        ["test", "quick"] => test::run_quick(),
        ["user-test", user] => test::run_as(user),
        ["long", job] => long::run(job),
        _ => bail!("{USAGE}"),
    }
}
