//! `ls`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::json;
use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::patterns;
use vlinder_places::place::{Directory, DirectoryNames, FileStatus, Location, Names};
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Follow;
use vlinder_places::text;
use vlinder_places::times::short_time;
use vlinder_places::units::{Base, Units};

use super::image_root::root_of_image;
use super::mode::{object, symbolic};

/// List directories, in images or on the host.
///
/// Owners are shown by number: the host's names say nothing about an image. Control characters in names are
/// shown as \ooo; use --json for the exact bytes. An image by itself stands for its root directory, unless -d
/// is given. In an image, `*`, `?` and `[...]` in a path stand for all names that they fit, unless a file is
/// called just so.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:\n  vlinder ls disk.img:/\n  vlinder ls -la disk.img:/etc backup.img:/etc")]
pub struct ListArguments {
    /// Show names that begin with a dot too, and the directory itself as `.`.
    #[arg(short, long)]
    all: bool,
    /// Show names that begin with a dot too.
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Show a directory itself, not what is in it.
    #[arg(short, long)]
    directory: bool,
    /// Show the inode numbers.
    #[arg(short, long)]
    inode: bool,
    /// Show type, mode, links, owner, group, size and time.
    #[arg(short)]
    long: bool,
    /// With -l: sizes in KiB, MiB ….
    #[arg(short, long)]
    human_readable: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
    /// List what is below directories too.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Keep the directory's own order instead of sorting by name.
    #[arg(short = 'U')]
    unsorted: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH or a path of the host.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

struct Row {
    name: Vec<u8>,
    status: FileStatus,
    link: Option<Vec<u8>>,
}

/// Rows that are shown at a time, in columns of one width: more would take much memory.
const MAX_ROWS: usize = 1 << 15;

/// A directory that was listed, and those in it that are to be.
struct Level {
    directory: Directory,
    below: Names,
}

struct Listing<'a> {
    arguments: &'a ListArguments,
    session: &'a Session,
    zone: TimeZone,
    tally: Tally,
    titles: bool,
    is_first: bool,
}

/// Runs the verb.
pub fn run(arguments: &ListArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let mut tally = Tally::default();
    let refuse = &mut |failure| tally.add(Err(failure), session);
    let targets = patterns::expand_all(&images, &arguments.targets, Purpose::Read, refuse);
    let mut listing = Listing {
        arguments,
        session,
        zone: TimeZone::system(),
        tally,
        titles: arguments.recursive || targets.len() > 1,
        is_first: true,
    };
    if session.json {
        session.begin_list("entries")?;
    }
    for target in &targets {
        let result = listing.target(&images, target);
        listing.tally.add(result, session);
    }
    images.close()?;
    if session.json {
        session.object(json!({ "failures": listing.tally.failed(), "errors": listing.tally.errors() }))?;
    }
    Ok(listing.tally.ending())
}

