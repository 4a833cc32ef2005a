//! The table of owners, modes and device nodes that genext2fs takes (`-D`): a line a path.
//!
//! | column | |
//! |---|---|
//! | name | path below the source directory, with or without a slash before it |
//! | type | `f` file, `d` directory, `c` and `b` devices, `p` FIFO, `s` socket, `l` symbolic link |
//! | mode | permission bits, octal |
//! | uid, gid | owner, by numbers |
//! | major, minor | of a device |
//! | start, inc, count | of devices: one for each `i` from `start` below `count`, called by the name and `i`, with the minor number `minor + i * inc - start` |
//!
//! A column that says nothing is `-` or left out; `#` begins a comment. What is not there is made, but for
//! symbolic links. Names can't hold blanks. (Read from what genext2fs 1.5 makes of such tables.)

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::io::Read;
use std::path::Path;

use vlinder_base::clock::Timestamp;

use super::error::MkfsError;

/// Nodes that one table may name: more than the minor numbers that Linux has.
const MAX_NODES: u64 = 1 << 21;

/// Bytes of the longest table that is read: a line for each of a million files.
const MAX_TABLE_BYTES: u64 = 64 << 20;
/// The largest major number of a device that Linux knows.
pub(super) const MAX_MAJOR: u32 = (1 << 12) - 1;
/// The largest minor number of a device that Linux knows.
pub(super) const MAX_MINOR: u32 = (1 << 20) - 1;

/// What a line says that its path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableKind {
    Regular,
    Directory,
    CharacterDevice,
    BlockDevice,
    Fifo,
    Socket,
    SymbolicLink,
}

/// What a line says of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableNode {
    pub(super) kind: TableKind,
    pub(super) permissions: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Major and minor number of a device.
    pub(super) device: (u32, u32),
    /// Where it stands in the table.
    pub(super) line: usize,
}

/// Nodes of a directory by their names.
pub(super) type TableDirectory = BTreeMap<Vec<u8>, TableNode>;

/// All lines of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerTable {
    /// Of the source directory itself.
    root: Option<TableNode>,
    /// By the path of the directory, empty for the source directory.
    directories: BTreeMap<Vec<u8>, TableDirectory>,
    /// When the table was changed last: the time of what it makes.
    modified: Timestamp,
}

impl OwnerTable {
    /// Reads a table.
    ///
    /// # Errors
    /// [`MkfsError::Target`] for a file that can't be read, [`MkfsError::OwnerTable`] for a line that says
    /// nothing that can be done.
    pub(super) fn read(path: &Path) -> Result<Self, MkfsError> {
        let fail = |source| MkfsError::Target { target: path.display().to_string(), source };
        let mut text = Vec::new();
        let file = std::fs::File::open(path).map_err(fail)?;
        file.take(MAX_TABLE_BYTES + 1).read_to_end(&mut text).map_err(fail)?;
        if text.len() as u64 > MAX_TABLE_BYTES {
            let what = "more than 64 MiB, and so no table of owners; give another file";
            return Err(fail(std::io::Error::other(what)));
        }
        let modified = std::fs::metadata(path).and_then(|status| status.modified()).map_err(fail)?;
        let mut table = Self { modified: modified.into(), ..Self::default() };
        let mut nodes = 0;
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line_number = index + 1;
            table.add_line(line, line_number, &mut nodes).map_err(|what| MkfsError::OwnerTable {
                table: path.display().to_string(),
                line: line_number,
                what,
            })?;
        }
        Ok(table)
    }

    /// What it says of the source directory itself.
    pub(super) fn root(&self) -> Option<&TableNode> {
        self.root.as_ref()
    }

    /// What it says of the entries of a directory.
    pub(super) fn directory(&self, path: &[u8]) -> Option<&TableDirectory> {
        self.directories.get(path)
    }

    /// The directories of which it has entries, each with a line that has one.
    pub(super) fn directories(&self) -> impl Iterator<Item = (&Vec<u8>, usize)> {
        self.directories
            .iter()
            .filter_map(|(path, nodes)| Some((path, nodes.values().map(|node| node.line).min()?)))
    }

    /// When it was changed last.
    pub(super) fn modified(&self) -> Timestamp {
        self.modified
    }

    fn add_line(&mut self, line: &[u8], line_number: usize, nodes: &mut u64) -> Result<(), &'static str> {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut columns = line.split(u8::is_ascii_whitespace).filter(|column| !column.is_empty());
        let Some(name) = columns.next() else { return Ok(()) };
        let kind = match columns.next() {
            Some(b"f") => TableKind::Regular,
            Some(b"d") => TableKind::Directory,
            Some(b"c") => TableKind::CharacterDevice,
            Some(b"b") => TableKind::BlockDevice,
            Some(b"p") => TableKind::Fifo,
            Some(b"s") => TableKind::Socket,
            Some(b"l") => TableKind::SymbolicLink,
            _ => return Err("the second column is a type: f, d, c, b, p, s or l"),
        };
        let mode =
            columns.next().and_then(|text| u32::from_str_radix(std::str::from_utf8(text).ok()?, 8).ok());
        let permissions =
            mode.filter(|mode| *mode <= 0o7777).ok_or("the third column is a mode, octal, up to 7777")?;
        let mut number = |what| match columns.next() {
            None | Some(b"-") => Ok(None),
            Some(text) => match std::str::from_utf8(text).ok().and_then(|text| text.parse::<u32>().ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(what),
            },
        };
        let owner = "the fourth and fifth column are numbers of a user and a group";
        let (user, group) = (number(owner)?.ok_or(owner)?, number(owner)?.ok_or(owner)?);
        let rest = "the last columns are numbers: major, minor, start, inc, count";
        let mut further = [None; 5];
        for column in &mut further {
            *column = number(rest)?;
        }
        if columns.next().is_some() {
            return Err("a line has ten columns at most; names can't hold blanks");
        }
        let [major, minor, start, step, count] = further;
        let is_device = matches!(kind, TableKind::CharacterDevice | TableKind::BlockDevice);
        if is_device && (major.is_none() || minor.is_none()) {
            return Err("a device has a major and a minor number: the sixth and seventh column");
        }
        let path = path_of(name)?;
        let device = (major.unwrap_or(0), minor.unwrap_or(0));
        let node = TableNode { kind, permissions, user, group, device, line: line_number };
        match count.filter(|count| is_device && *count > 0) {
            None => {
                *nodes += 1;
                self.add(&path, node)?;
            }
            Some(count) => {
                let (start, step) = (start.unwrap_or(0), step.unwrap_or(0));
                *nodes += u64::from(count.saturating_sub(start));
                if *nodes > MAX_NODES {
                    return Err("the table names more nodes than Linux has minor numbers; lower the count");
                }
                for index in start..count {
                    let minor = (u64::from(device.1) + u64::from(index) * u64::from(step))
                        .checked_sub(start.into())
                        .and_then(|minor| u32::try_from(minor).ok())
                        .ok_or("a minor number of these devices is out of range")?;
                    let path = [&path[..], index.to_string().as_bytes()].concat();
                    self.add(&path, TableNode { device: (device.0, minor), ..node })?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &[u8], node: TableNode) -> Result<(), &'static str> {
        if node.device.0 > MAX_MAJOR || node.device.1 > MAX_MINOR {
            return Err("Linux numbers devices up to 4095 (major) and 1048575 (minor)");
        }
        if path.is_empty() {
            if node.kind != TableKind::Directory {
                return Err("the source directory itself is a directory: its type is d");
            }
            return if self.root.replace(node).is_some() { Err(TWICE) } else { Ok(()) };
        }
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(place) => (&path[..place], &path[place + 1..]),
            None => (&path[..0], path),
        };
        match self.directories.entry(above.to_vec()).or_default().entry(name.to_vec()) {
            Place::Occupied(_) => Err(TWICE),
            Place::Vacant(place) => {
                place.insert(node);
                Ok(())
            }
        }
    }
}

