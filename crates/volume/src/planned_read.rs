//! A request to read that has a plan.

use vlinder_base::sync::Arc;

use crate::error::CopyFault;
use crate::mapped_chunk::MappedChunk;
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
