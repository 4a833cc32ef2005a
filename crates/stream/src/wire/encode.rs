//! From a command to bytes.

use vlinder_codec::checksum::crc32c;
use vlinder_format::Uuid;
use vlinder_format::inode::Timestamp;

use super::limits::COMMAND_HEAD_BYTES;
use super::{AttributeType, Command, CommandKind, EncodedWrite, Node, Protocol, Snapshot, WireError};

/// Appends a whole command to `output`. Writes nothing if it can't.
///
/// # Errors
/// The stream's version does not have the command; a value is longer than its attribute can be.
pub(crate) fn encode(
    command: &Command<'_>,
    protocol: Protocol,
    output: &mut Vec<u8>,
) -> Result<(), WireError> {
    let kind = command.kind();
    if kind.since() > protocol {
        return Err(WireError::NotInProtocol { kind });
    }
    let start = output.len();
    output.resize(start + COMMAND_HEAD_BYTES, 0);
    let mut attributes = AttributeWriter { kind, protocol, output, failure: None };
    attributes.put_all(command);
    if let Some(failure) = attributes.failure {
        output.truncate(start);
        return Err(failure);
    }
    seal(kind, &mut output[start..]);
    Ok(())
}

/// Fills in the head: length, kind, and the checksum of the command with zeros in the checksum's place.
fn seal(kind: CommandKind, command: &mut [u8]) {
    // No attribute is longer than 64 KiB but data, which the caller keeps far below 4 GiB.
    let length = (command.len() - COMMAND_HEAD_BYTES) as u32;
    command[..4].copy_from_slice(&length.to_le_bytes());
    command[4..6].copy_from_slice(&kind.number().to_le_bytes());
    let checksum = crc32c(0, command);
    command[6..COMMAND_HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// The attributes of one command, as they are appended.
struct AttributeWriter<'a> {
    kind: CommandKind,
    protocol: Protocol,
    output: &'a mut Vec<u8>,
    failure: Option<WireError>,
}

impl AttributeWriter<'_> {
    fn put_all(&mut self, command: &Command<'_>) {
        if let Some(path) = command.path() {
            self.bytes(AttributeType::Path, path);
        }
        match *command {
            Command::Subvolume { uuid, transid, .. } => {
                self.uuid(AttributeType::Uuid, uuid);
                self.number(AttributeType::Transid, transid.0);
            }
            Command::Snapshot(ref snapshot) => self.snapshot(snapshot),
            Command::MakeFile { inode, .. } | Command::MakeDirectory { inode, .. } => self.inode(inode),
            Command::MakeNode(ref node) | Command::MakeFifo(ref node) | Command::MakeSocket(ref node) => {
                self.node(node);
            }
            Command::Symlink { inode, target, .. } => {
                self.inode(inode);
                self.bytes(AttributeType::LinkPath, target);
            }
            Command::Rename { to, .. } => self.bytes(AttributeType::NewPath, to),
            Command::Link { existing, .. } => self.bytes(AttributeType::LinkPath, existing),
            Command::Unlink { .. } | Command::RemoveDirectory { .. } | Command::End => {}
            Command::SetXattr { name, value, .. } => {
                self.bytes(AttributeType::XattrName, name);
                self.bytes(AttributeType::XattrValue, value);
            }
            Command::RemoveXattr { name, .. } => self.bytes(AttributeType::XattrName, name),
            Command::SetMode { mode, .. } => self.number(AttributeType::Mode, mode),
            Command::SetOwner { uid, gid, .. } => {
                self.number(AttributeType::Uid, uid);
                self.number(AttributeType::Gid, gid);
            }
            Command::SetTimes { times, .. } => {
                self.time(AttributeType::AccessTime, times.access);
                self.time(AttributeType::ModificationTime, times.modification);
                self.time(AttributeType::ChangeTime, times.change);
                if let Some(birth) = times.birth.filter(|_| self.protocol >= Protocol::V2) {
                    self.time(AttributeType::BirthTime, birth);
                }
            }
            Command::EnableVerity { algorithm, block_size, salt, signature, .. } => {
                self.bytes(AttributeType::VerityAlgorithm, &[algorithm]);
                self.small_number(AttributeType::VerityBlockSize, block_size);
                self.bytes(AttributeType::VeritySalt, salt);
                self.bytes(AttributeType::VeritySignature, signature);
            }
            _ => self.put_content(command),
        }
    }

    /// The commands about what a file holds.
    fn put_content(&mut self, command: &Command<'_>) {
        match *command {
            Command::Write { offset, data, .. } => {
                self.number(AttributeType::FileOffset, offset);
                self.data(data);
            }
            Command::Clone {
                offset,
                length,
                source_uuid,
                source_transid,
                source_path,
                source_offset,
                ..
            } => {
                self.number(AttributeType::FileOffset, offset);
                self.number(AttributeType::CloneLength, length);
                self.uuid(AttributeType::CloneUuid, source_uuid);
                self.number(AttributeType::CloneTransid, source_transid.0);
                self.bytes(AttributeType::ClonePath, source_path);
                self.number(AttributeType::CloneOffset, source_offset);
            }
            Command::Truncate { size, .. } => self.number(AttributeType::Size, size),
            Command::UpdateExtent { offset, length, .. } => {
                self.number(AttributeType::FileOffset, offset);
                self.number(AttributeType::Size, length);
            }
            Command::Fallocate { mode, offset, length, .. } => {
                self.small_number(AttributeType::FallocateMode, mode);
                self.number(AttributeType::FileOffset, offset);
                self.number(AttributeType::Size, length);
            }
            Command::SetFileAttributes { flags, .. } => self.number(AttributeType::FileAttributes, flags),
            Command::EncodedWrite(ref write) => self.encoded_write(write),
            _ => {}
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot<'_>) {
        self.uuid(AttributeType::Uuid, snapshot.uuid);
        self.number(AttributeType::Transid, snapshot.transid.0);
        self.uuid(AttributeType::CloneUuid, snapshot.parent_uuid);
        self.number(AttributeType::CloneTransid, snapshot.parent_transid.0);
    }

    fn node(&mut self, node: &Node<'_>) {
        self.inode(node.inode);
        self.number(AttributeType::Device, node.device);
        self.number(AttributeType::Mode, node.mode);
    }

    fn encoded_write(&mut self, write: &EncodedWrite<'_>) {
        self.number(AttributeType::FileOffset, write.offset);
        self.number(AttributeType::UnencodedFileLength, write.file_length);
        self.number(AttributeType::UnencodedLength, write.unencoded_length);
        self.number(AttributeType::UnencodedOffset, write.unencoded_offset);
        self.small_number(AttributeType::Compression, write.compression);
        self.small_number(AttributeType::Encryption, write.encryption);
        self.data(write.data);
    }

    fn inode(&mut self, inode: Option<u64>) {
        if let Some(inode) = inode {
            self.number(AttributeType::Inode, inode);
        }
    }

    fn number(&mut self, attribute: AttributeType, number: u64) {
        self.bytes(attribute, &number.to_le_bytes());
    }

    fn small_number(&mut self, attribute: AttributeType, number: u32) {
        self.bytes(attribute, &number.to_le_bytes());
    }

    fn uuid(&mut self, attribute: AttributeType, uuid: Uuid) {
        self.bytes(attribute, &uuid.0);
    }

    fn time(&mut self, attribute: AttributeType, time: Timestamp) {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&time.seconds.to_le_bytes());
        bytes[8..].copy_from_slice(&time.nanoseconds.to_le_bytes());
        self.bytes(attribute, &bytes);
    }

    /// Bytes of a file come last: since version 2 they have no length and go to the end of the command.
    fn data(&mut self, data: &[u8]) {
        if self.protocol.has_open_data() {
            self.output.extend_from_slice(&AttributeType::Data.number().to_le_bytes());
            self.output.extend_from_slice(data);
        } else {
            self.bytes(AttributeType::Data, data);
        }
    }

    fn bytes(&mut self, attribute: AttributeType, bytes: &[u8]) {
        let Ok(length) = u16::try_from(bytes.len()) else {
            let kind = self.kind;
            self.failure.get_or_insert(WireError::DoesNotFit { kind, attribute, bytes: bytes.len() });
            return;
        };
        self.output.extend_from_slice(&attribute.number().to_le_bytes());
        self.output.extend_from_slice(&length.to_le_bytes());
        self.output.extend_from_slice(bytes);
    }
}
