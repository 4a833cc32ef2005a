//! Streams and the subvolumes that they make.

use std::io::Read;
use std::ops::ControlFlow;

use vlinder_base::sync::Arc;
use vlinder_fs::{Filesystem, Inode};

use super::current::Current;
use super::held_files::HeldFiles;
use super::partial::{partial_subvolume_names, partial_subvolumes};
use super::paths::SubvolumePaths;
use super::{Outcome, Progress, ReceiveError, ReceiveOptions, Received};
use crate::resume::{ResumeToken, RunningHash, TOKEN_ATTRIBUTE};
use crate::wire::{Command, CommandKind, Protocol, Snapshot, StreamReader};

/// What is told how far receiving is, and may end it.
type ProgressWatcher<'f> = Box<dyn FnMut(Progress) -> ControlFlow<()> + 'f>;

/// Receives streams into one directory.
pub struct Receiver<'f> {
    pub(super) filesystem: &'f Filesystem,
    directory: Arc<Inode>,
    options: ReceiveOptions,
    watcher: ProgressWatcher<'f>,
    pub(super) current: Option<Current>,
    pub(super) outcome: Outcome,
    /// New files that are not made yet.
    pub(super) held: HeldFiles,
    /// The version of the stream that is received.
    pub(super) protocol: Protocol,
    /// Where the command begins that ended receiving, if others were read after it.
    pub(super) failed_start: Option<u64>,
    /// Names in the directory that came or went.
    names: Vec<Vec<u8>>,
    /// The name of the next subvolume, which was received in part under it.
    name_in_part: Option<Vec<u8>>,
}

/// What a command is to its stream.
enum Step {
    /// It ends the stream.
    End,
    /// It makes the subvolume that the commands after it are about, or goes on with it.
    Begin,
    /// It was applied.
    Applied,
    /// It is held, and waits to be applied with those that follow.
    Held,
}

impl<'f> Receiver<'f> {
    /// Receives into a directory.
    pub fn new(filesystem: &'f Filesystem, directory: Arc<Inode>) -> Self {
        Self {
            filesystem,
            directory,
            options: ReceiveOptions::default(),
            watcher: Box::new(|_| ControlFlow::Continue(())),
            current: None,
            outcome: Outcome::default(),
            held: HeldFiles::default(),
            protocol: Protocol::V1,
            failed_start: None,
            names: Vec::new(),
            name_in_part: None,
        }
    }

    /// Receives in another way than the [usual one](ReceiveOptions::default).
    #[must_use]
    pub fn with_options(mut self, options: ReceiveOptions) -> Self {
        self.options = options;
        self
    }

    /// Tells after each command how far receiving is. [`ControlFlow::Break`] ends it, with
    /// [`ReceiveError::Interrupted`].
    #[must_use]
    pub fn watched(mut self, watcher: impl FnMut(Progress) -> ControlFlow<()> + 'f) -> Self {
        self.watcher = Box::new(watcher);
        self
    }

