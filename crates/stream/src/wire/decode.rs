//! From bytes to a command.

use vlinder_format::inode::Timestamp;
use vlinder_format::{Generation, Uuid};

use super::attribute::TYPES;
use super::{AttributeType, Command, CommandKind, EncodedWrite, Node, Protocol, Snapshot, Times, WireError};

/// The command of a kind whose attributes are `payload`.
///
/// # Errors
/// The bytes are no attributes, or not those that the command needs. Attributes that it does not need are
/// passed by, as Linux's receiver does.
pub(super) fn decode(
    kind: CommandKind,
    protocol: Protocol,
    payload: &[u8],
) -> Result<Command<'_>, WireError> {
    let attributes = FoundAttributes::find(kind, protocol, payload)?;
    if kind == CommandKind::End {
        return Ok(Command::End);
    }
    let path = attributes.bytes(AttributeType::Path)?;
    match attributes.of_names(path)? {
        Some(command) => Ok(command),
        None => attributes.of_content(path),
    }
}

/// The attributes of one command, by their types.
struct FoundAttributes<'a> {
    kind: CommandKind,
    found: [Option<&'a [u8]>; TYPES],
}

impl<'a> FoundAttributes<'a> {
    fn find(kind: CommandKind, protocol: Protocol, payload: &'a [u8]) -> Result<Self, WireError> {
        let mut found = [None; TYPES];
        let mut rest = payload;
        while !rest.is_empty() {
            let (number, after) = split_u16(rest).ok_or(WireError::Overlong { kind })?;
            let attribute =
                AttributeType::from_number(number).ok_or(WireError::UnknownAttribute { kind, number })?;
            let (value, next) = if attribute == AttributeType::Data && protocol.has_open_data() {
                (after, &[][..])
            } else {
                let (length, after) = split_u16(after).ok_or(WireError::Overlong { kind })?;
                after.split_at_checked(usize::from(length)).ok_or(WireError::Overlong { kind })?
            };
            let place = &mut found[usize::from(number)];
            if place.replace(value).is_some() {
                return Err(WireError::Repeated { kind, attribute });
            }
            rest = next;
        }
        Ok(Self { kind, found })
    }

