//! Temporary space for what has no place in memory: gone with the device.

use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_device::{Device, DeviceError, DeviceExt};
use vlinder_format::Physical;

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Why temporary space was of no use.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// It is too small.
    #[error(
        "what has no place in memory takes more than the {most_bytes} bytes of temporary space that are allowed; allow more"
    )]
    Full {
        /// Its size.
        most_bytes: u64,
    },
    /// It can't be written or read.
    #[error("the temporary space cannot be used: {0}")]
    Device(#[from] DeviceError),
}

/// The temporary space of a check. Clones share it.
#[derive(Clone)]
pub(crate) struct Store(Option<Arc<TemporarySpace>>);

struct TemporarySpace {
    device: Arc<dyn Device>,
    /// What is behind this is not taken.
    end: AtomicU64,
    has_failed: AtomicBool,
    /// The first failure.
    failure: Mutex<Option<StoreError>>,
}

impl Store {
    /// On this device, of which nothing is kept; without one there is none.
    pub(crate) fn new(device: Option<Arc<dyn Device>>) -> Self {
        Self(device.map(|device| {
            Arc::new(TemporarySpace {
                device,
                end: AtomicU64::new(0),
                has_failed: AtomicBool::new(false),
                failure: Mutex::new(None),
            })
        }))
    }

    /// Whether there is any.
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Whether something was lost: then nothing that comes of it is worth anything.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.has_failed.load(Ordering::Relaxed))
    }

    /// Why, if something was lost.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.0.as_ref().and_then(|shared| shared.failure.lock().clone())
    }

    /// Writes bytes to where nothing is yet, and gives the place; none if they are lost.
    pub(crate) fn append(&self, bytes: &[u8]) -> Option<u64> {
        let shared = self.0.as_ref().filter(|shared| !shared.has_failed.load(Ordering::Relaxed))?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let place = shared.end.fetch_add(length, Ordering::Relaxed);
        let most_bytes = shared.device.length();
        if place.checked_add(length).is_none_or(|end| end > most_bytes) {
            shared.fail(StoreError::Full { most_bytes });
            return None;
        }
        shared.write(place, bytes).then_some(place)
    }

    /// Writes as many bytes as were appended there.
    pub(crate) fn rewrite(&self, place: u64, bytes: &[u8]) {
        if let Some(shared) = &self.0 {
            shared.write(place, bytes);
        }
    }

    /// Reads what was written; none if it is lost.
    pub(crate) fn read(&self, place: u64, length: usize) -> Option<Vec<u8>> {
        let shared = self.0.as_ref()?;
        match shared.device.read_at(Physical(place), length) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                shared.fail(error.into());
                None
            }
        }
    }
}

impl TemporarySpace {
    /// Whether all was written.
    fn write(&self, place: u64, bytes: &[u8]) -> bool {
        let mut at = place;
        for part in bytes.chunks(WRITE_BYTES) {
            if let Err(error) = self.device.write_at(Physical(at), part.to_vec()) {
                self.fail(error.into());
                return false;
            }
            at = at.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        }
        true
    }

    fn fail(&self, error: StoreError) {
        self.failure.lock().get_or_insert(error);
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use vlinder_device::{MemoryDevice, ReadOnlyDevice};

    use super::*;

    #[test]
    fn space_that_cannot_be_written_is_told() {
        let store = Store::new(Some(Arc::new(ReadOnlyDevice::new(MemoryDevice::new(1 << 20)))));
        assert_eq!((store.has_failed(), store.failure()), (false, None));
        assert_eq!(store.append(b"lost"), None);
        assert!(store.has_failed());
        assert!(matches!(store.failure(), Some(StoreError::Device(_))), "{:?}", store.failure());
        assert_eq!(store.append(b"more"), None, "nothing more is tried");
    }

    #[test]
    fn what_lies_behind_the_end_cannot_be_read() {
        let store = Store::new(Some(Arc::new(MemoryDevice::new(16))));
        assert_eq!(store.append(&[7; 16]), Some(0));
        assert_eq!(store.read(0, 16), Some(vec![7; 16]));
        assert_eq!(store.read(8, 16), None);
        assert!(matches!(store.failure(), Some(StoreError::Device(_))), "{:?}", store.failure());
    }
    #[test]
    fn where_there_is_no_space_nothing_is_kept() {
        let store = Store::new(None);
        store.rewrite(0, b"lost");
        assert_eq!((store.is_there(), store.append(b"lost"), store.read(0, 4)), (false, None, None));
        assert_eq!((store.has_failed(), store.failure()), (false, None));
    }
}
