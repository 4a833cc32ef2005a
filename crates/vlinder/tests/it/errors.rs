//! Errors: their kinds, numbers, paths and texts.

use std::error::Error as _;
use std::io;
use std::path::Path;

use vlinder::{Compression, Error, ErrorKind, FileType, Image, MkfsOptions, OpenOptions};

use crate::{empty_image, open_image};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;

fn judge<T: std::fmt::Debug>(result: vlinder::Result<T>, kind: ErrorKind, io_kind: io::ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(io::Error::from_raw_os_error(error.errno()).kind(), io_kind, "{error}");
    error
}

#[test]
fn refusals_have_a_kind_a_path_and_advice() {
    let (_scratch, _path, image) = open_image("refusals");
    image.write("/file", "x").unwrap();
    image.create_dir_all("/directory/full").unwrap();
    image.subvolumes().create("/subvolume").unwrap();
    let error = judge(image.read("/no/file"), ErrorKind::NotFound, io::ErrorKind::NotFound);
    assert_eq!((error.errno(), error.path()), (ENOENT, Some(Path::new("/no/file"))));
    let text = error.to_string();
    assert!(text.starts_with("/no/file: no such file or directory; look at the path"), "{text}");
    assert!(format!("{error:?}").contains("NotFound") && error.source().is_none());
    let outer = io::Error::from(error);
    assert_eq!((outer.kind(), outer.to_string()), (io::ErrorKind::NotFound, text));
    let inner = outer.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).unwrap();
    assert_eq!(inner.kind(), ErrorKind::NotFound);

    judge(image.create_dir("/directory"), ErrorKind::AlreadyExists, io::ErrorKind::AlreadyExists);
    judge(image.read_dir("/file"), ErrorKind::NotADirectory, io::ErrorKind::NotADirectory);
    judge(image.create_file("/directory"), ErrorKind::IsADirectory, io::ErrorKind::IsADirectory);
    judge(image.remove_dir("/directory"), ErrorKind::DirectoryNotEmpty, io::ErrorKind::DirectoryNotEmpty);
    let crossing = image.hard_link("/file", "/subvolume/file");
    judge(crossing, ErrorKind::CrossesSubvolumes, io::ErrorKind::CrossesDevices);
    judge(image.read_link("/file"), ErrorKind::InvalidInput, io::ErrorKind::InvalidInput);
    judge(image.subvolumes().set_default("/directory"), ErrorKind::InvalidInput, io::ErrorKind::InvalidInput);
    judge(
        image.xattrs("/file").unwrap().set("unknown.name", ""),
        ErrorKind::Unsupported,
        io::ErrorKind::Unsupported,
    );
    image.create_node("/pipe", FileType::Fifo, 0o600, (0, 0)).unwrap();
    judge(image.open_file("/pipe"), ErrorKind::Unsupported, io::ErrorKind::Unsupported);
    let error = image.open_file("/file").unwrap().write_at(b"x", 0).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidInput, Some(Path::new("/file"))));
    assert!(error.to_string().ends_with("open it with FileOptions::read or FileOptions::write"), "{error}");
    image.close().unwrap();
}

#[test]
fn a_full_image_says_so_and_stays_sound() {
    let (_scratch, path, image) = open_image("full");
    let written = (0..).try_for_each(|number| image.write(format!("/{number}"), vec![1; 8 << 20]));
    judge(written, ErrorKind::NoSpace, io::ErrorKind::StorageFull);
    image.remove_file("/0").unwrap();
    image.close().unwrap();
    assert!(vlinder::check(&path).unwrap().is_clean());
}

#[test]
fn what_keeps_an_image_from_being_opened_is_told_apart() {
    let (scratch, path) = empty_image("opening");
    let missing = scratch.join("missing");
    let error = judge(Image::open(&missing), ErrorKind::NotFound, io::ErrorKind::NotFound);
    assert_eq!(error.path(), Some(&*missing));
    judge(vlinder::check(&missing), ErrorKind::NotFound, io::ErrorKind::NotFound);

    let zeros = scratch.join("zeros");
    std::fs::write(&zeros, vec![0; 1 << 20]).unwrap();
    for error in [Image::open(&zeros).unwrap_err(), vlinder::check(&zeros).unwrap_err()] {
        assert_eq!((error.kind(), error.errno()), (ErrorKind::NotBtrfs, EIO), "{error}");
        let text = format!("{}: no Btrfs", zeros.display());
        assert!(error.to_string().starts_with(&text), "the path once: {error}");
    }

    let first = Image::open(&path).unwrap();
    let error = Image::open(&path).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, EBUSY), "{error}");
    assert_eq!(vlinder::check(&path).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(MkfsOptions::new().force(true).make(&path).unwrap_err().kind(), ErrorKind::Busy);
    first.close().unwrap();

    let error = OpenOptions::new().mount_options("no-such-option").unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidInput, EINVAL));
    assert_eq!(OpenOptions::new().mount_options("commit=x").unwrap_err().kind(), ErrorKind::InvalidInput);
    let error = OpenOptions::new().subvolume("missing").open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(Compression::ZLIB.with_level(10).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!("not-a-uuid".parse::<vlinder::Uuid>().is_err());
}

#[test]
fn damage_is_a_kind_of_its_own() {
    let (_scratch, path, image) = open_image("damaged");
    image.write("/file", vec![3; 1 << 20]).unwrap();
    image.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let data = bytes.windows(1 << 16).position(|window| window.iter().all(|byte| *byte == 3)).unwrap();
    bytes[data + 10] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let image = OpenOptions::new().read_only(true).open(&path).unwrap();
    let error = image.read("/file").unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Damaged, EIO), "{error}");
    assert!(error.to_string().starts_with("/file: "), "{error}");
    image.close().unwrap();
    let report = vlinder::CheckOptions::new().data(true).run(&path).unwrap();
    assert!(!report.is_clean() && report.findings().iter().all(|finding| finding.place().is_some()));
}

#[test]
fn closing_tells_of_what_was_lost() {
    let (_scratch, path, image) = open_image("cut-short");
    image.write("/file", vec![1; 1 << 20]).unwrap();
    // Another program cuts the image.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    image.sync().unwrap_err();
    assert!(image.is_read_only());
    let error = image.close().unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*path)), "{error}");
    assert!(error.to_string().contains("may be lost"), "{error}");
}
