//! What is said on the socket, version 1. Every message is one JSON object with the member `schema`; a server
//! that does not know the schema of a request says so and closes.
//!
//! Paths lead from the root of the mount and have no leading slash; the empty path is that root itself.

use serde::{Deserialize, Serialize};

use vlinder_fs::Condition;
use vlinder_transaction::ReadOnlyReason;

use crate::ErrorBody;
pub use crate::file_records::FileRun;
use crate::limits::as_printable;
pub use crate::mount_records::{LeasedDevice, MountInformation};
pub use crate::name::Name;
use crate::received_numbers::power_of_two;
pub use crate::stream_records::{PartialRecord, ReceiveRequest, ReceivedSubvolume};
pub use crate::trim_records::{TrimPlace, TrimRecord};

/// The schema of the messages below.
pub const SCHEMA: &str = "vlinder.control/1";

/// The longest range of one [`Request::FileDedupe`], in bytes (`BTRFS_MAX_DEDUPE_LEN` of Linux): both files
/// are locked while it is compared, and a hole may be as long as a file can be.
pub const MAX_DEDUPE_BYTES: u64 = 16 << 20;

/// Which subvolume: the one that a path lies in or leads to, or the one of a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubvolumeTarget {
    /// The one whose root directory this path leads to.
    Path(Name),
    /// The one of this number.
    Number(u64),
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// Asks for the server's process, and what it serves: [`Answer::Mount`].
    Mount,
    /// Makes a subvolume: [`Answer::Subvolume`].
    SubvolumeCreate {
        /// Where; its directory exists, its name does not.
        path: Name,
        /// The client's umask.
        umask: u32,
    },
    /// Makes a snapshot: [`Answer::Subvolume`].
    SubvolumeSnapshot {
        /// Of what: a path to the root of a subvolume.
        source: Name,
        /// Where; its directory exists, its name does not.
        path: Name,
        /// It takes no changes.
        read_only: bool,
    },
    /// Deletes a subvolume; its blocks are freed later: [`Answer::Subvolume`].
    SubvolumeDelete {
        /// Which.
        target: SubvolumeTarget,
        /// The deletion is durable when the answer comes.
        commit: bool,
    },
    /// Makes or deletes the subvolume of a path by a system call of the client's, so that the kernel tells
    /// those who watch the directory: [`Answer::Expected`]. Then the client's process calls mkdir(2) or
    /// rmdir(2) there, and asks for [`Request::CallOutcome`]. The connection that asks is the only one that
    /// may.
    ByCall {
        /// [`Request::SubvolumeCreate`], [`Request::SubvolumeSnapshot`], or [`Request::SubvolumeDelete`] of a
        /// path.
        request: Box<Request>,
    },
    /// What became of that: the answer to what was asked, an error, or [`Answer::NotCalled`].
    CallOutcome,
    /// All subvolumes by number, deleted ones whose blocks are not all freed too: [`Answer::Subvolumes`]. For
    /// root and the mount's owner.
    SubvolumeList,
    /// One subvolume: [`Answer::Subvolume`].
    SubvolumeShow {
        /// Which.
        target: SubvolumeTarget,
    },
    /// Which subvolume a mount without `subvol=` shows from now on: [`Answer::Done`].
    SubvolumeSetDefault {
        /// Which.
        target: SubvolumeTarget,
    },
    /// That subvolume: [`Answer::Subvolume`].
    SubvolumeGetDefault,
    /// Answers when these deleted subvolumes (all that there are, if none is named) are wholly gone:
    /// [`Answer::Freed`].
    SubvolumeSync {
        /// Their numbers.
        numbers: Vec<u64>,
    },
    /// Makes all that was done durable, the kernel's dirty pages too: [`Answer::Synced`].
    FilesystemSync,
    /// Gives free space back to the host, for a part of a second: [`Answer::Trimmed`]. For root and the
    /// mount's owner.
    Fstrim {
        /// From where; at the beginning, none, a commit is made first.
        from: Option<TrimPlace>,
    },
    /// The kernel was told to show the file system read-only, or writable again: makes all durable, and
    /// reading moves no access times meanwhile: [`Answer::Synced`]. For root and the mount's owner.
    Remounted {
        /// How it is shown now.
        read_only: bool,
    },
    /// Space by kind: [`Answer::Space`].
    FilesystemDf,
    /// Space by kind and device: [`Answer::Space`].
    FilesystemUsage,
    /// The label: [`Answer::Label`].
    LabelGet,
    /// Sets the label: [`Answer::Done`]. For root and the mount's owner.
    LabelSet {
        /// The new one.
        label: Name,
    },
    /// A property (`ro`, `compression`): [`Answer::Property`].
    PropertyGet {
        /// Of what.
        path: Name,
        /// Which.
        name: String,
    },
    /// Sets a property: [`Answer::Done`].
    PropertySet {
        /// Of what.
        path: Name,
        /// Which.
        name: String,
        /// To what; empty removes it where it can be without.
        value: Name,
        /// Even where that is dangerous (`ro` of a received subvolume).
        force: bool,
    },
    /// The subvolume that a path lies in: [`Answer::Root`].
    RootId {
        /// Which path.
        path: Name,
    },
    /// The names of an inode of the subvolume that a path lies in: [`Answer::Paths`]. For root and the
    /// mount's owner, since the directories on the way are not asked whether they may be searched.
    InodeResolve {
        /// Which path.
        path: Name,
        /// The inode's number in that subvolume.
        inode: u64,
    },
    /// Where the bytes of a file lie, from an offset on: [`Answer::FileMap`]. For who may read it.
    FileMap {
        /// Which file.
        path: Name,
        /// From where, in bytes; what the kernel has cached is handed over at 0.
        from: u64,
    },
    /// Makes a range of a file share the extents of another's if both show the same bytes:
    /// [`Answer::Deduped`]. For who may give both files to FIDEDUPERANGE.
    FileDedupe {
        /// The file whose extents stay.
        source: Name,
        /// Where its range begins, in bytes.
        source_offset: u64,
        /// The file that is to share them; it may lie in a read-only snapshot.
        path: Name,
        /// Where its range begins, in bytes.
        offset: u64,
        /// The bytes of both ranges, [`MAX_DEDUPE_BYTES`] at most.
        length: u64,
    },
    /// Counters and histograms: [`Answer::Statistics`].
    Statistics,
    /// Commits, and keeps the committed state on the devices so that the client can read it there:
    /// [`Answer::Leased`]. Until the connection ends, or another lease is asked for on it. For root and the
    /// mount's owner.
    Lease,
    /// Whether all that was read until now is of the leased state: [`Answer::Done`], or an error of the kind
    /// `busy` where the lease was revoked.
    LeaseConfirm,
    /// Makes subvolumes of streams in a directory: [`Answer::Ready`]; then the client hands the streams over,
    /// and gets [`Answer::Received`] or an error. For root and the mount's owner: owners, devices and trusted
    /// attributes are in what they make.
    Receive {
        /// The directory that the subvolumes go to.
        directory: Name,
        /// How.
        #[serde(flatten)]
        how: ReceiveRequest,
    },
    /// What was received in part in a directory: [`Answer::Parts`]. For root and the mount's owner.
    ReceiveParts {
        /// The directory.
        directory: Name,
    },
    /// Removes what was received in part of a subvolume: [`Answer::Done`]. For root and the mount's owner.
    ReceiveDiscard {
        /// The directory.
        directory: Name,
        /// The name that the subvolume was to have.
        name: Name,
    },
    /// Commits, so that unmounting is quick: [`Answer::Prepared`]; then, once the mount has ended,
    /// [`Answer::Finished`] or an error. For root and the mount's owner.
    Unmount,
}

