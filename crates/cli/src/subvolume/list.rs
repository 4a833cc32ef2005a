//! `subvolume list`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::json;
use vlinder_format::RootId;
use vlinder_fs::SubvolumeInformation;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::Object;
use vlinder_places::session::Session;
use vlinder_places::target::Follow;
use vlinder_places::times::local_time;
use vlinder_places::values::Choice;

use super::facts::{described, parent, path_of, uuid_or_dash};

/// List subvolumes and snapshots.
///
/// Without -o and -a, what lies below the target's subvolume is shown from there, all else from the top
/// level.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder subvolume list -s disk.img:/")]
pub struct SubvolumeListArguments {
    /// Only those right below the target's subvolume.
    #[arg(short = 'o')]
    only_below: bool,
    /// All; a path that does not lie in the target's subvolume gets <FS_TREE>/ before it.
    #[arg(short)]
    all: bool,
    #[command(flatten)]
    columns: ColumnArguments,
    #[command(flatten)]
    kinds: KindArguments,
    /// Print a table.
    #[arg(short)]
    table: bool,
    /// Only of this generation, or from +N up, or up to -N.
    #[arg(short = 'G', value_name = "[+|-]N", value_parser = Bound::parse, allow_hyphen_values = true)]
    by_generation: Option<Bound>,
    /// Only made in this transaction, or from +N up, or up to -N.
    #[arg(short = 'C', value_name = "[+|-]N", value_parser = Bound::parse, allow_hyphen_values = true)]
    by_creation: Option<Bound>,
    /// Sort by gen, ogen, rootid or path, joined by commas, each with - for descending.
    #[arg(long, value_name = "KEYS", value_delimiter = ',', value_parser = Choice::new(&["gen", "ogen", "rootid", "path"], SortKey::parse), hide_possible_values = true, allow_hyphen_values = true)]
    sort: Vec<SortKey>,
    /// Mount options: subvol=PATH, subvolid=N …. (-o has its meaning of btrfs-progs here.)
    #[arg(long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// A further device of the image's file system; may be given several times.
    #[arg(short = 'D', long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// The image, or IMAGE:/PATH.
    target: OsString,
}

/// What is shown of each subvolume.
#[derive(Args, Debug)]
struct ColumnArguments {
    /// Show the number of the subvolume that holds each.
    #[arg(short)]
    parent: bool,
    /// Show the transaction that made each.
    #[arg(short = 'c')]
    creation: bool,
    /// Show the transaction of each one's root. (It is always shown; kept for scripts.)
    #[arg(short)]
    generation: bool,
    /// Show UUIDs.
    #[arg(short)]
    uuid: bool,
    /// Show the UUIDs of what they are snapshots of.
    #[arg(short = 'q')]
    parent_uuid: bool,
    /// Show the UUIDs of what they were received from.
    #[arg(short = 'R')]
    received_uuid: bool,
}

/// Which kinds of subvolumes are shown.
#[derive(Args, Debug)]
struct KindArguments {
    /// Only snapshots.
    #[arg(short)]
    snapshots: bool,
    /// Only those that can't be written.
    #[arg(short)]
    read_only: bool,
    /// Only deleted ones whose blocks are not all freed yet.
    #[arg(short)]
    deleted: bool,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    Exactly(u64),
    AtLeast(u64),
    AtMost(u64),
}

impl Bound {
    fn parse(text: &str) -> Result<Self, String> {
        let (make, digits): (fn(u64) -> Self, &str) = match text.as_bytes().first() {
            Some(b'+') => (Self::AtLeast, &text[1..]),
            Some(b'-') => (Self::AtMost, &text[1..]),
            _ => (Self::Exactly, text),
        };
        digits.parse().map(make).map_err(|_| format!("{text:?} is no number"))
    }

