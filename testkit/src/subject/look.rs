//! Looks at everything that can be seen of the file system, and compares it with the model.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_fs::data::{self, OpenCache};
use vlinder_fs::{FileType, FsError, Inode, InodeFlags};

use super::carry_out::{Subject, Trouble};
use crate::workload::{FileId, Model, NameTarget, Node, NodeKind, PAGE_BYTES, Seen};

/// What a look found.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The file system could not be read.
    #[error("{what}: {error}")]
    Unreadable {
        /// What was looked at.
        what: String,
        /// Why.
        error: String,
    },
    /// It is not as the model has it.
    #[error("{what}: {expected} expected, {found} found")]
    Different {
        /// Where.
        what: String,
        /// The model.
        expected: String,
        /// The file system.
        found: String,
    },
}

/// Flags that the file system sets on its own: that there is preallocated space, that compressing did not
/// pay.
const OWN_FLAGS: u64 = InodeFlags::PREALLOC.0 | InodeFlags::NOCOMPRESS.0;

/// What the file system shows of an inode.
pub fn seen(subject: &Subject, inode: &Inode) -> Seen {
    let attributes = subject.filesystem.attributes().of(inode);
    let is_device = matches!(inode.file_type(), FileType::CharacterDevice | FileType::BlockDevice);
    let device = attributes.device_number;
    Seen {
        mode: attributes.mode.0,
        user: attributes.user.0,
        group: attributes.group.0,
        links: attributes.link_count,
        size: attributes.size_bytes,
        modified: (attributes.modification_time.seconds, attributes.modification_time.nanoseconds),
        flags: attributes.flags.0 & !OWN_FLAGS,
        device: if is_device { (device.major() as u32, device.minor() as u32) } else { (0, 0) },
    }
}

fn unreadable(what: &str, error: &FsError) -> LookError {
    LookError::Unreadable { what: what.to_owned(), error: error.to_string() }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), LookError> {
    if expected == found {
        return Ok(());
    }
    let what = what.to_owned();
    Err(LookError::Different { what, expected: format!("{expected:?}"), found: format!("{found:?}") })
}

impl Subject {
    /// Takes in what can be seen of files that an operation touched.
    ///
    /// # Errors
    /// What contradicts the model.
    pub fn learn(&self, model: &mut Model, touched: &[FileId]) -> Result<(), LookError> {
        for file in touched {
            let what = format!("{file:?}");
            let inode = self.inode(*file).map_err(|error| unreadable(&what, &error))?;
            let found = seen(self, &inode);
            let differs = |mismatch: crate::workload::Mismatch| LookError::Different {
                what: what.clone(),
                expected: mismatch.expected,
                found: mismatch.found,
            };
            model.learn(*file, &found).map_err(differs)?;
            if matches!(inode.file_type(), FileType::Regular | FileType::Directory) {
                let compression = self.attribute(&inode, b"btrfs.compression");
                model.learn_compression(*file, compression).map_err(differs)?;
            }
        }
        Ok(())
    }

    fn attribute(&self, inode: &Inode, name: &[u8]) -> Option<Vec<u8>> {
        self.filesystem.attributes().extended_attribute(self.caller(), inode, name).ok()
    }

