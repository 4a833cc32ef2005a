//! Names: create, link, unlink, rename, and files that stay open without one.

use vlinder_base::sync::Arc;

use rustix::io::Errno;

use super::{FileId, Model, NameTarget, Node, NodeKind, flag};
use crate::workload::operation::{OpenSlot, Place, RenameMode};

/// As many names as a file can have.
const MOST_LINKS: u32 = 65_535;

impl Model {
    /// A directory that may get a name.
    pub(super) fn directory(&self, place: Place, forbidden: u64) -> Result<(FileId, &Node), Errno> {
        let (file, node) = self.existing(place)?;
        if node.kind != NodeKind::Directory {
            return Err(Errno::NOTDIR);
        }
        // One that was removed while open takes no names.
        if file.number != super::ROOT_DIRECTORY && node.links == 0 {
            return Err(Errno::NOENT);
        }
        self.writable(file)?;
        if node.has(forbidden) { Err(Errno::PERM) } else { Ok((file, node)) }
    }

    pub(super) fn free_name(&self, directory: Place, name: &[u8]) -> Result<FileId, Errno> {
        let (file, node) = self.directory(directory, flag::IMMUTABLE)?;
        check_name(name)?;
        if node.entries.contains_key(name) { Err(Errno::EXIST) } else { Ok(file) }
    }

    pub(super) fn entry(&self, directory: Place, name: &[u8]) -> Result<(FileId, NameTarget), Errno> {
        let (file, node) = self.directory(directory, flag::IMMUTABLE | flag::APPEND)?;
        check_name(name)?;
        node.entries.get(name).map(|entry| (file, *entry)).ok_or(Errno::NOENT)
    }

    pub(super) fn create(
        &mut self,
        place: Place,
        name: &[u8],
        kind: NodeKind,
        permissions: u32,
        complete: impl FnOnce(&mut Node),
    ) -> Result<(), Errno> {
        let directory = self.free_name(place, name)?;
        let (Some(made), false) = (self.made, self.is_trial) else { return Ok(()) };
        let mut node = self.new_node(directory, kind, permissions);
        complete(&mut node);
        self.insert_node(made, node);
        self.put_name(directory, name, NameTarget::Inode(made.number));
        Ok(())
    }

    /// A new inode with what it inherits from its directory.
    fn new_node(&self, directory: FileId, kind: NodeKind, permissions: u32) -> Node {
        // mkdir(2) takes no set-id bits.
        let allowed = if kind == NodeKind::Directory { 0o1777 } else { 0o7777 };
        let mut node = Node::new(kind, permissions & allowed, self.now);
        if let Some(parent) = self.node(directory) {
            if parent.permissions & 0o2000 != 0 {
                node.group = parent.group;
                if kind == NodeKind::Directory {
                    node.permissions |= 0o2000;
                }
            }
            node.inherit_acl(parent);
        }
        node.parent = if kind == NodeKind::Directory { directory.number } else { 0 };
        node
    }

    pub(super) fn insert_node(&mut self, file: FileId, node: Node) {
        let subvolume = self.subvolumes.get_mut(&file.root);
        let replaced = subvolume.and_then(|subvolume| subvolume.nodes.insert(file.number, Arc::new(node)));
        assert!(replaced.is_none(), "{file:?} was given a number that is in use");
        self.touched.insert(file);
    }

    pub(super) fn put_name(&mut self, directory: FileId, name: &[u8], entry: NameTarget) {
        let now = self.now;
        let node = self.change(directory);
        node.entries.insert(name.to_vec(), entry);
        node.modified = Some(now);
    }

    pub(super) fn take_name(&mut self, directory: FileId, name: &[u8]) {
        let now = self.now;
        let node = self.change(directory);
        node.entries.remove(name);
        node.modified = Some(now);
    }

    pub(super) fn create_temporary(
        &mut self,
        place: Place,
        permissions: u32,
        slot: OpenSlot,
    ) -> Result<(), Errno> {
        let (directory, _) = self.directory(place, flag::IMMUTABLE)?;
        if self.open.contains_key(&slot) {
            return Err(Errno::MFILE);
        }
        let (Some(made), false) = (self.made, self.is_trial) else { return Ok(()) };
        let mut node = self.new_node(directory, NodeKind::File, permissions);
        node.links = 0;
        self.insert_node(made, node);
        self.open.insert(slot, made);
        Ok(())
    }

