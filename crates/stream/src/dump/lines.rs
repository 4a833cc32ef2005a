//! The line of a command.

use std::io::{self, Write};

use super::options::DumpOptions;
use super::text::{escape, until_zero, write_time};
use crate::wire::{Command, EncodedWrite, Node, Snapshot, Times};

/// Columns that the name of a command takes at least.
const NAME_COLUMNS: usize = 16;
/// Columns that a path takes at least where something follows it.
const PATH_COLUMNS: usize = 32;

/// Prints the commands of one stream. Paths begin with `./` and the subvolume's name.
pub(super) struct LinePrinter<'a> {
    options: &'a DumpOptions<'a>,
    /// What paths begin with.
    subvolume: Vec<u8>,
    /// The line that is being made; its memory is used again.
    line: Vec<u8>,
}

impl<'a> LinePrinter<'a> {
    pub fn new(options: &'a DumpOptions<'a>) -> Self {
        Self { options, subvolume: b".".to_vec(), line: Vec::new() }
    }

    /// Prints a command; nothing for the end.
    pub fn print(&mut self, command: &Command<'_>, output: &mut impl Write) -> io::Result<()> {
        let Some(path) = command.path() else { return Ok(()) };
        let path = match command {
            Command::Subvolume { .. } | Command::Snapshot(_) => {
                self.subvolume = joined(b".", path);
                self.subvolume.clone()
            }
            _ => joined(&self.subvolume, path),
        };
        self.line.clear();
        write!(self.line, "{:<NAME_COLUMNS$}", command.kind().name())?;
        let start = self.line.len();
        escape(&path, &mut self.line);
        let end = self.line.len();
        let width = (end - start + 1).max(PATH_COLUMNS);
        self.line.resize(start + width, b' ');
        let before = self.line.len();
        self.write_values(command)?;
        if self.line.len() == before {
            self.line.truncate(end);
        }
        self.line.push(b'\n');
        output.write_all(&self.line)
    }

    /// What follows the path.
    fn write_values(&mut self, command: &Command<'_>) -> io::Result<()> {
        let line = &mut self.line;
        match *command {
            Command::Subvolume { uuid, transid, .. } => write!(line, "uuid={uuid} transid={}", transid.0),
            Command::Snapshot(Snapshot { uuid, transid, parent_uuid, parent_transid, .. }) => {
                write!(line, "uuid={uuid} transid={} ", transid.0)?;
                write!(line, "parent_uuid={parent_uuid} parent_transid={}", parent_transid.0)
            }
            Command::MakeNode(Node { mode, device, .. }) => write!(line, "mode={mode:o} dev=0x{device:x}"),
            Command::Symlink { target: to, .. } | Command::Link { existing: to, .. } => {
                line.extend_from_slice(b"dest=");
                escape(until_zero(to), line);
                Ok(())
            }
            Command::Rename { to, .. } => {
                line.extend_from_slice(b"dest=");
                escape(&joined(&self.subvolume, to), line);
                Ok(())
            }
            Command::SetXattr { name, value, .. } => {
                line.extend_from_slice(b"name=");
                self.write_raw(until_zero(name));
                self.line.extend_from_slice(b" data=");
                self.write_raw(until_zero(value));
                write!(self.line, " len={}", value.len())
            }
            Command::RemoveXattr { name, .. } => {
                line.extend_from_slice(b"name=");
                self.write_raw(until_zero(name));
                Ok(())
            }
            Command::SetMode { mode, .. } => write!(line, "mode={mode:o}"),
            Command::SetOwner { uid, gid, .. } => write!(line, "gid={gid} uid={uid}"),
            Command::SetTimes { times, .. } => self.write_times(&times),
            _ => self.write_content(command),
        }
    }

    /// Of commands about what a file holds.
    fn write_content(&mut self, command: &Command<'_>) -> io::Result<()> {
        let line = &mut self.line;
        match *command {
            Command::Write { offset, data, .. } => write!(line, "offset={offset} len={}", data.len()),
            Command::Clone { offset, length, source_path, source_offset, .. } => {
                write!(line, "offset={offset} len={length} from=")?;
                let from = joined(&self.subvolume, source_path);
                self.write_raw(&from);
                write!(self.line, " clone_offset={source_offset}")
            }
            Command::Truncate { size, .. } => write!(line, "size={size}"),
            Command::UpdateExtent { offset, length, .. } => write!(line, "offset={offset} len={length}"),
            Command::Fallocate { mode, offset, length, .. } => {
                write!(line, "mode={} offset={offset} len={length}", mode.cast_signed())
            }
            // The number is decimal in spite of what stands before it.
            Command::SetFileAttributes { flags, .. } => write!(line, "fileattr=0x{flags}"),
            Command::EncodedWrite(EncodedWrite {
                offset,
                file_length,
                unencoded_length,
                unencoded_offset,
                compression,
                encryption,
                data,
                ..
            }) => {
                write!(line, "offset={offset} len={}, unencoded_file_len={file_length}, ", data.len())?;
                write!(line, "unencoded_len={unencoded_length}, unencoded_offset={unencoded_offset}, ")?;
                write!(line, "compression={compression}, encryption={encryption}")
            }
            Command::EnableVerity { algorithm, block_size, salt, signature, .. } => {
                let (salt, signature) = (salt.len(), signature.len());
                write!(line, "algorithm={algorithm} block_size={block_size} ")?;
                write!(line, "salt_len={salt} sig_len={signature}")
            }
            _ => Ok(()),
        }
    }

    fn write_times(&mut self, times: &Times) -> io::Result<()> {
        let times = [("atime", times.access), (" mtime", times.modification), (" ctime", times.change)];
        for (name, time) in times {
            write!(self.line, "{name}=")?;
            write_time(time.seconds, (self.options.utc_offset)(time.seconds), &mut self.line)?;
        }
        Ok(())
    }

    /// What btrfs-progs prints as it is.
    fn write_raw(&mut self, bytes: &[u8]) {
        if self.options.escapes_all {
            escape(bytes, &mut self.line);
        } else {
            self.line.extend_from_slice(bytes);
        }
    }
}

/// Two paths with a slash between them. One that ends with a slash loses it.
fn joined(above: &[u8], below: &[u8]) -> Vec<u8> {
    let trimmed = |path| {
        let path = until_zero(path);
        path.strip_suffix(b"/").unwrap_or(path).to_vec()
    };
    [trimmed(above), trimmed(below)].join(&b'/')
}
