//! POSIX ACLs in the form of their extended attribute: a version, then tag, permissions and id of each entry.

use super::node::Node;
use crate::workload::node_kind::NodeKind;

/// The attribute that holds who may access.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that holds what new files in a directory get.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const OWNER: u16 = 1;
const GROUP: u16 = 4;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Entries: tag, permissions, id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acl(Vec<(u16, u16, u32)>);

impl Acl {
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let entries = value.strip_prefix(&2_u32.to_le_bytes())?;
        let entries = entries.chunks(8).map(|entry| {
            let entry: [u8; 8] = entry.try_into().ok()?;
            let [a, b, c, d, id @ ..] = entry;
            Some((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]), u32::from_le_bytes(id)))
        });
        entries.collect::<Option<Vec<_>>>().map(Self)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in &self.0 {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    fn permissions(&self, tag: u16) -> Option<u32> {
        self.0.iter().find(|entry| entry.0 == tag).map(|entry| u32::from(entry.1))
    }

    /// The permissions that stand in the mode.
    pub(super) fn mode(&self) -> u32 {
        let group = self.permissions(MASK).or_else(|| self.permissions(GROUP)).unwrap_or(0);
        self.permissions(OWNER).unwrap_or(0) << 6 | group << 3 | self.permissions(OTHER).unwrap_or(0)
    }

    /// Whether the mode says as much.
    pub(super) fn is_only_mode(&self) -> bool {
        self.0.len() == 3
    }

    fn group_tag(&self) -> u16 {
        if self.permissions(MASK).is_some() { MASK } else { GROUP }
    }

    /// As chmod changes it.
    pub(super) fn set_mode(&mut self, mode: u32) {
        let group = self.group_tag();
        for (tag, permissions, _) in &mut self.0 {
            let shift = if *tag == OWNER {
                6
            } else if *tag == group {
                3
            } else {
                0
            };
            if [OWNER, group, OTHER].contains(tag) {
                *permissions = (mode >> shift & 7) as u16;
            }
        }
    }

    /// As creating a file with a mode cuts it.
    fn cut_to(&mut self, mode: u32) {
        let group = self.group_tag();
        for (tag, permissions, _) in &mut self.0 {
            let shift = if *tag == OWNER {
                6
            } else if *tag == group {
                3
            } else {
                0
            };
            if [OWNER, group, OTHER].contains(tag) {
                *permissions &= (mode >> shift & 7) as u16;
            }
        }
    }
}

impl Node {
    /// What a new inode gets from its directory's default ACL.
    pub(super) fn inherit_acl(&mut self, directory: &Node) {
        let Some(value) = directory.attributes.get(DEFAULT) else { return };
        if self.kind == NodeKind::SymbolicLink {
            return;
        }
        if self.kind == NodeKind::Directory {
            self.attributes.insert(DEFAULT.to_vec(), value.clone());
        }
        let Some(acl) = self.cut_by(value) else { return };
        if !acl.is_only_mode() {
            self.attributes.insert(ACCESS.to_vec(), acl.encode());
        }
    }

    /// What the root directory of a new subvolume gets from the default ACL of the directory that has its
    /// name: the mode alone.
    pub(super) fn cut_by_acl_of(&mut self, directory: &Node) {
        if let Some(value) = directory.attributes.get(DEFAULT) {
            self.cut_by(value);
        }
    }

    fn cut_by(&mut self, value: &[u8]) -> Option<Acl> {
        let mut acl = Acl::decode(value)?;
        acl.cut_to(self.permissions);
        self.permissions = self.permissions & !0o777 | acl.mode();
        Some(acl)
    }
}
