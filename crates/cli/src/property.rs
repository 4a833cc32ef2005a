//! The family `property`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use serde_json::{Map, Value, json};
use vlinder_control::{Answer, Request};
use vlinder_format::RootId;
use vlinder_fs::{AttributeMode, Refusal, SubvolumeInformation};
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::mounted::Mounted;
use vlinder_places::object::{Named, Object};
use vlinder_places::place::image::from_fs;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::target::Follow;
use vlinder_places::text;
use vlinder_places::values::Choice;

/// The attribute that holds the property `compression`.
const COMPRESSION: &[u8] = b"btrfs.compression";

/// The verbs of `property`.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum PropertyVerb {
    Get(PropertyGetArguments),
    Set(PropertySetArguments),
    List(PropertyListArguments),
}

/// The properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Property {
    /// Whether a subvolume can't be written: true or false.
    Ro,
    /// The label of the file system.
    Label,
    /// How new data of a file, or of files made in a directory, are compressed: zlib, lzo, zstd, no or none;
    /// empty to unset.
    Compression,
}

impl Property {
    const ALL: [Self; 3] = [Self::Ro, Self::Label, Self::Compression];

    const fn name(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Label => "label",
            Self::Compression => "compression",
        }
    }

    const fn help(self) -> &'static str {
        match self {
            Self::Ro => "read-only status of a subvolume",
            Self::Label => "label of the filesystem",
            Self::Compression => "compression algorithm for the file or directory",
        }
    }

    /// Which type of object has it.
    const fn object(self) -> ObjectType {
        match self {
            Self::Ro => ObjectType::Subvolume,
            Self::Label => ObjectType::Filesystem,
            Self::Compression => ObjectType::Inode,
        }
    }
}

/// What a property belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectType {
    Inode,
    Subvolume,
    Filesystem,
}

const OBJECT_TYPES: &[&str] = &["inode", "subvol", "filesystem", "device"];

impl ObjectType {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "i" | "inode" => Ok(Self::Inode),
            "s" | "subvol" => Ok(Self::Subvolume),
            "f" | "filesystem" | "d" | "device" => Ok(Self::Filesystem),
            _ => Err(format!("{text:?} is none of inode, subvol, filesystem, device")),
        }
    }
}

/// Show properties of a file, subvolume or file system: all that it has, or one.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder property get disk.img:/home ro")]
pub struct PropertyGetArguments {
    /// What the target is taken for: inode, subvol, filesystem or device.
    #[arg(short = 't', value_name = "TYPE", value_parser = Choice::new(OBJECT_TYPES, ObjectType::parse), hide_possible_values = true)]
    object: Option<ObjectType>,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH, or an image.
    target: OsString,
    /// The property.
    #[arg(value_name = "NAME")]
    property: Option<Property>,
}

/// Set a property.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  vlinder property set disk.img:/home ro true\n  \
                        vlinder property set disk.img:/logs compression zstd")]
pub struct PropertySetArguments {
    /// Make a received subvolume writable though that ends its use as a parent of what is received next.
    #[arg(short)]
    force: bool,
    /// What the target is taken for: inode, subvol, filesystem or device.
    #[arg(short = 't', value_name = "TYPE", value_parser = Choice::new(OBJECT_TYPES, ObjectType::parse), hide_possible_values = true)]
    object: Option<ObjectType>,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH, or an image.
    target: OsString,
    /// The property.
    #[arg(value_name = "NAME")]
    property: Property,
    /// Its value.
    #[arg(value_hint = ValueHint::Other)]
    value: OsString,
}

/// Tell which properties an object can have.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder property list disk.img:/home")]
pub struct PropertyListArguments {
    /// What the target is taken for: inode, subvol, filesystem or device.
    #[arg(short = 't', value_name = "TYPE", value_parser = Choice::new(OBJECT_TYPES, ObjectType::parse), hide_possible_values = true)]
    object: Option<ObjectType>,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH, or an image.
    target: OsString,
}

/// Runs a verb.
pub fn run(verb: &PropertyVerb, session: &Session) -> Result<ExitStatus, Failure> {
    match verb {
        PropertyVerb::Get(arguments) => get(arguments, session),
        PropertyVerb::Set(arguments) => set(arguments, session),
        PropertyVerb::List(arguments) => list(arguments, session),
    }
}

