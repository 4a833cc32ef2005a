//! What is remembered of an inode so that permissions are judged without reading its attributes again.

use vlinder_base::sync::Arc;

use crate::acl::Acl;

/// What the attributes of an inode say about permissions, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct PermissionCache {
    /// The list that governs access; the inner none where the inode has no list.
    pub(crate) access_acl: Option<Option<Arc<Acl>>>,
    /// The list that new files in the directory begin with.
    pub(crate) default_acl: Option<Option<Arc<Acl>>>,
    /// It is known that there are no file capabilities.
    pub(crate) no_capability: bool,
}
