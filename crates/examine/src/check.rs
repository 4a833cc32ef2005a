//! `check`: the judge's findings, for people or as JSON.

use std::cell::RefCell;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vlinder_base::sync::Arc;
use vlinder_check::{CheckError, Finding, Options, Report, StoreError};
use vlinder_device::{Device, TemporaryDevice};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::leased::{self, Source};
use vlinder_places::options::OptionArguments;
use vlinder_places::progress::Progress;
use vlinder_places::session::Session;
use vlinder_places::units::parse_size;

/// Check a file system; nothing is written.
///
/// Of a file system that a vlinder mount holds, the last committed state is checked (a commit is made first),
/// while the mount goes on; this is for root and who mounted it.
///
/// Every tree is read: superblocks, chunks, the shape of each block, extents against their references,
/// inodes, names, checksums, free space, what quota groups count, and the fsync log. Each finding has a
/// stable name, the place, and one sentence.
///
/// With `-o degraded` devices may be missing: what the others have is checked, and what can't be read is
/// named.
///
/// Exit status: 0 clean (warnings are allowed), 1 findings, or the image can't be opened.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder check --check-data-csum image.btrfs")]
pub struct CheckArguments {
    #[command(flatten)]
    options: OptionArguments,
    /// Read all data too and compare them with their checksums.
    #[arg(long)]
    check_data_csum: bool,
    /// Only read: the default, taken for the sake of btrfs-progs' habits.
    #[arg(long)]
    readonly: bool,
    /// Mend what is wrong, as btrfs check would try to: refused.
    #[arg(long, hide = true)]
    repair: bool,
    /// Where temporary files go, if there is more to remember than memory should hold (a file system of many
    /// million fragments or tree blocks); otherwise $TMPDIR, or /var/tmp. They have no names and are gone
    /// when the check ends.
    #[arg(long, value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
    temporary_directory: Option<PathBuf>,
    /// What they may take at most: 16 bytes for each run of fragments that lie together, up to four times,
    /// and, where full quotas are counted, 46 for each tree block.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16G")]
    temporary_bytes: u64,
    /// What is held of that in memory before it goes there.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    list_memory: u64,
    /// Show progress: on a terminal it always is.
    #[arg(short, long, hide = true)]
    progress: bool,
    /// The devices of one file system.
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
}

/// Runs the verb.
///
/// # Errors
/// Where the image can't be opened, or standard output can't be written. Findings are no failure: they are
/// told, and the exit status says so.
pub fn run(arguments: &CheckArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if arguments.repair {
        let failure = Failure::new(Kind::Unsupported, "check repairs nothing: it only reads");
        return Err(failure.hint(
            "vlinder restore gets files out; keep a copy of the image before anything else changes it",
        ));
    }
    let opening = arguments.options.read()?;
    let source = Source::open(&opening.device_names(&arguments.images)?)?;
    let progress = RefCell::new(Progress::new(session, "checking", None));
    let moved = |bytes: u64, total: Option<u64>| {
        let mut progress = progress.borrow_mut();
        if let Some(total) = total {
            progress.expect(total);
        }
        progress.add(bytes);
    };
    let temporary = arguments.temporary();
    let options = Options {
        data_checksums: arguments.check_data_csum,
        progress: Some(&moved),
        degraded: opening.degraded,
        history: opening.history,
        temporary: Some(&temporary),
        lists_bytes: Some(usize::try_from(arguments.list_memory).unwrap_or(usize::MAX)),
        ..Options::default()
    };
    let report = match &source.lease {
        Some(lease) => vlinder_check::check_leased(source.devices, lease.superblocks.clone(), &options),
        None => vlinder_check::check(source.devices, &options),
    };
    let report = report.map_err(|error| match error {
        CheckError::Open(error) => Failure::from(error),
        CheckError::UnknownFeatures { names } => {
            let failure = Failure::unknown_features(&names);
            arguments.images.iter().fold(failure, |failure, image| failure.at(image.display()))
        }
        CheckError::Temporary(StoreError::Device(error)) => {
            let hint = "give another place with --temporary-directory DIRECTORY";
            Failure::from(error).hint(hint)
        }
        CheckError::Temporary(error) => {
            Failure::new(Kind::NoSpace, error.to_string()).hint("allow more with --temporary-bytes SIZE")
        }
        other => Failure::new(Kind::Corruption, other.to_string()),
    });
    drop(progress);
    leased::confirm(source.lease.as_ref())?;
    let report = report?;
    if session.json {
        session.object(object(&report))?;
    } else {
        tell(session, &report)?;
    }
    Ok(if report.is_clean() { ExitStatus::Done } else { ExitStatus::Failed })
}

impl CheckArguments {
    fn temporary(&self) -> Arc<dyn Device> {
        let directory =
            self.temporary_directory.clone().or_else(|| std::env::var_os("TMPDIR").map(PathBuf::from));
        // What lies in /tmp often takes memory.
        let directory = directory.unwrap_or_else(|| PathBuf::from("/var/tmp"));
        Arc::new(TemporaryDevice::new(&directory, self.temporary_bytes))
    }
}

fn tell(session: &Session, report: &Report) -> Result<(), Failure> {
    for finding in &report.findings {
        session.line(finding.to_string())?;
    }
    if report.not_listed > 0 {
        session.line(format!("{} findings more are not listed", report.not_listed))?;
    }
    let verdict = if report.is_clean() { "clean" } else { "not clean: get the data out, or mend it" };
    let data = match report.data_bytes {
        0 => String::new(),
        bytes => format!(" and {bytes} bytes of data"),
    };
    session.tell(format!("{} tree blocks{data} were checked: {verdict}", report.blocks))
}

fn object(report: &Report) -> Value {
    json!({
        "clean": report.is_clean(),
        "blocks": report.blocks,
        "data_bytes": report.data_bytes,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_not_listed": report.not_listed,
    })
}

fn finding(finding: &Finding) -> Value {
    let place = &finding.place;
    json!({
        "id": finding.kind.id(),
        "severity": finding.kind.severity().name(),
        "message": finding.kind.to_string(),
        "tree": place.tree.map(|tree| tree.0),
        "block": place.block.map(|block| block.0),
        "slot": place.slot,
        "key": place.key.map(|key| key.to_string()),
    })
}
