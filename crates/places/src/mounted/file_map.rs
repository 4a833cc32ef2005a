//! Where the bytes of a file on a mount lie, asked for in parts of a server that may be anybody's.

use vlinder_control::protocol::FileRun;
use vlinder_fs::data::MappedExtent;

use super::records;
use crate::failure::{Failure, Kind};

/// The most extents of a file that another user's server is believed: some 100 MiB here.
const MAX_STRANGERS_RUNS: usize = 1 << 20;

/// The file's size and the size of a block, both in bytes, and runs of the file.
type Map<Run> = (u64, u64, Vec<Run>);

/// All runs of a file. `ask` gives the next ones from an offset on, and none where there are no more.
///
/// # Errors
/// What asking met; [`Kind::Device`], at this place, where a server that is not trusted tells of too many
/// extents, or any server of extents that lead back.
pub(super) fn whole(
    is_trusted: bool,
    place: &str,
    mut ask: impl FnMut(u64) -> Result<Map<FileRun>, Failure>,
) -> Result<Map<MappedExtent>, Failure> {
    let (mut runs, mut from) = (Vec::<MappedExtent>::new(), 0);
    loop {
        let (size_bytes, block_bytes, found) = ask(from)?;
        runs.extend(found.iter().map(records::run));
        if runs.len() > MAX_STRANGERS_RUNS && !is_trusted {
            let text = format!(
                "another user's mount tells of more than {MAX_STRANGERS_RUNS} extents, the most that this command takes from a \
                 stranger"
            );
            return Err(refused(text, place));
        }
        match runs.last().filter(|_| !found.is_empty()) {
            Some(last) if !last.last => {
                let next = last.offset.saturating_add(last.length);
                if next <= from {
                    let text = format!(
                        "the mount's server tells of no extent behind offset {from}, nor of the last"
                    );
                    return Err(refused(text, place));
                }
                from = next;
            }
            _ => return Ok((size_bytes, block_bytes, runs)),
        }
    }
}

fn refused(text: String, place: &str) -> Failure {
    Failure::new(Kind::Device, text).at(place).hint("give the image itself, as IMAGE:/PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn run(number: u64) -> FileRun {
        FileRun {
            offset_bytes: number * BLOCK,
            length_bytes: BLOCK,
            logical_bytes: Some(number * 2 * BLOCK),
            delalloc: false,
            preallocated: false,
            inline: false,
            encoded: false,
            shared: false,
            last: false,
        }
    }

    /// A server whose file has so many extents, which it tells 512 at a time.
    fn server(extents: u64) -> impl FnMut(u64) -> Result<Map<FileRun>, Failure> {
        move |from| {
            let first = from / BLOCK;
            let told = (first..extents.min(first + 512))
                .map(|number| FileRun { last: number + 1 == extents, ..run(number) });
            Ok((extents * BLOCK, BLOCK, told.collect()))
        }
    }

    #[test]
    fn a_stranger_is_believed_a_bounded_number_of_extents() {
        let most = MAX_STRANGERS_RUNS as u64;
        for (extents, is_trusted) in [(0, false), (1, false), (513, false), (most, false), (most + 1, true)] {
            let (size_bytes, block_bytes, runs) = whole(is_trusted, "/mnt/f", server(extents)).unwrap();
            assert_eq!((size_bytes, block_bytes, runs.len() as u64), (extents * BLOCK, BLOCK, extents));
        }
        let mut asked = 0_usize;
        let mut endless = server(u64::MAX / BLOCK);
        let refused = whole(false, "/mnt/f", |from| {
            asked += 1;
            endless(from)
        });
        let refused = refused.unwrap_err();
        assert_eq!((refused.kind, asked), (Kind::Device, MAX_STRANGERS_RUNS / 512 + 1));
        assert!(refused.message.contains("more than 1048576 extents"), "{refused}");
        assert!(refused.hint.is_some_and(|hint| hint.contains("IMAGE:/PATH")));
    }

    #[test]
    fn a_server_that_leads_round_is_refused() {
        for is_trusted in [true, false] {
            let refused = whole(is_trusted, "/mnt/f", |_| Ok((BLOCK, BLOCK, vec![run(0)]))).unwrap_err();
            assert_eq!(refused.kind, Kind::Device, "{refused}");
            let still = FileRun { length_bytes: 0, ..run(0) };
            assert!(whole(is_trusted, "/mnt/f", |_| Ok((BLOCK, BLOCK, vec![still]))).is_err());
        }
    }
}
