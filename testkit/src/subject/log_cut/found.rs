//! What is there after a cut.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_fs::Inode;

use super::history::NameIndex;
use crate::subject::carry_out::Subject;
use crate::subject::look::seen;
use crate::workload::{FileId, Model, NameTarget, Seen};

/// One inode.
pub(super) struct FoundInode {
    pub(super) inode: Arc<Inode>,
    pub(super) seen: Seen,
    pub(super) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything that can be reached from the top-level directory.
#[derive(Default)]
pub(super) struct FoundFiles {
    pub(super) names: NameIndex,
    pub(super) inodes: BTreeMap<FileId, FoundInode>,
}

impl FoundFiles {
    pub(super) fn of(subject: &Subject) -> Result<Self, String> {
        let mut found = Self::default();
        let top = Model::root_directory(crate::workload::TOP_LEVEL);
        let root = subject.inode(top).map_err(|error| format!("the top-level directory: {error}"))?;
        let mut waiting = vec![(top, root)];
        while let Some((file, inode)) = waiting.pop() {
            if found.inodes.contains_key(&file) {
                continue;
            }
            let is_directory = inode.is_directory();
            found.add(subject, file, &inode)?;
            if is_directory {
                found.list(subject, file, &inode, &mut waiting)?;
            }
        }
        Ok(found)
    }

    fn add(&mut self, subject: &Subject, file: FileId, inode: &Arc<Inode>) -> Result<(), String> {
        let names = subject.filesystem.attributes().extended_attributes(inode);
        let mut attributes = BTreeMap::new();
        for name in names.map_err(|error| format!("attributes of {file:?}: {error}"))? {
            let value = subject.filesystem.attributes().extended_attribute(subject.caller(), inode, &name);
            let value = value.map_err(|error| format!("an attribute of {file:?}: {error}"))?;
            attributes.insert(name, value);
        }
        let seen = seen(subject, inode);
        self.inodes.insert(file, FoundInode { inode: Arc::clone(inode), seen, attributes });
        Ok(())
    }

    fn list(
        &mut self,
        subject: &Subject,
        directory: FileId,
        inode: &Arc<Inode>,
        waiting: &mut Vec<(FileId, Arc<Inode>)>,
    ) -> Result<(), String> {
        let listed = crate::subject::list(&subject.filesystem, inode);
        for (name, _) in listed.map_err(|error| format!("{directory:?}: {error}"))? {
            let child = subject.filesystem.names().lookup(subject.caller(), inode, &name);
            let child = child
                .map_err(|error| format!("{directory:?}/{}: {error}", String::from_utf8_lossy(&name)))?;
            let (root, number) = (child.id().root.0, child.number().0);
            let entry = match (child.is_placeholder(), root == directory.root) {
                (true, _) => NameTarget::Placeholder,
                (false, true) => NameTarget::Inode(number),
                (false, false) => NameTarget::Subvolume(root),
            };
            self.names.add(directory, &name, entry);
            if entry != NameTarget::Placeholder {
                waiting.push((FileId { root, number }, child));
            }
        }
        Ok(())
    }
}
