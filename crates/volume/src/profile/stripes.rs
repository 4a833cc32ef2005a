//! The stripes that a range of a chunk touches, and where they lie.

use vlinder_format::chunk::STRIPE_LENGTH;
use vlinder_format::{DeviceId, Physical};

/// A part of a request, at its place on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeRange {
    /// Which copy it belongs to, from 0.
    pub mirror: u8,
    /// The device.
    pub device: DeviceId,
    /// First byte on the device.
    pub physical: Physical,
    /// First byte in the request.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The part of a range that lies in one stripe.
pub(super) struct StripePart {
    /// The stripe's number in the chunk.
    pub(super) number: u64,
    /// First byte in the stripe.
    pub(super) inside: u64,
    /// First byte in the range.
    pub(super) start: u64,
    /// Bytes.
    pub(super) length: u64,
}

/// The stripes that a range touches, `distance` bytes into the chunk.
pub(super) fn stripes_of(distance: u64, length: u64) -> impl Iterator<Item = StripePart> {
    let mut done = 0u64;
    core::iter::from_fn(move || {
        let left = length.checked_sub(done).filter(|left| *left > 0)?;
        let at = distance.checked_add(done)?;
        let inside = at % STRIPE_LENGTH;
        let part_length = left.min(STRIPE_LENGTH.saturating_sub(inside));
        let part = StripePart { number: at / STRIPE_LENGTH, inside, start: done, length: part_length };
        done = done.saturating_add(part_length);
        Some(part)
    })
}
