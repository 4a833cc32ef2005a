//! What must hold of references to names (kernel: `check_inode_ref`, `check_inode_extref`).

use super::{EXTENDED_HEADER_SIZE, ExtendedReferences, InodeReferences, REFERENCE_HEADER_SIZE};
use crate::directory::LONGEST_NAME;
use crate::key::Key;
use crate::types::ObjectId;
use crate::validate::ItemContext;

/// How an INODE_REF or INODE_EXTREF can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InodeReferenceFault {
    /// The item has no room for a name.
    #[error("{found} bytes hold no name")]
    Empty {
        /// Bytes of the item.
        found: usize,
    },
    /// The item ends inside an entry's header.
    #[error("the item ends {found} bytes into an entry's header")]
    Header {
        /// Bytes up to the end of the item.
        found: usize,
    },
    /// The item ends inside a name.
    #[error("a name of {found} bytes in an item that ends after {available}")]
    Name {
        /// In the entry.
        found: usize,
        /// Bytes up to the end of the item.
        available: usize,
    },
    /// A name of no bytes or too many.
    #[error("a name of {found} bytes; 1 to {LONGEST_NAME} are allowed")]
    NameLength {
        /// In the entry.
        found: usize,
    },
    /// The inode's item is missing: another inode's item comes before.
    #[error("preceded by an item of inode {found}, not by the inode's own")]
    MissingInode {
        /// Object id of the item before.
        found: ObjectId,
    },
}

/// Checks an INODE_REF.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), InodeReferenceFault> {
    check_item(key, data, context, REFERENCE_HEADER_SIZE)?;
    for entry in InodeReferences::new(data) {
        check_name(entry?.name)?;
    }
    Ok(())
}

/// Checks an INODE_EXTREF.
///
/// # Errors
/// The first rule that it breaks.
pub fn check_extended(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), InodeReferenceFault> {
    check_item(key, data, context, EXTENDED_HEADER_SIZE)?;
    for entry in ExtendedReferences::new(data) {
        check_name(entry?.name)?;
    }
    Ok(())
}

fn check_item(
    key: &Key,
    data: &[u8],
    context: &ItemContext<'_>,
    header_size: usize,
) -> Result<(), InodeReferenceFault> {
    if let Some(found) = context.foreign_inode_before(key) {
        return Err(InodeReferenceFault::MissingInode { found });
    }
    if data.len() <= header_size {
        return Err(InodeReferenceFault::Empty { found: data.len() });
    }
    Ok(())
}

fn check_name(name: &[u8]) -> Result<(), InodeReferenceFault> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(InodeReferenceFault::NameLength { found: name.len() });
    }
    Ok(())
}
