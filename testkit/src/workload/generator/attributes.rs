//! Changes of attributes: modes, owners, times, flags, extended attributes, access control lists.

use super::{Generator, Kind};
use crate::workload::choice::Choice;
use crate::workload::model::{Model, flag};
use crate::workload::operation::{Operation, Place, SetMode};

impl Generator {
    pub(super) fn attribute(&mut self, kind: Kind, model: &Model) -> Operation {
        let file = self.any(model);
        let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
        let prefix = prefixes[self.choice.below(3) as usize];
        let mut name = [prefix, &[b'a' + (self.choice.below(5)) as u8]].concat();
        if self.choice.chance(1, 10) {
            name.resize(255, b'x');
        }
        if matches!(kind, Kind::RemoveAttribute) {
            let present = model.file(file).and_then(|file| model.node(file)).map(|node| &node.attributes);
            let names: Vec<&Vec<u8>> = present.into_iter().flat_map(|attributes| attributes.keys()).collect();
            let name = self.choice.of(&names).map_or(name, |name| (*name).clone());
            return Operation::RemoveAttribute { file, name };
        }
        if self.choice.chance(1, 4) {
            return self.acl(file);
        }
        let value =
            self.pattern().bytes(0, self.choice.size(3000).max(1) - u64::from(self.choice.chance(1, 6)));
        let modes = [(4, SetMode::Either), (1, SetMode::Create), (1, SetMode::Replace)];
        Operation::SetAttribute { file, name, value, mode: self.choice.weighted(&modes) }
    }

    fn acl(&self, file: Place) -> Operation {
        let permissions = || self.choice.below(8) as u16;
        let none = u32::MAX;
        let mut entries: Vec<(u16, u16, u32)> = vec![(1, permissions(), none)];
        let is_long = self.choice.chance(3, 4);
        if is_long {
            entries.push((2, permissions(), 1000));
        }
        entries.push((4, permissions(), none));
        if is_long {
            entries.push((0x10, permissions(), none));
        }
        entries.push((0x20, permissions(), none));
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        let names: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
        let name = names[self.choice.below(2) as usize].to_vec();
        Operation::SetAttribute { file, name, value, mode: SetMode::Either }
    }

    pub(super) fn metadata(&mut self, kind: Kind, model: &Model) -> Operation {
        let file = self.any(model);
        match kind {
            Kind::SetPermissions => {
                Operation::SetPermissions { file, permissions: (self.choice.below(0o10000)) as u32 }
            }
            Kind::SetOwner => {
                let id = |choice: &Choice| choice.chance(2, 3).then(|| (choice.below(3) * 1000) as u32);
                let group = id(&self.choice);
                let user = id(&self.choice).or_else(|| group.is_none().then_some(1000));
                Operation::SetOwner { file, user, group }
            }
            Kind::SetTimes => {
                let seconds =
                    [0, -1, 1 << 31, 1 << 33, -(1 << 31) - 5, 1_700_000_000][self.choice.below(6) as usize];
                Operation::SetTimes { file, modified: (seconds, (self.choice.below(1_000_000_000)) as u32) }
            }
            Kind::SetFlags => {
                let flags =
                    [flag::NODATACOW, flag::NODATASUM, flag::APPEND, flag::IMMUTABLE, 1 << 11, 1 << 8];
                let flag = flags[self.choice.below(6) as usize];
                let is_fixed = model
                    .file(file)
                    .and_then(|file| model.node(file))
                    .is_some_and(|node| node.has(flag::APPEND | flag::IMMUTABLE));
                if is_fixed || self.choice.chance(1, 3) {
                    return Operation::SetFlags { file, set: 0, clear: u64::MAX };
                }
                Operation::SetFlags { file, set: flag, clear: 0 }
            }
            _ => {
                let values: [&[u8]; 5] = [b"zlib", b"lzo", b"zstd", b"no", b""];
                Operation::SetCompression { file, value: values[self.choice.below(5) as usize].to_vec() }
            }
        }
    }
}
