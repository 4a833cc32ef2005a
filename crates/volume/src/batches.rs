//! Reads of many parts, each device's in one batch, all at the same time.

use vlinder_device::{Request, Ticket};
use vlinder_format::DeviceId;

use crate::members::Members;
use crate::profile::StripeRange;

/// Parts to read, by device, each with what tells whose it is.
pub(crate) struct Batches<T> {
    by_device: Vec<(DeviceId, Vec<Request>, Vec<T>)>,
}

impl<T> Default for Batches<T> {
    fn default() -> Self {
        Self { by_device: Vec::new() }
    }
}

impl<T> Batches<T> {
    pub(crate) fn add(&mut self, part: &StripeRange, whose: T) {
        self.add_into(part, whose, None);
    }

    /// As [`add`](Self::add), into a buffer that was used before, if there is one.
    pub(crate) fn add_into(&mut self, part: &StripeRange, whose: T, buffer: Option<Vec<u8>>) {
        let length = usize::try_from(part.length).unwrap_or(usize::MAX);
        let request = match buffer {
            Some(buffer) => Request::read_into(part.physical, length, buffer),
            None => Request::read(part.physical, length),
        };
        match self.by_device.iter_mut().find(|(device, ..)| *device == part.device) {
            Some((_, requests, slots)) => {
                requests.push(request);
                slots.push(whose);
            }
            None => self.by_device.push((part.device, vec![request], vec![whose])),
        }
    }

    /// Gives each device its batch, before any is waited for.
    pub(crate) fn submit(self, members: &Members) -> Vec<(Ticket, Vec<T>)> {
        let batches = self.by_device.into_iter();
        let submit = |(device, requests, slots): (DeviceId, Vec<Request>, Vec<T>)| {
            members.get(device).map(|member| (member.device.submit(requests), slots))
        };
        batches.filter_map(submit).collect()
    }
}
