//! Counters of requests by opcode: `fuse.requests.*` in docs/metrics.md.

use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::Arc;

macro_rules! opcodes {
    ($($variant:ident = $name:literal, $help:literal;)*) => {
        /// What a request asks for, as Linux's `include/uapi/linux/fuse.h` names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Opcode {
            $(#[doc = $help] $variant,)*
        }

        impl Opcode {
            const ALL: &[(&'static str, &'static str)] = &[$((concat!("fuse.requests.", $name), $help),)*];
        }
    };
}

opcodes! {
    Lookup = "lookup", "names looked up";
    Forget = "forget", "files that the kernel forgot";
    GetAttr = "getattr", "requests for attributes";
    SetAttr = "setattr", "changes of attributes";
    ReadLink = "readlink", "symbolic links read";
    MkNod = "mknod", "files made without being opened";
    MkDir = "mkdir", "directories made";
    Unlink = "unlink", "names removed";
    RmDir = "rmdir", "directories removed";
    Symlink = "symlink", "symbolic links made";
    Rename = "rename", "names changed";
    Link = "link", "further names made";
    Open = "open", "files opened";
    Create = "create", "files made and opened";
    Read = "read", "reads";
    Write = "write", "writes";
    Flush = "flush", "closes of a descriptor (the kernel is told once not to ask)";
    Release = "release", "files closed";
    Fsync = "fsync", "files made durable";
    OpenDir = "opendir", "directories opened";
    ReadDir = "readdir", "parts of listings without attributes";
    ReadDirPlus = "readdirplus", "parts of listings with attributes";
    ReleaseDir = "releasedir", "directories closed";
    FsyncDir = "fsyncdir", "directories made durable";
    StatFs = "statfs", "requests for how full the file system is";
    SetXattr = "setxattr", "extended attributes set";
    GetXattr = "getxattr", "extended attributes asked for";
    ListXattr = "listxattr", "lists of extended attributes";
    RemoveXattr = "removexattr", "extended attributes removed";
    Fallocate = "fallocate", "preallocations, holes punched, ranges zeroed";
    Lseek = "lseek", "searches for data or holes";
    Ioctl = "ioctl", "flags of chattr(1) and other ioctls";
    CopyFileRange = "copy_file_range", "copies of a range";
}

/// How many requests of each opcode came.
pub struct RequestCounters(Vec<Arc<Counter>>);

impl RequestCounters {
    /// Those of a registry, which has them from now on.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self(Opcode::ALL.iter().map(|(name, help)| registry.counter(name, help, Unit::Count)).collect())
    }

    /// Counts one.
    pub fn count(&self, opcode: Opcode) {
        self.0[opcode as usize].increment();
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::metrics::Value;
    use vlinder_testkit::metrics_page;

    use super::super::attendance::Attendance;
    use super::super::locality::Locality;
    use super::*;

    #[test]
    fn the_page_lists_what_is_counted() {
        let registry = Registry::new();
        RequestCounters::new(&registry).count(Opcode::CopyFileRange);
        let _ = Locality::new(&registry);
        let device = std::fs::File::open("/dev/null").unwrap().into();
        let _ = Attendance::new(device, &registry);
        let samples = registry.snapshot();
        let counted = samples.iter().find(|sample| sample.name == "fuse.requests.copy_file_range").unwrap();
        assert_eq!(counted.value, Value::Counter(1));
        let expected: Vec<String> = samples.iter().map(metrics_page::row_of).collect();
        assert_eq!(metrics_page::rows("Requests of the kernel"), expected);
    }
}
