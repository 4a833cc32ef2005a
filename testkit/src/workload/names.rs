//! Names that make trouble: few, so that they meet; long; and with equal hashes, so that they share an item.

use vlinder_codec::name_hash::name_hash;

use super::choice::Choice;

/// A small set of names.
#[derive(Debug)]
pub struct Names {
    plain: Vec<Vec<u8>>,
    colliding: Vec<Vec<u8>>,
    long: Vec<Vec<u8>>,
}

impl Names {
    /// The names of a seed; `plain` of them plain.
    pub fn new(choice: &Choice, plain: usize) -> Self {
        let plain = (0..plain).map(|number| format!("n{number}").into_bytes()).collect();
        let colliding = colliding(choice, b"collides", 12);
        let long = (0..4_u8)
            .map(|number| {
                let mut name = vec![b'a' + number; 255 - usize::from(number)];
                name.extend_from_slice("ü".as_bytes());
                name.truncate(255);
                name
            })
            .collect();
        Self { plain, colliding, long }
    }

    /// Any of them.
    pub fn any(&self, choice: &Choice) -> Vec<u8> {
        let set = match choice.below(16) {
            0..=2 => &self.colliding,
            3 => &self.long,
            _ => &self.plain,
        };
        choice.of(set).cloned().unwrap_or_else(|| b"name".to_vec())
    }
}

/// The polynomial of CRC-32C, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `count` names, the first of them `first`, that all have the same hash: a CRC of 32 bits can be steered to
/// any value by four bytes.
pub fn colliding(choice: &Choice, first: &[u8], count: usize) -> Vec<Vec<u8>> {
    let wanted = u32::try_from(name_hash(first)).unwrap_or(u32::MAX);
    let mut names = vec![first.to_vec()];
    // One in about eight suffixes has a zero or a slash or is no text worth looking at; bounded all the same.
    for _ in 0..10_000 {
        if names.len() == count {
            break;
        }
        let mut name = format!("c{:x}-", choice.any() >> 40).into_bytes();
        let now = u32::try_from(name_hash(&name)).unwrap_or(u32::MAX);
        name.extend_from_slice(&suffix(now, wanted));
        let is_good =
            name_hash(&name) == u64::from(wanted) && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if is_good && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The four bytes that bring the hash from `now` to `wanted`.
fn suffix(now: u32, wanted: u32) -> [u8; 4] {
    // A step of 32 bits backwards from `wanted` without input gives the state that the bytes must bring about
    // at once.
    let mut state = wanted;
    for _ in 0..32 {
        state = if state & 0x8000_0000 == 0 { state << 1 } else { ((state ^ POLYNOMIAL) << 1) | 1 };
    }
    (state ^ now).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_made_to_collide() {
        let names = colliding(&Choice::new(1), b"collides", 12);
        assert_eq!(names.len(), 12);
        assert!(names.iter().all(|name| name_hash(name) == name_hash(b"collides")));
    }
}
