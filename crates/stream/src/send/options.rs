//! How a subvolume is sent.

/// What is told of a send that is under way: bytes of files in the commands that were written so far.
pub type Progress<'a> = &'a dyn Fn(u64);

/// How a subvolume is sent. The version of the stream is the writer's.
#[derive(Clone, Copy, Default)]
pub struct SendOptions<'a> {
    /// Compressed extents are sent as they are stored. Version 1 has no command for them.
    pub compressed_data: bool,
    /// Ranges of files are named without their bytes. Nothing can be received from such a stream.
    pub no_data: bool,
    /// Threads that read, verify and decompress; as many as there are processors if it is none. With 1, the
    /// calling thread does all. The stream is the same with any number.
    pub threads: Option<usize>,
    /// Tree blocks are read one after the other, as they are needed: what `-o disable=send_readahead` asks
    /// for.
    pub no_readahead: bool,
    /// Is told how far the send has come.
    pub progress: Option<Progress<'a>>,
}
