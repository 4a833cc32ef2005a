//! A device whose writes stay in memory.

use std::collections::BTreeMap;

use vlinder_base::sync::RwLock;
use vlinder_base::units::Physical;

use crate::{
    Completion, Data, Description, Device, DeviceError, DeviceErrorKind, DeviceExt, Operation, Request,
    Ticket,
};

/// Bytes of a page; a page that was written is kept whole.
const PAGE_BYTES: u64 = 4096;

/// Shows another device with changes of its own, which go when it goes; the device below is only read. So a file system
/// can be read as it would be after work that its image must not see.
pub struct OverlayDevice<D> {
    below: D,
    pages: RwLock<BTreeMap<u64, Box<[u8]>>>,
    most_pages: u64,
}

impl<D: Device> OverlayDevice<D> {
    /// An overlay that keeps at most so many bytes of changes; a write beyond that is refused with
    /// [`DeviceErrorKind::HostFull`].
    pub fn new(below: D, most_bytes: u64) -> Self {
        OverlayDevice { below, pages: RwLock::default(), most_pages: most_bytes / PAGE_BYTES }
    }

    fn is_changed(&self, offset: u64, length_bytes: u64) -> bool {
        let end = offset.saturating_add(length_bytes).div_ceil(PAGE_BYTES);
        self.pages.read().range(offset / PAGE_BYTES..end.max(offset / PAGE_BYTES)).next().is_some()
    }

    /// Puts what was written over what was read from below.
    fn put_over(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        let pages = self.pages.read();
        for (number, page) in pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)) {
            let first = number * PAGE_BYTES;
            let (start, stop) = (offset.max(first), end.min(first + PAGE_BYTES));
            let (from, to) = ((start - first) as usize, (stop - first) as usize);
            buffer[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(&page[from..to]);
        }
    }

    fn read(&self, request: Request) -> Completion {
        let offset = request.offset().0;
        let mut completion = self.below.submit(vec![request]).wait();
        // The device below answers each request once.
        let Some(Completion { data, result }) = completion.pop() else { unreachable!("no answer to a read") };
        let mut bytes = data.into_vec();
        if result.is_ok() {
            self.put_over(offset, &mut bytes);
        }
        Completion { data: Data::Owned(bytes), result }
    }

    /// Keeps the bytes; of a page that is written in part, the rest comes from below.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let end = offset + bytes.len() as u64;
        let mut position = offset;
        while position < end {
            let number = position / PAGE_BYTES;
            let first = number * PAGE_BYTES;
            let stop = end.min(first + PAGE_BYTES);
            let mut page = match self.pages.read().get(&number) {
                Some(page) => page.clone(),
                None => self.page_below(first, position == first && stop == first + PAGE_BYTES)?,
            };
            page[(position - first) as usize..(stop - first) as usize]
                .copy_from_slice(&bytes[(position - offset) as usize..(stop - offset) as usize]);
            let mut pages = self.pages.write();
            if pages.len() as u64 >= self.most_pages && !pages.contains_key(&number) {
                let (start, length) = (Physical(position), stop - position);
                return Err(self.error(DeviceErrorKind::HostFull, Operation::Write, start, length));
            }
            pages.insert(number, page);
            position = stop;
        }
        Ok(())
    }

    fn page_below(&self, first: u64, is_whole: bool) -> Result<Box<[u8]>, DeviceError> {
        let mut page = vec![0; PAGE_BYTES as usize];
        let present = self.length().saturating_sub(first).min(PAGE_BYTES);
        if !is_whole {
            let below = self.below.read_at(Physical(first), present as usize)?;
            page[..below.len()].copy_from_slice(&below);
        }
        Ok(page.into())
    }

    fn run(&self, request: Request) -> Completion {
        match &request {
            Request::Read { .. } => self.read(request),
            Request::Write { offset, data, .. } => {
                let checked = self.check_range(Operation::Write, *offset, request.length_bytes());
                let written = checked.and_then(|()| self.write(offset.0, data.as_slice()));
                request.complete(written)
            }
        }
    }
}

impl<D: Device> Device for OverlayDevice<D> {
    fn describe(&self) -> Description {
        Description { read_only: false, ..self.below.describe() }
    }

    fn length(&self) -> u64 {
        self.below.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let untouched = |request: &Request| matches!(request, Request::Read { offset, buffer } if !self.is_changed(offset.0, buffer.len() as u64));
        if batch.iter().all(untouched) {
            return self.below.submit(batch);
        }
        Ticket::ready(batch.into_iter().map(|request| self.run(request)).collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        Err(self.error(DeviceErrorKind::Unsupported, Operation::Discard, offset, length_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use vlinder_base::sync::Arc;

    #[test]
    fn what_is_written_is_read_back_and_the_device_below_stays_as_it_is() {
        let below = Arc::new(MemoryDevice::from_bytes(&[7; 20_000]));
        let overlay = OverlayDevice::new(Arc::clone(&below), 1 << 20);
        overlay.write_at(Physical(4090), vec![1; 20]).unwrap();
        overlay.write_durable_at(Physical(19_990), vec![2; 10]).unwrap();
        let mut expected = vec![7; 20_000];
        expected[4090..4110].fill(1);
        expected[19_990..].fill(2);
        assert_eq!(overlay.read_at(Physical(0), 20_000).unwrap(), expected);
        assert_eq!(overlay.read_at(Physical(4100), 30).unwrap(), expected[4100..4130]);
        assert_eq!(below.read_at(Physical(0), 20_000).unwrap(), vec![7; 20_000]);
        let error = overlay.write_at(Physical(19_999), vec![0; 2]).unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange { device_length: 20_000 });
    }

    #[test]
    fn changes_are_bounded() {
        let overlay = OverlayDevice::new(MemoryDevice::new(1 << 20), 8192);
        overlay.write_at(Physical(0), vec![1; 8192]).unwrap();
        overlay.write_at(Physical(100), vec![2; 50]).unwrap();
        let error = overlay.write_at(Physical(8192), vec![1; 1]).unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::HostFull);
    }
}
