//! `stream ls`.

use std::ffi::OsString;

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use vlinder_format::inode::FileType;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::text::escaped;
use vlinder_places::times::short_time;
use vlinder_stream::files::{FileId, StreamFileStatus, SubvolumeView};

use super::inputs::{Passes, StreamArguments, StreamInputs, StreamTargets, file_of, subvolume_of};
use crate::files::mode::{symbolic, time_object, type_name};

/// What stands for what the streams do not tell.
const UNKNOWN: &str = "?";

/// List what a stream holds, with all below a path.
///
/// Of an incremental stream whose base is not given with --after, what it touches is listed, and what it does
/// not tell is shown as "?". Owners are shown by number. Control characters in names are shown as \ooo; use
/// --json for the exact bytes.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder stream ls -l full.stream\n  vlinder stream ls --after full.stream monday.stream:/etc"
)]
pub struct StreamListArguments {
    /// Show type, mode, links, owner, group, size and time.
    #[arg(short)]
    long: bool,
    #[command(flatten)]
    stream: StreamArguments,
    /// A stream, or a path in one; - is standard input.
    #[arg(value_name = "STREAM[:/PATH]")]
    target: OsString,
}

struct StreamListing<'a> {
    view: SubvolumeView<'a>,
    session: &'a Session,
    is_long: bool,
    zone: TimeZone,
}

/// Runs the verb.
pub fn run(arguments: &StreamListArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let targets = StreamTargets::parse(std::slice::from_ref(&arguments.target))?;
    let inputs = StreamInputs::open(&targets.streams(&arguments.stream), Passes::One)?;
    let index = inputs.index(session)?;
    let view = subvolume_of(&index, &arguments.stream, &targets)?;
    let path = targets.paths.first().map(Vec::as_slice).unwrap_or_default();
    let file = file_of(&view, path, &targets)?;
    if session.json {
        session.begin_list("entries")?;
    }
    let listing = StreamListing { view, session, is_long: arguments.long, zone: TimeZone::system() };
    listing.all_below(path, file)?;
    if session.json {
        session.object(json!({ "subvolume": subvolume_object(&view) }))?;
    }
    if let Some(base) = view.missing_base() {
        session.note(format!(
            "the stream continues subvolume {base}, which was not given: only what it touches is listed\n  \
             give its stream with --after FILE"
        ));
    }
    Ok(ExitStatus::Done)
}

/// A subvolume, as JSON.
pub fn subvolume_object(view: &SubvolumeView<'_>) -> Value {
    json!({
        "name": report::name(view.name()),
        "uuid": view.uuid().to_string(),
        "transid": view.transid().0,
        "parent_uuid": view.parent().map(|(uuid, _)| uuid.to_string()),
        "missing_base_uuid": view.missing_base().map(|uuid| uuid.to_string()),
        "files": view.file_count(),
    })
}

impl StreamListing<'_> {
    /// Lists a file; of a directory, what is below it. Only the way down is held.
    fn all_below(&self, path: &[u8], file: FileId) -> Result<(), Failure> {
        if self.view.status(file).file_type != Some(FileType::Directory) {
            return self.show(path, file);
        }
        let mut path = path.to_vec();
        let mut levels = vec![(path.len(), self.view.entries(file))];
        while let Some((length, entries)) = levels.last_mut() {
            path.truncate(*length);
            let Some((name, file)) = entries.next() else {
                levels.pop();
                continue;
            };
            if self.session.is_output_closed() {
                break;
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            self.show(&path, file)?;
            levels.push((path.len(), self.view.entries(file)));
        }
        Ok(())
    }

    fn show(&self, path: &[u8], file: FileId) -> Result<(), Failure> {
        let status = self.view.status(file);
        let target = self.view.link_target(file);
        if self.session.json {
            let mut value = object(&status);
            value["path"] = report::name(path);
            if let Some(target) = target {
                value["target"] = report::name(target);
            }
            return self.session.list_item(&value);
        }
        let mut line = if self.is_long { self.attributes(&status) } else { String::new() };
        line.push_str(&escaped(path));
        if let Some(target) = target.filter(|_| self.is_long) {
            line.push_str(&format!(" -> {}", escaped(target)));
        }
        self.session.line(line)
    }

    fn attributes(&self, status: &StreamFileStatus) -> String {
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        let mode = match (status.file_type, status.permissions) {
            // Links have no permissions of their own, and no command tells any.
            (Some(FileType::SymbolicLink), _) => symbolic(FileType::SymbolicLink, 0o777),
            (Some(file_type), Some(permissions)) => symbolic(file_type, permissions.into()),
            (Some(file_type), None) => format!("{}?????????", &symbolic(file_type, 0)[..1]),
            (None, _) => "??????????".to_owned(),
        };
        let user = or_unknown(status.owner.map(|(user, _)| user.to_string()));
        let group = or_unknown(status.owner.map(|(_, group)| group.to_string()));
        let size = match status.file_type {
            Some(FileType::CharacterDevice | FileType::BlockDevice) => {
                format!("{}, {}", status.device.0, status.device.1)
            }
            Some(FileType::Directory) => String::from("-"),
            _ => or_unknown(status.size.map(|size| size.to_string())),
        };
        let time = or_unknown(status.times.map(|(_, modification)| short_time(modification, &self.zone)));
        format!("{mode} {:>3} {user:>5} {group:>5} {size:>11} {time:>16} ", status.names)
    }
}

/// What is known of a file, as JSON.
fn object(status: &StreamFileStatus) -> Value {
    let mut object = json!({
        "type": status.file_type.map(type_name),
        "mode": status.permissions.map(|permissions| format!("{permissions:04o}")),
        "user_id": status.owner.map(|(user, _)| user),
        "group_id": status.owner.map(|(_, group)| group),
        "links": status.names,
        "size_bytes": status.size.filter(|_| status.file_type != Some(FileType::Directory)),
        "access_time": status.times.map(|(access, _)| time_object(access)),
        "modification_time": status.times.map(|(_, modification)| time_object(modification)),
    });
    if matches!(status.file_type, Some(FileType::CharacterDevice | FileType::BlockDevice)) {
        object["device"] = json!({ "major": status.device.0, "minor": status.device.1 });
    }
    object
}
