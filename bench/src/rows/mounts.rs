//! Ordinary programs on a mount, against fuse2fs and the kernel's own driver.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::command::{peak_bytes, program, shell};
use crate::host::Host;
use crate::row::{Outcome, Row, Settings, Side};
use crate::span::Span;
use crate::tree;

/// The server of the mount.
#[derive(Clone, Copy)]
pub enum Server {
    /// `vlinder mount`.
    Vlinder,
    /// ext4, in user space as well.
    Fuse2fs,
    /// The kernel's btrfs, on a loop device.
    Kernel,
}

pub fn rows() -> Vec<Row> {
    macro_rules! row {
        ($id:literal, $workload:literal, $goal:literal, $function:path, $floor:path) => {
            Row {
                id: $id,
                workload: $workload,
                goal: $goal,
                files: None,
                prepare,
                sides: vec![
                    Side {
                        name: "vlinder mount",
                        needs: "vlinder",
                        run: |host, _| $function(host, Server::Vlinder),
                    },
                    Side {
                        name: "fuse2fs",
                        needs: "fuse2fs",
                        run: |host, _| $function(host, Server::Fuse2fs),
                    },
                    Side {
                        name: "kernel",
                        needs: "mkfs.btrfs",
                        run: |host, _| $function(host, Server::Kernel),
                    },
                    Side {
                        name: "empty server",
                        needs: "empty-server",
                        run: |host, settings| $floor(host, settings),
                    },
                ],
            }
        };
    }
    vec![
        row!("F1", "cp -r of the tree into a fresh mount", "≥ 3 × fuse2fs", copy_in, copy_into_nothing),
        row!("F2", "find -ls, warm", "≥ 8 × fuse2fs", list, list_nothing),
        row!("F3", "tar cf - | cat, warm", "≥ 8 × fuse2fs", read_all, read_nothing),
        row!("F4", "rm -r of the tree", "≥ 3 × fuse2fs", remove, remove_nothing),
    ]
}

/// What the transport alone costs: the empty server on a tree of so many files while `work` is done.
fn on_nothing(host: &Host, files: u64, warm_up: &str, work: &str) -> Result<Outcome> {
    let mountpoint = host.path("mnt");
    shell(&format!("mkdir -p {mountpoint}"))?;
    let program = program("empty-server")?;
    // In a session of its own, as every mount in the background: Linux shares processors out by session.
    let mut server = Command::new("setsid").arg(program).arg(&mountpoint).arg(files.to_string()).spawn()?;
    shell(&format!("until mountpoint -q {mountpoint}; do sleep 0.01; done; cd {mountpoint}; {warm_up}"))?;
    let start = Instant::now();
    shell(&format!("cd {mountpoint}; {work}"))?;
    let time = start.elapsed();
    let peak_bytes = peak_bytes(server.id());
    shell(&format!("umount {mountpoint}"))?;
    server.wait()?;
    Ok(Outcome { time, peak_bytes })
}

fn copy_into_nothing(host: &Host, _: &Settings) -> Result<Outcome> {
    on_nothing(host, 0, "true", &format!("cp -r {} tree", host.path("tree")))
}

fn list_nothing(host: &Host, settings: &Settings) -> Result<Outcome> {
    on_nothing(host, settings.files, "find tree -ls > /dev/null", "find tree -ls | wc -l")
}

fn read_nothing(host: &Host, settings: &Settings) -> Result<Outcome> {
    on_nothing(host, settings.files, "tar -cf - tree | cat > /dev/null", "tar -cf - tree | cat > /dev/null")
}

fn remove_nothing(host: &Host, settings: &Settings) -> Result<Outcome> {
    on_nothing(host, settings.files, "find tree > /dev/null", "rm -r tree")
}

fn prepare(host: &Host, settings: &Settings) -> Result<()> {
    let tree = host.directory().join("tree");
    if !tree.exists() {
        tree::make(&tree, settings.files)?;
    }
    Ok(())
}

/// A mounted file system.
pub struct Mounted<'a> {
    host: &'a Host,
    server: Server,
    image: String,
    /// The server's, 0 for the kernel or while nothing is mounted.
    process: u32,
    is_mounted: bool,
    /// Of the servers so far, in bytes.
    peak: u64,
}

impl<'a> Mounted<'a> {
    /// An empty file system, mounted.
    pub fn fresh(host: &'a Host, server: Server) -> Result<Self> {
        let image = host.path("image");
        shell(&format!("rm -f {image}; truncate -s 6G {image}"))?;
        match server {
            Server::Vlinder => shell(&format!("vlinder mkfs -f {image} >/dev/null"))?,
            Server::Fuse2fs => shell(&format!("mkfs.ext4 -q -F -N 400000 {image}"))?,
            Server::Kernel => shell(&format!("mkfs.btrfs -q -f {image} >/dev/null"))?,
        };
        Self::open(host, server, "image", "")
    }

    /// Mounts an image that is there.
    pub fn open(host: &'a Host, server: Server, image: &str, options: &str) -> Result<Self> {
        let image = host.path(image);
        let mut mounted = Self { host, server, image, process: 0, is_mounted: false, peak: 0 };
        mounted.mount(options)?;
        Ok(mounted)
    }

