//! The path of an open directory. Directories below share what lies above: a walk takes memory in proportion
//! to its depth, not to the square of it.

use std::collections::VecDeque;

use vlinder_base::sync::Arc;

/// Names from a root down; none for the root.
#[derive(Clone, Default)]
pub struct SharedPath {
    last: Option<Arc<SharedName>>,
}

struct SharedName {
    above: SharedPath,
    name: Vec<u8>,
}

impl SharedPath {
    /// With one more name.
    pub fn below(&self, name: &[u8]) -> Self {
        Self { last: Some(Arc::new(SharedName { above: self.clone(), name: name.to_vec() })) }
    }

    /// The path with a slash before each name; empty for the root.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut next = &self.last;
        while let Some(last) = next {
            names.push(&*last.name);
            next = &last.above.last;
        }
        names.iter().rev().flat_map(|name| [b"/", *name]).flatten().copied().collect()
    }
}

/// Lets go of the names one by one: a deep path would need more stack than a thread has.
impl Drop for SharedPath {
    fn drop(&mut self) {
        let mut next = self.last.take().and_then(Arc::into_inner);
        while let Some(mut name) = next {
            next = name.above.last.take().and_then(Arc::into_inner);
        }
    }
}

/// The names of a written path, one after the other.
pub fn split(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_names_in_order_however_deep() {
        assert_eq!(SharedPath::default().to_bytes(), b"");
        let top = SharedPath::default().below(b"a");
        let (left, right) = (top.below(b"b").below(b"c"), top.below(b"d"));
        drop(top);
        assert_eq!(left.to_bytes(), b"/a/b/c");
        assert_eq!(right.to_bytes(), b"/a/d");
        let deep = (0..1_000_000).fold(SharedPath::default(), |path, _| path.below(b"x"));
        assert_eq!(deep.to_bytes().len(), 2_000_000);
    }
}
