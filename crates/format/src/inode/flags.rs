//! The flags of an inode: 64 bits on disk, of which the low half is incompatible and the high half read-only
//! compatible when unknown.

use crate::record::wrapped;

/// A set of inode flags. Unknown bits are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct InodeFlags(pub u64);

wrapped! { InodeFlags => u64; }

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl InodeFlags {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*
            /// Every flag that this crate knows.
            pub const KNOWN: Self = Self(0 $(| 1 << $bit)*);
            const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, stringify!($name)),)*];
        }
    };
}

flags! {
    /// Data carry no checksums.
    NODATASUM = 0;
    /// Data are overwritten in place where they are not shared; implies no checksums.
    NODATACOW = 1;
    /// Read-only; never set by Linux.
    READONLY = 2;
    /// Never compressed, because it was tried in vain or the user said so.
    NOCOMPRESS = 3;
    /// Has preallocated extents.
    PREALLOC = 4;
    /// Each write is synchronous (`chattr +S`).
    SYNC = 5;
    /// Cannot change (`chattr +i`).
    IMMUTABLE = 6;
    /// Can only grow at the end (`chattr +a`).
    APPEND = 7;
    /// Not for dump (`chattr +d`).
    NODUMP = 8;
    /// Access times are not kept (`chattr +A`).
    NOATIME = 9;
    /// Each change of the directory is synchronous (`chattr +D`).
    DIRSYNC = 10;
    /// Compressed where it pays (`chattr +c`).
    COMPRESS = 11;
    /// In the inode of a root item: its flags and byte limit were initialized.
    ROOT_ITEM_INITIALIZED = 31;
    /// Under fs-verity; read-only compatible.
    VERITY = 32;
}

impl InodeFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The half whose unknown bits forbid use at all.
    pub const INCOMPATIBLE_MASK: u64 = 0xffff_ffff;

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Unknown flags with which the inode cannot be used at all.
    pub const fn unknown_incompatible(self) -> Self {
        Self(self.0 & !Self::KNOWN.0 & Self::INCOMPATIBLE_MASK)
    }

    /// Unknown flags with which the inode can only be read.
    pub const fn unknown_read_only(self) -> Self {
        Self(self.0 & !Self::KNOWN.0 & !Self::INCOMPATIBLE_MASK)
    }
}

impl core::ops::BitOr for InodeFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl core::fmt::Debug for InodeFlags {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, formatter)
    }
}

impl core::fmt::Display for InodeFlags {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut separator = "";
        for (flag, name) in Self::NAMES {
            if self.has(*flag) {
                write!(formatter, "{separator}{name}")?;
                separator = "|";
            }
        }
        let unknown = self.without(Self::KNOWN);
        if unknown != Self::NONE {
            return write!(formatter, "{separator}{:#x}", unknown.0);
        }
        if separator.is_empty() { formatter.write_str("none") } else { Ok(()) }
    }
}
