//! A device in memory on which requests take virtual time, as on a disk with one head or on one that does
//! many things at once: how long a program would wait, told without waiting.
//!
//! The clock moves when requests are submitted, by what the whole batch takes: a caller that asks for one
//! block after another pays for each, one that asks for many at once pays once. Time in which the program
//! works is not counted.

use std::time::Duration;

use vlinder_base::sync::Mutex;
use vlinder_base::units::Physical;
use vlinder_device::{Description, Device, DeviceError, MemoryDevice, Request, Ticket};

/// How long requests take.
#[derive(Clone, Copy, Debug)]
pub enum DiskModel {
    /// One head: each request that does not begin where the last one ended costs a seek. Of those that wait,
    /// as many as the queue has are served in the order of their places.
    OneHead {
        /// For a request elsewhere.
        seek: Duration,
        /// Of every request.
        bytes_per_second: u64,
        /// Requests that the disk sorts among themselves.
        queue: usize,
    },
    /// So many requests at the same time.
    Parallel {
        /// How many.
        requests: usize,
        /// Of each request.
        latency: Duration,
    },
}

impl DiskModel {
    /// A disk with one head: 5 ms for a seek, 150 MB/s, a queue of 32.
    pub const ONE_HEAD: Self =
        Self::OneHead { seek: Duration::from_millis(5), bytes_per_second: 150_000_000, queue: 32 };
    /// One that does 32 things at once, each in 5 ms.
    pub const PARALLEL: Self = Self::Parallel { requests: 32, latency: Duration::from_millis(5) };
}

#[derive(Default)]
struct Progress {
    elapsed: Duration,
    /// Where the head stands.
    head: u64,
    requests: u64,
    batches: u64,
    bytes: u64,
}

/// The device; see the module.
pub struct ModelledDevice {
    image: MemoryDevice,
    model: DiskModel,
    progress: Mutex<Progress>,
}

impl ModelledDevice {
    /// A device that holds an image.
    pub fn new(image: MemoryDevice, model: DiskModel) -> Self {
        Self { image, model, progress: Mutex::default() }
    }

    /// The virtual time that all requests took.
    pub fn elapsed(&self) -> Duration {
        self.progress.lock().elapsed
    }

    /// Requests so far, and the batches that they came in.
    pub fn requests_and_batches(&self) -> (u64, u64) {
        let progress = self.progress.lock();
        (progress.requests, progress.batches)
    }

    /// Bytes of all requests.
    pub fn bytes(&self) -> u64 {
        self.progress.lock().bytes
    }

    fn spend(&self, batch: &[Request]) {
        let mut progress = self.progress.lock();
        progress.batches += 1;
        progress.requests += batch.len() as u64;
        progress.bytes += batch.iter().map(Request::length_bytes).sum::<u64>();
        match self.model {
            DiskModel::Parallel { requests, latency } => {
                progress.elapsed += latency * batch.len().div_ceil(requests.max(1)) as u32;
            }
            DiskModel::OneHead { seek, bytes_per_second, queue } => {
                for waiting in batch.chunks(queue.max(1)) {
                    let mut places: Vec<(u64, u64)> =
                        waiting.iter().map(|request| (request.offset().0, request.length_bytes())).collect();
                    places.sort_unstable();
                    for (offset, length) in places {
                        if offset != progress.head {
                            progress.elapsed += seek;
                        }
                        progress.elapsed += Duration::from_nanos(length * 1_000_000_000 / bytes_per_second);
                        progress.head = offset + length;
                    }
                }
            }
        }
    }
}

impl Device for ModelledDevice {
    fn describe(&self) -> Description {
        self.image.describe()
    }

    fn length(&self) -> u64 {
        self.image.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.spend(&batch);
        self.image.submit(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.image.flush()
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.image.discard(offset, length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(places: &[u64]) -> Vec<Request> {
        places.iter().map(|place| Request::read(Physical(place * 4096), 4096)).collect()
    }

    #[test]
    fn a_head_seeks_once_for_neighbours_in_a_batch() {
        let device = ModelledDevice::new(MemoryDevice::new(1 << 20), DiskModel::ONE_HEAD);
        let transfer = Duration::from_nanos(4096 * 1_000_000_000 / 150_000_000);
        device.submit(reads(&[9, 8, 10, 2])).wait();
        assert_eq!(device.elapsed(), Duration::from_millis(10) + transfer * 4);
        device.submit(reads(&[11])).wait();
        assert_eq!(device.elapsed(), Duration::from_millis(10) + transfer * 5);
        assert_eq!((device.requests_and_batches(), device.bytes()), ((5, 2), 5 * 4096));
    }

    #[test]
    fn what_comes_together_takes_the_time_of_one() {
        let device = ModelledDevice::new(MemoryDevice::new(1 << 20), DiskModel::PARALLEL);
        device.submit(reads(&[1; 32])).wait();
        assert_eq!(device.elapsed(), Duration::from_millis(5));
        device.submit(reads(&[1; 33])).wait();
        assert_eq!(device.elapsed(), Duration::from_millis(15));
    }
}