    pub(super) fn link(&mut self, file: Place, directory: Place, name: &[u8]) -> Result<(), Errno> {
        let target = self.free_name(directory, name)?;
        let (file, node) = self.changeable(file, flag::IMMUTABLE | flag::APPEND)?;
        if file.root != target.root {
            return Err(Errno::XDEV);
        }
        if node.kind == NodeKind::Directory {
            return Err(Errno::PERM);
        }
        // A file that lost its names gets none again, unless it never had one.
        if node.links == 0 && !self.is_temporary(file) {
            return Err(Errno::NOENT);
        }
        if node.links >= MOST_LINKS {
            return Err(Errno::MLINK);
        }
        if self.is_trial {
            return Ok(());
        }
        self.change(file).links += 1;
        self.put_name(target, name, NameTarget::Inode(file.number));
        Ok(())
    }

    /// Whether an open file without names was made so.
    fn is_temporary(&self, file: FileId) -> bool {
        self.open.values().any(|open| *open == file)
            && self.node(file).is_some_and(|node| node.links == 0 && node.parent == 0)
    }

    pub(super) fn unlink(&mut self, directory: Place, name: &[u8]) -> Result<(), Errno> {
        let (parent, entry) = self.entry(directory, name)?;
        let NameTarget::Inode(number) = entry else { return Err(Errno::ISDIR) };
        let file = FileId { root: parent.root, number };
        self.removable(file)?;
        if self.node(file).is_some_and(|node| node.kind == NodeKind::Directory) {
            return Err(Errno::ISDIR);
        }
        if self.is_trial {
            return Ok(());
        }
        self.take_name(parent, name);
        self.lose_link(file);
        Ok(())
    }

    pub(super) fn removable(&self, file: FileId) -> Result<(), Errno> {
        match self.node(file) {
            Some(node) if node.has(flag::IMMUTABLE | flag::APPEND) => Err(Errno::PERM),
            Some(_) => Ok(()),
            None => Err(Errno::NOENT),
        }
    }

    /// One name fewer; with the last one the inode goes, unless it is open.
    pub(super) fn lose_link(&mut self, file: FileId) {
        let node = self.change(file);
        node.links -= 1;
        // What once had a name is no temporary file any more.
        node.parent = u64::MAX;
        if node.links == 0 {
            self.drop_if_unused(file);
        }
    }

    fn drop_if_unused(&mut self, file: FileId) {
        if self.open.values().any(|open| *open == file) || self.node(file).is_none_or(|node| node.links > 0) {
            return;
        }
        if let Some(subvolume) = self.subvolumes.get_mut(&file.root) {
            subvolume.nodes.remove(&file.number);
        }
    }

    pub(super) fn remove_directory(&mut self, directory: Place, name: &[u8]) -> Result<(), Errno> {
        let (parent, entry) = self.entry(directory, name)?;
        match entry {
            NameTarget::Subvolume(root) => {
                self.empty_directory(Self::root_directory(root))?;
                self.delete_subvolume(directory, name)
            }
            NameTarget::Placeholder => {
                if !self.is_trial {
                    self.take_name(parent, name);
                }
                Ok(())
            }
            NameTarget::Inode(number) => {
                let file = FileId { root: parent.root, number };
                self.empty_directory(file)?;
                self.removable(file)?;
                if !self.is_trial {
                    self.take_name(parent, name);
                    self.change(file).links = 0;
                    self.drop_if_unused(file);
                }
                Ok(())
            }
        }
    }

    fn empty_directory(&self, file: FileId) -> Result<(), Errno> {
        match self.node(file) {
            Some(node) if node.kind != NodeKind::Directory => Err(Errno::NOTDIR),
            Some(node) if !node.entries.is_empty() => Err(Errno::NOTEMPTY),
            Some(_) => Ok(()),
            None => Err(Errno::NOENT),
        }
    }

