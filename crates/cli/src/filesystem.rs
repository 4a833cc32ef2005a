//! The family `filesystem`.

mod du;
mod kinds;
mod table;
mod totals;

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};
use serde_json::{Value, json};
use vlinder_control::protocol::ConditionRecord;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_places::condition;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::fullness::{Fullness, ShownDevice};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::Object;
use vlinder_places::place::image::from_fs;
use vlinder_places::progress::Waiting;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::target::Follow;
use vlinder_places::text;
use vlinder_places::units::{UnitArguments, Units};
use vlinder_transaction::SpaceReport;

use self::kinds::{by_content, content, kind_object, profile, sorted};
use self::totals::Totals;

/// The verbs of `filesystem`.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum FilesystemVerb {
    Sync(FilesystemSyncArguments),
    Df(SpaceArguments),
    Usage(UsageArguments),
    Du(du::DuArguments),
    Label(LabelArguments),
}

/// Runs a verb.
pub fn run(verb: &FilesystemVerb, session: &Session) -> Result<ExitStatus, Failure> {
    match verb {
        FilesystemVerb::Sync(arguments) => sync(arguments, session),
        FilesystemVerb::Df(arguments) => df(arguments, session),
        FilesystemVerb::Usage(arguments) => usage(arguments, session),
        FilesystemVerb::Du(arguments) => du::run(arguments, session),
        FilesystemVerb::Label(arguments) => label(arguments, session),
    }
}

/// Make everything durable that was written so far.
///
/// Each verb on an unmounted image does so by itself before it ends; this one is for mounts.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder filesystem sync /mnt")]
pub struct FilesystemSyncArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// A path of a mount, or an image.
    target: OsString,
}

fn sync(arguments: &FilesystemSyncArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let waiting = Waiting::new(session, "writing");
    let generation = match Object::find(&images, &arguments.target, Purpose::Write, Follow::Yes)? {
        Object::Image(named) => {
            let image = named.image();
            image.filesystem.sync().map_err(|error| from_fs(error, &image.label))?.0
        }
        Object::Mounted(mounted) => mounted.sync()?,
    };
    drop(waiting);
    if session.json {
        session.object(json!({ "generation": generation }))?;
    }
    Ok(ExitStatus::Done)
}

/// Show in detail how full the file system is.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "Example:\n  vlinder filesystem usage -T disk.img")]
pub struct UsageArguments {
    /// Show devices and contents as a table.
    #[arg(short = 'T')]
    table: bool,
    #[command(flatten)]
    space: SpaceArguments,
}

/// Show how much space each kind of content takes.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "Example:\n  vlinder filesystem df -b disk.img")]
pub struct SpaceArguments {
    #[command(flatten)]
    units: UnitArguments,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
    #[command(flatten)]
    images: ImageArguments,
    /// The image, or IMAGE:/PATH.
    target: OsString,
}

impl SpaceArguments {
    fn fullness(&self) -> Result<Fullness, Failure> {
        let images = Images::new(&self.images)?;
        let fullness = Object::find(&images, &self.target, Purpose::Read, Follow::Yes)?.fullness()?;
        images.close()?;
        Ok(fullness)
    }
}

fn df(arguments: &SpaceArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let Fullness { report, condition, .. } = arguments.fullness()?;
    let kinds = sorted(&report);
    if session.json {
        let kinds: Vec<Value> = kinds.into_iter().map(kind_object).collect();
        session.object(json!({
            "kinds": kinds,
            "global_reserve_bytes": report.linux_reserve_bytes,
            "condition": condition::object(&condition),
        }))?;
        return Ok(ExitStatus::Done);
    }
    if session.progs_json {
        return df_of_progs(&report, session).map(|()| ExitStatus::Done);
    }
    let units = arguments.units.units();
    for kind in kinds {
        let (total, used) = (units.show(kind.total_bytes), units.show(kind.occupied_bytes()));
        session.line(format!(
            "{}, {}: total={total}, used={used}",
            content(kind.flags),
            profile(kind.flags)
        ))?;
    }
    let (total, used) = (units.show(report.linux_reserve_bytes), units.show(0));
    session.line(format!("GlobalReserve, single: total={total}, used={used}"))?;
    print_condition(&condition, session)?;
    Ok(ExitStatus::Done)
}

/// Behind what btrfs-progs shows, which is all of a file system that fares well.
fn print_condition(condition: &ConditionRecord, session: &Session) -> Result<(), Failure> {
    let lines = condition::lines(condition);
    if !lines.is_empty() {
        session.line("")?;
    }
    lines.into_iter().try_for_each(|line| session.line(line))
}

/// `--format json` of btrfs-progs 6.2: pretty-printed, numbers as strings.
fn df_of_progs(report: &SpaceReport, session: &Session) -> Result<(), Failure> {
    let entry = |(what, how, total, used): (&str, &str, u64, u64)| {
        let fields = [
            ("bg-type", what),
            ("bg-profile", how),
            ("total", &total.to_string()),
            ("used", &used.to_string()),
        ];
        let lines: Vec<String> =
            fields.iter().map(|(name, value)| format!("      \"{name}\": \"{value}\"")).collect();
        format!("    {{\n{}\n    }}", lines.join(",\n"))
    };
    let reserve = ("GlobalReserve", "single", report.linux_reserve_bytes, 0);
    let kinds = sorted(report).into_iter().map(|kind| {
        entry((content(kind.flags), &profile(kind.flags), kind.total_bytes, kind.occupied_bytes()))
    });
    let entries: Vec<String> = kinds.chain([entry(reserve)]).collect();
    let header = "  \"__header\": {\n    \"version\": \"1\"\n  }";
    session.line(format!("{{\n{header},\n  \"filesystem-df\": [\n{}\n  ]\n}}", entries.join(",\n")))
}

