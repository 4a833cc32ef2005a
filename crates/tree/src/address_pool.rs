//! Free addresses that a change holds before it is applied.

use vlinder_format::{Logical, RootId};

use crate::{Space, TreeError};

/// Free addresses held for changes, so that an apply never has to ask for one.
#[derive(Debug, Default)]
pub struct AddressPool {
    addresses: Vec<Logical>,
}

impl AddressPool {
    /// Holds at least `count` addresses from now on.
    pub(crate) fn fill(&mut self, space: &dyn Space, root: RootId, count: usize) -> Result<(), TreeError> {
        match count.checked_sub(self.addresses.len()) {
            None | Some(0) => Ok(()),
            Some(lacking) => space.take(root, lacking, &mut self.addresses),
        }
    }

    /// How many addresses are held.
    pub fn held(&self) -> usize {
        self.addresses.len()
    }

    /// One of the addresses held; the plan has counted them.
    pub(crate) fn take(&mut self) -> Logical {
        let address = self.addresses.pop();
        assert!(address.is_some(), "the plan counted too few addresses");
        address.unwrap_or_default()
    }

    /// Gives back what is held, when the pool's owner is done.
    pub fn give_back(&mut self, space: &dyn Space, root: RootId) {
        if !self.addresses.is_empty() {
            space.give(root, &mut self.addresses);
            self.addresses.clear();
        }
    }
}
