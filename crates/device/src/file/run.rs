//! Requests that follow one another on the device, done in one call of the system.
//!
//! What is written out is sorted, and mostly lies together: a commit's tree blocks, the extents of one flush.
//! A call for each costs more than the bytes, and calls for one file wait for each other in the host's
//! kernel.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use super::host_file::HostFile;
use super::transfer;
use crate::{Completion, DeviceErrorKind, Durability, Request};

/// A run ends here, so that several threads share a large batch.
const MAX_BYTES: u64 = 1 << 20;
/// `UIO_MAXIOV` of Linux: what one call takes.
const MAX_REQUESTS: usize = 1024;

/// Requests of a batch, each beginning where the one before it ends; one at least.
pub(super) struct Run {
    requests: Vec<(usize, Request)>,
    length_bytes: u64,
    /// It has been transferred already.
    is_done: bool,
}

impl Run {
    /// How many bytes it has.
    pub(super) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Whether its requests are writes.
    pub(super) fn writes(&self) -> bool {
        matches!(self.requests.first(), Some((_, Request::Write { .. })))
    }

    /// Whether a request can go on with the run.
    fn takes(&self, next: &Request) -> bool {
        let fits = self.requests.len() < MAX_REQUESTS
            && self.length_bytes.saturating_add(next.length_bytes()) <= MAX_BYTES;
        let Some((_, last)) = self.requests.last().filter(|_| fits) else { return false };
        let kinds_fit = match (last, next) {
            (Request::Read { .. }, Request::Read { .. }) => true,
            // What is to be durable at once says nothing about other writes, and goes alone.
            (Request::Write { durability: one, .. }, Request::Write { durability: other, .. }) => {
                (*one, *other) == (Durability::Cached, Durability::Cached)
            }
            _ => false,
        };
        kinds_fit && last.offset().0.checked_add(last.length_bytes()) == Some(next.offset().0)
    }

    /// Reads all of it in the calling thread, if it consists of reads that the host can answer from memory.
    /// False leaves it to be finished.
    pub(super) fn read_from_memory(&mut self, host: &HostFile) -> bool {
        let may =
            !self.writes() && self.requests.iter().all(|(_, request)| host.check_request(request).is_ok());
        self.is_done = may && read_from_memory(host, &mut self.requests);
        self.is_done
    }

    /// Does all of it in the calling thread, and gives the answer to each request with its position in the
    /// batch.
    pub(super) fn finish(mut self, host: &HostFile) -> Vec<(usize, Completion)> {
        let are_fine = self.requests.iter().all(|(_, request)| host.check_request(request).is_ok());
        let is_done = self.is_done
            || self.requests.len() > 1
                && are_fine
                && transfer_all(&host.descriptor, &mut self.requests).is_ok();
        if let Some((_, first @ Request::Write { .. })) = self.requests.first().filter(|_| is_done) {
            host.note_written(first.offset(), self.length_bytes);
        }
        // One by one also where something failed: to say which, and to do the others.
        let finish = |(position, request): (usize, Request)| {
            (position, if is_done { request.complete(Ok(())) } else { host.run(request) })
        };
        self.requests.into_iter().map(finish).collect()
    }
}

/// The runs of a batch, in its order.
pub(super) fn runs(batch: Vec<Request>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (position, request) in batch.into_iter().enumerate() {
        let length_bytes = request.length_bytes();
        match runs.last_mut().filter(|run| run.takes(&request)) {
            Some(run) => {
                run.requests.push((position, request));
                run.length_bytes += length_bytes;
            }
            None => runs.push(Run { requests: vec![(position, request)], length_bytes, is_done: false }),
        }
    }
    runs
}

/// Transfers requests that lie one behind the other and are of one kind. After an error any part may have
/// been done.
fn transfer_all(descriptor: &OwnedFd, requests: &mut [(usize, Request)]) -> Result<(), DeviceErrorKind> {
    let Some(offset) = requests.first().map(|(_, request)| request.offset().0) else { return Ok(()) };
    if matches!(requests, [(_, Request::Read { .. }), ..]) {
        return transfer::read_vectored(descriptor, offset, &mut buffers(requests));
    }
    let parts = requests.iter().filter_map(|(_, request)| match request {
        Request::Write { data, .. } => Some(IoSlice::new(data.as_slice())),
        Request::Read { .. } => None,
    });
    transfer::write_vectored(descriptor, offset, &mut parts.collect::<Vec<_>>())
}

/// Reads as [`transfer_all`] does, if that does not have to wait for a device. False if it would, or for
/// another reason fails.
fn read_from_memory(host: &HostFile, requests: &mut [(usize, Request)]) -> bool {
    let Some(offset) = requests.first().map(|(_, request)| request.offset().0) else { return true };
    let buffers = &mut buffers(requests);
    if host.lies_in_memory {
        transfer::read_vectored(&host.descriptor, offset, buffers).is_ok()
    } else {
        transfer::read_cached(&host.descriptor, offset, buffers)
    }
}

/// Where reads put what they find.
fn buffers(requests: &mut [(usize, Request)]) -> Vec<IoSliceMut<'_>> {
    let buffers = requests.iter_mut().filter_map(|(_, request)| match request {
        Request::Read { buffer, .. } => Some(IoSliceMut::new(buffer)),
        Request::Write { .. } => None,
    });
    buffers.collect()
}
