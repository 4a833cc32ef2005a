//! Changes of items: what [`Trees::edit`](crate::Trees::edit) is asked for.

use core::fmt;

use vlinder_format::Key;

/// What becomes of an item, decided by its present content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// It has these data from now on, whether it was there or not.
    Put(Vec<u8>),
    /// It is gone, if it was there.
    Remove,
    /// The content is not what the caller had planned for: the whole edit is refused with
    /// [`TreeError::Conflict`](crate::TreeError::Conflict).
    Conflict,
}

/// One change of one item.
pub enum Change<'a> {
    /// A new item; refused where the key exists.
    Insert(&'a [u8]),
    /// An item with these data, new or not.
    Put(&'a [u8]),
    /// Another content for an item that must exist.
    Replace(&'a [u8]),
    /// No item any more; refused where there is none.
    Remove,
    /// No item any more, whether there was one or not.
    RemoveIfPresent,
    /// What the closure makes of the present data. It may be asked more than once.
    Update(&'a (dyn Fn(Option<&[u8]>) -> Action + 'a)),
}

impl fmt::Debug for Change<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert(data) => write!(formatter, "Insert({} bytes)", data.len()),
            Self::Put(data) => write!(formatter, "Put({} bytes)", data.len()),
            Self::Replace(data) => write!(formatter, "Replace({} bytes)", data.len()),
            Self::Remove => formatter.write_str("Remove"),
            Self::RemoveIfPresent => formatter.write_str("RemoveIfPresent"),
            Self::Update(_) => formatter.write_str("Update"),
        }
    }
}

/// A change and the key that it is for.
#[derive(Debug)]
pub struct Edit<'a> {
    /// The item.
    pub key: Key,
    /// What becomes of it.
    pub change: Change<'a>,
}

impl<'a> Edit<'a> {
    /// A change of the item `key`.
    pub fn new(key: Key, change: Change<'a>) -> Self {
        Self { key, change }
    }

    /// The item gets these data, or goes if it is there and gets none.
    pub fn put_or_remove(key: Key, data: Option<&'a [u8]>) -> Self {
        Self::new(key, data.map_or(Change::RemoveIfPresent, Change::Put))
    }
}
