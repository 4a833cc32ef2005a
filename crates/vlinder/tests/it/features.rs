//! What a build with or without a compression can do: this runs with any set of features.

use std::io::Write;

use vlinder::{CheckOptions, Compression, ErrorKind, Image, MkfsOptions, OpenOptions};
use vlinder_testkit::{Scratch, golden};

use crate::empty_image;

const ALL: [(Compression, bool); 3] = [
    (Compression::ZSTD, cfg!(feature = "zstd")),
    (Compression::ZLIB, cfg!(feature = "zlib")),
    (Compression::LZO, cfg!(feature = "lzo")),
];
const EOPNOTSUPP: i32 = 95;

#[test]
fn an_algorithm_is_there_if_its_feature_is() {
    for (compression, is_on) in ALL {
        assert_eq!(compression.is_built_in(), is_on, "{}", compression.name());
    }
}

#[test]
fn what_linux_compressed_is_read_or_the_feature_is_named() {
    let scratch = Scratch::new("compressed");
    let path = scratch.join("image");
    golden::unpack("compressed", &path).unwrap();
    let image = OpenOptions::new().read_only(true).open(&path).unwrap();
    for (compression, is_on) in ALL {
        let name = compression.name();
        match image.read(name) {
            Ok(bytes) => assert!(is_on && bytes.len() == 168_894, "{name}"),
            Err(error) => {
                assert!(!is_on, "{error}");
                assert_eq!((error.kind(), error.errno()), (ErrorKind::Unsupported, EOPNOTSUPP), "{error}");
                assert!(error.to_string().contains(&format!("vlinder's feature {name:?}")), "{error}");
            }
        }
    }
    image.close().unwrap();
    assert!(vlinder::check(&path).unwrap().is_clean(), "the trees are judged in any case");
    match CheckOptions::new().data(true).run(&path) {
        Ok(report) => assert!(report.is_clean() && ALL.iter().all(|(_, is_on)| *is_on), "{report:?}"),
        Err(error) => {
            assert!(ALL.iter().any(|(_, is_on)| !is_on), "{error}");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "no finding: the data are not to blame");
        }
    }
}

#[test]
fn data_are_compressed_or_refused_before_they_are_accepted() {
    let (_scratch, path) = empty_image("compress");
    for (compression, is_on) in ALL {
        let name = compression.name();
        let by_option = OpenOptions::new().compress(compression.force(true)).open(&path);
        match by_option {
            Ok(image) => {
                assert!(is_on, "{name}");
                image.write(name, vec![b'x'; 1 << 20]).unwrap();
                image.close().unwrap();
            }
            Err(error) => {
                assert!(!is_on && error.to_string().contains("feature"), "{error}");
                assert_eq!((error.kind(), error.errno()), (ErrorKind::Unsupported, EOPNOTSUPP), "{error}");
            }
        }
        // A file whose property asks for it.
        let image = Image::open(&path).unwrap();
        let property = format!("/{name}-property");
        let mut file = image.create_file(&property).unwrap();
        image.xattrs(&property).unwrap().set("btrfs.compression", name).unwrap();
        match file.write_all(&vec![b'y'; 1 << 20]) {
            Ok(()) => assert!(is_on, "{name}"),
            Err(error) => assert!(!is_on && error.to_string().contains("feature"), "{error}"),
        }
        drop(file);
        // Nothing else is the worse for it.
        image.write("/plain", "text").unwrap();
        image.close().unwrap();
        let image = Image::open(&path).unwrap();
        assert_eq!(image.read_to_string("/plain").unwrap(), "text");
        if is_on {
            assert_eq!(image.read(name).unwrap(), vec![b'x'; 1 << 20]);
            assert_eq!(image.read(&property).unwrap(), vec![b'y'; 1 << 20]);
        }
        image.close().unwrap();
    }
    assert!(vlinder::check(&path).unwrap().is_clean());
}

#[test]
fn a_source_is_compressed_or_refused() {
    let scratch = Scratch::new("source");
    std::fs::create_dir(scratch.join("tree")).unwrap();
    std::fs::write(scratch.join("tree/file"), vec![b'x'; 1 << 20]).unwrap();
    for (compression, is_on) in ALL {
        let path = scratch.join(compression.name());
        let options = MkfsOptions::new().source_directory(scratch.join("tree")).compress(compression);
        match options.make(&path) {
            Ok(_) => assert!(is_on && vlinder::check(&path).unwrap().is_clean()),
            Err(error) => {
                assert!(!is_on && error.to_string().contains("feature"), "{error}");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(!path.exists(), "nothing is left behind");
            }
        }
    }
}