    /// Compares the whole file system with the model: every subvolume, name, attribute and byte.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self, model: &Model) -> Result<(), LookError> {
        self.compare_after_cut(model, &[])
    }

    /// Compares as `compare` does what a power cut left. A file without copy-on-write is written where it
    /// lies, so after a cut each byte of it may be that of any of the `others`, the states in between.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare_after_cut(&self, model: &Model, others: &[&Model]) -> Result<(), LookError> {
        let listed = self
            .filesystem
            .subvolumes()
            .all()
            .map_err(|error| unreadable("the list of subvolumes", &error))?;
        let listed: BTreeSet<u64> = listed.iter().filter(|one| !one.is_deleted).map(|one| one.id.0).collect();
        // The top level may be listed or not; it is always there.
        let with_top = |set: &BTreeSet<u64>| set.iter().copied().chain([5]).collect::<BTreeSet<u64>>();
        let expected: BTreeSet<u64> = model.subvolumes().keys().copied().collect();
        same("the list of subvolumes", &expected, &with_top(&listed))?;
        let default = self
            .filesystem
            .subvolumes()
            .default()
            .map_err(|error| unreadable("the default subvolume", &error))?;
        same("the default subvolume", &model.default_subvolume(), &default.0)?;
        for (root, subvolume) in model.subvolumes() {
            for (number, node) in &subvolume.nodes {
                self.compare_node(model, others, FileId { root: *root, number: *number }, node)?;
            }
        }
        Ok(())
    }

    fn compare_node(
        &self,
        model: &Model,
        others: &[&Model],
        file: FileId,
        node: &Node,
    ) -> Result<(), LookError> {
        let what = format!("{file:?}");
        let inode = self.inode(file).map_err(|error| unreadable(&what, &error))?;
        same(&what, &model.seen(file).unwrap_or_else(|| seen(self, &inode)), &seen(self, &inode))?;
        self.compare_attributes(&what, &inode, node)?;
        match node.kind {
            NodeKind::Directory => self.compare_names(&what, file, &inode, node),
            NodeKind::SymbolicLink => {
                let target =
                    self.filesystem.names().read_link(&inode).map_err(|error| unreadable(&what, &error))?;
                same(&what, &node.target, &target)
            }
            NodeKind::File => {
                let others = others.iter().filter(|_| node.is_written_in_place());
                let others: Vec<&Node> = others.filter_map(|model| model.node(file)).collect();
                self.compare_content(&what, &inode, node, &others)
            }
            _ => Ok(()),
        }
    }

    fn compare_attributes(&self, what: &str, inode: &Inode, node: &Node) -> Result<(), LookError> {
        let names = self
            .filesystem
            .attributes()
            .extended_attributes(inode)
            .map_err(|error| unreadable(what, &error))?;
        let names: BTreeSet<Vec<u8>> = names.into_iter().collect();
        let text = |names: &BTreeSet<Vec<u8>>| -> Vec<String> {
            names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        };
        let mut expected: BTreeSet<Vec<u8>> = node.attributes.keys().cloned().collect();
        if node.compression.as_ref().is_some_and(|value| !value.is_empty()) {
            expected.insert(b"btrfs.compression".to_vec());
        }
        same(&format!("attributes of {what}"), &text(&expected), &text(&names))?;
        for (name, value) in &node.attributes {
            let found = self.attribute(inode, name);
            same(
                &format!("attribute {} of {what}", String::from_utf8_lossy(name)),
                &Some(value.clone()),
                &found,
            )?;
        }
        Ok(())
    }

    fn compare_names(
        &self,
        what: &str,
        file: FileId,
        inode: &Arc<Inode>,
        node: &Node,
    ) -> Result<(), LookError> {
        let fail = |error: &FsError| unreadable(what, error);
        let open =
            self.filesystem.names().open_directory(self.caller(), inode).map_err(|error| fail(&error))?;
        let (mut from, mut listed) = (2, Vec::new());
        loop {
            let records = open.read(from, 64).map_err(|error| fail(&error))?;
            let Some(last) = records.last() else { break };
            from = last.offset + 1;
            listed.extend(records.into_iter().map(|record| (record.name, record.id)));
        }
        let count = listed.len();
        let names: BTreeSet<Vec<u8>> = listed.iter().map(|(name, _)| name.clone()).collect();
        same(&format!("names listed once in {what}"), &names.len(), &count)?;
        let expected: BTreeSet<Vec<u8>> = node.entries.keys().cloned().collect();
        same(&format!("names in {what}"), &expected, &names)?;
        for (name, id) in listed {
            let at = format!("{} in {what}", String::from_utf8_lossy(&name));
            let found = self
                .filesystem
                .names()
                .lookup(self.caller(), inode, &name)
                .map_err(|error| unreadable(&at, &error))?;
            match node.entries.get(&name) {
                Some(NameTarget::Inode(number)) => {
                    same(&at, &(file.root, *number), &(id.root.0, id.number.0))?;
                    same(&at, &(file.root, *number), &(found.id().root.0, found.number().0))?;
                }
                Some(NameTarget::Subvolume(root)) => {
                    same(&at, &(*root, 256), &(found.id().root.0, found.number().0))?
                }
                _ => same(&at, &true, &found.is_placeholder())?,
            }
        }
        Ok(())
    }

    pub(super) fn compare_content(
        &self,
        what: &str,
        inode: &Arc<Inode>,
        node: &Node,
        others: &[&Node],
    ) -> Result<(), LookError> {
        let size = node.content.size();
        let ranges = match self.data_ranges(inode) {
            Ok(ranges) => ranges,
            Err(Trouble::Refused(errno)) => {
                return Err(LookError::Unreadable { what: what.to_owned(), error: errno.to_string() });
            }
            Err(Trouble::Wrong(error)) => return Err(LookError::Unreadable { what: what.to_owned(), error }),
        };
        // All that holds data by either account, and the last byte.
        let mut parts: Vec<(u64, u64)> = ranges;
        parts.extend(node.content.pages().map(|page| (page, (page + PAGE_BYTES).min(size))));
        parts.push((size.saturating_sub(1), size));
        let cache = OpenCache::new();
        let _operation = inode.operation.read();
        for (start, end) in join(parts) {
            let mut at = start;
            while at < end {
                let mut bytes = vec![0xaa; (end - at).min(1 << 20) as usize];
                let count = data::read(&self.filesystem, inode, &cache, at, &mut bytes)
                    .map_err(|error| unreadable(&format!("{what} at {at}"), &error))?;
                same(&format!("bytes read of {what} at {at}"), &bytes.len(), &count)?;
                let mut expected = node.content.read(at, bytes.len() as u64);
                for other in others {
                    // What lies beyond the end of another state was zeros in it.
                    let mut content = other.content.read(at, bytes.len() as u64);
                    content.resize(bytes.len(), 0);
                    adopt(&mut expected, &content, &bytes);
                }
                if let Some(first) = expected.iter().zip(&bytes).position(|(left, right)| left != right) {
                    let place = format!("byte {} of {what} ({size} bytes)", at + first as u64);
                    same(&place, &expected[first], &bytes[first])?;
                }
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }
}

/// Takes the bytes that were `found` into what is `expected`, where another state has them.
fn adopt(expected: &mut [u8], other: &[u8], found: &[u8]) {
    for ((expected, other), found) in expected.iter_mut().zip(other).zip(found) {
        if other == found {
            *expected = *other;
        }
    }
}

/// Overlapping and neighbouring ranges as one.
fn join(mut parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    parts.retain(|(start, end)| start < end);
    parts.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in parts {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}
