//! Changes as JSON.

use serde_json::{Value, json};
use vlinder_format::inode::{DeviceNumber, GroupId, UserId};
use vlinder_places::report;
use vlinder_snapshots::diff::{
    AttributeChangeKind, Change, ChangeTally, Counts, Differences, OldNew, Subject,
};

use super::text::{flag_names, kind_name, subject_name};
use crate::files::mode::type_name;

/// The object of a change, without its schema.
pub(super) fn of_change(change: &Change) -> Value {
    let (inode, subvolume) = match change.subject {
        Subject::Inode { number, .. } => (Some(number.0), None),
        Subject::Subvolume { id } => (None, Some(id.0)),
    };
    json!({
        "change": kind_name(change.kind),
        "type": subject_name(change.subject),
        "inode": inode,
        "subvolume": subvolume,
        "path": report::name(&change.path),
        "old_path": change.old_path.as_deref().map(report::name),
        "added_names": names(&change.added_names),
        "removed_names": names(&change.removed_names),
        "size_bytes": { "old": change.size_bytes.old, "new": change.size_bytes.new },
        "differences": of_differences(&change.differences),
    })
}

fn names(names: &[Vec<u8>]) -> Vec<Value> {
    names.iter().map(|name| report::name(name)).collect()
}

/// Both values; null where they do not differ.
fn both<T>(different: Option<&OldNew<T>>, value: impl Fn(&T) -> Value) -> Value {
    different.map_or(Value::Null, |both| json!({ "old": value(&both.old), "new": value(&both.new) }))
}

fn of_differences(differences: &Differences) -> Value {
    let attribute = |attribute: &vlinder_snapshots::diff::AttributeChange| {
        let change = match attribute.kind {
            AttributeChangeKind::Added => "added",
            AttributeChangeKind::Removed => "removed",
            AttributeChangeKind::Changed => "changed",
        };
        json!({ "name": report::name(&attribute.name), "change": change })
    };
    let owner = |(user, group): &(UserId, GroupId)| json!({ "user_id": user.0, "group_id": group.0 });
    let device = |device: &DeviceNumber| json!({ "major": device.major(), "minor": device.minor() });
    json!({
        "type": both(differences.file_type.as_ref(), |file_type| json!(type_name(*file_type))),
        "size_bytes": both(differences.size_bytes.as_ref(), |bytes| json!(bytes)),
        "changed_bytes": differences.changed_bytes,
        "mode": both(differences.permissions.as_ref(), |mode| json!(format!("{mode:04o}"))),
        "owner": both(differences.owner.as_ref(), owner),
        "flags": both(differences.flags.as_ref(), |flags| json!(flag_names(*flags))),
        "attributes": differences.attributes.iter().map(attribute).collect::<Vec<_>>(),
        "target": both(differences.target.as_ref(), |target| report::name(target)),
        "device": both(differences.device.as_ref(), device),
        "times": differences.times,
    })
}

/// The summary.
pub(super) fn of_tally(tally: &ChangeTally) -> Value {
    let counts = |counts: &Counts| {
        json!({
            "added": counts.added,
            "removed": counts.removed,
            "renamed": counts.renamed,
            "replaced": counts.replaced,
            "changed": counts.changed,
            "times": counts.times,
        })
    };
    json!({
        "files": counts(&tally.files),
        "directories": counts(&tally.directories),
        "added_bytes": tally.added_bytes,
        "removed_bytes": tally.removed_bytes,
        "changed_bytes": tally.changed_bytes,
    })
}
