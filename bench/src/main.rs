//! Workloads timed against their peers, in the same run, in turn:
//! `cargo run --release -p vlinder-bench -- ROW…`.
//!
//! A row has a workload, a side that is vlinder, and peers. Both sides start from the same state and end
//! durable, inside the time; what they made is verified after each run, outside the time. This crate must not
//! know how vlinder works: it runs the command, as users do; but for the empty server in `bin/`, which
//! borrows the mount's transport.

mod command;
mod compare;
mod goals;
mod host;
mod machine;
mod observation;
mod page;
mod row;
mod rows;
mod span;
mod statistics;
mod tree;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

/// Counted runs of each side, unless RUNS says otherwise.
const RUNS: u64 = 5;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("vlinder-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let known = rows::all();
    if arguments == ["--page"] {
        page::render(&known)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let [option, order] = arguments.as_slice()
        && option == compare::TRIAL
    {
        compare::run_trial(order, &known)?;
        return Ok(ExitCode::SUCCESS);
    }
    let names: Vec<String> = arguments
        .iter()
        .flat_map(|argument| argument.split(','))
        .map(str::to_owned)
        .filter(|name| !name.is_empty())
        .collect();
    if names.is_empty() {
        println!(
            "usage: vlinder-bench ROW[,ROW…]   (as root; FILES=n scales the tree, RUNS=n the runs)\n       BEFORE=commit vlinder-bench ROW[,ROW…]   compares with an earlier commit\n       vlinder-bench --page   makes the pages of docs/benchmarks of the rows that were run\n"
        );
        for row in &known {
            println!("{:5} {}", row.id, row.workload);
        }
        return Ok(ExitCode::SUCCESS);
    }
    for name in &names {
        if !known.iter().any(|row| row.is_named(name)) {
            bail!("there is no row {name}; `make bench` without ROWS lists all");
        }
    }
    if let Some(before) = std::env::var("BEFORE").ok().filter(|before| !before.is_empty()) {
        let chosen: Vec<&row::Row> =
            known.iter().filter(|row| names.iter().any(|name| row.is_named(name))).collect();
        let is_kept = compare::run(&before, &chosen)?;
        return Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let settings = row::Settings::from_environment(RUNS)?;
    // Said before the first row takes its minutes.
    command::vlinder()?;
    for row in known.iter().filter(|row| names.iter().any(|name| row.is_named(name))) {
        let needs = row.sides[0].needs;
        ensure!(command::have(needs), "row {} needs {needs}, which is neither installed nor built", row.id);
    }
    let host = host::Host::prepare().context("preparing a directory on tmpfs")?;
    for row in known.iter().filter(|row| names.iter().any(|name| row.is_named(name))) {
        eprintln!("{}: {}", row.id, row.workload);
        let result = row.run(&host, &settings).with_context(|| format!("row {}", row.id))?;
        page::store(&result)?;
        println!("{}", page::line(&result));
    }
    page::render(&known)?;
    Ok(ExitCode::SUCCESS)
}
