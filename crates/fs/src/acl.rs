//! POSIX access control lists: their form in an extended attribute, what they allow, and how they and modes
//! follow each other (acl(5), the withdrawn POSIX 1003.1e draft 17).
//!
//! `system.posix_acl_access` and `system.posix_acl_default` hold a version (u32, 2) and entries of 8 bytes:
//! tag (u16), permissions (u16), user or group (u32). All little-endian.

use vlinder_format::inode::{GroupId, UserId};

use crate::{Access, Caller, Refusal};

/// The attribute of the list that governs access.
pub(crate) const ACCESS_NAME: &[u8] = b"system.posix_acl_access";
/// The attribute of the list that new files in a directory begin with.
pub(crate) const DEFAULT_NAME: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const UNDEFINED_ID: u32 = u32::MAX;

/// For whom an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Owner,
    User(UserId),
    OwningGroup,
    Group(GroupId),
    Mask,
    Other,
}

impl Tag {
    fn number(self) -> u16 {
        match self {
            Self::Owner => 1,
            Self::User(_) => 2,
            Self::OwningGroup => 4,
            Self::Group(_) => 8,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    fn id(self) -> u32 {
        match self {
            Self::User(user) => user.0,
            Self::Group(group) => group.0,
            _ => UNDEFINED_ID,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u32,
}

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Reads an attribute's value; none for an empty list, which stands for no list.
    ///
    /// # Errors
    /// [`Refusal::NotSupported`] for another version, [`Refusal::InvalidArgument`] for anything malformed, as
    /// Linux.
    pub(crate) fn decode(value: &[u8]) -> Result<Option<Self>, Refusal> {
        let (version, rest) = value.split_first_chunk::<4>().ok_or(Refusal::InvalidArgument)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Refusal::NotSupported);
        }
        let (raw, []) = rest.as_chunks::<8>() else { return Err(Refusal::InvalidArgument) };
        if raw.is_empty() {
            return Ok(None);
        }
        let mut entries = Vec::with_capacity(raw.len());
        for [a, b, c, d, id @ ..] in raw {
            let id = u32::from_le_bytes(*id);
            let permissions = u32::from(u16::from_le_bytes([*c, *d]));
            let tag = match u16::from_le_bytes([*a, *b]) {
                1 => Tag::Owner,
                2 => Tag::User(UserId(id)),
                4 => Tag::OwningGroup,
                8 => Tag::Group(GroupId(id)),
                0x10 => Tag::Mask,
                0x20 => Tag::Other,
                _ => return Err(Refusal::InvalidArgument),
            };
            if permissions & !7 != 0 || (matches!(tag, Tag::User(_) | Tag::Group(_)) && id == UNDEFINED_ID) {
                return Err(Refusal::InvalidArgument);
            }
            entries.push(Entry { tag, permissions });
        }
        let acl = Self { entries };
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Refusal::InvalidArgument) }
    }

    /// One owner, users, one owning group, groups, a mask where there are users or groups, one other: in this
    /// order.
    fn is_valid(&self) -> bool {
        let order = |tag: Tag| tag.number();
        if !self.entries.windows(2).all(|pair| order(pair[0].tag) <= order(pair[1].tag)) {
            return false;
        }
        let count = |number: u16| self.entries.iter().filter(|entry| entry.tag.number() == number).count();
        let needs_mask = count(2) + count(8) > 0;
        count(1) == 1
            && count(4) == 1
            && count(0x20) == 1
            && count(0x10) <= 1
            && (!needs_mask || count(0x10) == 1)
    }

    /// The attribute's value.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            value.extend_from_slice(&entry.tag.number().to_le_bytes());
            value.extend_from_slice(&u16::try_from(entry.permissions).unwrap_or(0).to_le_bytes());
            value.extend_from_slice(&entry.tag.id().to_le_bytes());
        }
        value
    }

    fn permissions_of(&self, wanted: Tag) -> Option<u32> {
        self.entries.iter().find(|entry| entry.tag == wanted).map(|entry| entry.permissions)
    }

    fn set(&mut self, wanted: Tag, permissions: u32) {
        for entry in &mut self.entries {
            if entry.tag == wanted {
                entry.permissions = permissions;
            }
        }
    }

    /// The nine permission bits that stand for this list, and whether they say all that it says.
    pub(crate) fn mode(&self) -> (u32, bool) {
        let of = |tag| self.permissions_of(tag).unwrap_or(0);
        let group = self.permissions_of(Tag::Mask).unwrap_or_else(|| of(Tag::OwningGroup));
        let mode = of(Tag::Owner) << 6 | group << 3 | of(Tag::Other);
        (mode, self.entries.len() == 3)
    }

    /// Follows a chmod: owner, mask (or owning group) and other get the mode's bits.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        self.set(Tag::Owner, mode >> 6 & 7);
        let group = if self.permissions_of(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup };
        self.set(group, mode >> 3 & 7);
        self.set(Tag::Other, mode & 7);
    }

    /// Makes of a default list that of a new file asked for with a mode: both are cut to what the other
    /// allows. Gives the file's permission bits.
    pub(crate) fn cut_to(&mut self, mode: u32) -> u32 {
        let of = |acl: &Self, tag| acl.permissions_of(tag).unwrap_or(0);
        let group = if self.permissions_of(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup };
        let owner_bits = of(self, Tag::Owner) & (mode >> 6);
        let group_bits = of(self, group) & (mode >> 3);
        let other_bits = of(self, Tag::Other) & mode;
        self.set(Tag::Owner, owner_bits);
        self.set(group, group_bits);
        self.set(Tag::Other, other_bits);
        owner_bits << 6 | group_bits << 3 | other_bits
    }

    /// Whether the list allows a caller who is not the owner an access.
    pub(crate) fn allows(&self, caller: &Caller, owning_group: GroupId, access: Access) -> bool {
        let mask = self.permissions_of(Tag::Mask).unwrap_or(7);
        let grants = |permissions: u32| permissions & access.0 == access.0;
        if let Some(permissions) = self.permissions_of(Tag::User(caller.user)) {
            return grants(permissions & mask);
        }
        let mut in_a_group = false;
        for entry in &self.entries {
            let applies = match entry.tag {
                Tag::OwningGroup => caller.is_in_group(owning_group),
                Tag::Group(group) => caller.is_in_group(group),
                _ => false,
            };
            if applies {
                in_a_group = true;
                if grants(entry.permissions & mask) {
                    return true;
                }
            }
        }
        !in_a_group && grants(self.permissions_of(Tag::Other).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = vec![2, 0, 0, 0];
        for (tag, permissions, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    const NO: u32 = UNDEFINED_ID;

    #[test]
    fn a_list_comes_back_from_its_bytes_and_bad_ones_are_refused() {
        let value = acl(&[(1, 7, NO), (2, 6, 1000), (4, 5, NO), (0x10, 6, NO), (0x20, 4, NO)]);
        assert_eq!(Acl::decode(&value).unwrap().unwrap().encode(), value);
        assert_eq!(Acl::decode(&[2, 0, 0, 0]), Ok(None));
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(Refusal::NotSupported));
        for bad in [
            acl(&[(1, 7, NO), (2, 6, 1000), (4, 5, NO), (0x20, 4, NO)]),
            acl(&[(1, 7, NO), (4, 5, NO)]),
            acl(&[(4, 5, NO), (1, 7, NO), (0x20, 4, NO)]),
            acl(&[(1, 8, NO), (4, 5, NO), (0x20, 4, NO)]),
            acl(&[(1, 7, NO), (2, 7, NO), (4, 5, NO), (0x10, 7, NO), (0x20, 4, NO)]),
            vec![2, 0, 0, 0, 1],
        ] {
            assert_eq!(Acl::decode(&bad), Err(Refusal::InvalidArgument), "{bad:?}");
        }
    }

    #[test]
    fn users_groups_mask_and_other_are_judged_in_order() {
        let value = acl(&[(1, 7, NO), (2, 6, 1000), (4, 5, NO), (8, 0, 50), (0x10, 4, NO), (0x20, 7, NO)]);
        let list = Acl::decode(&value).unwrap().unwrap();
        let named = Caller::user(UserId(1000), GroupId(9));
        assert!(list.allows(&named, GroupId(7), Access::READ));
        assert!(!list.allows(&named, GroupId(7), Access::WRITE), "the mask forbids");
        let member = Caller::user(UserId(1), GroupId(50));
        assert!(!list.allows(&member, GroupId(7), Access::READ), "a group that is named is not other");
        let stranger = Caller::user(UserId(1), GroupId(51));
        assert!(list.allows(&stranger, GroupId(7), Access::WRITE));
        assert_eq!(list.mode(), (0o747, false));
    }

    #[test]
    fn default_lists_and_modes_cut_each_other() {
        let value = acl(&[(1, 7, NO), (2, 7, 1000), (4, 5, NO), (0x10, 7, NO), (0x20, 5, NO)]);
        let mut list = Acl::decode(&value).unwrap().unwrap();
        assert_eq!(list.cut_to(0o666), 0o664);
        assert_eq!(list.mode(), (0o664, false));
        list.set_mode(0o700);
        assert_eq!(list.mode(), (0o700, false));
    }
}