    /// What came of it so far, whether receiving ended well or not.
    #[must_use]
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// All names in the directory that came or went, of whole subvolumes and of partial ones: what a mount's
    /// kernel has to be told of.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(Vec::as_slice)
    }

    /// The first byte of the command that ended receiving, or of what could not be read; new files are held
    /// back, and commands were read after the one that fails then.
    pub fn error_start<R: Read>(&self, streams: &StreamReader<R>) -> u64 {
        self.failed_start.unwrap_or_else(|| streams.last_start())
    }

    /// As [`outcome`](Self::outcome), at the end.
    #[must_use]
    pub fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// Applies all streams that follow one another; gives the subvolumes that they made. The rest of a stream
    /// that was interrupted goes on with the partial subvolume of its token.
    ///
    /// # Errors
    /// The streams are wrong, or the file system refused or failed. Of a subvolume that was begun a partial
    /// one stays, which [`outcome`](Self::outcome) names: it is writable, has another name, and lacks the
    /// UUID that would make it a received one. The caller syncs or closes the file system, as after a
    /// success.
    pub fn receive<R: Read>(&mut self, streams: &mut StreamReader<R>) -> Result<Vec<Received>, ReceiveError> {
        let before = self.outcome.received.len();
        self.failed_start = None;
        // What is held came before what ended receiving, and so did its error.
        let received = match (self.receive_all(streams), self.flush_held()) {
            (Err(_), Err(earlier)) => Err(earlier),
            (received, _) => received,
        };
        self.outcome.progress.bytes = streams.position();
        if received.is_err() {
            self.keep_partial();
        }
        received.map(|()| self.outcome.received.iter().skip(before).cloned().collect())
    }

    fn receive_all<R: Read>(&mut self, streams: &mut StreamReader<R>) -> Result<(), ReceiveError> {
        while let Some(protocol) = streams.begin()? {
            self.protocol = protocol;
            loop {
                let step = self.step(streams, protocol)?;
                if matches!(step, Step::End) {
                    break;
                }
                if let Some(current) = &mut self.current {
                    let is_new = matches!(step, Step::Applied) || current.received.bytes() == 0;
                    if is_new && !matches!(step, Step::Held) {
                        current.received.add(streams.last_command());
                    }
                }
                self.outcome.progress.commands += 1;
                self.make_durable_in_time()?;
                self.outcome.progress.bytes = streams.position();
                if (self.watcher)(self.outcome.progress).is_break() {
                    return Err(ReceiveError::Interrupted);
                }
            }
            self.finish()?;
            if self.options.ends_at_end_command {
                break;
            }
        }
        Ok(())
    }

    /// Applies what is held where that is enough, and makes a checkpoint where it is time for one.
    fn make_durable_in_time(&mut self) -> Result<(), ReceiveError> {
        let Some(current) = &self.current else { return Ok(()) };
        let bytes = current.bytes_since_checkpoint() + self.held.byte_count();
        let is_time = bytes >= self.options.checkpoint_bytes;
        if is_time || self.held.is_full() {
            self.flush_held()?;
        }
        match &mut self.current {
            Some(current) if is_time => current.checkpoint(self.filesystem, &self.directory),
            _ => Ok(()),
        }
    }

    /// Reads one command, and applies or holds it.
    fn step<R: Read>(
        &mut self,
        streams: &mut StreamReader<R>,
        protocol: Protocol,
    ) -> Result<Step, ReceiveError> {
        let placed = streams.next_placed(protocol)?;
        if self.hold(&placed) {
            return Ok(Step::Held);
        }
        self.flush_held()?;
        match placed.command {
            Command::End => Ok(Step::End),
            Command::Subvolume { path, uuid, transid } => {
                let (parent_uuid, parent_transid) = Default::default();
                self.begin(&Snapshot { path, uuid, transid, parent_uuid, parent_transid }, protocol)?;
                Ok(Step::Begin)
            }
            Command::Snapshot(snapshot) => {
                if snapshot.parent_uuid.is_nil() {
                    return Err(ReceiveError::NilParent);
                }
                self.begin(&snapshot, protocol)?;
                Ok(Step::Begin)
            }
            Command::SetXattr { path: b"", name: TOKEN_ATTRIBUTE, value } if self.current.is_none() => {
                self.resume(value, protocol)?;
                Ok(Step::Begin)
            }
            command => {
                if let Err(error) = self.apply_with_room(&command) {
                    self.bear(error)?;
                }
                Ok(Step::Applied)
            }
        }
    }

    /// Applies a command, once more if there was no room and subvolumes were deleted whose room is not free
    /// yet: going on deletes what came after the checkpoint, and needs as much again.
    pub(super) fn apply_with_room(&mut self, command: &Command<'_>) -> Result<(), ReceiveError> {
        let maintenance = self.filesystem.maintenance();
        match self.apply(command) {
            Err(error) if error.is_no_space() && maintenance.has_deletions() => {
                maintenance.finish_deletions()?;
                self.apply(command)
            }
            applied => applied,
        }
    }

    /// Goes on after an error of a command, or ends receiving with it.
    pub(super) fn bear(&mut self, error: ReceiveError) -> Result<(), ReceiveError> {
        let max = self.options.max_errors;
        let is_last = max != 0 && self.outcome.error_count + 1 >= max;
        match &mut self.current {
            Some(current) if !is_last && !self.filesystem.is_read_only() => {
                current.lacks_commands = true;
                self.outcome.note_error(error);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn begin(&mut self, made: &Snapshot<'_>, protocol: Protocol) -> Result<(), ReceiveError> {
        self.finish()?;
        let kind = if made.parent_uuid.is_nil() { CommandKind::Subvolume } else { CommandKind::Snapshot };
        let name = self.name_in_part.take().or_else(|| self.options.name.clone());
        let name = name.as_deref().unwrap_or(made.path);
        // A name alone: where it goes is the receiver's to say.
        let mut places = SubvolumePaths::new(Arc::clone(&self.directory));
        let (_, last) = places.place(self.filesystem, kind, name)?;
        if last.len() != name.len() {
            return Err(ReceiveError::Path { kind, path: name.to_vec() });
        }
        let token = ResumeToken {
            protocol,
            uuid: made.uuid,
            transid: made.transid,
            parent_uuid: made.parent_uuid,
            parent_transid: made.parent_transid,
            received: RunningHash::default(),
        };
        self.note_names(name);
        self.current = Some(Current::begin(self.filesystem, &self.directory, name, token)?);
        Ok(())
    }

    fn note_names(&mut self, name: &[u8]) {
        self.names.extend(partial_subvolume_names(name));
    }

    /// Begins with the rest of a stream that was interrupted.
    fn resume(&mut self, token: &[u8], protocol: Protocol) -> Result<(), ReceiveError> {
        let token: ResumeToken = String::from_utf8_lossy(token).parse()?;
        let all = partial_subvolumes(self.filesystem, &self.directory)?;
        let wanted = all.iter().find(|partial| partial.token == Some(token) && protocol == token.protocol);
        let Some(partial) = wanted else {
            return Err(ReceiveError::NothingToResume { token: Box::new(token), partial: all });
        };
        self.note_names(&partial.name);
        if token.received.bytes() == 0 {
            // All of the stream comes, and makes its subvolume anew.
            super::discard(self.filesystem, &self.directory, &partial.name)?;
            self.name_in_part = Some(partial.name.clone());
            return Ok(());
        }
        self.current = Some(Current::resume(self.filesystem, &self.directory, partial, token)?);
        Ok(())
    }

    /// Makes what is being received a received subvolume.
    fn finish(&mut self) -> Result<(), ReceiveError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.finish(self.filesystem, &self.directory)?;
        if let Some(current) = self.current.take() {
            let (id, is_whole) = (current.id(), !current.lacks_commands);
            self.outcome.received.push(Received { name: current.name, id, is_whole });
        }
        Ok(())
    }

    /// After an error: what was received so far can be gone on with.
    fn keep_partial(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        // Without room for it, or after damage, the checkpoint before is what is left.
        let _ = current.checkpoint(self.filesystem, &self.directory);
        let name = std::mem::take(&mut current.name);
        drop(current);
        let all = partial_subvolumes(self.filesystem, &self.directory).unwrap_or_default();
        self.outcome.partial = all.into_iter().find(|partial| partial.name == name);
    }
}
