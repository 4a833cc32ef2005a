//! Buffers of tree blocks, used again and again.
//!
//! A cache of blocks forgets and takes in blocks on all threads, among many small pieces that live longer.
//! From a general allocator each forgotten block leaves a hole that only a block of the same thread may fill:
//! after 20,000 random changes of a large directory 227 MiB of blocks and other things in use took 420 MiB of
//! memory. Blocks have one of five sizes, so a list of free buffers for each, of all threads, is exact.
//!
//! A model run has none: what the lists hold would reach from one run into the next.

#[cfg(not(feature = "shuttle"))]
mod inner {
    use crate::sync::Mutex;
    use crate::sync::atomic::{AtomicUsize, Ordering};

    /// Blocks have from 4 KiB to 64 KiB (`BTRFS_MAX_METADATA_BLOCKSIZE`).
    const SMALLEST_BYTES: usize = 4 << 10;
    const SIZES: usize = 5;
    /// Free buffers that are kept, of all sizes together.
    const MAX_FREE_BYTES: usize = 128 << 20;

    static FREE: [Mutex<Vec<Box<[u8]>>>; SIZES] = [const { Mutex::new(Vec::new()) }; SIZES];
    static FREE_BYTES: AtomicUsize = AtomicUsize::new(0);

    fn list(length: usize) -> Option<&'static Mutex<Vec<Box<[u8]>>>> {
        if !length.is_power_of_two() || length < SMALLEST_BYTES {
            return None;
        }
        FREE.get(usize::try_from((length / SMALLEST_BYTES).trailing_zeros()).ok()?)
    }

    pub(super) fn take(length: usize) -> Option<Box<[u8]>> {
        let buffer = list(length)?.lock().pop()?;
        FREE_BYTES.fetch_sub(length, Ordering::AcqRel);
        Some(buffer)
    }

    pub(super) fn give(buffer: Box<[u8]>) {
        let length = buffer.len();
        let Some(list) = list(length) else { return };
        if FREE_BYTES.fetch_add(length, Ordering::AcqRel) + length > MAX_FREE_BYTES {
            FREE_BYTES.fetch_sub(length, Ordering::AcqRel);
            return;
        }
        list.lock().push(buffer);
    }

    pub(super) fn release() {
        for list in &FREE {
            let free = std::mem::take(&mut *list.lock());
            FREE_BYTES.fetch_sub(free.iter().map(|buffer| buffer.len()).sum(), Ordering::AcqRel);
        }
    }
}

#[cfg(feature = "shuttle")]
mod inner {
    pub(super) fn take(_length: usize) -> Option<Box<[u8]>> {
        None
    }

    pub(super) fn give(_buffer: Box<[u8]>) {}

    pub(super) fn release() {}
}

/// A buffer of zeros.
pub fn zeroed(length: usize) -> Box<[u8]> {
    match inner::take(length) {
        Some(mut buffer) => {
            buffer.fill(0);
            buffer
        }
        None => vec![0; length].into_boxed_slice(),
    }
}

/// A buffer with the same bytes.
pub fn copied(bytes: &[u8]) -> Box<[u8]> {
    match inner::take(bytes.len()) {
        Some(mut buffer) => {
            buffer.copy_from_slice(bytes);
            buffer
        }
        None => bytes.into(),
    }
}

/// Gives a buffer back, from wherever it came. One whose length is no block's is freed, and so is one too
/// many.
pub fn give_back(buffer: Box<[u8]>) {
    inner::give(buffer);
}

/// Frees all buffers that nobody uses. A caller that had many calls it when it is done.
pub fn release() {
    inner::release();
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_by_its_length_with_the_right_bytes() {
        let used = |length| {
            let buffer = vec![7; length].into_boxed_slice();
            let place = buffer.as_ptr();
            give_back(buffer);
            place
        };
        for length in [4 << 10, 16 << 10, 64 << 10] {
            let place = used(length);
            let buffer = zeroed(length);
            assert_eq!((buffer.as_ptr(), &*buffer), (place, &*vec![0; length]));
            let place = used(length);
            let buffer = copied(&vec![9; length]);
            assert_eq!((buffer.as_ptr(), &*buffer), (place, &*vec![9; length]));
        }
        let odd = [0, 1, 4095, 4097, 12 << 10, 128 << 10, 1 << 20];
        for length in odd {
            give_back(vec![7; length].into_boxed_slice());
            assert_eq!(&*zeroed(length), vec![0; length]);
        }
        // All that is too much is freed, and so is the rest when nobody wants it.
        (0..3000).for_each(|_| give_back(vec![1; 64 << 10].into_boxed_slice()));
        assert_eq!((0..3000).map_while(|_| inner::take(64 << 10)).count(), 2048);
        used(4096);
        release();
        assert!(inner::take(4096).is_none());
    }
}
