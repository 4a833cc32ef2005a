//! The ioctl(2) requests of chattr(1), which the kernel sends on its own account. What they do is
//! [`ChattrFlags`]'.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{Caller, ChattrFlags, Inode};

use super::change_times::ChangeTimes;
use super::convert::errno;
use super::mounted::Mounted;
use crate::transport::Reply;

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_ATTRIBUTES: u32 = 0x801c_581f;
const SET_ATTRIBUTES: u32 = 0x401c_5820;

/// Answers requests about flags.
pub(super) struct FlagRequests {
    mounted: Arc<Mounted>,
    change_times: Arc<ChangeTimes>,
}

impl FlagRequests {
    pub(super) fn new(mounted: Arc<Mounted>, change_times: Arc<ChangeTimes>) -> Self {
        Self { mounted, change_times }
    }

    /// Answers an ioctl(2); those that are not about flags are not for this kind of file.
    pub(super) fn answer(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        command: u32,
        data: &[u8],
    ) -> Reply<Vec<u8>> {
        // Linux's placeholders have no file operations that answer it.
        if inode.is_placeholder() {
            return Err(Errno::NOTTY);
        }
        let flags = ChattrFlags::of(self.mounted.filesystem(), inode);
        let changed = match command {
            GET_FLAGS => return Ok(flags.flags().to_ne_bytes().to_vec()),
            GET_ATTRIBUTES => return Ok(flags.attributes().to_vec()),
            SET_FLAGS => {
                let given = data.first_chunk().ok_or(Errno::INVAL)?;
                flags.set_flags(caller, u32::from_ne_bytes(*given))
            }
            SET_ATTRIBUTES => flags.set_attributes(caller, data.first_chunk().ok_or(Errno::INVAL)?),
            _ => return Err(Errno::NOTTY),
        };
        changed.map_err(|error| errno(&error))?;
        self.change_times.note(inode);
        self.mounted.attributes_changed(inode.id());
        Ok(Vec::new())
    }
}
