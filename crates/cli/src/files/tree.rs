//! `tree`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::json;
use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::place::{Directory, DirectoryNames, Entry, Names};
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Follow;
use vlinder_places::text;

use super::image_root::root_of_image;
use super::mode::type_name;

/// Show directories and what is below them as a tree.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder tree -L 2 disk.img:/")]
pub struct TreeArguments {
    /// Show names that begin with a dot too.
    #[arg(short, long)]
    all: bool,
    /// Show only directories.
    #[arg(short, long)]
    directories: bool,
    /// Go down so many levels.
    #[arg(short = 'L', long, value_name = "LEVELS", default_value_t = usize::MAX, hide_default_value = true)]
    levels: usize,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH or a path of the host.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// A directory whose names are being shown.
struct TreeFrame {
    directory: Directory,
    entries: Names,
}

/// What was shown.
#[derive(Default)]
struct EntryCounts {
    directories: u64,
    files: u64,
}

struct Drawing<'a> {
    arguments: &'a TreeArguments,
    session: &'a Session,
    tally: Tally,
    counts: EntryCounts,
}

/// Runs the verb.
pub fn run(arguments: &TreeArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let mut drawing = Drawing { arguments, session, tally: Tally::default(), counts: EntryCounts::default() };
    if session.json {
        session.begin_list("entries")?;
    }
    for target in &arguments.targets {
        let result = drawing.target(&images, target);
        drawing.tally.add(result, session);
    }
    images.close()?;
    let (directories, files) = (drawing.counts.directories, drawing.counts.files);
    if session.json {
        let failures = drawing.tally.failed();
        let counts = json!({ "directories": directories, "files": files, "failures": failures });
        let errors = drawing.tally.errors();
        session.object(json!({ "counts": counts, "errors": errors }))?;
    } else {
        let directories = text::counted(directories, "directory", "directories");
        session.tell(format!("\n{directories}, {}", text::counted(files, "file", "files")))?;
    }
    Ok(drawing.tally.ending())
}

impl Drawing<'_> {
    fn target(&mut self, images: &Images<'_>, target: &OsString) -> Result<(), Failure> {
        let root = root_of_image(target);
        let target = root.as_ref().unwrap_or(target);
        let location = images.locate(target, Purpose::Read, Follow::Yes)?;
        let directory = location.directory.enter(&location.name)?;
        if !self.session.json {
            self.session.line(text::escaped(target.as_bytes()))?;
        }
        let mut frames = vec![self.frame(directory)?];
        let mut path: Vec<Vec<u8>> = Vec::new();
        while let Some(frame) = frames.last_mut() {
            let Some(entry) = frame.entries.next() else {
                frames.pop();
                path.pop();
                continue;
            };
            if self.session.is_output_closed() {
                return Ok(());
            }
            let is_directory = entry.file_type == FileType::Directory;
            let link = match entry.file_type {
                FileType::SymbolicLink => Some(frame.directory.read_link(&entry.name)),
                _ => None,
            };
            let link = match link.transpose() {
                Ok(link) => link,
                Err(failure) => {
                    self.tally.add(Err(failure), self.session);
                    continue;
                }
            };
            let below = is_directory.then(|| frame.directory.enter(&entry.name));
            self.show(&frames, &path, target, &entry, link.as_deref())?;
            let Some(below) = below.filter(|_| frames.len() < self.arguments.levels) else { continue };
            match below.and_then(|directory| self.frame(directory)) {
                Ok(frame) => {
                    frames.push(frame);
                    path.push(entry.name);
                }
                Err(failure) => self.tally.add(Err(failure), self.session),
            }
        }
        Ok(())
    }

    fn frame(&mut self, directory: Directory) -> Result<TreeFrame, Failure> {
        let DirectoryNames { mut entries, refused } = directory.list()?;
        refused.into_iter().for_each(|failure| self.tally.add(Err(failure), self.session));
        entries.retain(|name, file_type| {
            (self.arguments.all || name.first() != Some(&b'.'))
                && (!self.arguments.directories || file_type == FileType::Directory)
        });
        entries.sort();
        Ok(TreeFrame { directory, entries })
    }

    fn show(
        &mut self,
        frames: &[TreeFrame],
        path: &[Vec<u8>],
        target: &OsString,
        entry: &Entry,
        link: Option<&[u8]>,
    ) -> Result<(), Failure> {
        match entry.file_type {
            FileType::Directory => self.counts.directories += 1,
            _ => self.counts.files += 1,
        }
        if self.session.json {
            let mut below = path.to_vec();
            below.push(entry.name.clone());
            return self.session.list_item(&json!({
                "root": report::name(target.as_bytes()),
                "path": report::name(&below.join(&b'/')),
                "type": type_name(entry.file_type),
                "target": link.map(report::name),
            }));
        }
        let mut text = String::new();
        let (last, above) = frames.split_last().map_or((None, frames), |(last, above)| (Some(last), above));
        for frame in above {
            text.push_str(if !frame.entries.is_empty() { "│   " } else { "    " });
        }
        text.push_str(if last.is_some_and(|frame| !frame.entries.is_empty()) {
            "├── "
        } else {
            "└── "
        });
        text.push_str(&text::escaped(&entry.name));
        if let Some(link) = link {
            text.push_str(&format!(" -> {}", text::escaped(link)));
        }
        self.session.line(text)
    }
}