/// Whether a file can have a property: every file is an inode, a subvolume's root a subvolume too, that of
/// the top level the file system too.
fn has(property: Property, subject: &Subject, object: Option<ObjectType>) -> bool {
    if object.is_some_and(|object| object != property.object()) {
        return false;
    }
    match property {
        Property::Compression => true,
        Property::Ro => subject.subvolume.is_some(),
        Property::Label => {
            let is_top = |subvolume: &SubvolumeInformation| subvolume.id == RootId::FS_TREE;
            // An image by its name alone stands for its file system, whichever subvolume it shows; so does a
            // mount.
            let is_all = match &subject.object {
                Object::Image(named) => named.name == b".",
                Object::Mounted(mounted) => mounted.name().is_empty(),
            };
            subject.subvolume.as_ref().is_some_and(|subvolume| is_top(subvolume) || is_all)
        }
    }
}

fn refuse(property: Property, subject: &Subject) -> Failure {
    let text = format!("it can't have the property {}", property.name());
    Failure::new(Kind::Invalid, text).at(subject.object.place()).hint("property list tells what it can have")
}

/// What has properties.
struct Subject {
    object: Object,
    /// The subvolume whose root directory it is, if it is one.
    subvolume: Option<SubvolumeInformation>,
}

impl Subject {
    fn find(images: &Images<'_>, target: &OsStr, purpose: Purpose) -> Result<Self, Failure> {
        let object = Object::find(images, target, purpose, Follow::Yes)?;
        if let Object::Mounted(mounted) = &object {
            let found = mounted.path().symlink_metadata();
            found.map_err(|error| Failure::host(&error, mounted.place()))?;
        }
        let subvolume = object.as_subvolume()?;
        Ok(Self { object, subvolume })
    }
}

fn value_of(property: Property, subject: &Subject) -> Result<Option<Vec<u8>>, Failure> {
    Ok(match property {
        Property::Ro => subject
            .subvolume
            .as_ref()
            .map(|subvolume| if subvolume.is_read_only { b"true".to_vec() } else { b"false".to_vec() }),
        Property::Label => Some(subject.object.filesystem_label()?),
        Property::Compression => match &subject.object {
            Object::Image(named) => {
                let (image, inode) = (named.image(), named.inode()?);
                match image.filesystem.attributes().extended_attribute(&image.caller, &inode, COMPRESSION) {
                    Ok(value) => Some(value),
                    Err(error) if error.refusal() == Some(Refusal::NoAttribute) => None,
                    Err(error) => return Err(from_fs(error, named.place())),
                }
            }
            Object::Mounted(mounted) => {
                let request =
                    Request::PropertyGet { path: mounted.inner(), name: property.name().to_owned() };
                match mounted.request(&request)? {
                    Answer::Property { value } => value.map(|value| value.0),
                    _ => return Err(mounted.unexpected()),
                }
            }
        },
    })
}

fn get(arguments: &PropertyGetArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let subject = Subject::find(&images, &arguments.target, Purpose::Read)?;
    let wanted = match arguments.property {
        Some(property) if !has(property, &subject, arguments.object) => {
            return Err(refuse(property, &subject));
        }
        Some(property) => vec![property],
        None => Property::ALL.to_vec(),
    };
    let mut object = Map::new();
    for property in wanted {
        if !has(property, &subject, arguments.object) {
            continue;
        }
        if let Some(value) = value_of(property, &subject)? {
            object.insert(property.name().to_owned(), report::name(&value));
            if !session.json {
                session.line(format!("{}={}", property.name(), text::escaped(&value)))?;
            }
        }
    }
    images.close()?;
    if session.json {
        session.object(json!({ "properties": Value::Object(object) }))?;
    }
    Ok(ExitStatus::Done)
}

