//! Fixed-size records: a value type with full names beside a raw little-endian twin, and the size asserted.
//!
//! A family declares its structure once with [`record!`]; the macro makes the public value type, the private
//! raw type over zerocopy's little-endian integers, the size assertion and the two conversions, which are
//! each other's inverse on any bytes because every field's are.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::key::Key;
use crate::layout::Inner;
use crate::types::{DeviceId, FileOffset, Generation, Level, Logical, ObjectId, Physical, RootId, Uuid};

/// A value that has a fixed number of bytes on disk.
pub(crate) trait Field: Sized {
    /// Its little-endian form.
    type Raw: FromBytes + IntoBytes + Unaligned + Immutable + KnownLayout + Clone;

    /// Which fields it consists of itself.
    const INNER: Inner = Inner::Nothing;

    /// From the disk's form.
    fn from_raw(raw: &Self::Raw) -> Self;
    /// To the disk's form; the inverse of [`Field::from_raw`].
    #[allow(clippy::wrong_self_convention, reason = "some records are Copy, some are not")]
    fn to_raw(&self) -> Self::Raw;
}

macro_rules! integers {
    ($($inner:ty => $raw:ty;)*) => {$(
        impl Field for $inner {
            type Raw = $raw;
            fn from_raw(raw: &$raw) -> Self {
                raw.get()
            }
            fn to_raw(&self) -> $raw {
                <$raw>::new(*self)
            }
        }
    )*};
}

integers! {
    u64 => U64;
    u32 => U32;
    u16 => U16;
}

impl Field for u8 {
    type Raw = u8;
    fn from_raw(raw: &u8) -> Self {
        *raw
    }
    fn to_raw(&self) -> u8 {
        *self
    }
}

macro_rules! wrapped {
    ($($name:ty => $inner:ty;)*) => {$(
        impl $crate::record::Field for $name {
            type Raw = <$inner as $crate::record::Field>::Raw;
            fn from_raw(raw: &Self::Raw) -> Self {
                Self(<$inner as $crate::record::Field>::from_raw(raw))
            }
            fn to_raw(&self) -> Self::Raw {
                $crate::record::Field::to_raw(&self.0)
            }
        }
    )*};
}
pub(crate) use wrapped;

wrapped! {
    Logical => u64;
    Physical => u64;
    DeviceId => u64;
    Generation => u64;
    ObjectId => u64;
    RootId => u64;
    FileOffset => u64;
    Level => u8;
}

macro_rules! byte_arrays {
    ($($size:literal)*) => {$(
        impl Field for [u8; $size] {
            type Raw = [u8; $size];
            fn from_raw(raw: &Self::Raw) -> Self {
                *raw
            }
            fn to_raw(&self) -> Self::Raw {
                *self
            }
        }
    )*};
}
byte_arrays!(32 64);

impl Field for Uuid {
    type Raw = [u8; 16];
    fn from_raw(raw: &Self::Raw) -> Self {
        Self(*raw)
    }
    fn to_raw(&self) -> Self::Raw {
        self.0
    }
}

impl Field for Key {
    type Raw = [u8; Self::SIZE];
    const INNER: Inner = Inner::One(Self::STRUCTURE);
    fn from_raw(raw: &Self::Raw) -> Self {
        Self::decode(raw)
    }
    fn to_raw(&self) -> Self::Raw {
        self.encode()
    }
}

/// Bytes that have no meaning yet. They are kept as they were read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reserved<const SIZE: usize>(pub [u8; SIZE]);

impl<const SIZE: usize> Reserved<SIZE> {
    /// What a new record has here.
    pub const ZERO: Self = Self([0; SIZE]);
}

impl<const SIZE: usize> Default for Reserved<SIZE> {
    fn default() -> Self {
        Self::ZERO
    }
}

impl<const SIZE: usize> core::fmt::Debug for Reserved<SIZE> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let what = if *self == Self::ZERO { "zero" } else { "not zero" };
        write!(formatter, "Reserved({SIZE} bytes, {what})")
    }
}

impl<const SIZE: usize> Field for Reserved<SIZE> {
    type Raw = [u8; SIZE];
    fn from_raw(raw: &Self::Raw) -> Self {
        Self(*raw)
    }
    fn to_raw(&self) -> Self::Raw {
        self.0
    }
}

