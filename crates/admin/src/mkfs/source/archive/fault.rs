//! Why an archive can't be taken for a source.

use super::super::error::shown;

/// What is wrong with an archive, or more than is taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveFault {
    /// The system, of the archive or of the file that keeps its bytes.
    #[error("{what}: {source}")]
    Host {
        /// What was done.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes of the archive's files need room on the host.
    #[error(
        "its files can't be kept in {directory}: {source}; free some space there, set TMPDIR to another \
         directory, or give the archive as a file that is not compressed, which is read where it lies"
    )]
    NoSpool {
        /// The directory.
        directory: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It begins with no header.
    #[error("it is neither a directory nor an archive of tar, plain or compressed with gzip or zstd")]
    NoArchive,
    /// Compressed in a way that is not read here.
    #[error("it is compressed with {name}: give what {name} -dc makes of it on standard input (--rootdir -)")]
    Compressed {
        /// The program.
        name: &'static str,
    },
    /// The end came too early.
    #[error("it ends within an entry: it is not complete; make it or copy it again")]
    Incomplete,
    /// A block that should be a header is none.
    #[error("it is damaged: there should be a header; make it or copy it again")]
    Damaged,
    /// A field of a header that says nothing.
    #[error("{field} of an entry is no number that tar knows; make the archive anew")]
    Number {
        /// The field.
        field: &'static str,
    },
    /// A record of a PAX header that says nothing.
    #[error("a PAX record is not well formed; make the archive anew")]
    Record,
    /// A map of a sparse file that contradicts itself.
    #[error("{}: the map of its holes contradicts itself; make the archive anew without -S", shown(.path))]
    SparseMap {
        /// The file.
        path: Vec<u8>,
    },
    /// Names or attributes that are longer than any file has.
    #[error("an entry has {found} bytes of names and attributes; at most {most} are taken: leave it out")]
    TooLong {
        /// Bytes.
        found: u64,
        /// Bytes that are taken.
        most: u64,
    },
    /// Names and attributes of all entries.
    #[error("its names and attributes take more than {most} bytes; unpack it and give the directory")]
    TooMany {
        /// Bytes that are taken.
        most: u64,
    },
    /// A type that tar does not say what to do with.
    #[error("{}: entries of the type {kind:?} are not known; leave it out of the archive", shown(.path))]
    UnknownType {
        /// The file.
        path: Vec<u8>,
        /// The type.
        kind: char,
    },
    /// A name with `..` in it.
    #[error("{}: the name leads out of the archive (..); leave it out", String::from_utf8_lossy(.path))]
    LeadsOut {
        /// The name.
        path: Vec<u8>,
    },
    /// A name that goes through a link to somewhere else.
    #[error(
        "{}: the name goes through a symbolic link of the archive that leads out of its directory, where \
         unpacking would not follow it either; leave one of the two out",
        shown(.path)
    )]
    ThroughLink {
        /// The name.
        path: Vec<u8>,
    },
    /// A name below something that is no directory.
    #[error("{}: what is above it in the archive is no directory; leave one of the two out", shown(.path))]
    NotInDirectory {
        /// The name.
        path: Vec<u8>,
    },
    /// Something that would take the place of a directory with names in it.
    #[error("{}: a directory that is not empty has that name already; leave one of the two out", shown(.path))]
    NotEmpty {
        /// The name.
        path: Vec<u8>,
    },
    /// A hard link to nothing.
    #[error(
        "{}: it is a link to {}, which is no file that the archive had before; pack that file first",
        shown(.path),
        shown(.target)
    )]
    NoTarget {
        /// The link.
        path: Vec<u8>,
        /// Where it leads.
        target: Vec<u8>,
    },
    /// The caller has asked for an end.
    #[error("interrupted")]
    Interrupted,
}
