use super::*;
use crate::validate::tests::{assert_fault, assert_sound};
use proptest::prelude::*;

fn reference(name: &[u8]) -> RootReference<'_> {
    RootReference { directory: ObjectId(256), index: DirectoryIndex(5), name }
}

proptest! {
    #[test]
    fn decode_and_encode_are_inverse(head in any::<[u8; 16]>(), name in proptest::collection::vec(any::<u8>(), 0..300)) {
        let length = u16::try_from(name.len()).unwrap().to_le_bytes();
        let bytes = [&head[..], &length, &name].concat();
        prop_assert_eq!(RootReference::decode(&bytes).unwrap().encode(), bytes);
    }
}

#[test]
fn both_directions_obey_the_same_rules() {
    for key in [
        RootReference::forward_key(RootId(5), RootId(256)),
        RootReference::backward_key(RootId(256), RootId(5)),
    ] {
        let mut bytes = reference(b"home").encode();
        assert_eq!(bytes[..18], [0, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
        assert_sound(&key, &bytes, None);
        assert_fault(&key, &bytes[..17], None, RootReferenceFault::Header { found: 17 });
        assert_fault(&key, &bytes[..21], None, RootReferenceFault::Name { found: 3, expected: 4 });
        bytes.push(0);
        assert_fault(&key, &bytes, None, RootReferenceFault::Name { found: 5, expected: 4 });
        assert_fault(&key, &reference(b"").encode(), None, RootReferenceFault::NameLength { found: 0 });
        assert_sound(&key, &reference(&[b'x'; 255]).encode(), None);
        let long = reference(&[b'x'; 256]).encode();
        assert_fault(&key, &long, None, RootReferenceFault::NameLength { found: 256 });
    }
}
