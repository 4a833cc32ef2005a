//! Which subvolumes and files the tokens of operations stand for.

use std::collections::HashMap;

use super::node::{FileId, ROOT_DIRECTORY, TOP_LEVEL};
use crate::workload::operation::Token;

/// Numbers of subvolumes and of inodes by token.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    roots: HashMap<Token, u64>,
    numbers: HashMap<Token, u64>,
}

impl Tokens {
    /// What there is at first: the top-level subvolume, and root directories.
    pub(super) fn new() -> Self {
        Self {
            roots: HashMap::from([(Token::ROOT, TOP_LEVEL)]),
            numbers: HashMap::from([(Token::ROOT, ROOT_DIRECTORY)]),
        }
    }

    /// The number that a subvolume has or had.
    pub(super) fn root(&self, subvolume: Token) -> Option<u64> {
        self.roots.get(&subvolume).copied()
    }

    /// The number that an inode has or had.
    pub(super) fn number(&self, object: Token) -> Option<u64> {
        self.numbers.get(&object).copied()
    }

    /// Notes what an operation made.
    pub(super) fn note(&mut self, token: Token, made: FileId, is_subvolume: bool) {
        self.numbers.insert(token, made.number);
        if is_subvolume {
            self.roots.insert(token, made.root);
        }
    }
}
