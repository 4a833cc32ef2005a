//! The label: up to 255 bytes, ended by a zero byte.

use crate::record::Field;

/// Bytes of the field.
const FIELD_SIZE: usize = 256;

/// The name that users give a file system. Bytes after the first zero byte are kept but mean nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label(pub [u8; FIELD_SIZE]);

/// Why some bytes can't be a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelFault {
    /// More than 255 bytes.
    #[error("a label of {found} bytes; at most 255 fit")]
    Length {
        /// Bytes given.
        found: usize,
    },
    /// A line break or a zero byte, which Linux's tools refuse.
    #[error("a label must not contain the byte {found}")]
    Byte {
        /// The byte.
        found: u8,
    },
}

impl Label {
    /// No label.
    pub const EMPTY: Self = Self([0; FIELD_SIZE]);

    /// A label of these bytes.
    ///
    /// # Errors
    /// What a label can't contain.
    pub fn new(bytes: &[u8]) -> Result<Self, LabelFault> {
        if let Some(found) = bytes.iter().copied().find(|byte| matches!(byte, 0 | b'\n')) {
            return Err(LabelFault::Byte { found });
        }
        let mut field = [0; FIELD_SIZE];
        match field.get_mut(..bytes.len()) {
            Some(front) if bytes.len() < FIELD_SIZE => front.copy_from_slice(bytes),
            _ => return Err(LabelFault::Length { found: bytes.len() }),
        }
        Ok(Self(field))
    }

    /// The bytes up to the first zero byte.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl Default for Label {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl core::fmt::Debug for Label {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Label({:?})", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl Field for Label {
    type Raw = [u8; FIELD_SIZE];
    fn from_raw(raw: &Self::Raw) -> Self {
        Self(*raw)
    }
    fn to_raw(&self) -> Self::Raw {
        self.0
    }
}