    fn mount(&mut self, options: &str) -> Result<()> {
        let (image, mountpoint) = (&self.image, self.host.path("mnt"));
        let options = if options.is_empty() { String::new() } else { format!("-o {options}") };
        shell(&format!("mkdir -p {mountpoint}"))?;
        let pattern = match self.server {
            Server::Vlinder => {
                shell(&format!("vlinder mount {options} {image} {mountpoint}"))?;
                Some("vlinder mount")
            }
            Server::Fuse2fs => {
                shell(&format!("fuse2fs {image} {mountpoint}"))?;
                Some("fuse2fs")
            }
            Server::Kernel => {
                shell(&format!("mount -o loop {image} {mountpoint}"))?;
                None
            }
        };
        if let Some(pattern) = pattern {
            let process = shell(&format!("pgrep -n -f '^[^ ]*{pattern} .*{image}'"))?;
            self.process = process.trim().parse()?;
        }
        self.is_mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        self.peak = self.peak.max(peak_bytes(self.process));
        let mountpoint = self.host.path("mnt");
        match self.server {
            Server::Vlinder => shell(&format!("vlinder umount {mountpoint}"))?,
            Server::Fuse2fs | Server::Kernel => shell(&format!("umount {mountpoint}"))?,
        };
        if let Server::Fuse2fs = self.server {
            self.wait_for_exit()?;
        }
        (self.process, self.is_mounted) = (0, false);
        Ok(())
    }

    /// The server goes on after umount(2) returns.
    fn wait_for_exit(&self) -> Result<()> {
        for _ in 0..6_000 {
            if !Path::new(&format!("/proc/{}", self.process)).exists() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server {} of {} does not end", self.process, self.image)
    }

    /// Begins the timed part of a run on it.
    pub fn span(&self) -> Result<Span<'a>> {
        let is_own = matches!(self.server, Server::Vlinder);
        Span::begin(self.host, is_own.then(|| self.host.path("mnt")))
    }

    /// A path on it.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.host.path("mnt"))
    }

    /// Makes the work so far durable. What is mounted through fuse2fs is not mounted any more then: no call
    /// reaches it that makes it write, but the last.
    pub fn sync(&mut self) -> Result<()> {
        let mountpoint = self.host.path("mnt");
        match self.server {
            Server::Vlinder => shell(&format!("vlinder filesystem sync {mountpoint}")).map(drop),
            Server::Kernel => shell(&format!("sync -f {mountpoint}")).map(drop),
            Server::Fuse2fs => self.unmount(),
        }
    }

    /// Unmounts, and has vlinder's image judged; gives the server's peak resident memory.
    pub fn end(mut self) -> Result<u64> {
        if self.is_mounted {
            self.unmount()?;
        }
        if let Server::Vlinder = self.server {
            shell(&format!("btrfs check --readonly {} >/dev/null 2>&1", self.image))?;
        }
        Ok(self.peak)
    }
}

fn copy_in(host: &Host, server: Server) -> Result<Outcome> {
    let mut mounted = Mounted::fresh(host, server)?;
    let tree = host.path("tree");
    let span = mounted.span()?;
    shell(&format!("cp -r {tree} {}", mounted.path("tree")))?;
    mounted.sync()?;
    let time = span.end()?;
    if !mounted.is_mounted {
        mounted.mount("")?;
    }
    shell(&format!("diff -r {tree} {}", mounted.path("tree")))?;
    Ok(Outcome { time, peak_bytes: mounted.end()? })
}

/// With the tree in it, and the kernel's caches as the copy left them.
fn filled(host: &Host, server: Server) -> Result<Mounted<'_>> {
    let mut mounted = Mounted::fresh(host, server)?;
    shell(&format!("cp -r {} {}", host.path("tree"), mounted.path("tree")))?;
    if !matches!(server, Server::Fuse2fs) {
        mounted.sync()?;
    }
    Ok(mounted)
}

fn list(host: &Host, server: Server) -> Result<Outcome> {
    let mounted = filled(host, server)?;
    let script = format!("find {} -ls | wc -l", mounted.path("tree"));
    shell(&script)?;
    let span = mounted.span()?;
    let count = shell(&script)?;
    let time = span.end()?;
    let expected = shell(&format!("find {} | wc -l", host.path("tree")))?;
    if count != expected {
        bail!("{} names instead of {}", count.trim(), expected.trim());
    }
    Ok(Outcome { time, peak_bytes: mounted.end()? })
}

fn read_all(host: &Host, server: Server) -> Result<Outcome> {
    let mut mounted = filled(host, server)?;
    // What was copied in is durable, so that no commit of it falls into the timed part. (fuse2fs knows no
    // other way than the last.)
    if !matches!(server, Server::Fuse2fs) {
        mounted.sync()?;
    }
    let hash =
        |parent: &str| shell(&format!("tar --sort=name --mtime=@0 -C {parent} -cf - tree | sha256sum"));
    hash(&host.path("mnt"))?;
    let span = mounted.span()?;
    shell(&format!("tar -C {} -cf - tree | cat > /dev/null", host.path("mnt")))?;
    let time = span.end()?;
    if hash(&host.path("mnt"))? != hash(&host.directory().display().to_string())? {
        bail!("the archive differs from the source's");
    }
    Ok(Outcome { time, peak_bytes: mounted.end()? })
}

fn remove(host: &Host, server: Server) -> Result<Outcome> {
    let mut mounted = filled(host, server)?;
    let span = mounted.span()?;
    shell(&format!("rm -r {}", mounted.path("tree")))?;
    mounted.sync()?;
    let time = span.end()?;
    Ok(Outcome { time, peak_bytes: mounted.end()? })
}
