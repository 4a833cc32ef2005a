//! What an archive holds, as unpacking it as root would leave it: a tree in memory, without the bytes of its
//! files.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use vlinder_base::clock::Timestamp;

use super::fault::ArchiveFault;

/// The directory that the archive is unpacked in.
pub(super) const ROOT: NodeId = NodeId(0);
/// Memory for names and attributes.
const MAX_METADATA_BYTES: u64 = 2 << 30;
/// What a node and a name of it take beside their bytes, about.
const NODE_BYTES: u64 = 256;
/// Links that one name may go through, as for Linux.
const MAX_LINKS: usize = 40;

/// A file of the archive, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId(pub(super) usize);

/// A range of a file, and where its bytes are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptRange {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) kept_at: u64,
}

pub(super) enum NodeKind {
    Directory(BTreeMap<Vec<u8>, NodeId>),
    Regular { size: u64, ranges: Vec<KeptRange> },
    SymbolicLink(Vec<u8>),
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
}

pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) permissions: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) access_time: Timestamp,
    pub(super) modification_time: Timestamp,
    pub(super) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names that it has now.
    pub(super) names: u64,
}

pub(super) struct ArchiveTree {
    nodes: Vec<Node>,
    /// The time of directories that the archive does not have itself.
    present: Timestamp,
    metadata_bytes: u64,
    /// Names that came again, and took the place of what had them.
    pub(super) replaced: u64,
    /// Names that began at the root of a file system.
    pub(super) absolute: u64,
}

impl ArchiveTree {
    pub(super) fn new(present: Timestamp) -> Self {
        let mut tree = Self { nodes: Vec::new(), present, metadata_bytes: 0, replaced: 0, absolute: 0 };
        let root = tree.plain_directory();
        tree.nodes.push(root);
        tree
    }

