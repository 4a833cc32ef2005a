//! Walking a tree's items in order.

use vlinder_base::sync::Arc;
use vlinder_format::{Key, Place};

use crate::root::Root;
use crate::search::{Direction, Position, Search};
use crate::tree_blocks::TreeBlocks;
use crate::{Readahead, TreeError};

/// A place between items that moves forward. It keeps its leaf: items stay readable however the tree changes,
/// and the step to the next leaf looks the tree up again by key, so a change between two leaves is seen,
/// never half.
pub struct Cursor<'a> {
    blocks: &'a TreeBlocks,
    root: Arc<Root>,
    readahead: Readahead,
    position: Option<Position>,
}

impl<'a> Cursor<'a> {
    /// A cursor at the first item at or after `key`.
    ///
    /// # Errors
    /// What reading the path met.
    pub(crate) fn new(
        blocks: &'a TreeBlocks,
        root: &Arc<Root>,
        key: &Key,
        readahead: Readahead,
    ) -> Result<Self, TreeError> {
        let position = Search::new(blocks, root, key, Direction::Ceiling, readahead).run()?;
        Ok(Self { blocks, root: Arc::clone(root), readahead, position })
    }

    /// A cursor at the last item at or before `key`, if that is `wanted`; else at the first one behind
    /// the key.
    ///
    /// # Errors
    /// What reading the path met.
    pub(crate) fn at_or_before(
        blocks: &'a TreeBlocks,
        root: &Arc<Root>,
        key: &Key,
        wanted: impl FnOnce(&Key) -> bool,
    ) -> Result<Self, TreeError> {
        let readahead = Readahead::None;
        let position = Search::new(blocks, root, key, Direction::Floor, readahead).run()?;
        let mut cursor = Self { blocks, root: Arc::clone(root), readahead, position };
        match cursor.key() {
            Some(found) if wanted(&found) => {}
            // What comes next is the first one behind.
            Some(_) => cursor.advance()?,
            None => cursor.seek(key)?,
        }
        Ok(cursor)
    }

    /// The item that the cursor is at; none at the end.
    pub fn item(&self) -> Option<(Key, &[u8])> {
        self.position.as_ref().map(|position| (position.key(), position.data()))
    }

    /// The item's key; none at the end.
    pub fn key(&self) -> Option<Key> {
        self.position.as_ref().map(Position::key)
    }

    /// The item with its leaf; none at the end.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Where the cursor is, for errors.
    pub fn place(&self) -> Place {
        match &self.position {
            Some(position) => position.place(self.root.id()),
            None => Place { tree: Some(self.root.id()), ..Place::default() },
        }
    }

    /// Moves to the next item if the same leaf has one; else the cursor stays, and the answer is false.
    pub fn advance_in_leaf(&mut self) -> bool {
        self.position.as_mut().is_some_and(Position::advance_in_leaf)
    }

    /// Moves to the next item.
    ///
    /// # Errors
    /// What reading the next leaf met; the cursor stays.
    pub fn advance(&mut self) -> Result<(), TreeError> {
        let Some(position) = &mut self.position else { return Ok(()) };
        if position.advance_in_leaf() {
            return Ok(());
        }
        let Some(next) = position.key().next() else {
            self.position = None;
            return Ok(());
        };
        self.seek(&next)
    }

    /// Moves to the first item at or after `key`, without a look at the tree if the cursor's leaf has it:
    /// for a caller that knows that the wanted items do not change meanwhile.
    ///
    /// # Errors
    /// What reading the path met; the cursor stays.
    pub fn seek_near(&mut self, key: &Key) -> Result<(), TreeError> {
        let is_here = self.position.as_mut().is_some_and(|position| position.seek_in_leaf(key));
        if is_here { Ok(()) } else { self.seek(key) }
    }

    /// Moves to the first item at or after `key`.
    ///
    /// # Errors
    /// What reading the path met; the cursor stays.
    pub fn seek(&mut self, key: &Key) -> Result<(), TreeError> {
        let search = Search::new(self.blocks, &self.root, key, Direction::Ceiling, self.readahead);
        self.position = search.run()?;
        Ok(())
    }
}
