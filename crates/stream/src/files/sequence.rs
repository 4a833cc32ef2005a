//! A sequence that shares with the sequences that it was made from all that is the same in both.
//!
//! A snapshot begins as its parent, and a clone as a part of its source, whatever their size: in a stream of
//! a few commands either could double what is there again and again. So a copy of a sequence, and a part of
//! one, cost a logarithm of its length in time and memory.
//!
//! It is a balanced tree (AVL) whose branches are shared between sequences and copied when one changes. All
//! changes are made of two operations: joining two trees around an item, and splitting one.

use std::cmp::Ordering;

use vlinder_base::sync::Arc;

/// What a sequence holds.
pub(super) trait Measured: Clone {
    /// How long it is; the length of a sequence is the sum, which must stay below 2^64.
    fn length(&self) -> u64;

    /// True for an item that is looked for by [`Sequence::first_marked`].
    fn is_marked(&self) -> bool {
        false
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Sequence<T>(Option<Arc<Branch<T>>>);

#[derive(Clone, Debug)]
struct Branch<T> {
    left: Sequence<T>,
    item: T,
    right: Sequence<T>,
    length: u64,
    /// Levels, this one included.
    height: u8,
    /// Whether an item here or below is marked.
    is_marked: bool,
}

impl<T> Default for Sequence<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Measured> Sequence<T> {
    /// A sequence of one item.
    pub fn of(item: T) -> Self {
        Self::default().join(item, Self::default())
    }

    /// True if there is no item.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The sum of the lengths.
    pub fn length(&self) -> u64 {
        self.0.as_ref().map_or(0, |branch| branch.length)
    }

    /// The first item that is marked.
    pub fn first_marked(&self) -> Option<&T> {
        let is_marked = |below: &Self| below.0.as_ref().is_some_and(|branch| branch.is_marked);
        let mut current = self.0.as_deref().filter(|branch| branch.is_marked)?;
        loop {
            current = if is_marked(&current.left) {
                current.left.0.as_deref()?
            } else if current.item.is_marked() {
                return Some(&current.item);
            } else {
                current.right.0.as_deref()?
            };
        }
    }

    /// The items in order.
    pub fn iter(&self) -> Items<'_, T> {
        let mut items = Items { above: Vec::new() };
        items.descend(self);
        items
    }

    /// The item for which `order` says equal; it says how an item compares with the one that is sought.
    pub fn find(&self, order: impl Fn(&T) -> Ordering) -> Option<&T> {
        let mut current = self;
        while let Some(branch) = current.0.as_deref() {
            match order(&branch.item) {
                Ordering::Equal => return Some(&branch.item),
                Ordering::Less => current = &branch.right,
                Ordering::Greater => current = &branch.left,
            }
        }
        None
    }

    /// As [`Sequence::find`], to change the item, whose length must stay as it is.
    pub fn find_mut(&mut self, order: impl Fn(&T) -> Ordering) -> Option<&mut T> {
        let mut current = self;
        while let Some(branch) = &mut current.0 {
            let branch = Arc::make_mut(branch);
            match order(&branch.item) {
                Ordering::Equal => return Some(&mut branch.item),
                Ordering::Less => current = &mut branch.right,
                Ordering::Greater => current = &mut branch.left,
            }
        }
        None
    }

    /// Puts an item where `order` says; gives the item that was there, if one was equal.
    pub fn put(&mut self, item: T, order: impl Fn(&T) -> Ordering) -> Option<T> {
        let (before, found, after) = std::mem::take(self).split_at_item(&order);
        *self = before.join(item, after);
        found
    }

    /// Takes out the item for which `order` says equal.
    pub fn take(&mut self, order: impl Fn(&T) -> Ordering) -> Option<T> {
        let (before, found, after) = std::mem::take(self).split_at_item(&order);
        *self = before.concat(after);
        found
    }

    /// What lies before a position and what lies behind it. An item that spans the position is cut by `cut`,
    /// which gets the bytes of it that lie before.
    pub fn split_at(self, position: u64, cut: &impl Fn(T, u64) -> (T, T)) -> (Self, Self) {
        let Some((left, item, right)) = self.into_parts() else { return Default::default() };
        let (start, end) = (left.length(), left.length() + item.length());
        if position <= start {
            let (before, after) = left.split_at(position, cut);
            (before, after.join(item, right))
        } else if position >= end {
            let (before, after) = right.split_at(position - end, cut);
            (left.join(item, before), after)
        } else {
            let (first, second) = cut(item, position - start);
            (left.join(first, Self::default()), Self::default().join(second, right))
        }
    }

    /// Both sequences, one behind the other.
    pub fn concat(self, after: Self) -> Self {
        match after.split_first() {
            Some((first, rest)) => self.join(first, rest),
            None => self,
        }
    }

    fn split_first(self) -> Option<(T, Self)> {
        let (left, item, right) = self.into_parts()?;
        match left.split_first() {
            Some((first, rest)) => Some((first, rest.join(item, right))),
            None => Some((item, right)),
        }
    }

    fn split_at_item(self, order: &impl Fn(&T) -> Ordering) -> (Self, Option<T>, Self) {
        let Some((left, item, right)) = self.into_parts() else { return Default::default() };
        match order(&item) {
            Ordering::Equal => (left, Some(item), right),
            Ordering::Less => {
                let (before, found, after) = right.split_at_item(order);
                (left.join(item, before), found, after)
            }
            Ordering::Greater => {
                let (before, found, after) = left.split_at_item(order);
                (before, found, after.join(item, right))
            }
        }
    }

    /// A sequence with an item between two, whatever their heights.
    fn join(self, item: T, after: Self) -> Self {
        let (left, right) = (self.height(), after.height());
        if left > right + 1 {
            let Some((above, pivot, below)) = self.into_parts() else { return Self::default() };
            above.balanced(pivot, below.join(item, after))
        } else if right > left + 1 {
            let Some((below, pivot, above)) = after.into_parts() else { return Self::default() };
            self.join(item, below).balanced(pivot, above)
        } else {
            self.branch(item, after)
        }
    }

    /// As [`Sequence::join`], where the heights differ by 2 at most.
    fn balanced(self, item: T, after: Self) -> Self {
        let (left, right) = (self.height(), after.height());
        if left > right + 1 {
            let Some((outer, pivot, inner)) = self.into_parts() else { return Self::default() };
            if outer.height() >= inner.height() {
                return outer.branch(pivot, inner.branch(item, after));
            }
            let Some((first, middle, second)) = inner.into_parts() else { return Self::default() };
            outer.branch(pivot, first).branch(middle, second.branch(item, after))
        } else if right > left + 1 {
            let Some((inner, pivot, outer)) = after.into_parts() else { return Self::default() };
            if outer.height() >= inner.height() {
                return self.branch(item, inner).branch(pivot, outer);
            }
            let Some((first, middle, second)) = inner.into_parts() else { return Self::default() };
            self.branch(item, first).branch(middle, second.branch(pivot, outer))
        } else {
            self.branch(item, after)
        }
    }

    fn branch(self, item: T, right: Self) -> Self {
        let is_marked = |below: &Self| below.0.as_ref().is_some_and(|branch| branch.is_marked);
        Self(Some(Arc::new(Branch {
            length: self.length() + item.length() + right.length(),
            height: self.height().max(right.height()) + 1,
            is_marked: is_marked(&self) || item.is_marked() || is_marked(&right),
            left: self,
            item,
            right,
        })))
    }

    fn height(&self) -> u8 {
        self.0.as_ref().map_or(0, |branch| branch.height)
    }

    fn into_parts(self) -> Option<(Self, T, Self)> {
        let branch = Arc::try_unwrap(self.0?).unwrap_or_else(|shared| (*shared).clone());
        Some((branch.left, branch.item, branch.right))
    }
}

/// The items of a sequence in order.
pub(super) struct Items<'a, T> {
    /// Branches whose item and right side are still to come, the next one last.
    above: Vec<&'a Branch<T>>,
}

