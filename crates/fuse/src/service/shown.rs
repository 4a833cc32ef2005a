//! What the kernel is shown of a file.

use vlinder_base::sync::Arc;
use vlinder_fs::{Attributes, FsError, Inode};

use super::blocks::Blocks;
use super::convert::{attributes_of, errno};
use super::gate::Gate;
use super::generations::Generations;
use super::mounted::Mounted;
use super::unplaced::UnplacedBytes;
use crate::transport::{Entry, NodeAttributes, NodeNumber, Reply};

/// Makes the entries and attributes in answers.
pub(super) struct Shown {
    mounted: Arc<Mounted>,
    gate: Arc<Gate>,
    blocks: Arc<Blocks>,
    unplaced: Arc<UnplacedBytes>,
    generations: Generations,
}

impl Shown {
    pub(super) fn new(
        mounted: Arc<Mounted>,
        gate: Arc<Gate>,
        blocks: Arc<Blocks>,
        unplaced: Arc<UnplacedBytes>,
    ) -> Self {
        let generations = Generations::of(mounted.filesystem());
        Self { mounted, gate, blocks, unplaced, generations }
    }

    /// The attributes of a file, with what has to hold besides for the kernel.
    pub(super) fn attributes(&self, mut attributes: Attributes) -> NodeAttributes {
        attributes.size_bytes = self.unplaced.end(attributes.id).max(attributes.size_bytes);
        attributes.allocated_bytes = self.blocks.told_bytes(&attributes);
        attributes_of(&attributes, self.mounted.nodes().number(attributes.id))
    }

    /// The entry of a file of which the kernel is not going to be told, or is counted by the caller.
    pub(super) fn uncounted_entry(&self, inode: &Inode) -> Entry {
        let attributes = self.mounted.filesystem().attributes().of(inode);
        let nodes = self.mounted.nodes();
        let node = nodes.node(inode.id());
        self.gate.keep_shut(inode.id(), attributes.flags);
        let is_lasting = !nodes.is_from_table(node);
        Entry {
            node,
            generation: self.generations.told(inode, node, is_lasting, attributes.generation.0),
            attributes: self.attributes(attributes),
        }
    }

    /// The entry of a file that the kernel learns of in a directory, counted.
    pub(super) fn entry(&self, inode: &Inode, directory: NodeNumber) -> Entry {
        let entry = self.uncounted_entry(inode);
        self.mounted.nodes().remember(entry.node, directory);
        entry
    }

    /// The entry of a file that was made in a directory.
    pub(super) fn made(&self, made: Result<Arc<Inode>, FsError>, directory: NodeNumber) -> Reply<Entry> {
        made.map(|inode| self.entry(&inode, directory)).map_err(|error| errno(&error))
    }

    /// The attributes of the file that the kernel means.
    pub(super) fn of_node(&self, node: NodeNumber) -> Reply<NodeAttributes> {
        let inode = self.mounted.inode(node)?;
        Ok(self.uncounted_entry(&inode).attributes)
    }
}
