//! Tree blocks as they lie on disk. Only what is needed to print a block is judged, so that damaged file
//! systems can be looked at: its checksum, address, file system and structure. What its items hold is not.

use std::path::PathBuf;

use vlinder_codec::checksum::{Checksum, checksum};
use vlinder_format::block::{BlockFault, BlockRules};
use vlinder_format::superblock::Superblock;
use vlinder_format::{Block, Damage, Logical, Place};
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::leased::{self, Lease, Source};
use vlinder_volume::{ReadRequest, Volume};

/// An opened file system of which single blocks are read.
pub struct Blocks {
    /// The devices and chunks.
    pub volume: Volume,
    /// The superblock.
    pub superblock: Superblock,
    lease: Option<Lease>,
}

impl Blocks {
    /// Opens the file system on these devices. Of its chunks the system chunks alone are known.
    ///
    /// # Errors
    /// Where the devices or the superblock can't be used, or the file system has features that can't be read.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Failure> {
        let source = Source::open(paths)?;
        let opened = source.volume()?;
        let place = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        refuse_unknown(&opened.superblock, &place)?;
        Ok(Self { volume: opened.volume, superblock: opened.superblock, lease: source.lease })
    }

    /// Makes sure, at the end, that what was read is of one state.
    ///
    /// # Errors
    /// A mount holds the image, and has given the state up or has ended.
    pub fn confirm(&self) -> Result<(), Failure> {
        leased::confirm(self.lease.as_ref())
    }

    /// Reads one block, copy after copy, until one is sound.
    ///
    /// # Errors
    /// Where no copy is.
    pub fn read(&self, logical: Logical) -> Result<Block, Failure> {
        let geometry = *self.volume.geometry();
        let sector = u64::from(geometry.sector_size);
        let place = format!("tree block {logical}");
        if !logical.0.is_multiple_of(sector) {
            let text = format!("it does not lie at a multiple of the sector size {sector}");
            return Err(Failure::new(Kind::Invalid, text).at(place));
        }
        let rules = BlockRules { node_size: geometry.node_size, sector_size: geometry.sector_size };
        let fsid = self.superblock.tree_block_uuid();
        let length = usize::try_from(geometry.node_size).unwrap_or(usize::MAX);
        let damage = |fault: BlockFault, slot| {
            Damage::new(fault, Place { tree: None, block: Some(logical), slot, key: None })
        };
        let mut verify = |bytes: Vec<u8>| {
            let (field, covered) =
                bytes.split_first_chunk::<32>().ok_or_else(|| damage(BlockFault::Checksum, None))?;
            let kind = geometry.checksum_kind;
            if !Checksum::from_field(*field).matches(&checksum(kind, covered), kind) {
                return Err(damage(BlockFault::Checksum, None));
            }
            let block = Block::parse(bytes.into_boxed_slice(), &rules)
                .map_err(|(fault, slot)| damage(fault, slot))?;
            if block.header().fsid() != fsid
                && !self.volume.members().is_seed_block_uuid(block.header().fsid())
            {
                return Err(damage(BlockFault::FileSystem, None));
            }
            Ok(block)
        };
        let verified = self.volume.read_verified(ReadRequest { logical, length }, &mut verify);
        verified.map(|verified| verified.value).map_err(|error| Failure::from(error).at(place))
    }
}

/// Refuses a file system with features that can't be read, and names them.
pub fn refuse_unknown(superblock: &Superblock, place: &str) -> Result<(), Failure> {
    let unknown = superblock.features().unsupported_for_reading();
    if unknown.is_empty() {
        return Ok(());
    }
    let text = format!("the file system has features that this version can't read: {unknown}");
    Err(Failure::new(Kind::Unsupported, text).at(place).hint("use a newer vlinder, or Linux itself"))
}