/// What the server says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// All is durable.
    Synced {
        /// The generation that holds it.
        generation: u64,
    },
    /// The next system call of the client's process at that path does what was asked.
    Expected,
    /// No call came, and nothing was done.
    NotCalled,
    /// The process that serves the mount, and what it serves.
    Mount(MountInformation),
    /// A subvolume.
    Subvolume(SubvolumeRecord),
    /// All subvolumes.
    Subvolumes {
        /// By number; the top level is among them.
        subvolumes: Vec<SubvolumeRecord>,
    },
    /// Space.
    Space(SpaceRecord),
    /// Deleted subvolumes that are wholly gone.
    Freed {
        /// Their numbers.
        numbers: Vec<u64>,
    },
    /// Paths.
    Paths {
        /// From the root of a subvolume, without a leading slash.
        paths: Vec<Name>,
    },
    /// Free space that was given back.
    Trimmed(TrimRecord),
    /// The label.
    Label {
        /// It.
        label: Name,
    },
    /// A property.
    Property {
        /// Its value; none where it is not set.
        value: Option<Name>,
    },
    /// The subvolume that a path lies in.
    Root {
        /// Its number.
        number: u64,
    },
    /// Where the bytes of a file lie.
    FileMap {
        /// The file's size.
        size_bytes: u64,
        /// The file system's sector size: a power of two.
        #[serde(deserialize_with = "power_of_two")]
        block_bytes: u64,
        /// The next runs, in order; the file has no more if there are none, or one of them is the last.
        runs: Vec<FileRun>,
    },
    /// Whether both ranges show the same bytes, and share them from now on.
    Deduped {
        /// They do.
        is_same: bool,
    },
    /// Counters and histograms.
    Statistics {
        /// By name.
        metrics: Vec<Metric>,
        /// How the file system fares.
        #[serde(default)]
        condition: ConditionRecord,
    },
    /// A committed state.
    Leased {
        /// Its generation.
        generation: u64,
        /// The members.
        devices: Vec<LeasedDevice>,
    },
    /// The client is to hand over what the request is about, in chunks: four bytes of length, little-endian,
    /// and so many bytes; a chunk of no length ends them.
    Ready,
    /// Subvolumes that were made of streams.
    Received {
        /// In the order of the streams.
        subvolumes: Vec<ReceivedSubvolume>,
        /// What was not applied although nothing is wrong with it.
        #[serde(deserialize_with = "as_printable::list", default)]
        warnings: Vec<String>,
        /// Commands that could not be applied, where the client allowed that.
        #[serde(deserialize_with = "as_printable::list", default)]
        errors: Vec<String>,
    },
    /// What was received in part.
    Parts {
        /// By directory, in no order.
        parts: Vec<PartialRecord>,
    },
    /// The commit is done, the mount may end.
    Prepared {
        /// The process that serves it.
        process: u32,
        /// All that was written before is durable. Otherwise the mount's end says what is not.
        #[serde(default)]
        is_durable: bool,
    },
    /// The mount has ended and all is durable.
    Finished,
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Since 1970.
    pub seconds: i64,
    /// And so many nanoseconds.
    pub nanoseconds: u32,
}

