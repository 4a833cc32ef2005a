//! Root items, the references between subvolumes, and subvolumes by UUID.

use vlinder_format::root_item::{RootFlags, RootItem};
use vlinder_format::root_ref::RootReference;
use vlinder_format::uuid_item;

use super::super::keys::key;
use super::super::text::{Context, line, put, timestamp, uuid};
use super::names::shown;
use super::printed::Printed;

pub fn root(text: &mut Vec<u8>, data: &[u8], context: &Context) -> Printed {
    let root = RootItem::decode(data)?;
    line!(
        text,
        "\t\tgeneration {} root_dirid {} bytenr {} byte_limit {} bytes_used {}",
        root.generation,
        root.root_directory,
        root.address,
        root.byte_limit,
        root.bytes_used
    );
    let flags = if root.flags.has(RootFlags::READ_ONLY) { "RDONLY" } else { "none" };
    let (last_snapshot, bits, references) = (root.last_snapshot, root.flags.0, root.reference_count);
    line!(text, "\t\tlast_snapshot {last_snapshot} flags 0x{bits:x}({flags}) refs {references}");
    line!(text, "\t\tdrop_progress {} drop_level {}", key(&root.drop_progress), root.drop_level);
    let second_generation = root.extension.as_ref().map_or(0, |extension| extension.generation.0);
    line!(text, "\t\tlevel {} generation_v2 {second_generation}", root.level);
    if let Some(extension) = root.current_extension() {
        uuid(text, "uuid", extension.uuid);
        uuid(text, "parent_uuid", extension.parent_uuid);
        uuid(text, "received_uuid", extension.received_uuid);
        line!(
            text,
            "\t\tctransid {} otransid {} stransid {} rtransid {}",
            extension.change_transaction,
            extension.creation_transaction,
            extension.send_transaction,
            extension.receive_transaction
        );
        timestamp(text, "ctime", extension.change_time, &context.zone);
        timestamp(text, "otime", extension.creation_time, &context.zone);
        timestamp(text, "stime", extension.send_time, &context.zone);
        timestamp(text, "rtime", extension.receive_time, &context.zone);
    }
    Ok(())
}

pub fn reference(text: &mut Vec<u8>, kind: &str, data: &[u8], context: &Context) -> Printed {
    let reference = RootReference::decode(data)?;
    let (directory, index) = (reference.directory, reference.index);
    put!(text, "\t\troot {kind} key dirid {directory} sequence {index} ");
    shown(text, "name ", reference.name, context);
    Ok(())
}

pub fn by_uuid(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    for subvolume in uuid_item::decode(data)? {
        line!(text, "\t\tsubvol_id {subvolume}");
    }
    Ok(())
}
