//! What a decoder reads, as tables: each structure's fields with their places.
//!
//! [`record!`](crate::record) makes the table of a structure out of the raw type that it decodes with, so
//! that the two can't differ. The few structures that are decoded by hand declare theirs beside the decoder
//! with [`structure!`]. A family says with a [`Layout`] where its structures lie in an item;
//! [`fields`](crate::fields) asks all of them.

/// A field of a structure.
#[derive(Debug)]
pub struct FieldPlace {
    /// Its name in the decoder.
    pub name: &'static str,
    /// Its first byte, counted in the structure.
    pub start: usize,
    /// Its bytes.
    pub width: usize,
    /// The fields that it consists of.
    pub inner: Inner,
}

/// What a field consists of.
#[derive(Clone, Copy, Debug)]
pub enum Inner {
    /// A number, or bytes.
    Nothing,
    /// A structure.
    One(&'static Structure),
    /// Structures of one kind, side by side.
    Many(&'static Structure),
    /// What its own family lays out.
    Elsewhere,
}

/// A run of bytes with a fixed size that one decoder reads.
#[derive(Debug)]
pub struct Structure {
    /// Its name in the code.
    pub name: &'static str,
    /// Its bytes.
    pub size: usize,
    /// Its fields, in order.
    pub fields: &'static [FieldPlace],
}

/// A value that is decoded by a table.
pub(crate) trait Record: Sized {
    /// The table.
    const STRUCTURE: &'static Structure;

    /// Reads the value from the front of bytes; gives the rest too. None where there are too few.
    fn split(bytes: &[u8]) -> Option<(Self, &[u8])>;
}

/// Declares `NAME: "what it is" { field: bytes, … }`, fields in order and without gaps.
macro_rules! structure {
    ($(#[$doc:meta])* $visibility:vis $constant:ident: $name:literal, $size:literal bytes { $($field:ident: $start:literal, $width:literal $(, $inner:expr)?;)* }) => {
        $(#[$doc])*
        $visibility const $constant: &$crate::layout::Structure = &$crate::layout::Structure {
            name: $name,
            size: $size,
            fields: &[$($crate::layout::FieldPlace {
                name: stringify!($field),
                start: $start,
                width: $width,
                inner: $crate::layout::structure!(@inner $($inner)?),
            },)*],
        };
    };
    (@inner) => { $crate::layout::Inner::Nothing };
    (@inner $inner:expr) => { $inner };
}
pub(crate) use structure;

/// A field in some bytes: a block, a superblock, or an item's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedField {
    /// The structure that it belongs to.
    pub structure: &'static str,
    /// Its name; where a structure holds another, both names with a point between.
    pub name: String,
    /// Its first byte, counted in those bytes.
    pub start: usize,
    /// Its bytes.
    pub width: usize,
}

/// The fields of some bytes, gathered from their front. What the bytes are too short for is left out.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    left: &'a [u8],
    start: usize,
    fields: Vec<PlacedField>,
}

impl<'a> Layout<'a> {
    /// Of these bytes; none of them is claimed yet.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, start: 0, fields: Vec::new() }
    }

    /// The bytes that no field has claimed yet.
    pub(crate) const fn left(&self) -> &'a [u8] {
        self.left
    }

    /// Claims a record, and decodes it.
    pub(crate) fn record<R: Record>(&mut self) -> Option<R> {
        let (record, _) = R::split(self.left)?;
        self.structure(R::STRUCTURE);
        Some(record)
    }

    /// Claims records of one kind as long as they fit.
    pub(crate) fn records<R: Record>(&mut self) {
        while self.record::<R>().is_some() {}
    }

    /// Claims a structure, if it fits.
    pub(crate) fn structure(&mut self, structure: &'static Structure) -> bool {
        let Some((_, left)) = self.left.split_at_checked(structure.size) else { return false };
        flatten(structure, structure.name, "", self.start, &mut self.fields);
        (self.left, self.start) = (left, self.start.saturating_add(structure.size));
        true
    }

    /// Claims bytes that have no fields of their own, or as many of them as there are.
    pub(crate) fn bytes(&mut self, structure: &'static str, name: &str, width: usize) {
        let width = width.min(self.left.len());
        let Some((_, left)) = self.left.split_at_checked(width) else { return };
        if width != 0 {
            let (name, start) = (name.to_owned(), self.start);
            self.fields.push(PlacedField { structure, name, start, width });
        }
        (self.left, self.start) = (left, self.start.saturating_add(width));
    }

    /// Claims all bytes that are left.
    pub(crate) fn rest(&mut self, structure: &'static str, name: &str) {
        self.bytes(structure, name, self.left.len());
    }

    /// The fields, in order.
    pub(crate) fn into_fields(self) -> Vec<PlacedField> {
        self.fields
    }
}

/// Adds the fields of a structure that begins at `start`, those of inner structures in place of the field
/// that holds them.
fn flatten(
    structure: &'static Structure,
    outermost: &'static str,
    prefix: &str,
    start: usize,
    found: &mut Vec<PlacedField>,
) {
    for field in structure.fields {
        let (name, start) = (format!("{prefix}{}", field.name), start.saturating_add(field.start));
        match field.inner {
            Inner::Nothing => {
                found.push(PlacedField { structure: outermost, name, start, width: field.width })
            }
            Inner::One(inner) => flatten(inner, outermost, &format!("{name}."), start, found),
            Inner::Many(inner) => {
                for number in 0..field.width.checked_div(inner.size).unwrap_or(0) {
                    let start = start.saturating_add(number.saturating_mul(inner.size));
                    flatten(inner, outermost, &format!("{name}.{number}."), start, found);
                }
            }
            Inner::Elsewhere => {}
        }
    }
}