    /// Commands about subvolumes, names and attributes; none if the command is another one.
    fn of_names(&self, path: &'a [u8]) -> Result<Option<Command<'a>>, WireError> {
        Ok(Some(match self.kind {
            CommandKind::Subvolume => Command::Subvolume {
                path,
                uuid: self.uuid(AttributeType::Uuid)?,
                transid: self.generation(AttributeType::Transid)?,
            },
            CommandKind::Snapshot => Command::Snapshot(Snapshot {
                path,
                uuid: self.uuid(AttributeType::Uuid)?,
                transid: self.generation(AttributeType::Transid)?,
                parent_uuid: self.uuid(AttributeType::CloneUuid)?,
                parent_transid: self.generation(AttributeType::CloneTransid)?,
            }),
            CommandKind::MakeFile => Command::MakeFile { path, inode: self.inode()? },
            CommandKind::MakeDirectory => Command::MakeDirectory { path, inode: self.inode()? },
            CommandKind::MakeNode => Command::MakeNode(self.node(path)?),
            CommandKind::MakeFifo => Command::MakeFifo(self.node(path)?),
            CommandKind::MakeSocket => Command::MakeSocket(self.node(path)?),
            CommandKind::Symlink => {
                Command::Symlink { path, inode: self.inode()?, target: self.bytes(AttributeType::LinkPath)? }
            }
            CommandKind::Rename => Command::Rename { path, to: self.bytes(AttributeType::NewPath)? },
            CommandKind::Link => Command::Link { path, existing: self.bytes(AttributeType::LinkPath)? },
            CommandKind::Unlink => Command::Unlink { path },
            CommandKind::RemoveDirectory => Command::RemoveDirectory { path },
            CommandKind::SetXattr => Command::SetXattr {
                path,
                name: self.bytes(AttributeType::XattrName)?,
                value: self.bytes(AttributeType::XattrValue)?,
            },
            CommandKind::RemoveXattr => {
                Command::RemoveXattr { path, name: self.bytes(AttributeType::XattrName)? }
            }
            CommandKind::SetMode => Command::SetMode { path, mode: self.number(AttributeType::Mode)? },
            CommandKind::SetOwner => Command::SetOwner {
                path,
                uid: self.number(AttributeType::Uid)?,
                gid: self.number(AttributeType::Gid)?,
            },
            CommandKind::SetTimes => Command::SetTimes { path, times: self.times()? },
            CommandKind::SetFileAttributes => {
                Command::SetFileAttributes { path, flags: self.number(AttributeType::FileAttributes)? }
            }
            _ => return Ok(None),
        }))
    }

    /// Commands about what a file holds.
    fn of_content(&self, path: &'a [u8]) -> Result<Command<'a>, WireError> {
        let offset = || self.number(AttributeType::FileOffset);
        Ok(match self.kind {
            CommandKind::Write => {
                Command::Write { path, offset: offset()?, data: self.bytes(AttributeType::Data)? }
            }
            CommandKind::Clone => Command::Clone {
                path,
                offset: offset()?,
                length: self.number(AttributeType::CloneLength)?,
                source_uuid: self.uuid(AttributeType::CloneUuid)?,
                source_transid: self.generation(AttributeType::CloneTransid)?,
                source_path: self.bytes(AttributeType::ClonePath)?,
                source_offset: self.number(AttributeType::CloneOffset)?,
            },
            CommandKind::Truncate => Command::Truncate { path, size: self.number(AttributeType::Size)? },
            CommandKind::UpdateExtent => {
                Command::UpdateExtent { path, offset: offset()?, length: self.number(AttributeType::Size)? }
            }
            CommandKind::Fallocate => Command::Fallocate {
                path,
                mode: self.small_number(AttributeType::FallocateMode)?,
                offset: offset()?,
                length: self.number(AttributeType::Size)?,
            },
            CommandKind::EncodedWrite => Command::EncodedWrite(EncodedWrite {
                path,
                offset: offset()?,
                file_length: self.number(AttributeType::UnencodedFileLength)?,
                unencoded_length: self.number(AttributeType::UnencodedLength)?,
                unencoded_offset: self.number(AttributeType::UnencodedOffset)?,
                // Linux leaves both out where they are 0.
                compression: self.optional_small_number(AttributeType::Compression)?,
                encryption: self.optional_small_number(AttributeType::Encryption)?,
                data: self.bytes(AttributeType::Data)?,
            }),
            CommandKind::EnableVerity => Command::EnableVerity {
                path,
                algorithm: u8::from_le_bytes(self.array(AttributeType::VerityAlgorithm)?),
                block_size: self.small_number(AttributeType::VerityBlockSize)?,
                salt: self.bytes(AttributeType::VeritySalt)?,
                signature: self.bytes(AttributeType::VeritySignature)?,
            },
            kind => return Err(WireError::UnknownCommand { number: kind.number() }),
        })
    }

    fn node(&self, path: &'a [u8]) -> Result<Node<'a>, WireError> {
        Ok(Node {
            path,
            inode: self.inode()?,
            mode: self.number(AttributeType::Mode)?,
            device: self.number(AttributeType::Device)?,
        })
    }

    fn times(&self) -> Result<Times, WireError> {
        let birth = match self.get(AttributeType::BirthTime) {
            Some(_) => Some(self.time(AttributeType::BirthTime)?),
            None => None,
        };
        Ok(Times {
            access: self.time(AttributeType::AccessTime)?,
            modification: self.time(AttributeType::ModificationTime)?,
            change: self.time(AttributeType::ChangeTime)?,
            birth,
        })
    }

    fn inode(&self) -> Result<Option<u64>, WireError> {
        self.get(AttributeType::Inode).map(|_| self.number(AttributeType::Inode)).transpose()
    }

    fn get(&self, attribute: AttributeType) -> Option<&'a [u8]> {
        self.found[usize::from(attribute.number())]
    }

    fn bytes(&self, attribute: AttributeType) -> Result<&'a [u8], WireError> {
        self.get(attribute).ok_or(WireError::Missing { kind: self.kind, attribute })
    }

    fn array<const N: usize>(&self, attribute: AttributeType) -> Result<[u8; N], WireError> {
        let bytes = self.bytes(attribute)?;
        let wrong = WireError::WrongLength { kind: self.kind, attribute, bytes: bytes.len() };
        bytes.try_into().map_err(|_| wrong)
    }

    fn number(&self, attribute: AttributeType) -> Result<u64, WireError> {
        self.array(attribute).map(u64::from_le_bytes)
    }

    fn small_number(&self, attribute: AttributeType) -> Result<u32, WireError> {
        self.array(attribute).map(u32::from_le_bytes)
    }

    fn optional_small_number(&self, attribute: AttributeType) -> Result<u32, WireError> {
        self.get(attribute).map_or(Ok(0), |_| self.small_number(attribute))
    }

    fn generation(&self, attribute: AttributeType) -> Result<Generation, WireError> {
        self.number(attribute).map(Generation)
    }

    fn uuid(&self, attribute: AttributeType) -> Result<Uuid, WireError> {
        self.array(attribute).map(Uuid)
    }

    fn time(&self, attribute: AttributeType) -> Result<Timestamp, WireError> {
        let bytes: [u8; 12] = self.array(attribute)?;
        let (seconds, nanoseconds) = bytes.split_at(8);
        Ok(Timestamp {
            seconds: i64::from_le_bytes(seconds.try_into().unwrap_or_default()),
            nanoseconds: u32::from_le_bytes(nanoseconds.try_into().unwrap_or_default()),
        })
    }
}

fn split_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_le_bytes(*number), rest))
}
