//! `subvolume show` and `subvolume get-default`.

use std::ffi::OsString;

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::json;
use vlinder_format::inode::Timestamp;
use vlinder_format::{RootId, Uuid};
use vlinder_fs::SubvolumeInformation;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::{Object, missing};
use vlinder_places::session::Session;
use vlinder_places::target::Follow;
use vlinder_places::text;
use vlinder_places::times::local_time_with_offset;
use vlinder_places::values::number;

use super::facts::{described, parent, path_of, uuid_or_dash};

/// Tell all about a subvolume: UUIDs, generations, times, snapshots.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder subvolume show disk.img:/home")]
pub struct SubvolumeShowArguments {
    /// The subvolume of this number; then the target only names the image.
    #[arg(short, long, value_name = "ID", value_parser = number, conflicts_with = "uuid")]
    rootid: Option<u64>,
    /// The subvolume of this UUID; then the target only names the image.
    #[arg(short, long, value_name = "UUID", value_parser = uuid)]
    uuid: Option<Uuid>,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of a subvolume.
    target: OsString,
}

fn uuid(text: &str) -> Result<Uuid, String> {
    Uuid::parse(text).ok_or_else(|| format!("{text:?} is no UUID: 8-4-4-4-12 hexadecimal digits"))
}

/// Runs `show`.
pub fn run(arguments: &SubvolumeShowArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let object = Object::find(&images, &arguments.target, Purpose::Read, Follow::Yes)?;
    let all = object.subvolumes()?;
    let found = match (arguments.rootid, arguments.uuid) {
        (Some(number), _) => object.subvolume_of(RootId(number))?,
        (None, Some(uuid)) => {
            let found = all.iter().find(|subvolume| subvolume.uuid == uuid).cloned();
            found.ok_or_else(|| missing(&uuid.to_string()).at(object.label()))?
        }
        (None, None) => object.subvolume()?,
    };
    images.close()?;
    let snapshots: Vec<&SubvolumeInformation> = all
        .iter()
        .filter(|other| !found.uuid.is_nil() && other.parent_uuid == found.uuid && !other.is_deleted)
        .collect();
    if session.json {
        let mut value = described(&found);
        value["snapshots"] = snapshots.iter().map(|snapshot| json!(snapshot.id.0)).collect();
        session.object(json!({ "subvolume": value }))?;
        return Ok(ExitStatus::Done);
    }
    print(&found, &snapshots, session)?;
    Ok(ExitStatus::Done)
}

fn print(
    found: &SubvolumeInformation,
    snapshots: &[&SubvolumeInformation],
    session: &Session,
) -> Result<(), Failure> {
    let zone = TimeZone::system();
    let time = |time: Timestamp| {
        if time == Timestamp::default() { "-".to_owned() } else { local_time_with_offset(time, &zone) }
    };
    let is_top = found.id == RootId::FS_TREE;
    session.line(if is_top { "/".to_owned() } else { text::escaped(&path_of(found)) })?;
    let shown_name = if is_top { "<FS_TREE>".to_owned() } else { text::escaped(&found.name) };
    let above = parent(found).to_string();
    let rows = [
        ("Name: \t\t\t", shown_name),
        ("UUID: \t\t\t", uuid_or_dash(found.uuid)),
        ("Parent UUID: \t\t", uuid_or_dash(found.parent_uuid)),
        ("Received UUID: \t\t", uuid_or_dash(found.received_uuid)),
        ("Creation time: \t\t", time(found.creation_time)),
        ("Subvolume ID: \t\t", found.id.to_string()),
        ("Generation: \t\t", found.generation.to_string()),
        ("Gen at creation: \t", found.creation_transaction.to_string()),
        ("Parent ID: \t\t", above.clone()),
        ("Top level ID: \t\t", above),
        ("Flags: \t\t\t", if found.is_read_only { "readonly" } else { "-" }.to_owned()),
        ("Send transid: \t\t", found.send_transaction.to_string()),
        ("Send time: \t\t", time(found.send_time)),
        ("Receive transid: \t", found.receive_transaction.to_string()),
        ("Receive time: \t\t", time(found.receive_time)),
        ("Snapshot(s):", String::new()),
    ];
    for (title, value) in rows {
        session.line(format!("\t{title}{value}"))?;
    }
    for snapshot in snapshots {
        session.line(format!("\t\t\t\t{}", text::escaped(&path_of(snapshot))))?;
    }
    Ok(())
}

/// Tell which subvolume a mount shows where no subvol= or subvolid= is given.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder subvolume get-default disk.img")]
pub struct GetDefaultArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// The image, or IMAGE:/PATH.
    target: OsString,
}

/// Runs `get-default`.
pub fn get_default(arguments: &GetDefaultArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let object = Object::find(&images, &arguments.target, Purpose::Read, Follow::Yes)?;
    let found = object.default_subvolume()?;
    images.close()?;
    let id = found.id;
    if session.json {
        session.object(json!({ "subvolume": described(&found) }))?;
    } else if id == RootId::FS_TREE {
        session.line("ID 5 (FS_TREE)")?;
    } else {
        let (generation, above) = (found.generation, parent(&found));
        session.line(format!(
            "ID {id} gen {generation} top level {above} path {}",
            text::escaped(&found.path)
        ))?;
    }
    Ok(ExitStatus::Done)
}