/// A subvolume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubvolumeRecord {
    /// Its number.
    pub number: u64,
    /// The subvolume that its name lies in; none for the top level.
    pub parent: Option<u64>,
    /// The directory in the parent that its name lies in.
    pub directory: Option<u64>,
    /// Its name; empty for the top level.
    pub name: Name,
    /// Its path from the top level; empty for the top level.
    pub path: Name,
    /// The generation of its last change.
    pub generation: u64,
    /// The generation that it was made in.
    pub creation_generation: u64,
    /// Its flags, as the root item has them.
    pub flags: u64,
    /// It takes no changes.
    pub read_only: bool,
    /// It was deleted, and its blocks are not all freed yet.
    pub deleted: bool,
    /// Its UUID.
    #[serde(deserialize_with = "as_printable::text")]
    pub uuid: String,
    /// Of what it is a snapshot.
    #[serde(deserialize_with = "as_printable::option", default)]
    pub parent_uuid: Option<String>,
    /// What it was received as.
    #[serde(deserialize_with = "as_printable::option", default)]
    pub received_uuid: Option<String>,
    /// When it was made.
    pub creation_time: Time,
    /// The generation of the last change that counts for sending.
    pub change_generation: u64,
    /// The sender's generation, of a received subvolume.
    pub send_generation: u64,
    /// When it was sent.
    pub send_time: Time,
    /// The generation in which it was received.
    pub receive_generation: u64,
    /// When it was received.
    pub receive_time: Time,
    /// Its snapshots, by number; filled where one subvolume was asked for.
    #[serde(default)]
    pub snapshots: Vec<u64>,
}

