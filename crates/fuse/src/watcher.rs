//! `auto_unmount`: a process that outlives the server, and takes the mount away if the server ends without
//! having done so.
//!
//! `fusermount3` has such an option itself, but as root it may not look at a mount of another user's without
//! `allow_other`, takes what it then sees for a mount that is served, and leaves it behind.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A line means that all is well; the pipe's end without one, that the server is gone. What has been mounted
/// at the place since then is served by somebody, and stays. What is asked while the kernel still lets go of
/// the server is aborted.
const SCRIPT: &str = r#"
if read -r end; then exit 0; fi
case "$(LC_ALL=C stat -f -- "$1" 2>&1)" in
*'endpoint is not connected'* | *'connection abort'*) ;;
*) exit 0 ;;
esac
if [ "$(id -u)" = 0 ]; then exec umount -i -l -- "$1"; fi
exec fusermount3 -u -z -- "$1"
"#;

/// The process.
pub(crate) struct Watcher {
    process: Child,
}

impl Watcher {
    /// Watches over the mount at a place as long as this process lives.
    pub(crate) fn start(mountpoint: &Path) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(mountpoint).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // What the terminal sends to the server's group must not end it.
        Ok(Self { process: command.process_group(0).spawn()? })
    }
}

impl Drop for Watcher {
    /// The mount has ended well, or was taken away.
    fn drop(&mut self) {
        if let Some(mut pipe) = self.process.stdin.take()
            && let Err(error) = pipe.write_all(b"end\n")
        {
            tracing::debug!(%error, "the process that watches over the mount is gone");
        }
        if let Err(error) = self.process.wait() {
            tracing::debug!(%error, "the process that watches over the mount can't be waited for");
        }
    }
}
