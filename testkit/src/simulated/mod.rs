//! A device in memory that knows what a power cut would leave, and that fails and lies on demand.
//!
//! Its model (what a real disk with a volatile cache may do): a write is seen by every later read at once,
//! and is durable when a later flush succeeds, or when it was written as durable and acknowledged. Everything
//! it is asked is recorded, so that [`crate::power_cut`] can rebuild each state that a cut could have left.

mod faults;
mod sector;
mod unflushed;

use std::time::Duration;

use vlinder_base::clock::FixedClock;
use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::units::Physical;
use vlinder_device::{
    Completion, Description, Device, DeviceError, DeviceErrorKind, DeviceExt, DeviceKind, Durability,
    MemoryDevice, Operation, Request, Ticket,
};

pub use faults::{Delay, Repeat, SectorFault};
pub use sector::SECTOR_BYTES;
pub(crate) use unflushed::{Certainty, ChangeContent, DeviceChange, Part, Unflushed};

use faults::{Faults, WriteFate};

/// What a write met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Stored where it should be.
    Stored,
    /// Answered with an error; any part of it may have been stored.
    Failed,
    /// Acknowledged and lost.
    Lost,
    /// Acknowledged and stored elsewhere.
    Misplaced(Physical),
}

/// A recorded write.
#[derive(Debug, Clone)]
pub struct LoggedWrite {
    /// Number of successful flushes before it.
    pub epoch: u64,
    /// Where it was to go.
    pub offset: Physical,
    /// What it carried.
    pub bytes: Arc<[u8]>,
    /// True if it was to be durable when acknowledged.
    pub durable: bool,
    /// What became of it.
    pub fate: Fate,
}

/// One entry of a device's record, in the order in which the calls were answered.
#[derive(Debug, Clone)]
pub enum Event {
    /// A write.
    Write(LoggedWrite),
    /// A successful discard; until the next flush a cut may undo it.
    Discard {
        /// First byte.
        offset: Physical,
        /// Number of bytes.
        length_bytes: u64,
    },
    /// A successful flush: the end of an epoch.
    Flush,
    /// A flush that failed: what it covered stays in doubt for ever.
    FailedFlush,
    /// A remark of the test (`commit 3 was reported durable`), in order with the rest.
    Mark(u64),
}

/// Everything a device was asked since it was made, and what it held before.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The image before the first event.
    pub initial: MemoryDevice,
    /// The events.
    pub events: Vec<Event>,
}

/// The device; see the module. Cloning gives an independent device with the same state and record.
#[derive(Debug)]
pub struct SimulatedDevice {
    name: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
struct State {
    /// What reads see, before the faults.
    live: MemoryDevice,
    /// What a cut can leave.
    unflushed: Unflushed,
    initial: MemoryDevice,
    events: Vec<Event>,
    epoch: u64,
    faults: Faults,
    delay: Delay,
    busy: Duration,
    clock: Option<Arc<FixedClock>>,
}

impl SimulatedDevice {
    /// A device of `length_bytes` zeros.
    pub fn new(length_bytes: u64) -> Self {
        Self::from_image(MemoryDevice::named("simulated", length_bytes))
    }

    /// A device that holds this image, all of it durable, with an empty record.
    pub fn from_image(image: MemoryDevice) -> Self {
        let state = State {
            live: image.snapshot(),
            unflushed: Unflushed::new(image.snapshot()),
            initial: image,
            events: Vec::new(),
            epoch: 0,
            faults: Faults::default(),
            delay: Delay::default(),
            busy: Duration::ZERO,
            clock: None,
        };
        SimulatedDevice { name: "simulated".into(), state: Mutex::new(state) }
    }

    /// Puts a fault on every sector that the range touches.
    pub fn inject(&self, offset: Physical, length_bytes: u64, fault: SectorFault, repeat: Repeat) {
        self.state.lock().faults.inject(offset, length_bytes, fault, repeat);
    }

    /// Makes an operation fail: the one with this number, counted from now and from 0 (among all operations
    /// if `operation` is none); with [`Repeat::Once`] that one alone, otherwise every one from there on.
    pub fn fail_at(&self, operation: Option<Operation>, number: u64, repeat: Repeat, kind: DeviceErrorKind) {
        self.state.lock().faults.fail_at(operation, number, repeat, kind);
    }

    /// Takes all faults back; damage that a lost or misplaced write has done stays.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// How often an operation was asked for (each request of a batch counts), failures included.
    pub fn count(&self, operation: Operation) -> u64 {
        self.state.lock().faults.count(operation)
    }

    /// Lets operations take (virtual) time; the clock, if there is one, is moved on by it.
    pub fn set_delay(&self, delay: Delay, clock: Option<Arc<FixedClock>>) {
        let mut state = self.state.lock();
        state.delay = delay;
        state.clock = clock;
    }

    /// The virtual time that all operations took, one after the other.
    pub fn busy_time(&self) -> Duration {
        self.state.lock().busy
    }

    /// Notes something in the record.
    pub fn mark(&self, mark: u64) {
        self.state.lock().events.push(Event::Mark(mark));
    }

    /// The record so far.
    pub fn recording(&self) -> Recording {
        let state = self.state.lock();
        Recording { initial: state.initial.snapshot(), events: state.events.clone() }
    }

    /// What reads see, without faults.
    pub fn live_image(&self) -> MemoryDevice {
        self.state.lock().live.snapshot()
    }

