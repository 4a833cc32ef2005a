//! What can be found: each kind with a stable identifier, a severity and one sentence.

use vlinder_format::inode::{FileType, GroupId, InodeFlags, UserId};
use vlinder_format::quota::QuotaGroupId;
use vlinder_format::{DeviceId, Fault, Generation, ItemType, Key, Logical, ObjectId, Physical, RootId};

use crate::finding_table::finding_kinds;
use crate::severity::Severity;

finding_kinds! {
    /// A superblock copy is damaged or was never written; Linux writes it anew with the next commit.
    Warning "superblock-copy" SuperblockCopy {
        device: String,
        /// Where the copy lies.
        offset: Physical,
        /// Why.
        reason: String,
    } "the superblock copy at {offset} of {device} is damaged: {reason}";
    /// A superblock copy is older than the one that is believed; Linux writes them together.
    Warning "superblock-stale" SuperblockStale {
        device: String,
        /// Where the copy lies.
        offset: Physical,
        /// Its generation.
        found: Generation,
        /// That of the copy that is believed.
        expected: Generation,
    } "the superblock copy at {offset} of {device} is of generation {found}, not {expected}";
    /// The superblock counts other bytes in use than the block groups.
    Error "superblock-bytes-used" SuperblockBytesUsed {
        /// In the superblock.
        found: u64,
        /// By the extents.
        expected: u64,
    } "the superblock counts {found} bytes in use, the extents are {expected}";
    /// The superblock counts other bytes in all than the devices.
    Error "superblock-total-bytes" SuperblockTotalBytes {
        /// In the superblock.
        found: u64,
        /// By the device items.
        expected: u64,
    } "the superblock counts {found} bytes in all, the devices have {expected}";
    /// The superblock names a stripe size that is not its sector size, as nobody makes it. Linux takes any
    /// power of two and uses none; btrfs-progs does not open the file system.
    Error "superblock-stripe-size" SuperblockStripeSize {
        /// In the superblock.
        found: u32,
        /// The sector size.
        expected: u32,
    } "the superblock names stripes of {found} bytes, not of {expected} as its sectors; btrfs-progs does not open it";
    /// The flag of what `btrfs-image -o` restored, which vlinder does not open. Linux does not use it.
    Error "superblock-metadump" SuperblockMetadump {
        /// The superblock's flags.
        flags: u64,
    } "the superblock's flags {flags:#x} have METADUMP, with which btrfs-progs does not read the chunk tree";
    /// No copy of a tree block can be read and believed.
    Error "block-unreadable" BlockUnreadable {
        /// Why.
        reason: String,
    } "the tree block has no good copy: {reason}";
    /// One copy of a tree block is bad; another is good.
    Error "copy-bad" BadCopy {
        device: DeviceId,
        /// Where the copy lies.
        physical: Physical,
        /// Why.
        reason: String,
    } "the copy on device {device} at {physical} is bad: {reason}";
    /// An item breaks the rules of its family.
    Error "item" Item {
        /// Which rule.
        fault: Fault,
    } "{fault}";
    /// A leaf holds keys that belong right of it.
    Error "key-range" KeyRange {
        /// The first key of the block to the right.
        bound: Key,
    } "the key is not below {bound}, where the block to the right begins";
    /// An item of a type that its tree has no use for.
    Error "item-in-wrong-tree" ItemInWrongTree {
        /// The type.
        item_type: ItemType,
    } "no item of the type {item_type} belongs into this tree";
    /// A tree that there must be is missing.
    Error "tree-missing" TreeMissing {
        /// Which.
        tree: RootId,
    } "tree {tree} has no root item";
    /// A tree block is reached from two places of one tree, or from trees that share nothing.
    Error "block-shared" BlockShared {
    } "the block is reached a second time, from a tree that shares none";
    /// Several trees share a block that is newer than the last snapshot of one of them, whose writers take it
    /// for theirs.
    Error "block-shared-since-snapshot" SharedNewer {
        /// The block.
        block: Logical,
        /// Its generation.
        found: Generation,
        /// The generation of the tree's last snapshot.
        last_snapshot: Generation,
    } "block {block} of generation {found} is shared, and the tree's last snapshot is of generation {last_snapshot}: the next writer frees it";
    /// Whom a block belongs to contradicts who leads to it.
    Error "block-owner" BlockOwner {
        /// How.
        reason: &'static str,
    } "the block {reason}";
    /// A block's header has flags that nobody knows or that its tree can't have, or the revision of before
    /// 2009.
    Error "block-flags" BlockFlags {
        /// In its header.
        found: u64,
        /// Of its references; 1 is right.
        revision: u8,
    } "the block has the flags {found:#x} and references of revision {revision}";
    /// A block's extent item is of another generation than the block.
    Error "block-generation" BlockGeneration {
        /// In the item.
        found: Generation,
        /// In the block.
        expected: Generation,
    } "the block's extent item is of generation {found}, the block of {expected}";
    /// A tree block crosses a 64 KiB stripe border, which Linux's scrub cannot read.
    Error "block-crosses-stripe" BlockCrossesStripe {
    } "the block crosses a stripe border";
    /// A chunk that cannot be where it says.
    Error "chunk" Chunk {
        /// First byte.
        logical: Logical,
        /// Why.
        reason: String,
    } "the chunk at {logical} is not possible: {reason}";
    /// A chunk of the superblock's array is not in the chunk tree, or differs there.
    Error "system-chunk" SystemChunk {
        /// First byte.
        logical: Logical,
    } "the system chunk at {logical} of the superblock is not in the chunk tree";
    /// A chunk has no block group.
    Error "chunk-without-group" ChunkWithoutGroup {
        /// First byte.
        logical: Logical,
    } "the chunk at {logical} has no block group";
    /// A block group has no chunk, or one of another size or type.
    Error "group-without-chunk" GroupWithoutChunk {
        /// First byte.
        logical: Logical,
    } "the block group at {logical} has no chunk of its length and type";
    /// A block group counts other bytes in use than its extents have.
    Error "group-used" GroupUsed {
        /// First byte.
        logical: Logical,
        /// In the item.
        found: u64,
        /// By the extents.
        expected: u64,
    } "the block group at {logical} counts {found} bytes in use, its extents are {expected}";
    /// A stripe of a chunk has no device extent.
    Error "stripe-without-device-extent" StripeWithoutDeviceExtent {
        /// The chunk.
        logical: Logical,
        device: DeviceId,
        /// Where the stripe lies.
        physical: Physical,
    } "a stripe of the chunk at {logical} has no device extent at {physical} of device {device}";
    /// A stripe names its device by another UUID than the device has, so that Linux finds no such device.
    Error "stripe-device-uuid" StripeDeviceUuid {
        /// The chunk.
        logical: Logical,
        device: DeviceId,
    } "a stripe of the chunk at {logical} names device {device} by another UUID than the device's item";
    /// A device's item and its superblock name it by different UUIDs, so that Linux finds no such device.
    Error "device-uuid" DeviceUuid {
        device: DeviceId,
    } "the item of device {device} has another UUID than the device's superblock";
    /// A device extent belongs to no stripe.
    Error "device-extent-without-stripe" DeviceExtentWithoutStripe {
        /// The chunk that it names.
        logical: Logical,
        device: DeviceId,
        /// Where it lies.
        physical: Physical,
    } "the device extent at {physical} of device {device} belongs to no stripe of a chunk at {logical}";
    /// A device extent ends behind its device.
    Error "device-extent-outside" DeviceExtentOutside {
        device: DeviceId,
        /// Where it ends.
        end: u64,
        /// Bytes of the device.
        device_bytes: u64,
    } "a device extent ends at {end} of device {device}, which has {device_bytes} bytes";
    /// A device item counts other bytes in use than its device extents have.
    Error "device-used" DeviceUsed {
        device: DeviceId,
        /// In the item.
        found: u64,
        /// By the device extents.
        expected: u64,
    } "device {device} counts {found} bytes in use, its device extents are {expected}";
    /// There is no device item for a device that the superblock or a stripe names.
    Error "device-missing" DeviceMissing {
        device: DeviceId,
    } "device {device} has no device item";
    /// A device was not given; what is on the others was checked.
    Warning "device-absent" DeviceAbsent {
        device: DeviceId,
    } "device {device} is not there; what is on the others was checked";
    /// Of a chunk too many devices are missing: not all of it can be read.
    Error "chunk-unreadable" ChunkUnreadable {
        /// First byte.
        logical: Logical,
    } "parts of the chunk at {logical} lie on devices that are not there alone";
    /// Of a chunk the members that are there and were not away have not all bytes: those without checksums
    /// may be old.
    Warning "chunk-stale" ChunkStale {
        /// The chunk.
        logical: Logical,
    } "parts of the chunk at {logical} are had only from a device that was away: data without checksums may be old";
    /// A device's size is no multiple of the sector size, or another than in its superblock.
    Error "device-size" DeviceSize {
        device: DeviceId,
        /// In the item.
        found: u64,
        /// What is wrong with it.
        reason: &'static str,
    } "device {device} has {found} bytes by its item, {reason}";
    /// An extent overlaps the one before.
    Error "extent-overlap" ExtentOverlap {
        /// Where the one before ends.
        previous_end: Logical,
    } "the extent begins before {previous_end}, where the extent before ends";
    /// An extent lies in no block group, or in one of another content.
    Error "extent-place" ExtentPlace {
        /// First byte.
        logical: Logical,
    } "the extent at {logical} lies in no block group of its content";
    /// The references of an extent do not add up to its count.
    Error "extent-count" ExtentCount {
        /// In the item.
        found: u64,
        /// By the references.
        expected: u64,
    } "the extent counts {found} references and has {expected}";
    /// A reference item stands without its extent item.
    Error "reference-without-extent" ReferenceWithoutExtent {
    } "a back reference without an extent item before it";
    /// An extent is used that has no extent item of this place, length or level.
    Error "extent-missing" ExtentMissing {
        /// First byte.
        logical: Logical,
        /// Bytes.
        length: u64,
        /// The user, as `User` is displayed.
        user: String,
    } "the extent of {length} bytes at {logical} is used by {user} and has no extent item";
    /// An extent has no back reference for one of its users.
    Error "reference-missing" ReferenceMissing {
        /// First byte.
        logical: Logical,
        /// The user, as `User` is displayed.
        user: String,
        /// Uses.
        expected: u64,
        /// Recorded.
        found: u64,
    } "the extent at {logical} is used {expected} times by {user}, and {found} are recorded";
    /// An extent has a back reference that nobody stands behind.
    Error "reference-extra" ReferenceExtra {
        /// First byte.
        logical: Logical,
        /// The user that is recorded.
        user: String,
        /// Uses.
        expected: u64,
        /// Recorded.
        found: u64,
    } "the extent at {logical} records {found} uses by {user}, and there are {expected}";
    /// So many extents differ that not all are listed.
    Error "references-not-listed" ReferencesNotListed {
    } "more extents disagree with their references than are listed";

    /// The free-space tree says otherwise than the extent tree.
    Error "free-space" FreeSpace {
        /// The group.
        group: Logical,
        /// The first byte that is free in one and taken in the other.
        logical: Logical,
        /// Whether the free-space tree calls it free.
        called_free: bool,
    } "in the block group at {group} the free-space tree is wrong from {logical} on, where it says free: {called_free}";
    /// A block group's number of free ranges is wrong.
    Error "free-space-count" FreeSpaceCount {
        /// The group.
        group: Logical,
        /// In the item.
        found: u64,
        /// By the ranges.
        expected: u64,
    } "the block group at {group} counts {found} free ranges and has {expected}";
    /// A block group has no free-space record, or one of another length, or there is one where another group
    /// lies.
    Error "free-space-group" FreeSpaceGroup {
        /// The group.
        group: Logical,
    } "the block group at {group} and the free-space tree do not know each other";
    /// Free space is recorded of a block group that is no more: mkfs.btrfs before 6.3 leaves that, and Linux
    /// never looks.
    Warning "free-space-leftover" FreeSpaceLeftover {
        /// Where the group was.
        group: Logical,
    } "the free-space tree still has a block group at {group}, which is no more";
    /// Free space is recorded outside its group, or in the form that the group does not use.
    Error "free-space-place" FreeSpacePlace {
        /// The group.
        group: Logical,
    } "the record of free space does not belong where it stands, in the block group at {group}";

    /// Checksums of bytes that no data extent has.
    Error "checksum-of-nothing" ChecksumOfNothing {
        /// First byte.
        start: Logical,
        /// Behind the last.
        end: Logical,
    } "the bytes from {start} to {end} have checksums and belong to no data extent";
    /// A file's extent lacks checksums.
    Error "checksum-missing" ChecksumMissing {
        /// First byte.
        start: Logical,
        /// Behind the last.
        end: Logical,
    } "not all bytes from {start} to {end} have checksums";
    /// An extent has checksums that must have none.
    Error "checksum-odd" ChecksumOdd {
        /// First byte.
        start: Logical,
    } "the extent at {start} has checksums though the files that it belongs to have none";
    /// Data differ from their checksum in a copy.
    Error "data-checksum" DataChecksum {
        /// First byte of the sector.
        logical: Logical,
        /// Why.
        reason: String,
    } "the data at {logical} are bad: {reason}";
    /// Compressed data do not unpack to what their file shows, whatever their checksums say.
    Error "data-not-unpacked" DataNotUnpacked {
        /// A file that shows them.
        inode: ObjectId,
        /// Where in the file.
        offset: u64,
        /// Why.
        reason: String,
    } "the compressed data of inode {inode} at offset {offset} can't be unpacked: {reason}";

    /// A root item that is not well: its block is shared with another, or so.
    Error "root" Root {
        /// What.
        reason: &'static str,
    } "{reason}";
    /// A subvolume without a name.
    Error "root-without-reference" RootWithoutReference {
        /// The subvolume.
        root: RootId,
    } "subvolume {root} is not deleted and has no name";
    /// A reference between subvolumes without its counterpart.
    Error "root-reference" RootReference {
        /// The parent.
        parent: RootId,
        /// The child.
        child: RootId,
    } "the two references between subvolumes {parent} and {child} do not agree";
    /// A reference to a subvolume without the directory entries.
    Error "root-name" RootName {
        /// The parent.
        parent: RootId,
        /// The child.
        child: RootId,
    } "the name of subvolume {child} in subvolume {parent} is not in its directory";
    /// A deleted subvolume is not listed for its blocks to be freed.
    Error "root-orphan" RootOrphan {
        /// The subvolume.
        root: RootId,
    } "subvolume {root} is deleted, and no orphan item says that its blocks are to be freed";
    /// A UUID item and its subvolume disagree.
    Warning "uuid" UuidEntry {
        /// The subvolume.
        root: RootId,
    } "the UUID tree and subvolume {root} do not agree";

    /// Items of an inode without its inode item.
    Error "inode-missing" InodeMissing {
        inode: ObjectId,
    } "inode {inode} has items and no inode item";
    /// The number of links differs from the names.
    Error "inode-links" InodeLinks {
        inode: ObjectId,
        /// In the item.
        found: u64,
        /// Names.
        expected: u64,
    } "inode {inode} counts {found} links and has {expected}";
    /// An owner or group of 2^32-1, which no file can be given: chown(2) takes that number as "leave it".
    Warning "inode-owner" InodeOwner {
        inode: ObjectId,
        /// Its owner.
        user: UserId,
        /// Its group.
        group: GroupId,
    } "inode {inode} belongs to user {user} and group {group}, and 4294967295 is no id";
    /// An inode without names is not listed for deletion.
    Error "inode-orphan" InodeOrphan {
        inode: ObjectId,
    } "inode {inode} has no name, and no orphan item says that it is to be deleted";
    /// A directory's size differs from its names.
    Error "directory-size" DirectorySize {
        inode: ObjectId,
        /// In the item.
        found: u64,
        /// By its entries.
        expected: u64,
    } "directory {inode} has size {found}, its names make {expected}";
    /// A directory with several names.
    Error "directory-links" DirectoryLinks {
        inode: ObjectId,
    } "directory {inode} has several names";
    /// A file's bytes differ from its extents.
    Error "inode-bytes" InodeBytes {
        inode: ObjectId,
        /// In the item.
        found: u64,
        /// By its extents.
        expected: u64,
    } "inode {inode} counts {found} bytes, its extents have {expected}";
    /// An item that an inode of this type cannot have.
    Error "inode-odd-item" InodeOddItem {
        inode: ObjectId,
        /// What it is.
        file_type: FileType,
    } "inode {inode}, a {file_type:?}, cannot have this item";
    /// An inode has flags that its type cannot have.
    Error "inode-flags" InodeOddFlags {
        inode: ObjectId,
        /// In the item.
        flags: InodeFlags,
    } "inode {inode}, a symbolic link, has the flags {flags}";
    /// A file's extents overlap.
    Error "file-extent-overlap" FileExtentOverlap {
        inode: ObjectId,
        /// Where the extent before ends.
        previous_end: u64,
    } "the extent of inode {inode} begins before {previous_end}, where the one before ends";
    /// A file has a gap between extents, on a file system where holes are items.
    Error "file-hole" FileHole {
        inode: ObjectId,
        /// Where the gap begins.
        start: u64,
    } "inode {inode} has a gap from byte {start} on, where a hole must be an item";
    /// A file's uncompressed extent counts other bytes than it has.
    Error "file-extent-size" FileExtentSize {
        inode: ObjectId,
        /// In the item.
        ram_bytes: u64,
    } "the extent of inode {inode} shows bytes past the {ram_bytes} that it has";
    /// An extent's item says what no writer writes.
    Error "file-extent-form" FileExtentForm {
        inode: ObjectId,
        /// What.
        reason: &'static str,
    } "the extent of inode {inode} {reason}";
    /// An extent's item is newer than the file system.
    Error "file-extent-generation" FileExtentGeneration {
        inode: ObjectId,
        /// In the item.
        generation: Generation,
    } "the extent of inode {inode} is of generation {generation}, which is still to come";
    /// Something of a name is missing or contradicts the rest.
    Error "name" Name {
        directory: ObjectId,
        /// What the name leads to.
        child: ObjectId,
        /// What is wrong.
        reason: &'static str,
    } "a name in directory {directory} for {child} {reason}";
    /// A name that no file can have: programs that take it for one go round, or out of the directory.
    Warning "name-unusable" NameUnusable {
        directory: ObjectId,
        /// What the name leads to.
        child: ObjectId,
        /// The name, escaped.
        name: String,
    } "directory {directory} has the name \"{name}\" for {child}, which no file can have";
    /// So many names differ that not all are listed.
    Error "names-not-listed" NamesNotListed {
    } "more names disagree with their inodes than are listed";
    /// A place in a directory's index that stands for `.` or `..`: a name there is never listed.
    Error "directory-index" DirectoryIndex {
        directory: ObjectId,
        /// The place.
        index: u64,
    } "directory {directory} has a name at place {index} of its index, where no name can be listed";
    /// Directories that contain each other, so that no path leads to them.
    Error "directory-loop" DirectoryLoop {
        /// The one with the smallest number.
        directory: ObjectId,
    } "directory {directory} lies in itself";
    /// So many directories that their parents were not followed.
    Warning "directories-not-followed" DirectoriesNotFollowed {
    } "there are too many directories to see whether some lie in themselves";
    /// A symbolic link whose size is not that of its target.
    Error "link-size" LinkSize {
        inode: ObjectId,
        /// In the item.
        found: u64,
        /// Bytes of the target.
        expected: u64,
    } "symbolic link {inode} has size {found}, its target {expected} bytes";
    /// Written bytes past a file's end: a crash between a write and its end leaves that, and nobody sees
    /// them.
    Warning "file-past-end" FilePastEnd {
        inode: ObjectId,
        /// Its size.
        size: u64,
    } "inode {inode} has written bytes past its size of {size}";
    /// Subvolumes that contain each other, so that no path leads to them.
    Error "root-loop" RootLoop {
        /// The one with the smallest number.
        root: RootId,
    } "subvolume {root} lies in itself";
    /// So many subvolumes that their parents were not followed.
    Warning "roots-not-followed" RootsNotFollowed {
    } "there are too many subvolumes to see whether some lie in themselves";
    /// A relation between quota groups without its counterpart, or between groups of one level, which could
    /// be a loop.
    Error "quota-relation" QuotaRelation {
        /// The group whose item it is.
        group: QuotaGroupId,
        /// The other.
        other: QuotaGroupId,
        /// What is wrong.
        reason: &'static str,
    } "the relation between quota groups {group} and {other} {reason}";
    /// Nothing says whether groups count: to Linux quotas are off; btrfs-progs judges the groups.
    Error "quota-status-missing" QuotaStatusMissing {
        count: usize,
    } "the quota tree has {count} groups and relations, and no status";
    /// A quota group, in a file system that says that its quotas are right, counts other bytes than its
    /// subvolumes use.
    Error "quota-usage" QuotaUsage {
        /// The group.
        group: QuotaGroupId,
        /// Which of its two numbers.
        what: &'static str,
        /// In the item.
        found: u64,
        /// By the trees.
        expected: u64,
    } "quota group {group} counts {found} bytes that it {what}, and there are {expected}";
    /// There are so many ways to share extents, quota groups, or members of groups that what these use was
    /// not counted.
    Warning "quota-not-counted" QuotaNotCounted {
    } "there are too many quota groups, members of them or ways to share extents to see whether quota groups count right";
    /// A log of what is no subvolume: opening for writing fails.
    Error "log-subvolume" LogSubvolume {
        /// Whose log.
        subvolume: RootId,
        /// Why it can't be.
        reason: &'static str,
    } "there is a log of tree {subvolume}, which {reason}";
    /// The log of a subvolume that is no more: Linux passes it over.
    Warning "log-leftover" LogLeftover {
        /// Whose log.
        subvolume: RootId,
    } "there is a log of subvolume {subvolume}, which is no more";
    /// A log that was not written since the last commit: replaying it would bring back what is over.
    Error "log-generation" LogGeneration {
        /// In its root item.
        found: Generation,
        /// The superblock's and one.
        expected: Generation,
    } "the log is of generation {found}, not {expected}";
    /// An item of a kind that no log holds.
    Error "log-item" LogItem {
        /// The kind.
        item_type: ItemType,
    } "no log holds a {item_type}";
    /// A log speaks of an inode that is not there, or of another type: replaying it fails, or leaves what
    /// fits nothing.
    Error "log-inode" LogInode {
        inode: ObjectId,
        /// What is wrong.
        reason: &'static str,
    } "inode {inode}, of which the log speaks, {reason}";
    /// A block of a log, or data that it refers to, lies where an extent is: it was overwritten, or will be.
    Error "log-in-use" LogInUse {
        /// The first byte.
        start: Logical,
        /// Bytes.
        length: u64,
    } "the log uses {length} bytes at {start}, where other extents are";
    /// A subvolume has no root directory.
    Error "root-directory" RootDirectory {
    } "the subvolume has no root directory";
}
