//! Properties of files and subvolumes, and the label of the file system.

use rustix::io::Errno;
use vlinder_format::superblock::Label;
use vlinder_fs::{AttributeMode, Refusal};

use super::served_mount::ServedMount;
use crate::ErrorBody;
use crate::peer::Peer;
use crate::protocol::{Answer, Name};

const COMPRESSION_ATTRIBUTE: &[u8] = b"btrfs.compression";

pub(super) fn set_label(mount: &ServedMount, peer: &Peer, label: &Name) -> Result<Answer, ErrorBody> {
    mount.require_privilege(peer)?;
    let label = Label::new(&label.0).map_err(|fault| ErrorBody::new(Errno::INVAL, fault.to_string()))?;
    {
        // The handle makes the running transaction one that has something to write.
        let handle = mount.filesystem.begin(0)?;
        mount.filesystem.engine().change_superblock(|superblock| superblock.label = label);
        handle.mark_changed();
    }
    mount.filesystem.sync()?;
    Ok(Answer::Done)
}

pub(super) fn property(
    mount: &ServedMount,
    peer: &Peer,
    path: &Name,
    name: &str,
) -> Result<Answer, ErrorBody> {
    let caller = mount.caller(peer, 0);
    let inode = mount.resolve(&caller, path)?;
    let value = match name {
        "ro" => Some(Name::from(mount.subvolume_root(&inode, path)?.is_read_only().to_string().as_str())),
        "label" => Some(Name::from(mount.filesystem.engine().superblock().label.as_bytes())),
        "compression" => {
            match mount.filesystem.attributes().extended_attribute(&caller, &inode, COMPRESSION_ATTRIBUTE) {
                Ok(value) => Some(Name(value)),
                Err(error) if error.refusal() == Some(Refusal::NoAttribute) => None,
                Err(error) => return Err(error.into()),
            }
        }
        _ => return Err(unknown_property(name)),
    };
    Ok(Answer::Property { value })
}

pub(super) fn set_property(
    mount: &ServedMount,
    peer: &Peer,
    path: &Name,
    name: &str,
    value: &Name,
    force: bool,
) -> Result<Answer, ErrorBody> {
    let caller = mount.caller(peer, 0);
    let inode = mount.resolve(&caller, path)?;
    match name {
        "ro" => {
            let read_only = match value.0.as_slice() {
                b"true" => true,
                b"false" => false,
                _ => {
                    let text = format!("ro is true or false, not {value}");
                    return Err(ErrorBody::new(Errno::INVAL, text));
                }
            };
            let root = mount.subvolume_root(&inode, path)?.id();
            if read_only {
                // What is held in memory could not be stored there any more.
                mount.write_back_and_store()?;
            }
            mount.filesystem.subvolumes().set_read_only(
                &mount.administrator(peer),
                root,
                read_only,
                force,
            )?;
        }
        "label" => return set_label(mount, peer, value),
        "compression" => {
            let (name, filesystem) = (COMPRESSION_ATTRIBUTE, &mount.filesystem);
            if value.0.is_empty() {
                filesystem.attributes().remove_extended_attribute(&caller, &inode, name)?;
            } else {
                let mode = AttributeMode::Either;
                filesystem.attributes().set_extended_attribute(&caller, &inode, name, &value.0, mode)?;
            }
            mount.notifier.attributes_changed(inode.id());
        }
        _ => return Err(unknown_property(name)),
    }
    Ok(Answer::Done)
}

fn unknown_property(name: &str) -> ErrorBody {
    ErrorBody::new(
        Errno::OPNOTSUPP,
        format!("there is no property {name:?}; there are ro, label and compression"),
    )
}