    /// What is left if the power goes now and the cache loses all it may lose.
    pub fn durable_image(&self) -> MemoryDevice {
        self.state.lock().unflushed.image(|_| Part::Nothing)
    }

    fn run(&self, mut request: Request) -> Completion {
        let (operation, offset, length_bytes) =
            (request.operation(), request.offset(), request.length_bytes());
        let checked = self.check_range(operation, offset, length_bytes);
        let result = checked.and_then(|()| {
            let mut state = self.state.lock();
            state.spend(&request);
            let done = match &mut request {
                Request::Read { buffer, .. } => state.read(offset, buffer),
                Request::Write { data, durability, .. } => {
                    state.write(offset, data.as_slice(), *durability == Durability::Durable)
                }
            };
            drop(state);
            done.map_err(|kind| self.error(kind, operation, offset, length_bytes))
        });
        request.complete(result)
    }
}

impl State {
    fn spend(&mut self, request: &Request) {
        let fixed = match request {
            Request::Read { .. } => self.delay.read,
            Request::Write { durability: Durability::Cached, .. } => self.delay.write,
            Request::Write { durability: Durability::Durable, .. } => self.delay.durable_write,
        };
        self.pass(fixed + self.delay.transfer(request.length_bytes()));
    }

    fn pass(&mut self, time: Duration) {
        self.busy += time;
        if let Some(clock) = self.clock.as_ref().filter(|_| !time.is_zero()) {
            clock.advance(time);
        }
    }

    fn read(&mut self, offset: Physical, buffer: &mut [u8]) -> Result<(), DeviceErrorKind> {
        self.faults.next(Operation::Read)?;
        let source = self.faults.misplaced_read(offset, buffer.len() as u64).unwrap_or(offset);
        let bytes = self.live.read_at(source, buffer.len()).map_err(|error| error.kind)?;
        buffer.copy_from_slice(&bytes);
        self.faults.on_read(offset, buffer)
    }

    fn write(&mut self, offset: Physical, bytes: &[u8], durable: bool) -> Result<(), DeviceErrorKind> {
        let failed = self.faults.next(Operation::Write).err();
        let fate = match &failed {
            Some(_) => Fate::Failed,
            None => match self.faults.on_write(offset, bytes.len() as u64) {
                WriteFate::Stored => Fate::Stored,
                WriteFate::Lost => Fate::Lost,
                WriteFate::Misplaced(place) => Fate::Misplaced(place),
            },
        };
        let bytes: Arc<[u8]> = bytes.into();
        let logged = LoggedWrite { epoch: self.epoch, offset, bytes, durable, fate };
        if let Some((place, certainty)) = logged.effect() {
            self.unflushed.push(place, ChangeContent::Bytes(logged.bytes.clone()), certainty);
            if certainty != Certainty::Doubtful {
                self.live.write_at(place, logged.bytes.clone()).map_err(|error| error.kind)?;
            }
        }
        self.events.push(Event::Write(logged));
        failed.map_or(Ok(()), Err)
    }

    fn flush(&mut self) -> Result<(), DeviceErrorKind> {
        self.pass(self.delay.flush);
        let result = self.faults.next(Operation::Flush);
        if result.is_ok() {
            self.events.push(Event::Flush);
            self.unflushed.flush();
            self.epoch += 1;
        } else {
            self.events.push(Event::FailedFlush);
            self.unflushed.fail_flush();
        }
        result
    }

    fn discard(&mut self, offset: Physical, length_bytes: u64) -> Result<(), DeviceErrorKind> {
        self.pass(self.delay.discard);
        self.faults.next(Operation::Discard)?;
        self.live.discard(offset, length_bytes).map_err(|error| error.kind)?;
        self.unflushed.push(offset, ChangeContent::Zeros(length_bytes), Certainty::Optional);
        self.events.push(Event::Discard { offset, length_bytes });
        Ok(())
    }
}

impl LoggedWrite {
    /// Where it changes the device and how surely; none if it was lost.
    pub(crate) fn effect(&self) -> Option<(Physical, Certainty)> {
        let certainty = if self.durable { Certainty::Certain } else { Certainty::Optional };
        match self.fate {
            Fate::Stored => Some((self.offset, certainty)),
            Fate::Misplaced(place) => Some((place, certainty)),
            Fate::Failed => Some((self.offset, Certainty::Doubtful)),
            Fate::Lost => None,
        }
    }
}

impl Clone for SimulatedDevice {
    fn clone(&self) -> Self {
        SimulatedDevice { name: self.name.clone(), state: Mutex::new(self.state.lock().clone()) }
    }
}

impl Device for SimulatedDevice {
    fn describe(&self) -> Description {
        Description { name: self.name.clone(), read_only: false, kind: DeviceKind::Other }
    }

    fn length(&self) -> u64 {
        self.state.lock().live.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::ready(batch.into_iter().map(|request| self.run(request)).collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let result = self.state.lock().flush();
        result.map_err(|kind| DeviceError::whole(kind, Operation::Flush, &self.name))
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.check_range(Operation::Discard, offset, length_bytes)?;
        let result = self.state.lock().discard(offset, length_bytes);
        result.map_err(|kind| self.error(kind, Operation::Discard, offset, length_bytes))
    }
}

#[cfg(test)]
mod tests;
