//! Loops: parents that lead back to where they began, so that a reader who follows parents never arrives.

/// Pairs of a child and its parent, in the order of the children; each child stands once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parents(Vec<(u64, u64)>);

/// What is known of a child while its parents are followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Never,
    /// From the child of this position.
    From(u32),
}

impl Parents {
    /// All of these, but a child that was there already, or comes out of order: another rule speaks of it.
    pub(crate) fn of(mut pairs: Vec<(u64, u64)>) -> Self {
        let mut before = None;
        pairs.retain(|(child, _)| {
            let is_next = before.is_none_or(|before| before < *child);
            if is_next {
                before = Some(*child);
            }
            is_next
        });
        Self(pairs)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest member of each loop.
    pub(crate) fn loops(&self) -> Vec<u64> {
        // Somewhere in a loop a child is its parent's elder, or itself; where none is, as where nothing was
        // ever moved, there is no loop.
        if self.0.iter().all(|(child, parent)| parent < child) {
            return Vec::new();
        }
        let mut seen = vec![Seen::Never; self.0.len()];
        let mut found = Vec::new();
        for start in 0..u32::try_from(self.0.len()).unwrap_or(u32::MAX) {
            let mut at = usize::try_from(start).unwrap_or(usize::MAX);
            // Each step marks a child that was not marked, so that this ends.
            while let Some(mark) = seen.get_mut(at) {
                match *mark {
                    Seen::Never => *mark = Seen::From(start),
                    Seen::From(by) => {
                        if by == start {
                            found.push(self.smallest_of(at));
                        }
                        break;
                    }
                }
                match self.parent_of(at) {
                    Some(parent) => at = parent,
                    None => break,
                }
            }
        }
        found
    }

    fn parent_of(&self, position: usize) -> Option<usize> {
        let (_, parent) = self.0.get(position)?;
        self.0.binary_search_by_key(parent, |(child, _)| *child).ok()
    }

    /// The smallest child of a loop that goes through this position.
    fn smallest_of(&self, position: usize) -> u64 {
        let (mut at, mut smallest) = (position, position);
        for _ in 0..self.0.len() {
            at = self.parent_of(at).unwrap_or(position);
            smallest = smallest.min(at);
            if at == position {
                break;
            }
        }
        self.0.get(smallest).map_or(0, |(child, _)| *child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops(pairs: &[(u64, u64)]) -> Vec<u64> {
        Parents::of(pairs.to_vec()).loops()
    }

    #[test]
    fn each_loop_is_found_once() {
        assert_eq!(loops(&[(257, 256), (258, 257), (259, 258), (300, 1000)]), [0; 0]);
        assert_eq!(loops(&[(257, 259), (258, 257), (259, 258), (260, 258)]), [257]);
        assert_eq!(loops(&[(257, 300), (258, 258), (299, 300), (300, 299), (301, 257)]), [299, 258]);
    }

    #[test]
    fn a_long_way_is_followed_without_growing() {
        let chain: Vec<(u64, u64)> = (1..200_000).map(|child| (child, child + 1)).collect();
        assert_eq!(loops(&chain), [0; 0]);
        let mut ring = chain;
        ring.push((200_000, 1));
        assert_eq!(loops(&ring), [1]);
    }
    #[test]
    fn of_a_child_with_several_parents_the_first_counts() {
        let expected = Parents(vec![(5, 1), (7, 2)]);
        assert_eq!(Parents::of(vec![(5, 1), (5, 9), (4, 9), (7, 2), (7, 7)]), expected);
    }
}