fn usage(arguments: &UsageArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let fullness = arguments.space.fullness()?;
    let report = &fullness.report;
    let totals = Totals::of(&fullness);
    if session.json {
        let kinds: Vec<Value> = sorted(report).into_iter().map(kind_object).collect();
        session.object(json!({
            "device_bytes": totals.device_bytes,
            "missing_bytes": totals.missing,
            "allocated_bytes": totals.allocated,
            "unallocated_bytes": totals.unallocated,
            "used_bytes": totals.used,
            "free_estimated_bytes": totals.free,
            "free_least_bytes": totals.least_free,
            "available_bytes": fullness.available_bytes,
            "global_reserve_bytes": report.linux_reserve_bytes,
            "kinds": kinds,
            "devices": fullness.devices.iter().map(|device| device_object(&fullness, device)).collect::<Vec<_>>(),
            "condition": condition::object(&fullness.condition),
        }))?;
        return Ok(ExitStatus::Done);
    }
    print_usage(&fullness, &totals, arguments.table, arguments.space.units.units(), session)?;
    print_condition(&fullness.condition, session)?;
    Ok(ExitStatus::Done)
}

fn device_object(fullness: &Fullness, device: &ShownDevice) -> Value {
    let allocated = fullness.allocated_on(device, |_| true);
    json!({
        "number": device.report.number.0,
        "name": device.name,
        "missing": device.report.is_missing,
        "total_bytes": device.report.total_bytes,
        "allocated_bytes": allocated,
        "unallocated_bytes": device.report.total_bytes.saturating_sub(allocated),
        "slack_bytes": device.slack_bytes,
    })
}

fn print_usage(
    fullness: &Fullness,
    totals: &Totals,
    as_table: bool,
    units: Units,
    session: &Session,
) -> Result<(), Failure> {
    let report = &fullness.report;
    let width = if units == Units::Raw { 18 } else { 10 };
    let row = |title: &str, value: u64| session.line(format!("    {title}{:>width$}", units.show(value)));
    session.line("Overall:")?;
    row("Device size:\t\t", totals.device_bytes)?;
    row("Device allocated:\t\t", totals.allocated)?;
    row("Device unallocated:\t\t", totals.unallocated)?;
    row("Device missing:\t\t", totals.missing)?;
    row("Device slack:\t\t", totals.slack)?;
    row("Used:\t\t\t", totals.used)?;
    let (free, least) = (units.show(totals.free), units.show(totals.least_free));
    session.line(format!("    Free (estimated):\t\t{free:>width$}\t(min: {least})"))?;
    row("Free (statfs, df):\t\t", fullness.available_bytes)?;
    session.line(format!("    Data ratio:\t\t\t{:>width$.2}", totals.data_ratio))?;
    session.line(format!("    Metadata ratio:\t\t{:>width$.2}", totals.metadata_ratio))?;
    let (reserve, none) = (units.show(report.linux_reserve_bytes), units.show(0));
    session.line(format!("    Global reserve:\t\t{reserve:>width$}\t(used: {none})"))?;
    let is_multiple = has_multiple_profiles(report);
    session.line(format!("    Multiple profiles:\t\t{:>width$}", if is_multiple { "yes" } else { "no" }))?;
    if as_table {
        session.line("")?;
        return table::print(fullness, totals, units, session);
    }
    for kind in by_content(report) {
        let (total, taken) = (kind.total_bytes, kind.occupied_bytes());
        #[allow(clippy::cast_precision_loss, reason = "shown with two decimals")]
        let percent = if total == 0 { 0.0 } else { taken as f64 * 100.0 / total as f64 };
        let (what, how) = (content(kind.flags), profile(kind.flags));
        let (size, full) = (units.show(total), units.show(taken));
        session.line(format!("\n{what},{how}: Size:{size}, Used:{full} ({percent:.2}%)"))?;
        for device in &fullness.devices {
            let bytes = fullness.allocated_on(device, |flags| flags == kind.flags);
            if bytes > 0 {
                session.line(format!("   {}\t{:>10}", device.name, units.show(bytes)))?;
            }
        }
    }
    session.line("\nUnallocated:")?;
    for device in &fullness.devices {
        let bytes = device.report.total_bytes.saturating_sub(fullness.allocated_on(device, |_| true));
        session.line(format!("   {}\t{:>10}", device.name, units.show(bytes)))?;
    }
    Ok(())
}

fn has_multiple_profiles(report: &SpaceReport) -> bool {
    let of = |content| report.kinds.iter().filter(move |kind| kind.flags.has(content)).count();
    [BlockGroupFlags::DATA, BlockGroupFlags::METADATA, BlockGroupFlags::SYSTEM]
        .into_iter()
        .any(|content| of(content) > 1)
}

/// Show the label, or change it.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder filesystem label disk.img backup")]
pub struct LabelArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// The image, or IMAGE:/PATH.
    target: OsString,
    /// The new label; empty for none.
    #[arg(value_hint = ValueHint::Other)]
    label: Option<OsString>,
}

fn label(arguments: &LabelArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let purpose = if arguments.label.is_some() { Purpose::Write } else { Purpose::Read };
    let object = Object::find(&images, &arguments.target, purpose, Follow::Yes)?;
    if let Some(label) = &arguments.label {
        object.set_label(label.as_encoded_bytes())?;
    }
    images.close()?;
    let label = object.filesystem_label()?;
    if session.json {
        session.object(json!({ "label": report::name(&label) }))?;
    } else if arguments.label.is_none() {
        session.line(text::escaped(&label))?;
    }
    Ok(ExitStatus::Done)
}