    pub(super) fn open_file(&mut self, place: Place, slot: OpenSlot) -> Result<(), Errno> {
        let (file, _) = self.regular(place)?;
        if self.open.contains_key(&slot) {
            return Err(Errno::MFILE);
        }
        if !self.is_trial {
            self.open.insert(slot, file);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, slot: OpenSlot) -> Result<(), Errno> {
        if !self.open.contains_key(&slot) {
            return Err(Errno::BADF);
        }
        if !self.is_trial {
            self.release(slot);
        }
        Ok(())
    }

    pub(super) fn release(&mut self, slot: OpenSlot) {
        if let Some(file) = self.open.remove(&slot) {
            self.drop_if_unused(file);
        }
    }

    pub(super) fn rename(
        &mut self,
        (from, from_name): (Place, &[u8]),
        (to, to_name): (Place, &[u8]),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        if mode != RenameMode::NoReplace && self.is_same_file((from, from_name), (to, to_name)) {
            // Nothing is done, whatever else would forbid it.
            return Ok(());
        }
        let (source, moved) = self.entry(from, from_name)?;
        let (target, target_node) = self.directory(to, flag::IMMUTABLE)?;
        check_name(to_name)?;
        let replaced = target_node.entries.get(to_name).copied();
        if replaced.is_some() && target_node.has(flag::APPEND) {
            return Err(Errno::PERM);
        }
        self.check_rename((source, moved), (target, replaced), mode)?;
        if self.is_trial {
            return Ok(());
        }
        if mode == RenameMode::Exchange {
            if let Some(other) = replaced {
                self.put_name(source, from_name, other);
                self.settle_parent(source, other, from_name);
            }
        } else {
            self.take_name(source, from_name);
            self.discard_replaced(target, replaced);
            if let (RenameMode::Whiteout, Some(made)) = (mode, self.made) {
                let node = self.new_node(source, NodeKind::Character, 0);
                self.insert_node(made, node);
                self.put_name(source, from_name, NameTarget::Inode(made.number));
            }
        }
        self.put_name(target, to_name, moved);
        self.settle_parent(target, moved, to_name);
        Ok(())
    }

    /// Whether two names that exist stand for one file.
    fn is_same_file(&self, (from, from_name): (Place, &[u8]), (to, to_name): (Place, &[u8])) -> bool {
        let find = |place, name: &[u8]| {
            let (directory, node) = self.existing(place).ok()?;
            Some((directory, *node.entries.get(name)?))
        };
        match (find(from, from_name), find(to, to_name)) {
            (Some((source, NameTarget::Inode(one))), Some((target, NameTarget::Inode(other)))) => {
                source.root == target.root && one == other
            }
            (Some((_, one @ NameTarget::Subvolume(_))), Some((_, other))) => one == other,
            (Some((source, NameTarget::Placeholder)), Some((target, NameTarget::Placeholder))) => {
                source == target && from_name == to_name
            }
            _ => false,
        }
    }

    fn check_rename(
        &self,
        (source, moved): (FileId, NameTarget),
        (target, replaced): (FileId, Option<NameTarget>),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        let moves = [(source, Some(moved), target), (target, replaced, source)];
        for (home, entry, destination) in
            moves.into_iter().take(if mode == RenameMode::Exchange { 2 } else { 1 })
        {
            let Some(entry) = entry else { continue };
            let NameTarget::Inode(number) = entry else {
                // Subvolumes move anywhere, but in exchange only for another subvolume or within one;
                // placeholders stay.
                let other = if home == source { replaced } else { Some(moved) };
                let is_fair = mode != RenameMode::Exchange
                    || home.root == destination.root
                    || matches!(other, Some(NameTarget::Subvolume(_)));
                if !is_fair {
                    return Err(Errno::XDEV);
                }
                let may_move = matches!(entry, NameTarget::Subvolume(_));
                if !may_move || self.is_inside_subvolume(destination, entry) {
                    return Err(Errno::PERM);
                }
                self.check_moved_subvolume(entry, home != destination)?;
                continue;
            };
            let file = FileId { root: home.root, number };
            self.removable(file)?;
            if home.root != destination.root {
                return Err(Errno::XDEV);
            }
            if self.is_ancestor(file, destination) {
                return Err(Errno::INVAL);
            }
        }
        match (mode, replaced) {
            (RenameMode::Exchange, _) | (_, None) => Ok(()),
            (_, Some(NameTarget::Inode(number))) => {
                self.check_replaced(source, moved, FileId { root: target.root, number })
            }
            // An empty directory to everyone but the one that asks for its inode.
            (_, Some(NameTarget::Placeholder)) if self.is_directory(source, moved) => Ok(()),
            (_, Some(NameTarget::Placeholder)) => Err(Errno::ISDIR),
            (_, Some(NameTarget::Subvolume(_))) => Err(Errno::NOTEMPTY),
        }
    }

    /// Whether a name in the directory `home` stands for a directory, of whatever kind.
    fn is_directory(&self, home: FileId, entry: NameTarget) -> bool {
        match entry {
            NameTarget::Inode(number) => self
                .node(FileId { root: home.root, number })
                .is_some_and(|node: &Node| node.kind == NodeKind::Directory),
            NameTarget::Subvolume(_) | NameTarget::Placeholder => true,
        }
    }

    /// A directory that gets another parent must be writable itself.
    fn check_moved_subvolume(&self, entry: NameTarget, gets_other_parent: bool) -> Result<(), Errno> {
        let NameTarget::Subvolume(root) = entry else { return Ok(()) };
        let directory = Self::root_directory(root);
        self.removable(directory)?;
        if gets_other_parent { self.writable(directory) } else { Ok(()) }
    }

    fn check_replaced(&self, source: FileId, moved: NameTarget, victim: FileId) -> Result<(), Errno> {
        self.removable(victim)?;
        let replaces_directory = self.is_directory(victim, NameTarget::Inode(victim.number));
        match (self.is_directory(source, moved), replaces_directory) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (true, true) if moved == NameTarget::Inode(victim.number) && source.root == victim.root => Ok(()),
            (true, true) => self.empty_directory(victim),
            (false, false) => Ok(()),
        }
    }