/// How full the file system is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceRecord {
    /// By content and profile.
    pub kinds: Vec<SpaceKind>,
    /// Bytes of the devices that belong to no chunk.
    pub unallocated_bytes: u64,
    /// Bytes of all devices.
    pub device_bytes: u64,
    /// Metadata that the server keeps free for commits, deletions and trees.
    pub global_reserve_bytes: u64,
    /// What Linux would keep free in its place, which is what its tools show.
    pub linux_reserve_bytes: u64,
    /// Bytes that new data can take.
    pub data_available_bytes: u64,
    /// A chunk for metadata can be made.
    pub can_make_metadata: bool,
    /// The members, those that are missing among them.
    pub devices: Vec<SpaceDevice>,
    /// What chunks have on each of them. An older server tells nothing of it.
    #[serde(default)]
    pub shares: Vec<SpaceShare>,
    /// How the file system fares.
    #[serde(default)]
    pub condition: ConditionRecord,
}

/// What keeps the file system from storing what it is given. A server that tells nothing of it is an older
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConditionRecord {
    /// Why it takes no changes; none where it takes them, or was mounted so that it does not.
    #[serde(deserialize_with = "as_printable::option", default)]
    pub read_only: Option<String>,
    /// The host has no space for the image.
    pub is_host_full: bool,
    /// Bytes in memory that were accepted and found no room when that was tried last.
    pub held_bytes: u64,
    /// Bytes from the kernel's cache for which there was no room in memory either, since the mount began.
    pub lost_bytes: u64,
    /// The last commit that failed since the mount began.
    pub failed_commit: Option<FailedCommitRecord>,
}

/// A commit that did not make durable all that it was to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCommitRecord {
    /// When the first of a row of equal failures came.
    pub time: Time,
    /// The transaction that was running then.
    pub generation: u64,
    /// What went wrong.
    #[serde(deserialize_with = "as_printable::text")]
    pub reason: String,
    /// How many failed for this reason, one after the other.
    pub count: u64,
    /// A later commit made everything durable.
    pub is_over: bool,
}

impl From<&Condition> for ConditionRecord {
    fn from(condition: &Condition) -> Self {
        let failed = condition.failed_commit.as_ref().map(|failed| FailedCommitRecord {
            time: Time { seconds: failed.time.seconds, nanoseconds: failed.time.nanoseconds },
            generation: failed.generation.0,
            reason: failed.reason.clone(),
            count: failed.count,
            is_over: failed.is_over,
        });
        let was_asked_for = |reason: &&ReadOnlyReason| **reason == ReadOnlyReason::Requested;
        let read_only = condition.read_only.as_ref().filter(|reason| !was_asked_for(reason));
        Self {
            read_only: read_only.map(ToString::to_string),
            is_host_full: condition.is_host_full,
            held_bytes: condition.held_bytes,
            lost_bytes: 0,
            failed_commit: failed,
        }
    }
}

/// The groups of one content and profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceKind {
    /// Content and profile, as the disk's block group flags.
    pub flags: u64,
    /// Bytes of logical address space.
    pub total_bytes: u64,
    /// Bytes of it that hold something; not what only waits for a commit to be free, or is held for later.
    pub used_bytes: u64,
}

/// A member device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceDevice {
    /// Its number.
    pub number: u64,
    /// The file or block device.
    pub path: Name,
    /// Its bytes.
    pub total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub allocated_bytes: u64,
    /// It was not given when the file system was opened.
    #[serde(default)]
    pub is_missing: bool,
}

/// What the chunks of one type and number of stripes have on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceShare {
    /// Content and profile, as the disk's block group flags.
    pub flags: u64,
    /// The device's number.
    pub device: u64,
    /// How many stripes each of the chunks has.
    pub stripe_count: u16,
    /// Bytes of logical address space of the chunks, once for each stripe on the device.
    pub chunk_bytes: u64,
}

/// A counter, gauge or histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name, `part.what`.
    #[serde(deserialize_with = "as_printable::text")]
    pub name: String,
    /// One sentence.
    #[serde(deserialize_with = "as_printable::text")]
    pub help: String,
    /// What its numbers count.
    #[serde(deserialize_with = "as_printable::text")]
    pub unit: String,
    /// The device that they are about, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    /// Its numbers.
    #[serde(flatten)]
    pub value: MetricValue,
}

