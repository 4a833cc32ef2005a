//! File systems in a part of an image.

use vlinder::{CheckOptions, ErrorKind, Image, MkfsOptions, OpenOptions};
use vlinder_testkit::Scratch;

const START: u64 = 5 << 20;
const LENGTH: u64 = 256 << 20;

#[test]
fn a_range_is_made_opened_and_checked_by_its_name() {
    let scratch = Scratch::new("parts");
    let disk = scratch.join("disk.raw");
    std::fs::File::create(&disk).unwrap().set_len(START + LENGTH + 4096).unwrap();
    let name = scratch.join(format!("disk.raw@{START}+{LENGTH}"));
    MkfsOptions::new().make(&name).unwrap();
    let image = Image::open(&name).unwrap();
    image.write("/file", b"in a part").unwrap();
    image.close().unwrap();
    assert!(CheckOptions::new().data(true).run(&name).unwrap().is_clean());
    let by_options = OpenOptions::new().read_only(true).offset(START).size_limit(LENGTH);
    let image = by_options.open(&disk).unwrap();
    assert_eq!(image.read("/file").unwrap(), b"in a part");
    image.close().unwrap();
    let bytes = std::fs::read(&disk).unwrap();
    let (head, tail) = (&bytes[..START as usize], &bytes[(START + LENGTH) as usize..]);
    assert!(head.iter().chain(tail).all(|byte| *byte == 0));
}

#[test]
fn what_is_no_part_is_told_by_kind() {
    let scratch = Scratch::new("no-parts");
    let disk = scratch.join("disk.raw");
    std::fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let kind = |name: &str| Image::open(scratch.join(name)).err().map(|error| error.kind());
    assert_eq!(kind("disk.raw@1"), Some(ErrorKind::NotFound));
    assert_eq!(kind("disk.raw@2097152+"), Some(ErrorKind::InvalidInput));
    assert_eq!(kind("disk.raw@0+"), Some(ErrorKind::NotBtrfs));
    let twice = OpenOptions::new().offset(512).open(scratch.join("disk.raw@0+"));
    assert_eq!(twice.err().map(|error| error.kind()), Some(ErrorKind::InvalidInput));
    assert!(CheckOptions::new().run(scratch.join("disk.raw@1")).is_err());
    // The kernel's numbers, where the kind is not enough.
    let missing = Image::open(scratch.join("disk.raw@1")).err().unwrap();
    assert_eq!(missing.errno(), 6, "ENXIO: {missing}");
    assert!(missing.to_string().contains("there is no partition table"), "{missing}");
}
