//! `empty-server MOUNTPOINT FILES`: a FUSE server without a file system, the floor of what any mount can
//! cost.
//!
//! It has the transport, the INIT flags, the threads and the timeouts of vlinder's mount, and its answers
//! come from arithmetic: a tree of so many files, 50 in each directory (none for FILES 0), and whatever is
//! made in it is taken and forgotten. It runs in the foreground until it is unmounted.

mod arithmetic;

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use vlinder_base::metrics::Registry;
use vlinder_base::sync::Arc;
use vlinder_fuse::MountOptions;
use vlinder_fuse::transport::Settings;
use vlinder_fuse::transport::fuser::FuserTransport;

use crate::arithmetic::Arithmetic;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mountpoint, files] = arguments.as_slice() else {
        bail!("usage: empty-server MOUNTPOINT FILES");
    };
    let files = files.parse().with_context(|| format!("{files} files"))?;
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions", device.as_raw_fd());
    let (data, mountpoint) = (CString::new(data)?, Path::new(mountpoint));
    rustix::mount::mount("empty", mountpoint, "fuse.empty", MountFlags::empty(), Some(data.as_c_str()))
        .with_context(|| format!("mounting on {}", mountpoint.display()))?;
    // The same settings as a mount without options.
    let options = MountOptions::parse("")?;
    let validity = Duration::from_secs(1 << 30);
    let settings = Settings {
        threads: options.threads,
        writeback: options.writeback,
        kernel_kills_privileges: false,
        acls: true,
        acts_as_root: false,
        validity,
    };
    let service = Arc::new(Arithmetic::new(files));
    FuserTransport::connect(device, service, settings, &Registry::new())?.serve()?;
    Ok(())
}
