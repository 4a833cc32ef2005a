//! A request to read that has a plan.

use vlinder_base::sync::Arc;
use vlinder_device::Completion;

use crate::error::CopyFault;
use crate::health::HealthEvent;
use crate::mapped_chunk::MappedChunk;
use crate::members::Members;
use crate::profile::StripeRange;
use crate::request::ReadRequest;

/// A request that has a plan.
pub(crate) struct Planned {
    pub(crate) request: ReadRequest,
    pub(crate) chunk: Arc<MappedChunk>,
    /// What was read so far.
    pub(crate) bytes: Vec<u8>,
    /// Parts of the first copy that were not read. Their bytes are zeros.
    pub(crate) faults: Vec<PartFault>,
}

/// A part of a request that was not read, and why.
pub(crate) type PartFault = (StripeRange, CopyFault);

/// Puts a device's answer to its place in the request.
pub(crate) fn put_answer(
    members: &Members,
    part: &StripeRange,
    completion: Completion,
    length: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), CopyFault> {
    let found = completion.into_bytes().inspect_err(|_| members.record(part.device, HealthEvent::Read))?;
    if part.start == 0 && found.len() == length {
        *bytes = found;
        return Ok(());
    }
    bytes.resize(length, 0);
    let start = usize::try_from(part.start).unwrap_or(usize::MAX);
    if let Some(target) = start.checked_add(found.len()).and_then(|end| bytes.get_mut(start..end)) {
        target.copy_from_slice(&found);
    }
    Ok(())
}
