//! What must hold of references to names (kernel: `check_inode_ref`, `check_inode_extref`).

use super::fault::InodeReferenceFault;
use super::names::{ExtendedReferences, InodeReferences};
use super::raw::{EXTENDED_HEADER_SIZE, REFERENCE_HEADER_SIZE};
use crate::directory::LONGEST_NAME;
use crate::key::Key;
use crate::rules::ItemContext;

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
