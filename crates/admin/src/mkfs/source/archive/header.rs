//! The header block of an entry, as POSIX (ustar, pax), GNU tar and star write it.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0–99 | name | |
//! | 100, 108, 116 | mode, uid, gid | 8 bytes each |
//! | 124, 136 | size, mtime | 12 bytes each |
//! | 148 | checksum | the sum of all bytes, these 8 taken for blanks |
//! | 156 | type | |
//! | 157–256 | target of a link | |
//! | 257 | `ustar\0` (POSIX) or `ustar␠␠\0` (GNU) | |
//! | 329, 337 | major, minor number | 8 bytes each |
//! | 345–499 | before the name (POSIX) | star: 131 bytes of it, with `tar\0` at 508 |
//!
//! Numbers are octal, or, with the first bit set, binary (GNU, star).

use super::fault::ArchiveFault;
use super::input::BLOCK_BYTES;
use crate::mkfs::owner_table::{MAX_MAJOR, MAX_MINOR};

/// A header.
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) permissions: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Bytes behind the header.
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) modified: i64,
    pub(super) kind: u8,
    pub(super) device: (u32, u32),
}

impl Header {
    /// Decodes a block; none for one of zeros, which ends an archive.
    ///
    /// # Errors
    /// [`ArchiveFault::Damaged`], [`ArchiveFault::Number`].
    pub(super) fn decode(block: &[u8; BLOCK_BYTES]) -> Result<Option<Self>, ArchiveFault> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let told = number(&block[148..156]).ok_or(ArchiveFault::Damaged)?;
        let sum = |value: fn(u8) -> i64| {
            block.iter().enumerate().fold(0, |sum, (at, byte)| {
                sum + if (148..156).contains(&at) { i64::from(b' ') } else { value(*byte) }
            })
        };
        // Some old programs took bytes for signed.
        if told != sum(i64::from) && told != sum(|byte| i64::from(byte.cast_signed())) {
            return Err(ArchiveFault::Damaged);
        }
        let small = |range: core::ops::Range<usize>, field| {
            let found = number(&block[range]).and_then(|number| u32::try_from(number).ok());
            found.ok_or(ArchiveFault::Number { field })
        };
        let size = number(&block[124..136]).and_then(|size| u64::try_from(size).ok());
        let prefix = match (&block[257..263], &block[508..512]) {
            (b"ustar\0", b"tar\0") => text(&block[345..476]),
            (b"ustar\0", _) => text(&block[345..500]),
            _ => &[],
        };
        let name = text(&block[..100]);
        let path = if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() };
        let kind = block[156];
        let is_device = matches!(kind, b'3' | b'4');
        // What Linux can't number is refused: cut, it would be another device.
        let device = |range, most| match is_device.then(|| small(range, "the device")) {
            None => Ok(0),
            Some(Ok(number)) if number > most => Err(ArchiveFault::Number { field: "the device" }),
            Some(found) => found,
        };
        Ok(Some(Self {
            path,
            link: text(&block[157..257]).to_vec(),
            permissions: small(100..108, "the mode")? & 0o7777,
            user: small(108..116, "the user")?,
            group: small(116..124, "the group")?,
            size: size.ok_or(ArchiveFault::Number { field: "the size" })?,
            modified: number(&block[136..148]).ok_or(ArchiveFault::Number { field: "the time" })?,
            kind,
            device: (device(329..337, MAX_MAJOR)?, device(337..345, MAX_MINOR)?),
        }))
    }
}

/// A text up to its end or a zero.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number; 0 for an empty field.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // Two's complement over the whole field, without the bit that says so.
        let sign = if first & 0x40 != 0 { -1_i64 } else { 0 };
        let begin = (sign << 6) | i64::from(first & 0x3f);
        return rest.iter().try_fold(begin, |number, byte| {
            number.checked_mul(256).and_then(|number| number.checked_add(i64::from(*byte)))
        });
    }
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(digits.len());
    digits[..end].iter().try_fold(0_i64, |number, byte| match byte {
        b'0'..=b'7' => number.checked_mul(8)?.checked_add(i64::from(byte - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_linux_can_t_number_are_refused() {
        let device = |major: [u8; 8], minor: [u8; 8]| {
            let mut block = [0; BLOCK_BYTES];
            (block[0], block[156]) = (b'd', b'3');
            block[329..337].copy_from_slice(&major);
            block[337..345].copy_from_slice(&minor);
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum::<u32>() + 8 * u32::from(b' ');
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            Header::decode(&block).map(|header| header.unwrap().device)
        };
        assert_eq!(device(*b"0007777\0", *b"3777777\0").unwrap(), (MAX_MAJOR, MAX_MINOR));
        for (major, minor) in [(*b"0010000\0", *b"0000000\0"), (*b"0000001\0", *b"4000000\0")] {
            let fault = device(major, minor).unwrap_err();
            assert!(matches!(fault, ArchiveFault::Number { field: "the device" }), "{fault}");
        }
    }

    #[test]
    fn numbers_are_octal_or_binary() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"77777777777", Some(0o77_777_777_777)),
            (b"\x80\0\0\0\0\0\x01\0", Some(256)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\x01\0\0\0\0\0\0\0\0", None),
            (b"09\0", None),
            (b"-1\0", None),
        ] {
            assert_eq!(number(field), expected, "{field:?}");
        }
    }
}
