//! What the sectors of files may hold at a moment, where threads change them: each change is written down
//! with when it was begun and when it was done.

/// Bytes that are changed as one.
pub const SECTOR: usize = 4096;

/// A change of one sector: what it holds afterwards, and when that was begun and done, on the clock of the
/// run.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub value: u64,
    pub begun: u64,
    pub done: u64,
}

/// All changes of each sector of one file, in their order: one thread makes them all.
pub type History = Vec<Vec<Change>>;

/// That of a file of zeros.
pub fn untouched(sectors: u64) -> History {
    vec![vec![Change { value: 0, begun: 0, done: 0 }]; sectors as usize]
}

/// A sector that holds a value from its first byte to its last.
pub fn sector_of(value: u64) -> Vec<u8> {
    value.to_le_bytes().into_iter().cycle().take(SECTOR).collect()
}

/// The value that a sector holds.
pub fn value_of(sector: &[u8], what: &str) -> u64 {
    let value = u64::from_le_bytes(sector[..8].try_into().unwrap());
    assert!(sector == sector_of(value), "{what}: a sector is torn, and begins with {value:#x}");
    value
}

/// Writes down that sectors are changed, first with no end: others may see it already.
pub fn note(
    history: &mut History,
    sectors: std::ops::Range<u64>,
    value: impl Fn(u64) -> u64,
    (begun, done): (u64, u64),
) {
    for sector in sectors {
        let changes = &mut history[sector as usize];
        match changes.last_mut().filter(|change| change.begun == begun) {
            Some(change) => change.done = done,
            None => changes.push(Change { value: value(sector), begun, done }),
        }
    }
}

/// What a file may hold where all that was done before a moment must be there, and nothing that was begun
/// after another.
pub fn may_have(history: &History, values: &[u64], (kept, end): (u64, u64), what: &str) {
    assert_eq!(values.len(), history.len(), "{what}: sectors");
    for (sector, (value, changes)) in values.iter().zip(history).enumerate() {
        // The last that was done in time is the oldest that it may have.
        let first = changes.iter().rposition(|change| change.done < kept).unwrap();
        let mut allowed = changes[first..].iter().filter(|change| change.begun < end);
        assert!(
            allowed.any(|change| change.value == *value),
            "{what}: sector {sector} has {value:#x}; all before {kept} is kept, nothing after {end} was begun: {:?}",
            &changes[first..]
        );
    }
}
