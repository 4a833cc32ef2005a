//! How the printing of an item ends.

use vlinder_format::Fault;

/// An item that can't be decoded says why.
pub type Printed = Result<(), Fault>;