    fn admits(self, value: u64) -> bool {
        match self {
            Self::Exactly(bound) => value == bound,
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SortKey {
    by: By,
    descending: bool,
}

#[derive(Clone, Copy, Debug)]
enum By {
    Generation,
    Creation,
    Number,
    Path,
}

impl SortKey {
    fn parse(text: &str) -> Result<Self, String> {
        let (descending, name) = match text.as_bytes().first() {
            Some(b'+') => (false, &text[1..]),
            Some(b'-') => (true, &text[1..]),
            _ => (false, text),
        };
        let by = match name {
            "gen" => By::Generation,
            "ogen" => By::Creation,
            "rootid" => By::Number,
            "path" => By::Path,
            _ => return Err(format!("{name:?} is none of gen, ogen, rootid, path")),
        };
        Ok(Self { by, descending })
    }

    fn compare(self, left: &Listed, right: &Listed) -> std::cmp::Ordering {
        let (one, other) = (&left.subvolume, &right.subvolume);
        let order = match self.by {
            By::Generation => one.generation.cmp(&other.generation),
            By::Creation => one.creation_transaction.cmp(&other.creation_transaction),
            By::Number => one.id.cmp(&other.id),
            By::Path => left.path.cmp(&right.path),
        };
        if self.descending { order.reverse() } else { order }
    }
}

/// A subvolume of the list.
struct Listed {
    subvolume: SubvolumeInformation,
    /// As it is shown: from the top level or from the target's subvolume.
    path: Vec<u8>,
}

/// Runs the verb.
pub fn run(arguments: &SubvolumeListArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let of_images = ImageArguments::new(&arguments.options, &arguments.devices);
    let images = Images::new(&of_images)?;
    let object = Object::find(&images, &arguments.target, Purpose::Read, Follow::Yes)?;
    let here = object.root()?;
    let found = object.subvolumes()?;
    images.close()?;
    let parents: BTreeMap<u64, u64> = found.iter().map(|one| (one.id.0, parent(one))).collect();
    let top = found.iter().find(|subvolume| subvolume.id == here).map(|subvolume| subvolume.path.clone());
    let mut chosen: Vec<Listed> = found
        .into_iter()
        .filter(|subvolume| is_chosen(subvolume, arguments, here))
        .map(|subvolume| {
            let is_relative = !arguments.all && !arguments.only_below && is_below(&subvolume, here, &parents);
            let top = top.as_deref().filter(|_| is_relative);
            Listed { path: shown_path(&subvolume, arguments, here, top), subvolume }
        })
        .collect();
    chosen.sort_by(|left, right| {
        let orders = arguments.sort.iter().map(|key| key.compare(left, right));
        orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    if session.json {
        let subvolumes: Vec<_> = chosen.iter().map(|listed| described(&listed.subvolume)).collect();
        session.object(json!({ "subvolumes": subvolumes }))?;
        return Ok(ExitStatus::Done);
    }
    let zone = TimeZone::system();
    let columns = Column::of(arguments);
    if arguments.table {
        return table(&columns, &chosen, session, &zone).map(|()| ExitStatus::Done);
    }
    for listed in &chosen {
        let cell = |column: &Column| {
            [column.title().as_bytes(), b" ", &column.value(listed, session, &zone)].concat()
        };
        let cells: Vec<Vec<u8>> = columns.iter().map(cell).collect();
        session.bytes(&cells.join(&b' '))?;
        session.line("")?;
    }
    Ok(ExitStatus::Done)
}

/// Whether a subvolume lies in another, at any depth.
fn is_below(subvolume: &SubvolumeInformation, here: RootId, parents: &BTreeMap<u64, u64>) -> bool {
    let mut above = parent(subvolume);
    // Damaged references may lead round; no way up is longer than all subvolumes.
    for _ in 0..=parents.len() {
        if above == here.0 {
            return true;
        }
        match parents.get(&above) {
            Some(next) => above = *next,
            None => return false,
        }
    }
    false
}

/// The path as btrfs-progs shows it; `top` is that of the subvolume from which it is to be shown, if not the
/// top level.
fn shown_path(
    subvolume: &SubvolumeInformation,
    arguments: &SubvolumeListArguments,
    here: RootId,
    top: Option<&[u8]>,
) -> Vec<u8> {
    if subvolume.is_deleted {
        return b"DELETED".to_vec();
    }
    let path = path_of(subvolume);
    if arguments.all && parent(subvolume) != here.0 {
        return [b"<FS_TREE>/", &*path].concat();
    }
    let below = top.and_then(|top| path.strip_prefix(top)?.strip_prefix(b"/"));
    below.unwrap_or(&path).to_vec()
}

fn is_chosen(subvolume: &SubvolumeInformation, arguments: &SubvolumeListArguments, here: RootId) -> bool {
    subvolume.id != RootId::FS_TREE
        && subvolume.is_deleted == arguments.kinds.deleted
        && (!arguments.only_below || parent(subvolume) == here.0)
        && (!arguments.kinds.snapshots || !subvolume.parent_uuid.is_nil())
        && (!arguments.kinds.read_only || subvolume.is_read_only)
        && arguments.by_generation.is_none_or(|bound| bound.admits(subvolume.generation.0))
        && arguments.by_creation.is_none_or(|bound| bound.admits(subvolume.creation_transaction.0))
}

/// What a line tells of a subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Number,
    Generation,
    Creation,
    Parent,
    TopLevel,
    CreationTime,
    ParentUuid,
    ReceivedUuid,
    Uuid,
    Path,
}

impl Column {
    /// Those that are asked for, in btrfs-progs' order.
    fn of(arguments: &SubvolumeListArguments) -> Vec<Self> {
        let (asked, kinds) = (&arguments.columns, &arguments.kinds);
        let all = [
            (Self::Number, true),
            (Self::Generation, true),
            (Self::Creation, asked.creation || kinds.snapshots || arguments.by_creation.is_some()),
            (Self::Parent, asked.parent),
            (Self::TopLevel, true),
            (Self::CreationTime, kinds.snapshots),
            (Self::ParentUuid, asked.parent_uuid),
            (Self::ReceivedUuid, asked.received_uuid),
            (Self::Uuid, asked.uuid),
            (Self::Path, true),
        ];
        all.into_iter().filter(|(_, is_shown)| *is_shown).map(|(column, _)| column).collect()
    }

    fn title(self) -> &'static str {
        match self {
            Self::Number => "ID",
            Self::Generation => "gen",
            Self::Creation => "cgen",
            Self::Parent => "parent",
            Self::TopLevel => "top level",
            Self::CreationTime => "otime",
            Self::ParentUuid => "parent_uuid",
            Self::ReceivedUuid => "received_uuid",
            Self::Uuid => "uuid",
            Self::Path => "path",
        }
    }

    fn value(self, listed: &Listed, session: &Session, zone: &TimeZone) -> Vec<u8> {
        let subvolume = &listed.subvolume;
        let number = |number: u64| number.to_string().into_bytes();
        let identifier = |uuid| format!("{:<36}", uuid_or_dash(uuid)).into_bytes();
        match self {
            Self::Number => number(subvolume.id.0),
            Self::Generation => number(subvolume.generation.0),
            Self::Creation => number(subvolume.creation_transaction.0),
            Self::Parent | Self::TopLevel => number(parent(subvolume)),
            Self::CreationTime => local_time(subvolume.creation_time.seconds, zone).into_bytes(),
            Self::ParentUuid => identifier(subvolume.parent_uuid),
            Self::ReceivedUuid => identifier(subvolume.received_uuid),
            Self::Uuid => identifier(subvolume.uuid),
            Self::Path => session.name(&listed.path),
        }
    }
}

/// Columns separated by tabs, under their titles, which stand there without a subvolume, too.
fn table(columns: &[Column], chosen: &[Listed], session: &Session, zone: &TimeZone) -> Result<(), Failure> {
    let titles: Vec<&str> = columns.iter().map(|column| column.title()).collect();
    session.line(titles.iter().map(|title| format!("{title}\t")).collect::<String>())?;
    session.line(titles.iter().map(|title| format!("{}\t", "-".repeat(title.len()))).collect::<String>())?;
    for listed in chosen {
        for column in columns {
            session.bytes(&column.value(listed, session, zone))?;
            match column {
                Column::Path => {}
                // The title is as wide as two stops.
                Column::TopLevel => session.bytes(b"\t\t")?,
                _ => session.bytes(b"\t")?,
            }
        }
        session.line("")?;
    }
    Ok(())
}
