//! `btrfs version`.

use clap::Args;
use serde_json::json;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::session::Session;

/// The version of btrfs-progs whose verbs and flags these are. Programs that call `btrfs` go by it: timeshift
/// gives `--recursive` from 6.12 on, Incus and btrbk read the first line as `NAME vNUMBER`.
const PROGS: &str = "6.19";

/// Print the version of btrfs-progs that this program stands for, and its own.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  btrfs version")]
pub struct VersionArguments {}

/// Runs the verb.
pub fn run(session: &Session) -> Result<ExitStatus, Failure> {
    let own = env!("CARGO_PKG_VERSION");
    if session.json {
        session.object(json!({ "progs": PROGS, "vlinder": own }))?;
    } else {
        session.line(format!("btrfs-progs v{PROGS}"))?;
        session.line(format!("vlinder {own}"))?;
    }
    Ok(ExitStatus::Done)
}
