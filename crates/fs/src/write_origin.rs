//! From where a file's data change.

/// From where a file's data change, which decides what the change does besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrigin {
    /// A caller without an open file: the flags immutable and append are judged now.
    Caller,
    /// A caller through a file that was opened for writing, which is when its flags were judged.
    OpenFile {
        /// What becomes of its times.
        times: ContentTimes,
    },
    /// A cache that took the bytes from their writer earlier, and saw to times and privileges then. It hands
    /// the times over later; until then those of the file are not older than this.
    WriteBack,
    /// Pages of a mapping, which no program writes by a call: the times move, and privileges stay
    /// (`filemap_page_mkwrite`, mm/filemap.c).
    Mapped,
    /// A stream that is received: its own commands say which privileges and times the file has.
    Stream,
    /// Bytes from such a cache that had found no room before; their times were handed over since.
    WriteBackAgain,
}

/// What a change of a file's data does to the file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentTimes {
    /// They become the present.
    Move,
    /// They stay: who asks sets them.
    Stay,
    /// A cache keeps them and hands them over later; until then those of the file are not older than the
    /// change by more than a cache waits.
    ComeLater,
}

impl WriteOrigin {
    /// What becomes of the file's times.
    pub(crate) const fn times(self) -> ContentTimes {
        match self {
            Self::Caller | Self::Mapped => ContentTimes::Move,
            Self::OpenFile { times } => times,
            Self::WriteBack => ContentTimes::ComeLater,
            Self::WriteBackAgain | Self::Stream => ContentTimes::Stay,
        }
    }

    /// Whether the bytes were accepted earlier.
    pub(crate) fn is_write_back(self) -> bool {
        matches!(self, Self::WriteBack | Self::WriteBackAgain)
    }

    /// Whether set-id bits and capabilities stay.
    pub(crate) fn keeps_privileges(self) -> bool {
        self.is_write_back() || matches!(self, Self::Mapped | Self::Stream)
    }
}
