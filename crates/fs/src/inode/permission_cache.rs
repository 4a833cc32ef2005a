//! What is remembered of an inode so that permissions are judged without reading its attributes again.

use vlinder_base::sync::Arc;

use crate::acl::Acl;

/// What the attributes of an inode say about permissions, as far as they were read.
///
/// Readers read attributes without the inode's operation lock, so a change may come between what a reader
/// read and what it remembers. Each change is counted, and a reader remembers only what it began to look up
/// after the last one: [`PermissionCache::look`], then the tree, then
/// [`PermissionCache::remember_access_acl`] and the like. A change is in the tree before it is counted.
#[derive(Debug, Default)]
pub(crate) struct PermissionCache {
    access_acl: Option<Option<Arc<Acl>>>,
    default_acl: Option<Option<Arc<Acl>>>,
    no_capability: bool,
    changes: u64,
}

/// When a reader began to look something up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look(u64);

impl PermissionCache {
    /// What is known of a new inode: its lists, and that it has no capabilities.
    pub(crate) fn of_new_inode(access_acl: Option<Arc<Acl>>, default_acl: Option<Arc<Acl>>) -> Self {
        let (access_acl, default_acl) = (Some(access_acl), Some(default_acl));
        Self { access_acl, default_acl, no_capability: true, changes: 0 }
    }

    /// The list that governs access, if it is known; the inner none where the inode has no list.
    pub(crate) fn access_acl(&self) -> Option<Option<Arc<Acl>>> {
        self.access_acl.clone()
    }

    /// The list that new files in the directory begin with, if it is known.
    pub(crate) fn default_acl(&self) -> Option<Option<Arc<Acl>>> {
        self.default_acl.clone()
    }

    /// Whether it is known that the file has no capabilities.
    pub(crate) fn has_no_capability(&self) -> bool {
        self.no_capability
    }

    /// To be taken before the attributes are read.
    pub(crate) fn look(&self) -> Look {
        Look(self.changes)
    }

    /// A reader found this list.
    pub(crate) fn remember_access_acl(&mut self, look: Look, acl: Option<Arc<Acl>>) {
        if look.0 == self.changes {
            self.access_acl = Some(acl);
        }
    }

    /// A reader found this list.
    pub(crate) fn remember_default_acl(&mut self, look: Look, acl: Option<Arc<Acl>>) {
        if look.0 == self.changes {
            self.default_acl = Some(acl);
        }
    }

    /// A reader found no capabilities.
    pub(crate) fn remember_no_capability(&mut self, look: Look) {
        if look.0 == self.changes {
            self.no_capability = true;
        }
    }

    /// An attribute changed: nothing is known any more.
    pub(crate) fn forget(&mut self) {
        *self = Self { changes: self.changes + 1, ..Self::default() };
    }

    /// The list that governs access was changed to this one.
    pub(crate) fn change_access_acl(&mut self, acl: Arc<Acl>) {
        self.changes += 1;
        self.access_acl = Some(Some(acl));
    }

    /// The capabilities were removed.
    pub(crate) fn drop_capability(&mut self) {
        self.changes += 1;
        self.no_capability = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_up_before_a_change_is_not_remembered() {
        let mut cache = PermissionCache::default();
        let early = cache.look();
        cache.forget();
        cache.remember_access_acl(early, None);
        cache.remember_default_acl(early, None);
        cache.remember_no_capability(early);
        assert_eq!((cache.access_acl(), cache.default_acl()), (None, None));
        assert!(!cache.has_no_capability());
        let late = cache.look();
        cache.remember_access_acl(late, None);
        cache.remember_no_capability(late);
        assert_eq!(cache.access_acl(), Some(None));
        assert!(cache.has_no_capability());
        cache.drop_capability();
        cache.remember_default_acl(late, None);
        assert_eq!(cache.default_acl(), None, "a change in between");
        assert_eq!(cache.access_acl(), Some(None), "kept, for it did not change");
    }
}
