//! A part of a device as a device of its own: a partition of a disk.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;

#[cfg(doc)]
use crate::DeviceErrorKind;
use crate::{
    Completion, Description, Device, DeviceError, DeviceExt, DeviceKind, FileDevice, HostIdentity, Operation,
    Request, Ticket,
};

/// The bytes of `inner` from `start` on, `length_bytes` of them, counted from 0 again.
///
/// # Invariants
/// 1. `start + length_bytes` does not wrap, and did not lie behind `inner`'s end when the window was made.
/// 2. A request reaches `inner` only if its range lies within the window: [`Self::place`] is the one way from
///    an offset of the window to one of `inner`.
/// 3. The window never changes: neither what it covers, nor the length of `inner`. (A call that changes a
///    file's length is one of [`FileDevice`], which a window does not give out.)
///
/// Errors that `inner` reports name `inner` and its own offsets, which are the places to look at. A range
/// outside of the window is reported with the window's name and offsets.
#[derive(Debug, Clone)]
pub struct DeviceWindow<D> {
    inner: D,
    name: Arc<str>,
    start: u64,
    length_bytes: u64,
}

impl<D: Device> DeviceWindow<D> {
    /// The window at this byte, with a name for errors.
    ///
    /// # Errors
    /// [`DeviceErrorKind::OutOfRange`] where it does not lie within `inner`.
    pub fn new(inner: D, name: &str, start: Physical, length_bytes: u64) -> Result<Self, DeviceError> {
        inner.check_range(Operation::Open, start, length_bytes)?;
        Ok(Self { inner, name: name.into(), start: start.0, length_bytes })
    }

    /// The bytes of the whole device that the window shows.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end()
    }

    fn end(&self) -> u64 {
        let end = self.start.checked_add(self.length_bytes);
        assert!(end.is_some(), "invariant 1: a window's end was judged when it was made");
        end.unwrap_or(self.start)
    }

    /// Where a range of the window lies on the whole device.
    ///
    /// # Errors
    /// [`DeviceErrorKind::OutOfRange`].
    fn place(
        &self,
        operation: Operation,
        offset: Physical,
        length_bytes: u64,
    ) -> Result<Physical, DeviceError> {
        self.check_range(operation, offset, length_bytes)?;
        let place = self.start.checked_add(offset.0);
        let end = place.and_then(|place| place.checked_add(length_bytes));
        assert!(
            end.is_some_and(|end| end <= self.end()),
            "invariant 2: {length_bytes} bytes at {offset} end behind the window"
        );
        Ok(Physical(place.unwrap_or(self.start)))
    }

    fn place_request(&self, request: &Request) -> Result<Physical, DeviceError> {
        self.place(request.operation(), request.offset(), request.length_bytes())
    }

    /// The same request to the whole device.
    fn moved(&self, request: Request) -> Result<Request, (Request, DeviceError)> {
        let place = match self.place_request(&request) {
            Ok(place) => place,
            Err(error) => return Err((request, error)),
        };
        Ok(match request {
            Request::Read { buffer, .. } => Request::Read { offset: place, buffer },
            Request::Write { data, durability, .. } => Request::Write { offset: place, data, durability },
        })
    }

    /// Runs one request that may lie outside.
    fn run(&self, request: Request) -> Vec<Completion> {
        match self.moved(request) {
            Ok(request) => self.inner.submit(vec![request]).wait(),
            Err((request, error)) => vec![request.complete(Err(error))],
        }
    }
}

impl DeviceWindow<FileDevice> {
    /// Device and inode number of the file or block device that the window is on.
    ///
    /// # Errors
    /// What the system said.
    pub fn host_identity(&self) -> Result<HostIdentity, DeviceError> {
        self.inner.host_identity()
    }

    /// Whether the window is on a file or on a block device.
    pub fn host_kind(&self) -> DeviceKind {
        self.inner.describe().kind
    }
}

impl<D: Device> Device for DeviceWindow<D> {
    fn describe(&self) -> Description {
        // Neither a file, whose length could be changed, nor a block device of the host.
        Description { name: Arc::clone(&self.name), kind: DeviceKind::Other, ..self.inner.describe() }
    }

