//! `stat`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use jiff::tz::TimeZone;
use serde_json::json;
use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::patterns;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Follow;
use vlinder_places::text;
use vlinder_places::times::full_time;

use super::mode::{object, symbolic, type_name};

/// Show the attributes of files: type, size, mode, owner, times.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder stat disk.img:/etc/passwd")]
pub struct StatArguments {
    /// Follow a symbolic link.
    #[arg(short = 'L', long)]
    dereference: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH or a path of the host.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Runs the verb.
pub fn run(arguments: &StatArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let (mut tally, mut files) = (Tally::default(), Vec::new());
    let zone = TimeZone::system();
    let refuse = &mut |failure| tally.add(Err(failure), session);
    let targets = patterns::expand_all(&images, &arguments.targets, Purpose::Read, refuse);
    for target in &targets {
        let result = one(arguments, &images, target).and_then(|(status, link, attributes)| {
            if session.json {
                let mut value = object(&status);
                value["path"] = report::name(target.as_bytes());
                value["target"] = link.as_deref().map_or(json!(null), report::name);
                value["attributes"] = attributes.iter().map(|name| report::name(name)).collect();
                files.push(value);
                return Ok(());
            }
            let arrow = link.map(|link| format!(" -> {}", text::escaped(&link))).unwrap_or_default();
            session.line(format!("  File: {}{arrow}", text::escaped(target.as_bytes())))?;
            session.bytes(&text(&status, &attributes, &zone))
        });
        tally.add(result, session);
    }
    images.close()?;
    if session.json {
        session.object(json!({ "files": files, "failures": tally.failed(), "errors": tally.errors() }))?;
    }
    Ok(tally.ending())
}

type Found = (vlinder_places::place::FileStatus, Option<Vec<u8>>, Vec<Vec<u8>>);

fn one(arguments: &StatArguments, images: &Images<'_>, target: &OsString) -> Result<Found, Failure> {
    let follow = if arguments.dereference { Follow::Yes } else { Follow::No };
    let location = images.locate(target, Purpose::Read, follow)?;
    let status = location.status()?;
    let is_link = status.file_type == FileType::SymbolicLink;
    let link = is_link.then(|| location.directory.read_link(&location.name)).transpose()?;
    let attributes = location.directory.attributes(&location.name)?;
    Ok((status, link, attributes))
}

fn text(status: &vlinder_places::place::FileStatus, attributes: &[Vec<u8>], zone: &TimeZone) -> Vec<u8> {
    use std::io::Write as _;
    let mut text = Vec::new();
    let (size, allocated, kind) = (status.size_bytes, status.allocated_bytes, type_name(status.file_type));
    // Writing to a vector can't fail.
    let _ = writeln!(text, "  Size: {size}\tAllocated: {allocated}\t{kind}");
    let device = match status.file_type {
        FileType::CharacterDevice | FileType::BlockDevice => {
            format!("\tDevice type: {},{}", status.device.0, status.device.1)
        }
        _ => String::new(),
    };
    let (volume, inode, links) = (status.volume, status.inode, status.links);
    let _ = writeln!(text, "Volume: {volume}\tInode: {inode}\tLinks: {links}{device}");
    let (permissions, mode) = (status.permissions, symbolic(status.file_type, status.permissions));
    let _ = writeln!(text, "Access: ({permissions:04o}/{mode})\tUid: {}\tGid: {}", status.user, status.group);
    for (name, time) in [
        ("Access", Some(status.times.access)),
        ("Modify", Some(status.times.modification)),
        ("Change", Some(status.times.change)),
        (" Birth", status.times.birth),
    ] {
        let time = time.map_or_else(|| "-".to_owned(), |time| full_time(time, zone));
        let _ = writeln!(text, "{name}: {time}");
    }
    if !attributes.is_empty() {
        let names: Vec<String> = attributes.iter().map(|name| text::escaped(name)).collect();
        let _ = writeln!(text, " Xattr: {}", names.join(" "));
    }
    text
}
