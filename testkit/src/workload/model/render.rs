//! The model as a walk, to be compared with a walk of the kernel's mount or of the library.

use std::collections::HashMap;

use super::node::{FileId, NameTarget, Node, TOP_LEVEL};
use super::reference_model::Model;
use crate::walk;
use crate::workload::node_kind::NodeKind;

impl Model {
    /// What a walk of the top-level subvolume shows, nested subvolumes included, and the paths of
    /// placeholders, whose times nobody promises and which are left out.
    pub fn walk(&self) -> (Vec<walk::Entry>, Vec<Vec<u8>>) {
        let mut renderer =
            Renderer { model: self, entries: Vec::new(), placeholders: Vec::new(), first: HashMap::new() };
        renderer.directory(FileId::root_directory(TOP_LEVEL), b"");
        (renderer.entries, renderer.placeholders)
    }
}

struct Renderer<'a> {
    model: &'a Model,
    entries: Vec<walk::Entry>,
    placeholders: Vec<Vec<u8>>,
    first: HashMap<FileId, Vec<u8>>,
}

impl Renderer<'_> {
    fn directory(&mut self, directory: FileId, path: &[u8]) {
        let model = self.model;
        let Some(node) = model.node(directory) else { return };
        for (name, entry) in &node.entries {
            let path = if path.is_empty() { name.clone() } else { [path, b"/", name].concat() };
            let file = match entry {
                NameTarget::Inode(number) => FileId { root: directory.root, number: *number },
                NameTarget::Subvolume(root) => FileId::root_directory(*root),
                NameTarget::Placeholder => {
                    self.placeholders.push(path);
                    continue;
                }
            };
            let Some(node) = model.node(file) else { continue };
            let entry = self.entry(file, node, &path);
            self.entries.push(entry);
            if node.kind == NodeKind::Directory {
                self.directory(file, &path);
            }
        }
    }

    fn entry(&mut self, file: FileId, node: &Node, path: &[u8]) -> walk::Entry {
        let is_directory = node.kind == NodeKind::Directory;
        let mut attributes = node.attributes.clone();
        if let Some(compression) = node.compression.as_ref().filter(|value| !value.is_empty()) {
            attributes.insert(b"btrfs.compression".to_vec(), compression.clone());
        }
        let (seconds, nanoseconds) = node.modified.unwrap_or_default();
        walk::Entry {
            path: path.to_vec(),
            mode: node.kind.mode_bits() | node.permissions,
            uid: node.user,
            gid: node.group,
            links: node.links.into(),
            modified_ns: i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds),
            size: node.size(),
            first_path: (!is_directory)
                .then(|| self.first.entry(file).or_insert_with(|| path.to_vec()).clone()),
            device: matches!(node.kind, NodeKind::Character | NodeKind::Block).then_some(node.device),
            target: (node.kind == NodeKind::SymbolicLink).then(|| node.target.clone()),
            xattrs: attributes.into_iter().map(|(name, value)| (name, walk::short_hash(&value))).collect(),
            content: (node.kind == NodeKind::File).then(|| node.content.hash()),
            data_ranges: None,
        }
    }
}
