//! The functions as a C program calls them, and the header that it reads.

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use vlinder_capi::*;
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{Scratch, golden, require};

const O_RDWR: i32 = 2;
const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const ENOENT: i32 = 2;
const EBADF: i32 = 9;
const EFAULT: i32 = 14;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn sentence() -> String {
    // SAFETY: the pointer is valid until the thread's next call.
    unsafe { CStr::from_ptr(vlinder_last_error()) }.to_str().unwrap().to_owned()
}

#[test]
fn files_are_made_written_read_and_removed() {
    require!(Tool("btrfs"));
    let scratch = Scratch::new("capi");
    let image = scratch.join("image");
    golden::unpack("empty", &image).unwrap();
    let path = text(image.to_str().unwrap());
    let mut filesystem = ptr::null_mut();
    // SAFETY: strings and buffers live as long as the calls, handles are given back once and last.
    unsafe {
        assert_eq!(vlinder_open(path.as_ptr(), text("commit=5").as_ptr(), &raw mut filesystem), 0);
        let name = text("/file");
        let mut file = ptr::null_mut();
        let open = |flags, file: &mut *mut VlinderFile| {
            vlinder_file_open(filesystem, name.as_ptr(), flags, 0o640, &raw mut *file)
        };
        assert_eq!(open(O_RDWR, &mut file), -ENOENT);
        assert!(sentence().contains("/file: no such file"), "{}", sentence());
        assert_eq!(vlinder_file_size_by_path(filesystem, name.as_ptr()), -i64::from(ENOENT));
        assert_eq!(open(O_RDWR | O_CREAT | O_EXCL, &mut file), 0);
        assert_eq!(open(O_RDWR | O_CREAT | O_EXCL, &mut ptr::null_mut()), -EEXIST);

        let data = vec![7_u8; 10_000];
        assert_eq!(vlinder_file_write(file, data.as_ptr().cast(), data.len(), 100), 10_000);
        let parts = [1_u8, 2].map(|byte| (u64::from(byte) * 20_000, vec![byte; 4096]));
        let parts_in_c = parts.each_ref().map(|(offset, bytes)| VlinderPart {
            offset: *offset,
            data: bytes.as_ptr().cast(),
            length: bytes.len(),
        });
        assert_eq!(vlinder_file_write_direct(file, parts_in_c.as_ptr(), parts_in_c.len()), 0);
        assert_eq!(vlinder_file_size(file), 44_096);
        assert_eq!(vlinder_file_sync(file), 0);
        let mut found = vec![9_u8; 50_000];
        assert_eq!(vlinder_file_read(file, found.as_mut_ptr().cast(), found.len(), 0), 44_096);
        let mut expected = vec![0; 44_096];
        expected[100..10_100].fill(7);
        expected[20_000..24_096].fill(1);
        expected[40_000..].fill(2);
        assert!(found[..44_096] == expected);
        assert_eq!(vlinder_file_truncate(file, 5_000), 0);
        assert_eq!(vlinder_file_read(file, found.as_mut_ptr().cast(), 10, 5_000), 0);
        vlinder_file_close(file);

        assert_eq!(open(0, &mut file), 0);
        assert_eq!(vlinder_file_write(file, data.as_ptr().cast(), 1, 0), -i64::from(EBADF));
        vlinder_file_close(file);
        assert_eq!(vlinder_remove(filesystem, name.as_ptr()), 0);
        assert_eq!(vlinder_remove(filesystem, name.as_ptr()), -ENOENT);
        assert_eq!(vlinder_sync(filesystem), 0);
        let count = |name| vlinder_statistic(filesystem, text(name).as_ptr());
        assert!(count("transaction.commits") > 0);
        assert_eq!(count("transaction.commit_time_ns.count"), count("transaction.commits"));
        assert!(count("transaction.commit_time_ns.p99") >= count("transaction.commit_time_ns.mean"));
        let median = count("transaction.commit_time_ns.p50");
        assert!(median > 0 && median <= count("transaction.commit_time_ns.p99"));
        assert_eq!(count("transaction.commit"), -i64::from(ENOENT));
        assert_eq!(vlinder_close(filesystem), 0);
    }
    btrfs_check_data(&image).unwrap();
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let scratch = Scratch::new("capi-errors");
    let image = scratch.join("image");
    golden::unpack("empty", &image).unwrap();
    let path = text(image.to_str().unwrap());
    let mut filesystem = ptr::null_mut();
    // SAFETY: as above; null is what these calls are about.
    unsafe {
        assert_eq!(vlinder_open(ptr::null(), ptr::null(), &raw mut filesystem), -EFAULT);
        assert_eq!(vlinder_open(path.as_ptr(), ptr::null(), ptr::null_mut()), -EFAULT);
        assert_eq!(vlinder_open(path.as_ptr(), text("no=such").as_ptr(), &raw mut filesystem), -EINVAL);
        assert!(sentence().contains("no"), "{}", sentence());
        assert_eq!(vlinder_sync(ptr::null()), -EFAULT);
        assert_eq!(vlinder_file_read(ptr::null(), ptr::null_mut(), 0, 0), -i64::from(EFAULT));
        assert_eq!(vlinder_close(ptr::null_mut()), 0);
        vlinder_file_close(ptr::null_mut());

        assert_eq!(vlinder_open(path.as_ptr(), ptr::null(), &raw mut filesystem), 0);
        let mut second = ptr::null_mut();
        let status = vlinder_open(path.as_ptr(), ptr::null(), &raw mut second);
        assert_eq!((status, second), (-EBUSY, ptr::null_mut()), "an image is open once");
        let mut file = ptr::null_mut();
        let name = text("/f");
        assert_eq!(vlinder_file_open(filesystem, name.as_ptr(), O_RDWR | O_CREAT, 0o600, &raw mut file), 0);
        assert_eq!(vlinder_file_write(file, ptr::null::<c_void>(), 5, 0), -i64::from(EFAULT));
        assert_eq!(vlinder_file_write(file, ptr::null::<c_void>(), 0, 0), 0);
        assert_eq!(vlinder_file_write_direct(file, ptr::null(), 3), -EFAULT);
        vlinder_file_close(file);
        assert_eq!(vlinder_close(filesystem), 0);
    }
}

