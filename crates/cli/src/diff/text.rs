//! Changes as lines for people.

use vlinder_format::inode::{FileType, InodeFlags};
use vlinder_places::text::{counted, escaped};
use vlinder_snapshots::diff::{
    AttributeChangeKind, Change, ChangeKind, ChangeTally, Counts, Differences, Subject,
};

use crate::files::mode::type_name;

/// The flags that are compared, in words of chattr(1)'s manual.
const FLAGS: [(InodeFlags, &str); 10] = [
    (InodeFlags::SYNC, "sync"),
    (InodeFlags::IMMUTABLE, "immutable"),
    (InodeFlags::APPEND, "append"),
    (InodeFlags::NODUMP, "nodump"),
    (InodeFlags::NOATIME, "noatime"),
    (InodeFlags::DIRSYNC, "dirsync"),
    (InodeFlags::NODATACOW, "nocow"),
    (InodeFlags::COMPRESS, "compress"),
    (InodeFlags::NOCOMPRESS, "nocompress"),
    (InodeFlags::VERITY, "verity"),
];

/// The names of flags.
pub(super) fn flag_names(flags: InodeFlags) -> Vec<&'static str> {
    FLAGS.into_iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, name)| name).collect()
}

/// The word for a kind.
pub(super) const fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Replaced => "replaced",
        ChangeKind::Changed => "changed",
    }
}

/// The word for what a name stands for.
pub(super) const fn subject_name(subject: Subject) -> &'static str {
    match subject {
        Subject::Inode { file_type, .. } => type_name(file_type),
        Subject::Subvolume { .. } => "subvolume",
    }
}

/// The line of a change.
pub(super) fn of_change(change: &Change) -> String {
    let mut line = format!("{:<8} ", kind_name(change.kind));
    if let Some(old) = &change.old_path {
        line.push_str(&format!("{} -> ", escaped(old)));
    }
    line.push_str(&escaped(&change.path));
    if matches!(change.kind, ChangeKind::Added | ChangeKind::Removed) {
        line.push_str(&match change.subject {
            Subject::Inode { file_type: FileType::Regular, .. } => {
                let bytes = change.size_bytes.old.max(change.size_bytes.new);
                format!(" ({})", counted(bytes, "byte", "bytes"))
            }
            other => format!(" ({})", subject_name(other)),
        });
    }
    let mut parts = differences(&change.differences);
    let gone = change.removed_names.iter().map(|name| format!("-{}", escaped(name)));
    let come = change.added_names.iter().map(|name| format!("+{}", escaped(name)));
    let names: Vec<String> = gone.chain(come).collect();
    if !names.is_empty() {
        parts.push(format!("names {}", names.join(" ")));
    }
    if parts.is_empty() && change.kind == ChangeKind::Replaced {
        parts.push("by an equal one".to_owned());
    }
    if !parts.is_empty() {
        line.push_str(": ");
        line.push_str(&parts.join(", "));
    }
    line
}

fn differences(differences: &Differences) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(types) = differences.file_type {
        parts.push(format!("type {} -> {}", type_name(types.old), type_name(types.new)));
    }
    if differences.changed_bytes > 0 {
        parts.push(format!("content {}", counted(differences.changed_bytes, "byte", "bytes")));
    }
    if let Some(size) = differences.size_bytes {
        parts.push(format!("size {} -> {}", size.old, size.new));
    }
    if let Some(target) = &differences.target {
        parts.push(format!("target {} -> {}", escaped(&target.old), escaped(&target.new)));
    }
    if let Some(device) = differences.device {
        let number =
            |device: vlinder_format::inode::DeviceNumber| format!("{},{}", device.major(), device.minor());
        parts.push(format!("device {} -> {}", number(device.old), number(device.new)));
    }
    if let Some(permissions) = differences.permissions {
        parts.push(format!("mode {:04o} -> {:04o}", permissions.old, permissions.new));
    }
    if let Some(owner) = differences.owner {
        let (old, new) = (owner.old, owner.new);
        parts.push(format!("owner {}:{} -> {}:{}", old.0, old.1, new.0, new.1));
    }
    if let Some(flags) = differences.flags {
        let gone = flag_names(flags.old.without(flags.new)).into_iter().map(|name| format!("-{name}"));
        let come = flag_names(flags.new.without(flags.old)).into_iter().map(|name| format!("+{name}"));
        parts.push(format!("flags {}", gone.chain(come).collect::<Vec<_>>().join(" ")));
    }
    if !differences.attributes.is_empty() {
        let words = differences.attributes.iter().map(|attribute| {
            let sign = match attribute.kind {
                AttributeChangeKind::Added => "+",
                AttributeChangeKind::Removed => "-",
                AttributeChangeKind::Changed => "",
            };
            format!("{sign}{}", escaped(&attribute.name))
        });
        parts.push(format!("attributes {}", words.collect::<Vec<_>>().join(" ")));
    }
    if differences.times {
        parts.push("times".to_owned());
    }
    parts
}

/// The lines of a summary.
pub(super) fn of_tally(tally: &ChangeTally) -> Vec<String> {
    let row = |name: &str, counts: &Counts| {
        format!(
            "{name:<12} {} added, {} removed, {} renamed, {} replaced, {} changed, {} of times alone",
            counts.added, counts.removed, counts.renamed, counts.replaced, counts.changed, counts.times
        )
    };
    vec![
        row("files:", &tally.files),
        row("directories:", &tally.directories),
        format!(
            "{:<12} {} added, {} removed, {} changed",
            "bytes:", tally.added_bytes, tally.removed_bytes, tally.changed_bytes
        ),
    ]
}