const TWICE: &str = "the path stands in the table twice";

/// A path without slashes around it or empty parts in it.
fn path_of(name: &[u8]) -> Result<Vec<u8>, &'static str> {
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, b"." | b"..")) {
        return Err("a path in the table has no . or .. in it");
    }
    Ok(parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<OwnerTable, (usize, &'static str)> {
        let mut table = OwnerTable::default();
        let mut nodes = 0;
        for (index, line) in text.lines().enumerate() {
            table.add_line(line.as_bytes(), index + 1, &mut nodes).map_err(|what| (index + 1, what))?;
        }
        Ok(table)
    }

    #[test]
    fn a_table_is_read_as_genext2fs_reads_it() {
        let table = "# name type mode uid gid major minor start inc count\n\n\
            /dev d 755 0 0 - - - - - # a directory\n\
            dev/mem c 640 0 9 1 1 0 0 -\n\
            //dev//x\tc 640 0 0 7 10 1 2 4\n\
            /dev/hda b 640 0 0 3 1 1 1 3\n\
            / d 700 1 2\n";
        let table = parse(table).unwrap();
        assert_eq!(table.root().map(|node| (node.permissions, node.user, node.group)), Some((0o700, 1, 2)));
        let devices = table.directory(b"dev").unwrap();
        let shown: Vec<_> =
            devices.iter().map(|(name, node)| (std::str::from_utf8(name).unwrap(), node.device)).collect();
        // The numbers of x are those that debugfs shows of the image that genext2fs makes.
        assert_eq!(
            shown,
            [
                ("hda1", (3, 1)),
                ("hda2", (3, 2)),
                ("mem", (1, 1)),
                ("x1", (7, 11)),
                ("x2", (7, 13)),
                ("x3", (7, 15))
            ]
        );
        assert_eq!((devices[&b"mem"[..]].group, devices[&b"mem"[..]].permissions), (9, 0o640));
        assert_eq!(table.directory(b"").unwrap().keys().collect::<Vec<_>>(), [b"dev"]);
    }

    #[test]
    fn lines_that_say_nothing_are_refused_with_their_number() {
        for bad in [
            "/a",
            "/a x 644 0 0",
            "/a f 9 0 0",
            "/a f 17777 0 0",
            "/a f 644 root 0",
            "/a f 644 0",
            "/a c 644 0 0",
            "/a c 644 0 0 1",
            "/a c 644 0 0 1 2 3 4 5 6",
            "/a/../b f 644 0 0",
            "/ f 644 0 0",
            "/a c 644 0 0 1 0 0 1 4294967295",
            "/a c 644 0 0 1 0 5 0 6",
            "/a c 644 0 0 4096 0",
            "/a b 644 0 0 1 1048576",
            "/a b 644 0 0 1 1048574 0 1 3",
        ] {
            assert_eq!(parse(&format!("/ok d 755 0 0\n{bad}")).err().map(|(line, _)| line), Some(2), "{bad}");
        }
        assert_eq!(parse("/a f 644 0 0\na d 755 0 0").err(), Some((2, TWICE)));
    }
}
