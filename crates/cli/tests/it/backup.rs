//! The script in `examples/backup`: each night is kept in the image and by the streams, and a file of any
//! night comes back.

use std::path::Path;
use std::process::Command;

use crate::common::{Ended, end, make_image, run, target};
use vlinder_testkit::{Scratch, require};

fn keep(directory: &Path, store: &Path, day: &str) -> Ended {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/backup/nightly.sh");
    let vlinder = env!("CARGO_BIN_EXE_vlinder");
    let mut command = Command::new("sh");
    command.arg(script).args([directory, store]);
    end(command.env("DAY", day).env("VLINDER", vlinder).env("SIZE", "256M"))
}

#[test]
fn nights_are_kept_and_any_file_of_any_night_comes_back() {
    require!(Fuse, Tool("rsync"), Tool("fusermount3"));
    let scratch = Scratch::new("backup");
    let (home, store) = (scratch.join("home"), scratch.join("store"));
    std::fs::create_dir_all(home.join("deep/er")).unwrap();
    std::fs::write(home.join("large"), vec![7; 2 << 20]).unwrap();
    let nights = ["2026-11-28", "2026-11-29", "2026-11-30"];
    for night in nights {
        std::fs::write(home.join("deep/er/diary"), night).unwrap();
        std::fs::write(home.join(night), "of this night").unwrap();
        keep(&home, &store, night).done();
        // The same night again changes nothing.
        keep(&home, &store, night).done();
    }
    let image = store.join("backup.img");
    let streams: Vec<_> = nights.iter().map(|night| store.join("streams").join(night)).collect();
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert!(size(&streams[1]) < 2000 && size(&streams[2]) < 2000, "{}", size(&streams[1]));
    // From the streams alone.
    let other = scratch.join("other.img");
    make_image(&other);
    for stream in &streams {
        run([Path::new("receive"), "--quiet".as_ref(), "-f".as_ref(), stream, target(&other, "/").as_ref()])
            .done();
    }
    for night in nights {
        for image in [&image, &other] {
            let diary = run(["cat", &target(image, &format!("/{night}/deep/er/diary"))]).done().text();
            assert_eq!(diary, night);
            let large = run(["cat", &target(image, &format!("/{night}/large"))]).done().out;
            assert_eq!(large, vec![7; 2 << 20]);
        }
    }
    run(["ls", &target(&other, "/2026-11-28/2026-11-29")]).failed(1, &["no such file"]);
    for image in [&image, &other] {
        assert_eq!(run([Path::new("check"), image]).code, 0);
    }
}