    /// Whether `file` is `below` or a directory above it.
    fn is_ancestor(&self, file: FileId, below: FileId) -> bool {
        let mut at = below;
        // Parents lead to the root directory of the subvolume, which is its own parent.
        for _ in 0..=self.subvolumes.get(&file.root).map_or(0, |subvolume| subvolume.nodes.len()) {
            if at == file {
                return true;
            }
            match self.node(at) {
                Some(node) if at.number != super::ROOT_DIRECTORY => at.number = node.parent,
                _ => return false,
            }
        }
        false
    }

    /// Whether a directory lies in this subvolume or one nested in it.
    fn is_inside_subvolume(&self, directory: FileId, entry: NameTarget) -> bool {
        let NameTarget::Subvolume(wanted) = entry else { return false };
        let mut root = directory.root;
        for _ in 0..=self.subvolumes.len() {
            if root == wanted {
                return true;
            }
            match self.subvolumes.get(&root).and_then(|subvolume| subvolume.place.as_ref()) {
                Some((place, _)) => root = place.root,
                None => return false,
            }
        }
        false
    }

    fn settle_parent(&mut self, directory: FileId, entry: NameTarget, name: &[u8]) {
        match entry {
            NameTarget::Inode(number) => {
                let node = self.change(FileId { root: directory.root, number });
                if node.kind == NodeKind::Directory {
                    node.parent = directory.number;
                }
            }
            NameTarget::Subvolume(root) => {
                if let Some(subvolume) = self.subvolumes.get_mut(&root) {
                    subvolume.place = Some((directory, name.to_vec()));
                }
            }
            NameTarget::Placeholder => {}
        }
    }

    fn discard_replaced(&mut self, target: FileId, replaced: Option<NameTarget>) {
        let Some(NameTarget::Inode(number)) = replaced else { return };
        let file = FileId { root: target.root, number };
        if self.node(file).is_some_and(|node| node.kind == NodeKind::Directory) {
            self.change(file).links = 0;
            self.drop_if_unused(file);
        } else {
            self.lose_link(file);
        }
    }
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::NOENT),
        b"." | b".." => Err(Errno::INVAL),
        long if long.len() > 255 => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}