impl Listing<'_> {
    fn target(&mut self, images: &Images<'_>, target: &OsString) -> Result<(), Failure> {
        if !self.arguments.directory
            && let Some(root) = root_of_image(target)
        {
            return self.target(images, &root);
        }
        // As ls(1) does: a link to a directory is followed, unless its own attributes are asked for.
        let follow = if self.arguments.long || self.arguments.directory { Follow::No } else { Follow::Yes };
        let location = images.locate(target, Purpose::Read, follow)?;
        let status = location.status()?;
        if status.file_type == FileType::Directory && !self.arguments.directory {
            return self.directory(&location, target.as_bytes());
        }
        let row = Self::row(&location.directory, &location.name, target.as_bytes(), status)?;
        self.show(&[row], None)
    }

    fn row(directory: &Directory, name: &[u8], shown: &[u8], status: FileStatus) -> Result<Row, Failure> {
        let is_link = status.file_type == FileType::SymbolicLink;
        let link = is_link.then(|| directory.read_link(name)).transpose()?;
        Ok(Row { name: shown.to_vec(), status, link })
    }

    fn directory(&mut self, location: &Location, title: &[u8]) -> Result<(), Failure> {
        let top = Level { directory: location.directory.enter(&location.name)?, below: Names::default() };
        let mut result = Ok(());
        let mut path = title.to_vec();
        let mut levels: Vec<(Level, usize)> = Vec::new();
        let mut next = Some(top);
        while let Some(mut level) = next {
            if self.session.is_output_closed() {
                break;
            }
            match self.one_directory(&level.directory, &path) {
                Ok(below) => level.below = below,
                Err(failure) => {
                    self.session.complain(&failure);
                    result =
                        Err(Failure::new(failure.kind, "not all of it could be listed").at(location.place()));
                }
            }
            levels.push((level, path.len()));
            next = self.next_directory(&mut levels, &mut path);
        }
        result
    }

    /// The directory to be listed after the last one, with its path: only the way down is held.
    fn next_directory(&mut self, levels: &mut Vec<(Level, usize)>, path: &mut Vec<u8>) -> Option<Level> {
        while let Some((level, length)) = levels.last_mut() {
            path.truncate(*length);
            let Some(entry) = level.below.next() else {
                levels.pop();
                continue;
            };
            match level.directory.enter(&entry.name) {
                Ok(directory) => {
                    if path.last() != Some(&b'/') {
                        path.push(b'/');
                    }
                    path.extend_from_slice(&entry.name);
                    return Some(Level { directory, below: Names::default() });
                }
                Err(failure) => self.tally.add(Err(failure), self.session),
            }
        }
        None
    }

    /// Lists one directory; with -R, gives the names of those below it.
    fn one_directory(&mut self, directory: &Directory, title: &[u8]) -> Result<Names, Failure> {
        let DirectoryNames { mut entries, refused } = directory.list()?;
        refused.into_iter().for_each(|failure| self.tally.add(Err(failure), self.session));
        if !self.arguments.unsorted {
            entries.sort();
        }
        self.begin(title)?;
        let mut rows = Vec::new();
        if self.arguments.all {
            rows.push(Row { name: b".".to_vec(), status: directory.status(b".")?, link: None });
        }
        let hides = !(self.arguments.all || self.arguments.almost_all);
        let mut below = Names::default();
        for entry in entries {
            if hides && entry.name.first() == Some(&b'.') {
                continue;
            }
            let status = match directory.status(&entry.name) {
                Ok(status) => status,
                Err(failure) => {
                    self.tally.add(Err(failure), self.session);
                    continue;
                }
            };
            if status.file_type == FileType::Directory && self.arguments.recursive {
                below.push(&entry.name, status.file_type);
            }
            match Self::row(directory, &entry.name, &entry.name, status) {
                Ok(row) => rows.push(row),
                Err(failure) => self.tally.add(Err(failure), self.session),
            }
            if rows.len() >= MAX_ROWS {
                self.show(&rows, Some(title))?;
                rows.clear();
                if self.session.is_output_closed() {
                    break;
                }
            }
        }
        self.show(&rows, Some(title))?;
        below.shrink();
        Ok(below)
    }

    /// Shows the title of a directory, where there may be several.
    fn begin(&mut self, title: &[u8]) -> Result<(), Failure> {
        if self.titles && !self.session.json {
            let separator = if self.is_first { "" } else { "\n" };
            self.session.line(format!("{separator}{}:", text::escaped(title)))?;
        }
        self.is_first = false;
        Ok(())
    }

    /// Shows rows, of the directory with a title or of a target by itself.
    fn show(&mut self, rows: &[Row], title: Option<&[u8]>) -> Result<(), Failure> {
        self.is_first = false;
        if self.session.json {
            for row in rows {
                let mut value = object(&row.status);
                value["name"] = report::name(&row.name);
                if let Some(title) = title {
                    value["directory"] = report::name(title);
                }
                if let Some(link) = &row.link {
                    value["target"] = report::name(link);
                }
                self.session.list_item(&value)?;
            }
            return Ok(());
        }
        let texts: Vec<[String; 6]> = rows.iter().map(|row| self.columns(row)).collect();
        let mut widths = [0; 6];
        for text in &texts {
            for (width, column) in widths.iter_mut().zip(text) {
                *width = (*width).max(column.chars().count());
            }
        }
        for (row, text) in rows.iter().zip(&texts) {
            self.session.line(self.text(row, text, &widths))?;
        }
        Ok(())
    }

    /// Inode, mode, links, user, group, size.
    fn columns(&self, row: &Row) -> [String; 6] {
        let status = &row.status;
        let size = match status.file_type {
            FileType::CharacterDevice | FileType::BlockDevice => {
                format!("{}, {}", status.device.0, status.device.1)
            }
            _ if self.arguments.human_readable => Units::Human(Base::Binary).show(status.size_bytes),
            _ => status.size_bytes.to_string(),
        };
        [
            status.inode.to_string(),
            symbolic(status.file_type, status.permissions),
            status.links.to_string(),
            status.user.to_string(),
            status.group.to_string(),
            size,
        ]
    }

    fn text(&self, row: &Row, columns: &[String; 6], widths: &[usize; 6]) -> String {
        let mut text = String::new();
        if self.arguments.inode {
            text.push_str(&format!("{:>1$} ", columns[0], widths[0]));
        }
        if self.arguments.long {
            for (column, width) in columns.iter().zip(widths).skip(1) {
                text.push_str(&format!("{column:>width$} "));
            }
            text.push_str(&short_time(row.status.times.modification, &self.zone));
            text.push(' ');
        }
        text.push_str(&text::escaped(&row.name));
        if self.arguments.long
            && let Some(link) = &row.link
        {
            text.push_str(&format!(" -> {}", text::escaped(link)));
        }
        text
    }
}
