//! What every verb is given: how to speak, and to whom.

use std::io::IsTerminal;

use serde_json::Value;
use vlinder_base::sync::Mutex;

use crate::failure::{ExitStatus, Failure};
use crate::output::Output;
use crate::report;
use crate::text::{self, lines_escaped};

/// Which program the call name asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `vlinder`.
    Vlinder,
    /// `btrfs`.
    Btrfs,
    /// `mkfs.btrfs`.
    MakeFileSystem,
    /// `mount.fuse.vlinder`.
    MountHelper,
}

impl Program {
    /// What its messages begin with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vlinder => "vlinder",
            Self::Btrfs => "btrfs",
            Self::MakeFileSystem => "mkfs.btrfs",
            Self::MountHelper => "mount.fuse.vlinder",
        }
    }

    /// What its errors begin with; scripts look for that of btrfs-progs.
    pub fn error_prefix(self) -> String {
        if self == Self::Btrfs { "ERROR: ".to_owned() } else { format!("{}: ", self.name()) }
    }

    /// What the process ends with; btrfs-progs knows only 0 and 1.
    pub const fn code(self, status: ExitStatus) -> u8 {
        match (self, status) {
            (Self::Vlinder, status) => status.code(),
            (_, ExitStatus::Done) => 0,
            // mount(8): the mount failed.
            (Self::MountHelper, _) => 32,
            (_, _) => 1,
        }
    }
}

/// How btrfs-progs names forms of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text.
    #[default]
    Text,
    /// JSON as btrfs-progs writes it, for verbs that have it there.
    Json,
}

/// One call of the command.
pub struct Session {
    /// Which program.
    pub program: Program,
    /// The verb, as the JSON schemas name it: `subvolume-list`.
    pub(crate) verb: String,
    /// One JSON object instead of text.
    pub json: bool,
    /// The JSON of btrfs-progs (`--format json`) instead of text.
    pub progs_json: bool,
    /// Errors only.
    pub(crate) quiet: bool,
    output: Mutex<Output>,
}

impl Session {
    /// A session that writes to standard output and standard error.
    pub fn new(program: Program, verb: String, json: bool, quiet: bool) -> Self {
        Self { program, verb, json, progs_json: false, quiet, output: Mutex::new(Output::new()) }
    }

    /// Speaks in the format that `--format` names.
    ///
    /// # Errors
    /// Where btrfs-progs 6.2 has no JSON for this verb.
    pub fn choose(&mut self, format: Format) -> Result<(), Failure> {
        self.progs_json = format == Format::Json;
        if self.progs_json && self.verb != "filesystem-df" {
            let failure = Failure::usage("output format 'json' is unsupported for this command");
            return Err(failure.hint("--json gives the object that each verb has"));
        }
        Ok(())
    }

    /// Writes bytes to standard output.
    ///
    /// # Errors
    /// Where standard output can't be written; a reader that has gone away is none.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.output.lock().bytes(bytes)
    }

    /// A name as a listing that scripts read shows it: on a terminal [escaped](text::escaped), elsewhere its
    /// bytes, as btrfs-progs has them.
    pub fn name(&self, bytes: &[u8]) -> Vec<u8> {
        if std::io::stdout().is_terminal() { text::escaped(bytes).into_bytes() } else { bytes.to_vec() }
    }

    /// Writes a line to standard output.
    ///
    /// # Errors
    /// Where standard output can't be written; a reader that has gone away is none.
    pub fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.output.lock().line(text)
    }

    /// Writes a line that tells what was done: not with `--quiet`, not with `--json`.
    ///
    /// # Errors
    /// Where standard output can't be written; a reader that has gone away is none.
    pub fn tell(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        if self.quiet || self.json { Ok(()) } else { self.line(text) }
    }

    /// Begins the verb's one JSON object with a list; [`Session::object`] ends it.
    ///
    /// # Errors
    /// Where standard output can't be written; a reader that has gone away is none.
    pub fn begin_list(&self, name: &str) -> Result<(), Failure> {
        self.output.lock().begin_list(name)
    }

    /// Writes an item of the list that was begun.
    ///
    /// # Errors
    /// Where standard output can't be written; a reader that has gone away is none.
    pub fn list_item(&self, value: &Value) -> Result<(), Failure> {
        self.output.lock().list_item(value)
    }

    /// Writes the verb's one JSON object.
    ///
    /// # Errors
    /// Where standard output can't be written; a reader that has gone away is none.
    pub fn object(&self, fields: Value) -> Result<(), Failure> {
        self.output.lock().json(&report::object(&self.verb, fields))
    }

    /// True once nobody reads standard output any more, so that a long listing may stop.
    pub fn is_output_closed(&self) -> bool {
        self.output.lock().is_closed()
    }

    /// Says on standard error what went wrong with one of several things.
    pub fn complain(&self, failure: &Failure) {
        eprintln!("{}{failure}", self.program.error_prefix());
    }

    /// Says on standard error what a verb does that goes on until it is ended: not with `--quiet`, not with
    /// `--json`.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            let prefix = match self.program {
                Program::Btrfs => String::new(),
                other => format!("{}: ", other.name()),
            };
            eprintln!("{prefix}{}", lines_escaped(text.as_ref()));
        }
    }

    /// Says on standard error what the user should know though the verb goes on.
    pub fn warn(&self, text: impl AsRef<str>) {
        let prefix = match self.program {
            Program::Btrfs => "WARNING: ".to_owned(),
            other => format!("{}: warning: ", other.name()),
        };
        eprintln!("{prefix}{}", lines_escaped(text.as_ref()));
    }

    /// Ends the session: hands the output over, reports a failure, and gives the process's number.
    pub fn end(&self, result: Result<ExitStatus, Failure>) -> u8 {
        let flushed = self.output.lock().flush();
        let status = match result.and_then(|status| flushed.map(|()| status)) {
            Ok(status) => status,
            Err(failure) => {
                self.complain(&failure);
                if self.json {
                    let mut output = self.output.lock();
                    // Where standard output is what failed, nothing more can be said there.
                    let _ = output.json(&report::error(&self.verb, &failure)).and_then(|()| output.flush());
                }
                failure.status
            }
        };
        self.program.code(status)
    }
}
