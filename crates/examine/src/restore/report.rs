//! What was restored and what could not be read.

use std::collections::HashSet;

use serde_json::{Value, json};
use vlinder_fs::salvage::{ItemPlace, Salvage};
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::report::name;
use vlinder_places::session::Session;
use vlinder_places::text::{counted, escaped};

/// Losses that are listed one by one; more are only counted.
const MAX_LISTED: usize = 10_000;

/// How much was restored.
#[derive(Default)]
pub struct RestoreCounts {
    /// Regular files that were restored whole.
    pub files: u64,
    /// Regular files that were restored in part.
    pub partial_files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symbolic_links: u64,
    /// Device nodes, fifos and sockets.
    pub special_files: u64,
    /// What no flag asked for, or what is there already.
    pub skipped: u64,
    /// Bytes of files.
    pub restored_bytes: u64,
    /// Bytes on disk whose checksums are lost.
    pub unverified_bytes: u64,
}

/// How a restoration went.
pub struct Report<'a> {
    session: &'a Session,
    /// What was restored.
    pub counts: RestoreCounts,
    lost: Vec<Value>,
    lost_not_listed: u64,
    /// Items of the image that were told as lost; no more than were left out of its tree blocks.
    told_items: HashSet<ItemPlace>,
    roots: Vec<Value>,
}

impl<'a> Report<'a> {
    /// Nothing is restored yet.
    pub fn new(session: &'a Session) -> Self {
        Self {
            session,
            counts: RestoreCounts::default(),
            lost: Vec::new(),
            lost_not_listed: 0,
            told_items: HashSet::new(),
            roots: Vec::new(),
        }
    }

    /// Something could not be read, or not be written: a file, or a range of one.
    pub fn lose(&mut self, path: &[u8], range: Option<(u64, u64)>, reason: &str) {
        if self.lost.len() >= MAX_LISTED {
            self.lost_not_listed = self.lost_not_listed.saturating_add(1);
            return;
        }
        let place = match range {
            Some((start, end)) => format!("{}, bytes {start} to {end}", escaped(path)),
            None => escaped(path),
        };
        eprintln!("{}{place}: {reason}", self.session.program.error_prefix());
        self.lost.push(json!({
            "path": name(path),
            "start_byte": range.map(|(start, _)| start),
            "end_byte": range.map(|(_, end)| end),
            "reason": reason,
        }));
    }

    /// The loss of an item is told with what it described.
    pub fn note_item(&mut self, item: Option<ItemPlace>) {
        self.told_items.extend(item);
    }

    /// Whether the loss of an item was told.
    pub fn has_told(&self, item: &ItemPlace) -> bool {
        self.told_items.contains(item)
    }

    /// Whether anything was lost.
    pub fn has_losses(&self) -> bool {
        !self.lost.is_empty()
    }

    /// A tree that the root tree names.
    pub fn list_root(&mut self, root: Value) {
        self.roots.push(root);
    }

    fn lost_count(&self) -> u64 {
        u64::try_from(self.lost.len()).unwrap_or(u64::MAX).saturating_add(self.lost_not_listed)
    }

    /// The last words, for people.
    pub fn tell(&self) -> Result<(), Failure> {
        let RestoreCounts { files, partial_files, directories, restored_bytes, unverified_bytes, .. } =
            &self.counts;
        if !self.roots.is_empty() || (*files, *partial_files, *directories) == (0, 0, 0) && !self.has_losses()
        {
            return Ok(());
        }
        let links = match self.counts.symbolic_links.saturating_add(self.counts.special_files) {
            0 => String::new(),
            others => format!(", {}", counted(others, "link or special file", "links and special files")),
        };
        let files = counted(*files, "file", "files");
        let directories = counted(*directories, "directory", "directories");
        let bytes = counted(*restored_bytes, "byte", "bytes");
        self.session.tell(format!("restored: {files}, {directories}{links} ({bytes})"))?;
        if *partial_files > 0 {
            let files = counted(*partial_files, "file", "files");
            self.session.tell(format!("restored in part, as NAME.partial: {files}"))?;
        }
        if self.counts.skipped > 0 {
            let names = counted(self.counts.skipped, "name", "names");
            self.session.tell(format!("left out, since no flag asked for it or it exists: {names}"))?;
        }
        if *unverified_bytes > 0 {
            self.session.tell(format!(
                "{unverified_bytes} bytes on disk have lost their checksums: look at these files"
            ))?;
        }
        match self.lost_count() {
            0 => Ok(()),
            lost => {
                self.session.tell(format!("{lost} parts could not be read or written; they are named above"))
            }
        }
    }

    /// As JSON.
    pub fn object(&self, salvage: &Salvage) -> Value {
        json!({
            "files": self.counts.files,
            "partial_files": self.counts.partial_files,
            "directories": self.counts.directories,
            "symbolic_links": self.counts.symbolic_links,
            "special_files": self.counts.special_files,
            "skipped": self.counts.skipped,
            "restored_bytes": self.counts.restored_bytes,
            "unverified_bytes": self.counts.unverified_bytes,
            "notes": salvage.notes(),
            "lost": self.lost,
            "lost_not_listed": self.lost_not_listed,
            "roots": self.roots,
        })
    }

    /// How the verb ends.
    pub fn ending(&self) -> ExitStatus {
        let restored = [
            self.counts.files,
            self.counts.partial_files,
            self.counts.directories,
            self.counts.symbolic_links,
            self.counts.special_files,
            u64::try_from(self.roots.len()).unwrap_or(u64::MAX),
        ];
        match (self.has_losses() || self.counts.unverified_bytes > 0, restored.iter().any(|count| *count > 0))
        {
            (false, _) => ExitStatus::Done,
            (true, true) => ExitStatus::Partial,
            (true, false) => ExitStatus::Failed,
        }
    }
}