#[test]
fn only_files_and_directories_are_opened_and_close_waits() {
    let scratch = Scratch::new("capi-kinds");
    let image = scratch.join("image");
    golden::unpack("empty", &image).unwrap();
    let files = vlinder::Image::open(&image).unwrap();
    files.create_dir("/directory").unwrap();
    files.write("/directory/file", vec![5; 100]).unwrap();
    files.create_node("/pipe", vlinder::FileType::Fifo, 0o600, (0, 0)).unwrap();
    files.close().unwrap();
    let path = text(image.to_str().unwrap());
    let mut filesystem = ptr::null_mut();
    // SAFETY: as above.
    unsafe {
        assert_eq!(vlinder_open(path.as_ptr(), ptr::null(), &raw mut filesystem), 0);
        let open = |name: &str, flags: i32| {
            let mut file = ptr::null_mut();
            let status = vlinder_file_open(filesystem, text(name).as_ptr(), flags, 0o600, &raw mut file);
            (status, file)
        };
        for (name, flags, error) in [
            ("/x/", O_RDWR | O_CREAT, EISDIR),
            ("/x/.", O_RDWR | O_CREAT, EINVAL),
            ("/x/..", O_RDWR | O_CREAT, EINVAL),
            ("/directory/", O_CREAT, EISDIR),
            ("/directory", O_CREAT, EISDIR),
            ("/directory", O_RDWR, EISDIR),
            ("/directory/..", O_CREAT, EISDIR),
            ("..", O_RDWR, EISDIR),
            ("/directory/file/", O_RDWR, ENOTDIR),
            ("/directory/file/..", O_RDWR, ENOTDIR),
            ("/pipe", 0, EOPNOTSUPP),
            ("/pipe", O_RDWR | O_CREAT, EOPNOTSUPP),
        ] {
            assert_eq!(open(name, flags).0, -error, "{name} {flags:o}");
        }
        for name in ["/x", "/x/."] {
            assert_eq!(vlinder_file_size_by_path(filesystem, text(name).as_ptr()), -i64::from(ENOENT));
        }
        assert_eq!(vlinder_remove(filesystem, text("/directory/file/").as_ptr()), -ENOTDIR);
        let (status, directory) = open("/directory", 0);
        assert_eq!(status, 0);
        let mut one = 0_u8;
        assert_eq!(vlinder_file_read(directory, (&raw mut one).cast(), 1, 0), -i64::from(EISDIR));
        vlinder_file_close(directory);

        let (_, file) = open("/directory/file", 0);
        assert_eq!(vlinder_close(filesystem), -EBUSY);
        assert!(sentence().contains("close them"), "{}", sentence());
        // A buffer that nobody wrote to, and a length that no slice can have.
        let mut buffer = Vec::<u8>::with_capacity(200);
        assert_eq!(vlinder_file_read(file, buffer.as_mut_ptr().cast(), usize::MAX, 0), 100);
        buffer.set_len(100);
        assert_eq!(buffer, [5; 100]);
        assert_eq!(vlinder_file_write(file, buffer.as_ptr().cast(), usize::MAX, 0), -i64::from(EINVAL));
        vlinder_file_close(file);
        assert_eq!(vlinder_close(filesystem), 0);
    }
}

/// Every function of the library is in the header, and the other way round.
#[test]
fn the_header_has_the_functions_of_the_library() {
    let names = |text: &str, lead: &str| -> Vec<String> {
        let mut names: Vec<String> = text
            .lines()
            .filter(|line| line.contains(lead) && !line.trim_start().starts_with(['*', '/']))
            .filter_map(|line| line.split_once('(').map(|(before, _)| before))
            .filter_map(|before| before.rsplit([' ', '*']).next())
            .filter(|name| name.starts_with("vlinder_"))
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    };
    let sources = [
        include_str!("../src/answer.rs"),
        include_str!("../src/file.rs"),
        include_str!("../src/filesystem.rs"),
    ];
    let declared = names(include_str!("../include/vlinder.h"), "vlinder_");
    let defined = names(&sources.concat(), "extern \"C\" fn");
    assert_eq!(declared, defined);
    assert!(declared.len() >= 14, "{declared:?}");
}

/// A C compiler takes the header and finds the sizes that Rust has.
#[test]
fn a_c_compiler_takes_the_header() {
    require!(Tool("gcc"));
    let scratch = Scratch::new("capi-header");
    let source = scratch.join("header.c");
    let size = size_of::<VlinderPart>();
    std::fs::write(
        &source,
        format!("#include \"vlinder.h\"\n_Static_assert(sizeof(struct vlinder_part) == {size}, \"size\");\n"),
    )
    .unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let compiled = std::process::Command::new("gcc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I", include])
        .arg(&source)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
