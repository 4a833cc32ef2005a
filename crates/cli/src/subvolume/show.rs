//! `subvolume show` and `subvolume get-default`.

use std::ffi::OsString;

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use vlinder_format::inode::Timestamp;
use vlinder_format::{RootId, Uuid};
use vlinder_fs::SubvolumeInformation;

use super::list::{missing, path_of};
use super::{parent, uuid_or_dash};
use crate::failure::{Failure, Status as Ending};
use crate::image::{Follow, ImageArguments, Images, Purpose};
use crate::inspect::parse_number;
use crate::object::Object;
use crate::report;
use crate::session::Session;

/// Tell all about a subvolume: UUIDs, generations, times, snapshots.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder subvolume show disk.img:/home")]
pub struct Arguments {
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

fn number(text: &str) -> Result<u64, String> {
    parse_number(text).ok_or_else(|| format!("{text:?} is no number"))
}

fn uuid(text: &str) -> Result<Uuid, String> {
    Uuid::parse(text).ok_or_else(|| format!("{text:?} is no UUID: 8-4-4-4-12 hexadecimal digits"))
}

/// Runs `show`.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Ending, Failure> {
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
        return Ok(Ending::Done);
    }
    print(&found, &snapshots, session)?;
    Ok(Ending::Done)
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
    session.line(if is_top { "/".to_owned() } else { report::escaped(&path_of(found)) })?;
    let shown_name = if is_top { "<FS_TREE>".to_owned() } else { report::escaped(&found.name) };
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
        session.line(format!("\t\t\t\t{}", report::escaped(&path_of(snapshot))))?;
    }
    Ok(())
}

fn local_time_with_offset(time: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(timestamp) => timestamp.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %z").to_string(),
        Err(_) => format!("{} s", time.seconds),
    }
}

/// A subvolume as JSON.
pub fn described(subvolume: &SubvolumeInformation) -> Value {
    let uuid = |uuid: Uuid| if uuid.is_nil() { Value::Null } else { Value::from(uuid.to_string()) };
    let time = |time: Timestamp| match time == Timestamp::default() {
        true => Value::Null,
        false => json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds }),
    };
    json!({
        "id": subvolume.id.0,
        "parent_id": subvolume.parent.map(|parent| parent.root.0),
        "name": report::name(&subvolume.name),
        "path": report::name(&path_of(subvolume)),
        "generation": subvolume.generation.0,
        "creation_transaction": subvolume.creation_transaction.0,
        "send_transaction": subvolume.send_transaction.0,
        "receive_transaction": subvolume.receive_transaction.0,
        "creation_time": time(subvolume.creation_time),
        "send_time": time(subvolume.send_time),
        "receive_time": time(subvolume.receive_time),
        "uuid": uuid(subvolume.uuid),
        "parent_uuid": uuid(subvolume.parent_uuid),
        "received_uuid": uuid(subvolume.received_uuid),
        "read_only": subvolume.is_read_only,
        "deleted": subvolume.is_deleted,
    })
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
pub fn get_default(arguments: &GetDefaultArguments, session: &Session) -> Result<Ending, Failure> {
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
            report::escaped(&found.path)
        ))?;
    }
    Ok(Ending::Done)
}