fn set(arguments: &PropertySetArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let subject = Subject::find(&images, &arguments.target, Purpose::Write)?;
    if !has(arguments.property, &subject, arguments.object) {
        return Err(refuse(arguments.property, &subject));
    }
    let value = arguments.value.as_encoded_bytes();
    match (arguments.property, &subject.object) {
        (Property::Ro, _) => {
            let read_only = match value {
                b"true" => true,
                b"false" => false,
                _ => {
                    let place = text::escaped(arguments.target.as_bytes());
                    let value = text::escaped(value);
                    return Err(Failure::usage(format!("{place}: ro is true or false, not {value}")));
                }
            };
            set_read_only(&subject, read_only, arguments.force)?;
        }
        (Property::Label, object) => object.set_label(value)?,
        (Property::Compression, Object::Image(named)) => set_compression(named, value)?,
        (Property::Compression, Object::Mounted(mounted)) => set_mounted_compression(mounted, value)?,
    }
    images.close()?;
    if session.json {
        let value = report::name(value);
        session.object(json!({ "properties": { arguments.property.name(): value } }))?;
    }
    Ok(ExitStatus::Done)
}

fn set_compression(named: &Named, value: &[u8]) -> Result<(), Failure> {
    let (image, inode) = (named.image(), named.inode()?);
    let (filesystem, caller) = (&image.filesystem, &image.caller);
    let set = if value.is_empty() {
        match filesystem.attributes().remove_extended_attribute(caller, &inode, COMPRESSION) {
            Err(error) if error.refusal() == Some(Refusal::NoAttribute) => Ok(()),
            other => other,
        }
    } else {
        filesystem.attributes().set_extended_attribute(
            caller,
            &inode,
            COMPRESSION,
            value,
            AttributeMode::Either,
        )
    };
    set.map_err(|error| match error.refusal() {
        Some(Refusal::InvalidArgument) => refuse_compression(value, &named.place()),
        _ => from_fs(error, named.place()),
    })
}

/// The failure to set a compression that the file can't have.
fn refuse_compression(value: &[u8], place: &str) -> Failure {
    let algorithms = [b"zlib".as_slice(), b"lzo", b"zstd"];
    let is_known = matches!(value, b"no" | b"none") || algorithms.iter().any(|name| value.starts_with(name));
    let hint = if is_known {
        "a file without copy-on-write or checksums (chattr +C, nodatacow, nodatasum) can't be compressed"
    } else {
        "the values are zlib, lzo, zstd, no and none"
    };
    Failure::new(Kind::Invalid, "failed to set compression: Invalid argument").at(place).hint(hint)
}

/// By system calls, so that the kernel knows at once.
fn set_mounted_compression(mounted: &Mounted, value: &[u8]) -> Result<(), Failure> {
    use rustix::io::Errno;
    let set = if value.is_empty() {
        match rustix::fs::lremovexattr(mounted.path(), COMPRESSION) {
            Err(Errno::NODATA) => Ok(()),
            other => other,
        }
    } else {
        rustix::fs::lsetxattr(mounted.path(), COMPRESSION, value, rustix::fs::XattrFlags::empty())
    };
    set.map_err(|errno| match errno {
        Errno::INVAL => refuse_compression(value, mounted.place()),
        _ => Failure::host(&errno.into(), mounted.place()),
    })
}

fn set_read_only(subject: &Subject, read_only: bool, force: bool) -> Result<(), Failure> {
    let Some(subvolume) = &subject.subvolume else { return Err(refuse(Property::Ro, subject)) };
    let was_received = !subvolume.received_uuid.is_nil();
    if was_received && !read_only && !force {
        let failure =
            Failure::new(Kind::Permission, "a received subvolume: writing to it ends its use as a parent");
        return Err(failure
            .at(subject.object.place())
            .hint("give -f to make it writable and clear its received UUID"));
    }
    match &subject.object {
        Object::Image(named) => {
            let image = named.image();
            let set =
                image.filesystem.subvolumes().set_read_only(&image.caller, subvolume.id, read_only, force);
            set.map_err(|error| from_fs(error, named.place()))
        }
        Object::Mounted(mounted) => mounted.order(&Request::PropertySet {
            path: mounted.inner(),
            name: Property::Ro.name().to_owned(),
            value: read_only.to_string().as_str().into(),
            force,
        }),
    }
}

fn list(arguments: &PropertyListArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let subject = Subject::find(&images, &arguments.target, Purpose::Read)?;
    let mut names = Vec::new();
    for property in Property::ALL {
        if has(property, &subject, arguments.object) {
            names.push(json!(property.name()));
            if !session.json {
                session.line(format!("{:<20}{}", property.name(), property.help()))?;
            }
        }
    }
    images.close()?;
    if session.json {
        session.object(json!({ "properties": names }))?;
    }
    Ok(ExitStatus::Done)
}
