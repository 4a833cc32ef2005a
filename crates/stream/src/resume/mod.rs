//! Going on with a stream that was interrupted.
//!
//! A receiver keeps a [`ResumeToken`] with what it has received of a subvolume. The sender of that subvolume
//! makes the same bytes again, and [`ResumingWriter`] passes on those that the receiver lacks, after it has
//! seen that those before are the ones that were received.
//!
//! The rest of a stream begins with a header, as any stream, and then tells whose rest it is: by a command
//! that sets the attribute [`TOKEN_ATTRIBUTE`] of the root to the token. In a whole stream that command can't
//! come first, and a receiver that does not know it refuses it.

mod base64;
mod resuming_writer;
mod running_hash;
#[cfg(test)]
mod tests;
mod token;

pub use resuming_writer::{ResumeError, ResumingWriter};
pub use running_hash::RunningHash;
pub use token::{ResumeToken, TokenError};

/// The extended attribute of a partial subvolume's root that has the token, and of the command that begins
/// the rest of a stream.
///
/// It is a trusted one: on a mount only a privileged program can see, forge or remove it, and Linux keeps it
/// as it is.
pub const TOKEN_ATTRIBUTE: &[u8] = b"trusted.vlinder.receive";
