//! Names: directory entries, attributes, and the references back from inodes.

use vlinder_format::directory::{DirectoryEntries, DirectoryEntryType, LONGEST_NAME};
use vlinder_format::inode_ref::{ExtendedReferences, InodeReferences};
use vlinder_format::log::DirectoryLogRange;
use vlinder_places::text::is_order;

use super::super::keys::key;
use super::super::text::{Context, line, put};
use super::printed::Printed;

/// Appends a name or value after these words, or that it is hidden. It is shown as it is, but for characters
/// that could command a terminal: they are written `\ooo`, a byte at a time.
pub fn shown(text: &mut Vec<u8>, words: &str, bytes: &[u8], context: &Context) {
    text.extend_from_slice(words.as_bytes());
    if context.style.hide_names {
        text.extend_from_slice(b"HIDDEN");
    } else {
        for chunk in bytes[..bytes.len().min(LONGEST_NAME)].utf8_chunks() {
            for character in chunk.valid().chars() {
                let mut encoded = [0; 4];
                let encoded = character.encode_utf8(&mut encoded).as_bytes();
                if is_order(character) {
                    encoded.iter().for_each(|byte| put!(text, "\\{byte:03o}"));
                } else {
                    text.extend_from_slice(encoded);
                }
            }
            text.extend_from_slice(chunk.invalid());
        }
    }
    text.push(b'\n');
}

pub fn entries(text: &mut Vec<u8>, data: &[u8], context: &Context) -> Printed {
    for entry in DirectoryEntries::new(data) {
        let entry = entry?;
        let entry_type = match entry.entry_type {
            DirectoryEntryType::UNKNOWN => "DIR_ITEM.0".to_owned(),
            known => known.to_string(),
        };
        line!(text, "\t\tlocation {} type {entry_type}", key(&entry.location));
        let (data_len, name_len) = (entry.data.len(), entry.name.len());
        line!(text, "\t\ttransid {} data_len {data_len} name_len {name_len}", entry.transaction);
        shown(text, "\t\tname: ", entry.name, context);
        if !entry.data.is_empty() {
            shown(text, "\t\tdata ", entry.data, context);
        }
    }
    Ok(())
}

pub fn references(text: &mut Vec<u8>, data: &[u8], context: &Context) -> Printed {
    for reference in InodeReferences::new(data) {
        let reference = reference?;
        put!(text, "\t\tindex {} namelen {} ", reference.index, reference.name.len());
        shown(text, "name: ", reference.name, context);
    }
    Ok(())
}

pub fn extended_references(text: &mut Vec<u8>, data: &[u8], context: &Context) -> Printed {
    for reference in ExtendedReferences::new(data) {
        let reference = reference?;
        let (index, parent, length) = (reference.index, reference.parent, reference.name.len());
        put!(text, "\t\tindex {index} parent {parent} namelen {length} ");
        shown(text, "name: ", reference.name, context);
    }
    Ok(())
}

pub fn log_range(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    line!(text, "\t\tdir log end {}", DirectoryLogRange::decode(data)?.last);
    Ok(())
}

pub fn string(text: &mut Vec<u8>, data: &[u8], context: &Context) {
    shown(text, "\t\titem data ", data, context);
}
