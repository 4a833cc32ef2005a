//! Files that hold streams, and what an argument names in them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use clap::Args;
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::progress::Progress;
use vlinder_places::session::Session;
use vlinder_places::target::Target;
use vlinder_places::text::escaped;
use vlinder_stream::files::{FileId, StreamBytes, StreamIndex, SubvolumeView};
use vlinder_stream::wire::StreamReader;

use super::outcome;

/// Bytes read at a time.
const STEP: usize = 1 << 20;
/// What stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Which streams come before, and which subvolume is meant.
#[derive(Args, Debug)]
pub struct StreamArguments {
    /// A stream that STREAM continues: for an incremental one the full one, then those in between. May be
    /// given several times, in the order in which they were sent.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub after: Vec<OsString>,
    /// The subvolume, by its name in the stream; the last one that has it. Without this, the last one of all.
    #[arg(long, value_name = "NAME")]
    pub subvolume: Option<OsString>,
}

/// A file, pipe or standard input.
struct StreamInput {
    place: String,
    file: File,
    /// Where the stream begins in the file.
    start: u64,
    /// Bytes from there on, of a file that can be read a second time.
    bytes: Option<u64>,
}

/// The inputs of one call, in order.
pub struct StreamInputs {
    inputs: Vec<StreamInput>,
}

/// How often the inputs are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Once, so that a pipe will do.
    One,
    /// Names first, then data.
    Two,
}

impl StreamInput {
    fn open(name: &OsStr) -> Result<Self, Failure> {
        let (place, opened) = if name == STANDARD_INPUT {
            let descriptor = rustix::io::dup(io::stdin());
            ("standard input".to_owned(), descriptor.map(File::from).map_err(io::Error::from))
        } else {
            (Path::new(name).display().to_string(), File::open(name))
        };
        let failed = |error: &io::Error| Failure::host(error, &place);
        let mut file = opened.map_err(|error| failed(&error))?;
        let status = file.metadata().map_err(|error| failed(&error))?;
        let mut start = 0;
        if status.is_file() {
            start = file.stream_position().map_err(|error| failed(&error))?;
        }
        let bytes = status.is_file().then(|| status.len().saturating_sub(start));
        Ok(Self { place, file, start, bytes })
    }
}

/// Counts what is read for the bar.
struct CountedReader<'a> {
    file: &'a File,
    progress: &'a Progress,
}

impl Read for CountedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.add(read as u64);
        Ok(read)
    }
}

impl StreamInputs {
    /// Opens files; `-` is standard input.
    ///
    /// # Errors
    /// One can't be opened, or has to be read twice and can't be.
    pub fn open(names: &[&OsStr], passes: Passes) -> Result<Self, Failure> {
        let inputs: Result<Vec<StreamInput>, Failure> =
            names.iter().copied().map(StreamInput::open).collect();
        let inputs = inputs?;
        if let (Passes::Two, Some(pipe)) = (passes, inputs.iter().find(|input| input.bytes.is_none())) {
            return Err(Failure::new(Kind::Unsupported, "it can be read only once").at(&pipe.place).hint(
                "names come before data, so the stream is read twice: save it to a file and name that",
            ));
        }
        Ok(Self { inputs })
    }

    /// How an input is named in messages.
    pub fn place(&self, input: usize) -> &str {
        self.inputs.get(input).map_or("", |input| &input.place)
    }

    /// Calls `read` with a reader of each input in turn.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read_each(
        &self,
        session: &Session,
        what: &'static str,
        mut read: impl FnMut(usize, &mut dyn Read) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let total = self.inputs.iter().map(|input| input.bytes).sum::<Option<u64>>();
        let progress = Progress::new(session, what, total);
        for (number, input) in self.inputs.iter().enumerate() {
            let counted = CountedReader { file: &input.file, progress: &progress };
            read(number, &mut BufReader::with_capacity(STEP, counted))?;
        }
        Ok(())
    }

    /// Reads all of them into an index.
    ///
    /// # Errors
    /// A stream is wrong, or there is none in one of the inputs.
    pub fn index(&self, session: &Session) -> Result<StreamIndex, Failure> {
        let mut index = StreamIndex::new();
        self.read_each(session, "reading", |number, input| {
            let before = index.streams();
            let added = index.add(&mut StreamReader::new(input));
            added.map_err(|error| outcome::wrong_stream(&error, self.place(number)))?;
            if index.streams() == before { Err(outcome::no_stream(self.place(number))) } else { Ok(()) }
        })?;
        Ok(index)
    }
}

