//! A stream as text, a line for each command, as `btrfs receive --dump` of btrfs-progs 6.2 prints it.
//!
//! The form was read from that program (`cmds/receive-dump.c`), and the tests compare with its output. Two
//! things differ on purpose: streams that follow one another in one file are printed all, where btrfs-progs
//! ends behind the first, and a path has no greatest length.
//!
//! Reading path: [`dump`], `lines` (what a command says), `text` (escapes and times).

mod lines;
mod options;
mod text;

use std::io::{self, Read, Write};

use crate::wire::{Command, StreamReader, WireError};
use lines::LinePrinter;
pub use options::DumpOptions;

/// Why a stream could not be printed to its end.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The stream is wrong at a byte of the input.
    #[error("{error}")]
    Wire {
        /// The first byte of the header or command that is wrong.
        offset: u64,
        /// What is wrong with it.
        #[source]
        error: WireError,
    },
    /// The output took no more.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Prints all streams of a reader; gives how many there were. Each command is printed before the next one is
/// read. Memory is that of one command.
///
/// # Errors
/// The stream is wrong, or the output failed. What came before it was printed.
pub fn dump<R: Read, W: Write>(
    reader: &mut StreamReader<R>,
    options: &DumpOptions<'_>,
    output: &mut W,
) -> Result<u64, DumpError> {
    let mut streams = 0;
    loop {
        let offset = reader.position();
        let Some(protocol) = reader.begin().map_err(|error| DumpError::Wire { offset, error })? else {
            return Ok(streams);
        };
        streams += 1;
        let mut printer = LinePrinter::new(options);
        loop {
            let offset = reader.position();
            match reader.next_command(protocol).map_err(|error| DumpError::Wire { offset, error })? {
                Command::End => break,
                command => printer.print(&command, output)?,
            }
        }
    }
}
