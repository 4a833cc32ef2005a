//! `stream verify`.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value, json};
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::session::Session;
use vlinder_places::text::{counted, escaped};

use super::inputs::{Passes, StreamInputs};

/// Verify streams: bytes, order, and that each command follows from those before it.
///
/// Checked are headers, the checksum and the lengths of each command, that a subvolume begins first and the
/// end command comes last, that each path is there when it is used and free when it is made, and that clones
/// lie within their source. Several files are streams that continue one another, in that order. What they
/// build on and was not given is named; that is no error.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder stream verify full.stream monday.stream tuesday.stream\n  btrfs send /snapshots/nightly | tee nightly.stream | vlinder stream verify -"
)]
pub struct VerifyArguments {
    /// A file that holds streams, or - for standard input.
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<OsString>,
}

/// Runs the verb.
pub fn run(arguments: &VerifyArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let names: Vec<_> = arguments.files.iter().map(OsString::as_os_str).collect();
    let inputs = StreamInputs::open(&names, Passes::One)?;
    let index = inputs.index(session)?;
    if session.json {
        let subvolumes: Vec<Value> =
            index.subvolumes().map(|view| super::list::subvolume_object(&view)).collect();
        let counts: Map<String, Value> =
            index.counts().map(|(kind, count)| (kind.name().to_owned(), count.into())).collect();
        let needed: Vec<Value> = index
            .needed()
            .map(|needed| {
                json!({
                    "uuid": needed.uuid.to_string(),
                    "transid": needed.transid.0,
                    "is_parent": needed.is_parent,
                })
            })
            .collect();
        let fields = json!({
            "streams": index.streams(),
            "subvolumes": subvolumes,
            "commands": counts,
            "needed": needed,
        });
        session.object(fields)?;
        return Ok(ExitStatus::Done);
    }
    for view in index.subvolumes() {
        let files = counted(view.file_count(), "file", "files");
        session.tell(format!("{} uuid={} {files}", escaped(view.name()), view.uuid()))?;
    }
    for (kind, count) in index.counts() {
        session.tell(format!("{count:>12} {kind}"))?;
    }
    for needed in index.needed() {
        let what = if needed.is_parent { "as the parent" } else { "for clones" };
        session.tell(format!("needs {} {what} (transid {}), not given", needed.uuid, needed.transid.0))?;
    }
    session.tell(format!("{}, all right", counted(index.streams(), "stream", "streams")))?;
    Ok(ExitStatus::Done)
}
