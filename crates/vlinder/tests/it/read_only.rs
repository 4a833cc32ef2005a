//! An image that is opened for reading stays as it is, byte for byte.

use vlinder::{ErrorKind, OpenOptions};

use crate::open_image;

#[test]
fn reading_changes_no_byte() {
    let (_scratch, path, image) = open_image("read-only");
    image.create_dir("/directory").unwrap();
    image.write("/directory/file", vec![5; 50_000]).unwrap();
    image.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();

    let options = OpenOptions::new().mount_options("strictatime").unwrap().read_only(true);
    let image = options.open(&path).unwrap();
    assert!(image.is_read_only());
    assert_eq!(image.read("/directory/file").unwrap(), vec![5; 50_000]);
    assert_eq!(image.read_dir("/directory").unwrap().count(), 1);
    let second = options.open(&path).unwrap();
    assert!(second.exists("/directory").unwrap(), "readers share an image");
    let refused = image.write("/directory/file", "x").unwrap_err();
    assert_eq!((refused.kind(), refused.errno()), (ErrorKind::ReadOnly, 30), "{refused}");
    assert_eq!(image.subvolumes().create("/new").unwrap_err().kind(), ErrorKind::ReadOnly);
    second.close().unwrap();
    image.close().unwrap();

    assert!(std::fs::read(&path).unwrap() == before);
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), time);
}
