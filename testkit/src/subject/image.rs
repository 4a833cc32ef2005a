//! New images.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

pub use vlinder_admin::mkfs::raw::MkfsFeatures;
use vlinder_admin::mkfs::raw::{MkfsParameters, MkfsUuids, make};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Arc;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_device::{Device, FileDevice, MemoryDevice, OpenOptions};
use vlinder_format::Uuid;
use vlinder_format::inode::Timestamp;
use vlinder_format::superblock::Label;
use vlinder_volume::Profile;

/// What an image is like.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Kind of every checksum.
    pub checksum_kind: ChecksumKind,
    /// Of data.
    pub data_profile: Profile,
    /// Of metadata.
    pub metadata_profile: Profile,
    /// Features.
    pub features: MkfsFeatures,
    /// Mount options.
    pub options: String,
    /// Chooses the UUIDs.
    pub identity: u64,
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe {
            device_bytes: 1 << 30,
            node_size: 16384,
            checksum_kind: ChecksumKind::Crc32c,
            data_profile: Profile::Single,
            metadata_profile: Profile::Dup,
            features: MkfsFeatures::default(),
            options: String::new(),
            identity: 0,
        }
    }
}

impl Recipe {
    /// One of many recipes; every feature and size comes now and then.
    pub fn of_seed(seed: u64) -> Self {
        let random = SeededRandom::new(seed ^ 0x5eed);
        let below = |bound: u64| random.next_u64() % bound;
        let kinds =
            [ChecksumKind::Crc32c, ChecksumKind::Xxhash64, ChecksumKind::Sha256, ChecksumKind::Blake2b];
        let mut features = MkfsFeatures::default();
        match below(6) {
            0 => features.block_group_tree = false,
            1 => (features.block_group_tree, features.free_space_tree) = (false, false),
            2 => (features.block_group_tree, features.no_holes) = (false, false),
            3 => features.skinny_metadata = false,
            _ => {}
        }
        let options = [
            "",
            "compress=zstd",
            "compress-force=lzo",
            "compress=zlib",
            "max_inline=0",
            "flushoncommit",
            "nodatacow",
            "discard",
        ];
        Recipe {
            device_bytes: [512, 1024, 1536][below(3) as usize] << 20,
            node_size: [4096, 16384, 16384, 65536][below(4) as usize],
            checksum_kind: kinds[below(8).saturating_sub(4) as usize],
            data_profile: if below(6) == 0 { Profile::Dup } else { Profile::Single },
            metadata_profile: if below(3) == 0 { Profile::Single } else { Profile::Dup },
            features,
            options: options[below(8) as usize].to_owned(),
            identity: 0,
        }
    }

    fn parameters(&self) -> MkfsParameters {
        let random = SeededRandom::new(self.device_bytes ^ self.identity);
        let uuid = || Uuid(random.uuid());
        MkfsParameters {
            label: Label::EMPTY,
            uuids: MkfsUuids { fsid: uuid(), chunk_tree: uuid(), device: uuid(), top_level: uuid() },
            device_bytes: self.device_bytes,
            sector_size: 4096,
            node_size: self.node_size,
            checksum_kind: self.checksum_kind,
            data_profile: self.data_profile,
            metadata_profile: self.metadata_profile,
            features: self.features,
            time: Timestamp { seconds: 1_700_000_000, nanoseconds: 0 },
        }
    }

    /// Writes an empty file system to a device.
    ///
    /// # Panics
    /// If it can't be made.
    pub fn write_to(&self, device: &dyn Device) {
        let image = match make(&self.parameters()) {
            Ok(image) => image,
            Err(error) => panic!("{self:?}: {error}"),
        };
        if let Err(error) = image.write_to(device) {
            panic!("{self:?}: {error}");
        }
    }

    /// A device in memory that holds an empty file system.
    pub fn in_memory(&self) -> MemoryDevice {
        let device = MemoryDevice::new(self.device_bytes);
        self.write_to(&device);
        device
    }

    /// An empty file system in a file. Its UUIDs are chosen by the path too: tests that run at the same time
    /// show their images to one kernel, which mounts a second one of the same UUID as a clone that takes no
    /// further devices.
    ///
    /// # Panics
    /// If the file can't be made.
    pub fn in_file(&self, path: &Path) {
        let mut hasher = DefaultHasher::new();
        (self.identity, path).hash(&mut hasher);
        let unique = Recipe { identity: hasher.finish(), ..self.clone() };
        unique.write_to(&*open_image(path, self.device_bytes));
    }
}

/// A file as a device; made where it does not exist.
///
/// # Panics
/// If it can't be opened.
pub fn open_image(path: &Path, device_bytes: u64) -> Arc<dyn Device> {
    if !path.exists() {
        let made = std::fs::File::create(path).and_then(|file| file.set_len(device_bytes));
        assert!(made.is_ok(), "{}: {made:?}", path.display());
    }
    match FileDevice::open(path, &OpenOptions::writer()) {
        Ok(device) => Arc::new(device),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::Recipe;
    use crate::Scratch;

    /// Where a superblock has its fsid.
    const FSID: std::ops::Range<usize> = 65_568..65_584;

    #[test]
    fn no_two_files_have_one_uuid() {
        let scratch = Scratch::new("uuids");
        let recipe = Recipe { device_bytes: 256 << 20, ..Recipe::default() };
        let fsids = ["first", "second"].map(|name| {
            recipe.in_file(&scratch.join(name));
            std::fs::read(scratch.join(name)).unwrap()[FSID].to_vec()
        });
        assert_ne!(fsids[0], fsids[1]);
    }
}