    fn length(&self) -> u64 {
        self.length_bytes
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        if batch.iter().all(|request| self.place_request(request).is_ok()) {
            let moved = batch.into_iter().map(|request| self.moved(request));
            let moved: Vec<Request> = moved.filter_map(Result::ok).collect();
            return self.inner.submit(moved);
        }
        // A range outside is a mistake or a lie on disk. One by one, the other requests get their answers;
        // that this is slower does not matter.
        Ticket::ready(batch.into_iter().flat_map(|request| self.run(request)).collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        let place = self.place(Operation::Discard, offset, length_bytes)?;
        self.inner.discard(place, length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DeviceErrorKind, MemoryDevice, ReadOnlyDevice};

    const DISK: u64 = 256;

    fn disk() -> Arc<MemoryDevice> {
        let bytes: Vec<u8> = (0..=255).collect();
        Arc::new(MemoryDevice::from_bytes(&bytes))
    }

    fn content(disk: &MemoryDevice) -> Vec<u8> {
        disk.read_at(Physical(0), DISK as usize).unwrap()
    }

    #[test]
    fn a_window_past_the_end_is_refused() {
        for (start, length) in
            [(0, DISK + 1), (DISK, 1), (1, DISK), (u64::MAX, 1), (1, u64::MAX), (DISK + 1, 0)]
        {
            let refused = DeviceWindow::new(disk(), "disk@1", Physical(start), length).unwrap_err();
            assert!(
                matches!(refused.kind, DeviceErrorKind::OutOfRange { .. }),
                "{start} {length}: {refused}"
            );
        }
        assert!(DeviceWindow::new(disk(), "disk@1", Physical(DISK), 0).is_ok());
    }

    #[test]
    fn a_window_has_its_own_name_length_and_offsets() {
        let window = DeviceWindow::new(disk(), "disk@1", Physical(16), 32).unwrap();
        let described = window.describe();
        assert_eq!((&*described.name, described.read_only, window.length()), ("disk@1", false, 32));
        assert_eq!(window.range(), 16..48);
        let error = window.read_at(Physical(31), 2).unwrap_err();
        assert_eq!((&*error.device, error.offset), ("disk@1", Physical(31)));
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange { device_length: 32 });
        let read_only = DeviceWindow::new(ReadOnlyDevice::new(disk()), "disk@1", Physical(16), 32).unwrap();
        assert!(read_only.is_read_only());
        let refused = read_only.write_at(Physical(0), vec![1]).unwrap_err();
        assert_eq!(refused.kind, DeviceErrorKind::ReadOnly);
    }

    #[test]
    fn a_batch_with_one_range_outside_does_the_others() {
        let disk = disk();
        let window = DeviceWindow::new(Arc::clone(&disk), "disk@1", Physical(16), 32).unwrap();
        let batch = vec![
            Request::write(Physical(0), vec![1; 4]),
            Request::write(Physical(30), vec![2; 4]),
            Request::read(Physical(4), 2),
            Request::write_durable(Physical(u64::MAX), vec![3]),
        ];
        let done = window.submit(batch).wait();
        assert_eq!(done.iter().map(|one| one.result.is_ok()).collect::<Vec<_>>(), [true, false, true, false]);
        assert_eq!(done[2].data.as_slice(), [20, 21]);
        assert_eq!(&content(&disk)[15..21], [15, 1, 1, 1, 1, 20]);
        assert_eq!(&content(&disk)[44..52], [44, 45, 46, 47, 48, 49, 50, 51]);
    }

    #[test]
    fn windows_in_windows_add_up() {
        let outer = DeviceWindow::new(disk(), "outer", Physical(16), 32).unwrap();
        let inner = DeviceWindow::new(outer, "inner", Physical(8), 4).unwrap();
        assert_eq!(inner.read_at(Physical(0), 4).unwrap(), [24, 25, 26, 27]);
        assert!(inner.read_at(Physical(1), 4).is_err());
    }

    /// Offsets in and around a window, and such that wrap.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..DISK + 8, Just(u64::MAX), u64::MAX - DISK..u64::MAX]
    }

    proptest! {
        #[test]
        fn nothing_outside_is_read_or_changed(
            start in 0..DISK,
            length in 0..DISK,
            calls in proptest::collection::vec((0..4u8, number(), 0..24u64), 1..12),
        ) {
            let length = length.min(DISK - start);
            let disk = disk();
            let window = DeviceWindow::new(Arc::clone(&disk), "disk@1", Physical(start), length).unwrap();
            // What the window shows, by itself.
            let alone = MemoryDevice::from_bytes(&content(&disk)[start as usize..(start + length) as usize]);
            for (call, offset, bytes) in calls {
                let (offset, data) = (Physical(offset), vec![0xff; bytes as usize]);
                let (found, expected) = match call {
                    0 => (window.write_at(offset, data.clone()).is_ok(), alone.write_at(offset, data).is_ok()),
                    1 => (
                        window.write_durable_at(offset, data.clone()).is_ok(),
                        alone.write_durable_at(offset, data).is_ok(),
                    ),
                    2 => (window.discard(offset, bytes).is_ok(), alone.discard(offset, bytes).is_ok()),
                    _ => {
                        let (found, expected) =
                            (window.read_at(offset, bytes as usize), alone.read_at(offset, bytes as usize));
                        prop_assert_eq!(found.as_ref().ok(), expected.as_ref().ok());
                        (found.is_ok(), expected.is_ok())
                    }
                };
                prop_assert_eq!(found, expected);
            }
            let (now, before) = (content(&disk), content(&super::tests::disk()));
            let (first, end) = (start as usize, (start + length) as usize);
            prop_assert_eq!(&now[..first], &before[..first]);
            prop_assert_eq!(&now[end..], &before[end..]);
            prop_assert_eq!(&now[first..end], &alone.read_at(Physical(0), length as usize).unwrap()[..]);
        }
    }
}
