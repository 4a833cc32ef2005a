//! Chunks that are looked for when an address needs them.

use vlinder_base::sync::Weak;
use vlinder_base::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Where the looked-for chunk lies.
const FAR: Logical = Logical(100 * MEBIBYTE);

/// A source that knows one chunk, and reads the bytes at an address before it gives it.
struct Source {
    volume: Weak<Volume>,
    reads: Logical,
    asked: AtomicUsize,
}

impl ChunkSource for Source {
    fn look_up(&self, logical: Logical, add: &mut AddChunk<'_>) -> Result<(), VolumeError> {
        self.asked.fetch_add(1, Ordering::AcqRel);
        let volume = self.volume.upgrade().unwrap();
        let request = (ReadRequest { logical: self.reads, length: 4096 }, MappedBy::SystemChunks);
        for read in volume.submit_reads_by([request].into_iter()).wait(&mut |_, bytes| Ok(bytes)) {
            read?;
        }
        if logical.0 - FAR.0 < 8 * MEBIBYTE { self.load_all(add) } else { Ok(()) }
    }

    fn load_all(&self, add: &mut AddChunk<'_>) -> Result<(), VolumeError> {
        add(FAR, chunk(BlockGroupFlags::DATA, &[64 * MEBIBYTE]))
    }
}

fn source(volume: &Arc<Volume>, reads: Logical) -> Arc<Source> {
    Arc::new(Source { volume: Arc::downgrade(volume), reads, asked: AtomicUsize::new(0) })
}

fn read(volume: &Volume, logical: Logical) -> Result<Vec<u8>, VolumeError> {
    volume.read_verified(ReadRequest { logical, length: 4096 }, &mut Ok).map(|verified| verified.value)
}

#[test]
fn a_chunk_is_looked_for_once_and_only_if_needed() {
    let device = Faulty::new(LENGTH);
    let volume = Arc::new(dup_volume(&device, Access::ReadOnly));
    let source = source(&volume, CHUNK);
    volume.look_up_chunks(source.clone());
    read(&volume, CHUNK).unwrap();
    assert_eq!(source.asked.load(Ordering::Acquire), 0);
    for _ in 0..2 {
        read(&volume, FAR).unwrap();
        assert_eq!(source.asked.load(Ordering::Acquire), 1);
    }
    let unmapped = Logical(FAR.0 + 8 * MEBIBYTE);
    let length = 4096;
    assert_eq!(read(&volume, unmapped), Err(VolumeError::Unmapped { logical: unmapped, length }));
    // What leaves its chunk is not looked for.
    let asked = source.asked.load(Ordering::Acquire);
    let last = Logical(unmapped.0 - 1);
    assert_eq!(read(&volume, last), Err(VolumeError::Unmapped { logical: last, length }));
    assert_eq!(source.asked.load(Ordering::Acquire), asked);
    volume.load_chunks().unwrap();
    assert_eq!(volume.chunks().len(), 2);
    assert!(read(&volume, unmapped).is_err());
    assert_eq!(source.asked.load(Ordering::Acquire), asked, "all are known");
}

#[test]
fn what_looks_for_a_chunk_reads_through_system_chunks_alone() {
    let device = Faulty::new(LENGTH);
    let volume = Arc::new(dup_volume(&device, Access::ReadOnly));
    let source = source(&volume, FAR);
    volume.look_up_chunks(source.clone());
    let refused = Err(VolumeError::Unmapped { logical: FAR, length: 4096 });
    assert_eq!(read(&volume, FAR), refused);
    // Nor through one that came to be known since.
    source.load_all(&mut |logical, chunk| volume.add_chunk(logical, chunk)).unwrap();
    read(&volume, FAR).unwrap();
    assert_eq!(read(&volume, Logical(120 * MEBIBYTE)), refused);
    assert_eq!(source.asked.load(Ordering::Acquire), 2);
}

#[test]
#[should_panic(expected = "before all were read")]
fn a_list_of_some_chunks_is_not_taken_for_one_of_all() {
    let volume = Arc::new(dup_volume(&Faulty::new(LENGTH), Access::ReadOnly));
    volume.look_up_chunks(source(&volume, CHUNK));
    volume.chunks().next_logical();
}
