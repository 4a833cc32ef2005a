//! A disk full of data: chunks lie side by side, so that items of checksums reach from one into the next.

use vlinder_base::sync::Arc;
use vlinder_check::{Options, check};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions, Refusal};
use vlinder_testkit::subject::Recipe;

#[test]
fn checksums_that_reach_across_chunks_are_checked() {
    let recipe = Recipe { device_bytes: 128 << 20, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let options = OpenOptions::parse("subvolid=5").unwrap();
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    let file = files.create("file").unwrap();
    let mut offset = 0;
    loop {
        match file.write_at(&[7; 100_000], offset) {
            Ok(()) => offset += 100_000,
            Err(error) if error.refusal() == Some(Refusal::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    drop(file);
    files.close().unwrap();
    let report = check(vec![device as _], &Options { data_checksums: true, ..Options::default() }).unwrap();
    assert!(report.data_bytes > 16 << 20, "{}", report.data_bytes);
    assert!(report.is_clean(), "{:?}", report.findings);
}
