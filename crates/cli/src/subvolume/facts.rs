//! What is told of a subvolume, as the verbs write it.

use std::borrow::Cow;

use serde_json::{Value, json};
use vlinder_format::Uuid;
use vlinder_format::inode::Timestamp;
use vlinder_fs::SubvolumeInformation;
use vlinder_places::report;

/// The number of the subvolume that holds a subvolume's name; 0 for the top level.
pub fn parent(information: &SubvolumeInformation) -> u64 {
    information.parent.map_or(0, |parent| parent.root.0)
}

/// A UUID, or `-` for none.
pub fn uuid_or_dash(uuid: Uuid) -> String {
    if uuid.is_nil() { "-".to_owned() } else { uuid.to_string() }
}

/// The path from the top level, or of what has a name to which no directories lead from there, that name.
pub fn path_of(subvolume: &SubvolumeInformation) -> Cow<'_, [u8]> {
    if subvolume.parent.is_some() && subvolume.path.is_empty() {
        return [b"<UNREACHABLE>/", subvolume.name.as_slice()].concat().into();
    }
    Cow::Borrowed(&subvolume.path)
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