impl StreamBytes for StreamInputs {
    fn read_exact_at(&self, input: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(input) = self.inputs.get(input) else { return Err(io::ErrorKind::NotFound.into()) };
        input.file.read_exact_at(buffer, input.start.saturating_add(offset))
    }
}

/// What targets name: one stream, and paths in it.
pub struct StreamTargets {
    stream: OsString,
    /// With single slashes between names and none at the ends; empty for the root.
    pub paths: Vec<Vec<u8>>,
}

impl StreamTargets {
    /// Judges arguments of the form STREAM or STREAM:/PATH.
    ///
    /// # Errors
    /// They name several streams, or none.
    pub fn parse(arguments: &[OsString]) -> Result<Self, Failure> {
        let mut targets = Self { stream: OsString::new(), paths: Vec::new() };
        for argument in arguments {
            let target = Target::parse(argument).map_err(|fault| {
                let failure = Failure::usage(fault.to_string().replace("IMAGE", "STREAM"));
                failure.at(escaped(argument.as_encoded_bytes()))
            })?;
            let (stream, path) = match target {
                Target::Host(stream) => (stream.into_os_string(), Vec::new()),
                Target::Image { image, path } => (image.into_os_string(), plain(&path)),
            };
            if !targets.paths.is_empty() && targets.stream != stream {
                let message = format!("two streams, {} and {}", shown(&targets.stream), shown(&stream));
                return Err(Failure::usage(message)
                    .hint("one continues the other? give it with --after; else call the verb for each"));
            }
            targets.stream = stream;
            targets.paths.push(path);
        }
        Ok(targets)
    }

    /// The streams in order: those before, then the one that is named.
    pub fn streams<'a>(&'a self, arguments: &'a StreamArguments) -> Vec<&'a OsStr> {
        let before = arguments.after.iter().map(OsString::as_os_str);
        before.chain([self.stream.as_os_str()]).collect()
    }

    /// In messages: a path in the stream.
    pub fn place(&self, path: &[u8]) -> String {
        format!("{}:/{}", shown(&self.stream), escaped(path))
    }
}

fn shown(name: &OsStr) -> String {
    escaped(name.as_encoded_bytes())
}

/// A path without `.` and needless slashes.
fn plain(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    names.collect::<Vec<_>>().join(&b'/')
}

/// The subvolume that is meant.
///
/// # Errors
/// There is none.
pub fn subvolume_of<'a>(
    index: &'a StreamIndex,
    arguments: &StreamArguments,
    targets: &StreamTargets,
) -> Result<SubvolumeView<'a>, Failure> {
    let place = shown(&targets.stream);
    let Some(name) = &arguments.subvolume else {
        let last = index.subvolumes().next_back();
        return last.ok_or_else(|| outcome::no_stream(&place));
    };
    let mut found = index.subvolumes().rev().filter(|view| view.name() == name.as_encoded_bytes());
    found.next().ok_or_else(|| {
        let names: Vec<String> = index.subvolumes().map(|view| escaped(view.name())).collect();
        Failure::new(Kind::NotFound, format!("no subvolume {} in the streams", shown(name)))
            .at(place)
            .hint(format!("there are: {}", names.join(", ")))
    })
}

/// The file of a path.
///
/// # Errors
/// There is none.
pub fn file_of(view: &SubvolumeView<'_>, path: &[u8], targets: &StreamTargets) -> Result<FileId, Failure> {
    view.find(path).map_err(|fault| {
        let failure = Failure::new(Kind::NotFound, fault.to_string()).at(targets.place(path));
        match view.missing_base() {
            Some(base) => failure.hint(outcome::missing_hint(base)),
            None => failure.hint("see what there is with vlinder stream ls"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<StreamTargets, Failure> {
        StreamTargets::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn targets_name_one_stream_and_paths_in_it() {
        let targets = parse(&["a.stream:/etc//x/.", "a.stream", "a.stream:/"]).unwrap();
        assert_eq!(targets.paths, [&b"etc/x"[..], b"", b""]);
        assert_eq!(targets.place(b"etc"), "a.stream:/etc");
        let arguments = StreamArguments { after: vec!["full".into()], subvolume: None };
        assert_eq!(targets.streams(&arguments), ["full", "a.stream"]);
        assert_eq!(parse(&["-:/x"]).unwrap().streams(&arguments), ["full", "-"]);
        let failure = parse(&["a:/x", "b:/x"]).err().unwrap();
        assert!(failure.to_string().contains("two streams, a and b"), "{failure}");
        let failure = parse(&[":/x"]).err().unwrap();
        assert!(failure.to_string().contains("STREAM:/PATH"), "{failure}");
    }
}