    fn plain_directory(&self) -> Node {
        Node {
            kind: NodeKind::Directory(BTreeMap::new()),
            permissions: 0o755,
            user: 0,
            group: 0,
            access_time: self.present,
            modification_time: self.present,
            attributes: BTreeMap::new(),
            names: 1,
        }
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// The entries of a directory; none for what is no directory.
    pub(super) fn entries(&self, id: NodeId) -> Option<&BTreeMap<Vec<u8>, NodeId>> {
        match &self.node(id).kind {
            NodeKind::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    fn entries_mut(&mut self, id: NodeId) -> &mut BTreeMap<Vec<u8>, NodeId> {
        match &mut self.nodes[id.0].kind {
            NodeKind::Directory(entries) => entries,
            _ => unreachable!("names are only added to what was found to be a directory"),
        }
    }

    /// Every file and its names' bytes count against the memory that an archive may take.
    fn count(&mut self, bytes: u64) -> Result<(), ArchiveFault> {
        self.metadata_bytes = self.metadata_bytes.saturating_add(bytes).saturating_add(NODE_BYTES);
        if self.metadata_bytes > MAX_METADATA_BYTES {
            return Err(ArchiveFault::TooMany { most: MAX_METADATA_BYTES });
        }
        Ok(())
    }

    /// Puts a file at a path, in place of what was there, as unpacking does.
    pub(super) fn put(&mut self, path: &[u8], node: Node) -> Result<(), ArchiveFault> {
        let mut attribute_bytes = 0;
        for (name, value) in &node.attributes {
            attribute_bytes += name.len() as u64 + value.len() as u64;
        }
        let ranges = match &node.kind {
            NodeKind::Regular { ranges, .. } => ranges.len() as u64 * 24,
            _ => 0,
        };
        self.count(path.len() as u64 + attribute_bytes + ranges)?;
        let Some((directory, name)) = self.place(path)? else {
            return match node.kind {
                NodeKind::Directory(_) => {
                    self.give(ROOT, node);
                    Ok(())
                }
                _ => Err(ArchiveFault::NotInDirectory { path: path.to_vec() }),
            };
        };
        let before = self.entries_mut(directory).get(&name).copied();
        if let Some(before) = before
            && matches!(
                (&self.node(before).kind, &node.kind),
                (NodeKind::Directory(_), NodeKind::Directory(_))
            )
        {
            // What is in it stays.
            self.give(before, node);
            return Ok(());
        }
        self.free(directory, &name, path)?;
        let id = NodeId(self.nodes.len());
        self.nodes.push(node);
        self.entries_mut(directory).insert(name, id);
        Ok(())
    }

    /// Gives a directory the attributes of one that came again.
    fn give(&mut self, id: NodeId, node: Node) {
        let known = &mut self.nodes[id.0];
        known.permissions = node.permissions;
        (known.user, known.group) = (node.user, node.group);
        (known.access_time, known.modification_time) = (node.access_time, node.modification_time);
        known.attributes.extend(node.attributes);
    }

    /// Adds a name to a file that is there.
    pub(super) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ArchiveFault> {
        self.count(path.len() as u64)?;
        let no_target = || ArchiveFault::NoTarget { path: path.to_vec(), target: target.to_vec() };
        let linked = self.find(target)?.ok_or_else(no_target)?;
        if matches!(self.node(linked).kind, NodeKind::Directory(_)) {
            return Err(no_target());
        }
        let (directory, name) = self.place(path)?.ok_or_else(no_target)?;
        if self.entries_mut(directory).get(&name) == Some(&linked) {
            return Ok(());
        }
        self.free(directory, &name, path)?;
        self.nodes[linked.0].names += 1;
        self.entries_mut(directory).insert(name, linked);
        Ok(())
    }

    /// Takes a name away, if there is one.
    fn free(&mut self, directory: NodeId, name: &[u8], path: &[u8]) -> Result<(), ArchiveFault> {
        let Some(before) = self.entries_mut(directory).get(name).copied() else { return Ok(()) };
        if self.entries(before).is_some_and(|entries| !entries.is_empty()) {
            return Err(ArchiveFault::NotEmpty { path: path.to_vec() });
        }
        self.entries_mut(directory).remove(name);
        self.nodes[before.0].names -= 1;
        self.replaced += 1;
        Ok(())
    }

    /// The directory of a path and the last name; none for the root. Directories that are not there are made.
    fn place(&mut self, path: &[u8]) -> Result<Option<(NodeId, Vec<u8>)>, ArchiveFault> {
        if path.starts_with(b"/") {
            self.absolute += 1;
        }
        let mut parts = parts_of(path)?;
        let Some(name) = parts.pop_back() else { return Ok(None) };
        let directory = self.walk(parts, path, true)?;
        Ok(directory.map(|directory| (directory, name)))
    }

    /// What is at a path; symbolic links on the way are followed, one at its end is not.
    pub(super) fn find(&mut self, path: &[u8]) -> Result<Option<NodeId>, ArchiveFault> {
        let mut parts = parts_of(path)?;
        let Some(name) = parts.pop_back() else { return Ok(Some(ROOT)) };
        let Some(directory) = self.walk(parts, path, false)? else { return Ok(None) };
        Ok(self.entries(directory).and_then(|entries| entries.get(&name)).copied())
    }

    fn walk(
        &mut self,
        mut parts: VecDeque<Vec<u8>>,
        path: &[u8],
        makes: bool,
    ) -> Result<Option<NodeId>, ArchiveFault> {
        let mut at = ROOT;
        let mut links = 0;
        while let Some(name) = parts.pop_front() {
            let Some(next) = self.entries_mut(at).get(&name).copied() else {
                if !makes {
                    return Ok(None);
                }
                self.count(name.len() as u64)?;
                let id = NodeId(self.nodes.len());
                let made = self.plain_directory();
                self.nodes.push(made);
                self.entries_mut(at).insert(name, id);
                at = id;
                continue;
            };
            match &self.node(next).kind {
                NodeKind::Directory(_) => at = next,
                NodeKind::SymbolicLink(target) => {
                    let through = || ArchiveFault::ThroughLink { path: path.to_vec() };
                    links += 1;
                    if target.starts_with(b"/") || links > MAX_LINKS {
                        return Err(through());
                    }
                    let mut target = parts_of(target).map_err(|_| through())?;
                    target.append(&mut parts);
                    parts = target;
                }
                _ => return Err(ArchiveFault::NotInDirectory { path: path.to_vec() }),
            }
        }
        Ok(Some(at))
    }
}

/// The names of a path, without those that lead nowhere.
fn parts_of(path: &[u8]) -> Result<VecDeque<Vec<u8>>, ArchiveFault> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    parts
        .map(|part| match part {
            b".." => Err(ArchiveFault::LeadsOut { path: path.to_vec() }),
            part => Ok(part.to_vec()),
        })
        .collect()
}