impl<'a, T> Items<'a, T> {
    fn descend(&mut self, mut below: &'a Sequence<T>) {
        while let Some(branch) = below.0.as_deref() {
            self.above.push(branch);
            below = &branch.left;
        }
    }
}

impl<'a, T> Iterator for Items<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        let branch = self.above.pop()?;
        self.descend(&branch.right);
        Some(&branch.item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes from `start` on, all different.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Run {
        start: u32,
        bytes: u64,
    }

    impl Measured for Run {
        fn length(&self) -> u64 {
            self.bytes
        }

        fn is_marked(&self) -> bool {
            self.start % 7 == 3
        }
    }

    fn cut(run: Run, at: u64) -> (Run, Run) {
        (Run { bytes: at, ..run }, Run { start: run.start + at as u32, bytes: run.bytes - at })
    }

    fn bytes(sequence: &Sequence<Run>) -> Vec<u32> {
        sequence.iter().flat_map(|run| run.start..run.start + run.bytes as u32).collect()
    }

    /// Heights, lengths and marks are true, and neighbours differ in height by one at most.
    fn check(sequence: &Sequence<Run>) {
        let Some(branch) = sequence.0.as_deref() else { return };
        check(&branch.left);
        check(&branch.right);
        assert!(branch.left.height().abs_diff(branch.right.height()) <= 1);
        assert_eq!(branch.height, branch.left.height().max(branch.right.height()) + 1);
        assert_eq!(branch.length, branch.left.length() + branch.item.bytes + branch.right.length());
        assert_eq!(branch.is_marked, sequence.iter().any(Run::is_marked));
    }

    proptest! {
        /// Parts are moved, doubled and taken out; an array does the same.
        #[test]
        fn it_does_what_an_array_does(steps in prop::collection::vec((0_u8..3, any::<u16>(), any::<u16>()), 1..60)) {
            let mut sequence = Sequence::of(Run { start: 0, bytes: 40 });
            let mut model: Vec<u32> = (0..40).collect();
            for (number, (step, one, other)) in (1..).zip(steps) {
                let length = model.len() as u64;
                let (one, other) = (u64::from(one) % (length + 1), u64::from(other) % (length + 1));
                let (from, to) = (one.min(other), one.max(other));
                let before = sequence.clone();
                let (start, rest) = sequence.split_at(from, &cut);
                let (middle, end) = rest.split_at(to - from, &cut);
                let taken: Vec<u32> = model.splice(from as usize..to as usize, []).collect();
                sequence = match step {
                    0 => start.concat(end),
                    1 if taken.len() < 1000 => {
                        let doubled = [&taken[..], &taken[..]].concat();
                        model.splice(from as usize..from as usize, doubled);
                        start.concat(middle.clone()).concat(middle).concat(end)
                    }
                    _ => {
                        let run = Run { start: number * 1000, bytes: 5 };
                        model.splice(from as usize..from as usize, run.start..run.start + 5);
                        start.concat(Sequence::of(run)).concat(end)
                    }
                };
                check(&sequence);
                prop_assert_eq!(bytes(&sequence), model.clone());
                prop_assert_eq!(before.length(), length, "what it was made from stays");
                let marked = sequence.iter().find(|run| run.is_marked());
                prop_assert_eq!(sequence.first_marked(), marked);
            }
        }

        #[test]
        fn items_are_kept_in_their_order(steps in prop::collection::vec((any::<bool>(), 0_u32..50), 0..200)) {
            let mut sequence = Sequence::default();
            let mut model = std::collections::BTreeMap::new();
            for (number, (is_put, key)) in (0_u64..).zip(steps) {
                let order = |run: &Run| run.start.cmp(&key);
                let found = if is_put {
                    let found = sequence.put(Run { start: key, bytes: number }, order);
                    prop_assert_eq!(found.map(|run| run.bytes), model.insert(key, number));
                    sequence.find(order).copied()
                } else {
                    let found = sequence.take(order);
                    prop_assert_eq!(found.map(|run| run.bytes), model.remove(&key));
                    sequence.find(order).copied()
                };
                prop_assert_eq!(found.map(|run| run.bytes), model.get(&key).copied());
                check(&sequence);
            }
            let items: Vec<(u32, u64)> = sequence.iter().map(|run| (run.start, run.bytes)).collect();
            prop_assert_eq!(items, model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn doubling_again_and_again_costs_little() {
        let mut sequence = Sequence::of(Run { start: 0, bytes: 1 });
        for _ in 0..62 {
            sequence = sequence.clone().concat(sequence);
        }
        assert_eq!(sequence.length(), 1 << 62);
        assert!(sequence.height() < 92, "{}", sequence.height());
        let (before, after) = sequence.split_at((1 << 61) + 12345, &cut);
        assert_eq!((before.length(), after.iter().take(3).count()), ((1 << 61) + 12345, 3));
    }
}