/// The numbers of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum MetricValue {
    /// Only grows.
    Counter {
        /// Its value.
        value: u64,
    },
    /// Goes up and down.
    Gauge {
        /// Its value.
        value: i64,
    },
    /// Many values.
    Histogram {
        /// How many.
        count: u64,
        /// Their sum.
        sum: u64,
        /// The largest.
        maximum: u64,
        /// For each bucket that is not empty, the largest value that falls into it and how many did.
        buckets: Vec<(u64, u64)>,
    },
}

/// A request as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMessage {
    /// [`SCHEMA`].
    pub schema: String,
    /// The number of the mount by way of which the client came, as its `/proc/self/mountinfo` has it: one
    /// that is read-only takes no changes, though another of the same file system may. An older client names
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<u64>,
    /// What is asked.
    pub request: serde_json::Value,
}

/// An answer as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerMessage {
    /// [`SCHEMA`].
    #[serde(deserialize_with = "as_printable::text")]
    pub schema: String,
    /// How it went.
    pub result: Outcome,
}

/// How a request went.
#[allow(clippy::large_enum_variant, reason = "one lives at a time, and only to be written or read")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Well.
    Answer(Answer),
    /// Not.
    Error(ErrorBody),
}

impl From<Result<Answer, ErrorBody>> for AnswerMessage {
    fn from(result: Result<Answer, ErrorBody>) -> Self {
        let result = match result {
            Ok(answer) => Outcome::Answer(answer),
            Err(error) => Outcome::Error(error),
        };
        Self { schema: SCHEMA.to_owned(), result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_whatever_their_bytes() {
        for bytes in [&b"plain"[..], b"", b"\xff\xfe\x00a", "d\u{fc}n".as_bytes()] {
            let name = Name(bytes.to_vec());
            let text = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<Name>(&text).unwrap(), name, "{text}");
        }
        assert_eq!(serde_json::to_string(&Name(b"\xff\x0a".to_vec())).unwrap(), r#"{"hex":"ff0a"}"#);
        assert!(serde_json::from_str::<Name>(r#"{"hex":"f"}"#).is_err());
        assert!(serde_json::from_str::<Name>(r#"{"hex":"zz"}"#).is_err());
    }

    #[test]
    fn the_wire_form_of_version_1_is_fixed() {
        let request = Request::SubvolumeSnapshot { source: "a".into(), path: "b/c".into(), read_only: true };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"verb":"subvolume-snapshot","source":"a","path":"b/c","read_only":true}"#);
        let request = Request::SubvolumeDelete { target: SubvolumeTarget::Number(256), commit: false };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"verb":"subvolume-delete","target":{"number":256},"commit":false}"#);
        let place = TrimPlace::Unallocated { device: 1, offset_bytes: 2 };
        let text = serde_json::to_string(&Request::Fstrim { from: Some(place) }).unwrap();
        assert_eq!(text, r#"{"verb":"fstrim","from":{"unallocated":{"device":1,"offset_bytes":2}}}"#);
        let record = TrimRecord { group_bytes: 3, unallocated_bytes: 4, refused_bytes: 5, next: None };
        let text = serde_json::to_string(&Answer::Trimmed(record)).unwrap();
        let expected =
            r#"{"answer":"trimmed","group_bytes":3,"unallocated_bytes":4,"refused_bytes":5,"next":null}"#;
        assert_eq!(text, expected);
        let answer = AnswerMessage::from(Ok(Answer::Synced { generation: 9 }));
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(
            text,
            r#"{"schema":"vlinder.control/1","result":{"answer":{"answer":"synced","generation":9}}}"#
        );
        assert_eq!(serde_json::from_str::<AnswerMessage>(&text).unwrap(), answer);
    }

    #[test]
    fn metrics_come_back() {
        let value = MetricValue::Histogram { count: 2, sum: 5, maximum: 4, buckets: vec![(1, 1), (7, 1)] };
        for device in [None, Some(7)] {
            let (name, help, unit, value) = ("a.b".into(), "H.".into(), "bytes".into(), value.clone());
            let metric = Metric { name, help, unit, device, value };
            let text = serde_json::to_string(&metric).unwrap();
            assert_eq!(serde_json::from_str::<Metric>(&text).unwrap(), metric);
        }
    }
}
