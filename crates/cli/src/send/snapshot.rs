//! Snapshots that are sent, or that the receiver has.

use std::ffi::OsString;

use vlinder_base::sync::Arc;
use vlinder_forest::OpenTree;
use vlinder_fs::{LeasedState, SubvolumeInformation};
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::image::Images;
use vlinder_places::object::{Named, Object, information};
use vlinder_stream::send::SentSubvolume;

use super::failure::failure_of;

/// A snapshot that was named.
pub(super) struct Snapshot {
    pub named: Named,
    pub information: SubvolumeInformation,
}

impl Snapshot {
    pub fn find(images: &Images<'_>, target: &OsString) -> Result<Self, Failure> {
        let named = Object::find_in_image(images, target)?;
        let information = information(named.image(), named.subvolume()?)?;
        Ok(Self { named, information })
    }

    pub fn require_read_only(&self) -> Result<(), Failure> {
        if self.information.is_read_only {
            return Ok(());
        }
        let what = match self.information.parent {
            Some(_) => "not read-only, so it could change while it is sent",
            None => "the top level can't be sent: it has no name",
        };
        Err(Failure::new(Kind::Invalid, what)
            .at(self.named.place())
            .hint("make a snapshot that is: vlinder subvolume snapshot -r SOURCE SNAPSHOT"))
    }

    /// As the sender takes it: the receiver knows one that was received itself by the UUID of the first
    /// sender.
    pub fn sent<'a>(&self, state: &'a LeasedState) -> Result<SentSubvolume<'a>, Failure> {
        let tree: Arc<OpenTree> = state
            .forest()
            .tree(self.information.id)
            .map_err(|error| failure_of(error.into(), self.named.place(), "the stream"))?;
        let (found, root) = (&self.information, Arc::clone(tree.root()));
        let is_received = !found.received_uuid.is_nil();
        let (uuid, transid) = match is_received {
            true if found.send_transaction.0 != 0 => (found.received_uuid, found.send_transaction),
            true => (found.received_uuid, found.change_transaction),
            false => (found.uuid, found.change_transaction),
        };
        Ok(SentSubvolume { forest: state.forest(), root, uuid, transid })
    }
}