/// Declares `struct Name in RawName, SIZE bytes { field: Type, … }`; attributes and docs go to the value
/// type.
macro_rules! record {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident in $raw:ident, $size:literal bytes {
            $($(#[$field_attribute:meta])* $field:ident: $field_type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $field_type,)*
        }

        #[derive(
            Clone, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub(crate) struct $raw {
            $($field: <$field_type as $crate::record::Field>::Raw,)*
        }

        const _: () = assert!(core::mem::size_of::<$raw>() == $size);

        impl $crate::layout::Record for $name {
            const STRUCTURE: &'static $crate::layout::Structure = &$crate::layout::Structure {
                name: stringify!($name),
                size: $size,
                fields: &[$($crate::layout::FieldPlace {
                    name: stringify!($field),
                    start: core::mem::offset_of!($raw, $field),
                    width: core::mem::size_of::<<$field_type as $crate::record::Field>::Raw>(),
                    inner: <$field_type as $crate::record::Field>::INNER,
                },)*],
            };

            fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
                Self::split_from(bytes)
            }
        }

        impl $crate::record::Field for $name {
            type Raw = $raw;
            const INNER: $crate::layout::Inner =
                $crate::layout::Inner::One(<Self as $crate::layout::Record>::STRUCTURE);
            fn from_raw(raw: &$raw) -> Self {
                Self { $($field: $crate::record::Field::from_raw(&raw.$field),)* }
            }
            fn to_raw(&self) -> $raw {
                $raw { $($field: $crate::record::Field::to_raw(&self.$field),)* }
            }
        }

        impl $name {
            /// Bytes on disk.
            pub const SIZE: usize = $size;

            /// Reads the record from the front of `bytes`; gives the rest too. None where there are too few.
            #[allow(dead_code, reason = "each record uses the forms that it needs")]
            pub(crate) fn split_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
                let (raw, rest) = <$raw as zerocopy::FromBytes>::ref_from_prefix(bytes).ok()?;
                Some(($crate::record::Field::from_raw(raw), rest))
            }

            /// Reads the record from exactly its bytes.
            #[allow(dead_code, reason = "each record uses the forms that it needs")]
            pub(crate) fn read_whole(bytes: &[u8]) -> Option<Self> {
                let raw = <$raw as zerocopy::FromBytes>::ref_from_bytes(bytes).ok()?;
                Some($crate::record::Field::from_raw(raw))
            }

            /// The record's bytes.
            #[allow(dead_code, reason = "each record uses the forms that it needs")]
            #[allow(clippy::wrong_self_convention, reason = "some records are Copy, some are not")]
            pub(crate) fn to_array(&self) -> [u8; $size] {
                zerocopy::transmute!($crate::record::Field::to_raw(self))
            }
        }
    };
}
pub(crate) use record;

/// `bytes` is a multiple of `alignment`, a power of two; nothing is a multiple of another number. It is asked
/// of six fields of each extent in each leaf that is read or written, so it does not divide.
pub(crate) const fn is_aligned(bytes: u64, alignment: u32) -> bool {
    let below = widen_u64(alignment).wrapping_sub(1);
    alignment & alignment.wrapping_sub(1) == 0 && alignment != 0 && bytes & below == 0
}

/// A u64 of a u32, in constant context too.
#[allow(clippy::as_conversions, reason = "widening never loses bits; From is not const")]
pub(crate) const fn widen_u64(value: u32) -> u64 {
    value as u64
}

/// A usize of a u16, in constant context too.
#[allow(clippy::as_conversions, reason = "widening never loses bits; From is not const")]
pub(crate) const fn widen_usize(value: u16) -> usize {
    value as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_a_multiple_of_nothing() {
        assert!(is_aligned(0, 4096) && is_aligned(8192, 4096) && !is_aligned(4095, 4096));
        assert!(!is_aligned(0, 0) && !is_aligned(4096, 0) && !is_aligned(6, 3));
    }

    #[test]
    fn reserved_bytes_are_told_in_short() {
        assert_eq!(format!("{:?}", Reserved::<7>::ZERO), "Reserved(7 bytes, zero)");
        assert_eq!(format!("{:?}", Reserved([0, 0, 1])), "Reserved(3 bytes, not zero)");
    }
}
