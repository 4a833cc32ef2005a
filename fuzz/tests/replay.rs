//! Every input that once found something, again: `fuzz/corpus/TARGET/FILE`.

use std::path::Path;

use vlinder_fuzz::target;

#[test]
fn what_was_found_once_stays_mended() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut replayed = 0;
    for directory in std::fs::read_dir(&corpus).expect("the corpus is there") {
        let directory = directory.expect("readable").path();
        let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let target = target::by_name(&name).unwrap_or_else(|| panic!("{name} is no target"));
        for file in std::fs::read_dir(&directory).expect("readable") {
            let file = file.expect("readable").path();
            let input = std::fs::read(&file).expect("readable");
            assert_eq!(input.first(), Some(&target.number), "{} is for {name}", file.display());
            println!("{}", file.display());
            assert!(vlinder_fuzz::run(&input));
            replayed += 1;
        }
    }
    assert!(replayed > 0, "{} holds inputs", corpus.display());
}
