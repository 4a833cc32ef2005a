//! Images that `mkfs --rootdir` fills, as scripts call it.

use std::path::Path;

use crate::common::{run, target, tool};
use vlinder_testkit::{Scratch, require};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn source(scratch: &Scratch) -> std::path::PathBuf {
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("b\u{e4}ume")).unwrap();
    for name in ["Z", "a", "\u{e4}", "_", "b\u{e4}ume/B", "b\u{e4}ume/\u{e1}"] {
        std::fs::write(source.join(name), name.repeat(5000)).unwrap();
    }
    std::fs::write(source.join("copy"), "Z".repeat(5000)).unwrap();
    source
}

#[test]
fn umask_locale_and_processors_change_no_byte() {
    let scratch = Scratch::new("filled");
    let source = source(&scratch);
    let made = |name: &str, before: &str, options: &str| {
        let image = scratch.join(name);
        let call = format!(
            "{before}; SOURCE_DATE_EPOCH=1700000000 exec \"$0\" mkfs -q -U 01234567-0123-0123-0123-0123456789ab \
             {options} --rootdir \"$1\" \"$2\""
        );
        tool("sh", ["-c", &call, env!("CARGO_BIN_EXE_vlinder"), text(&source), text(&image)]);
        std::fs::read(image).unwrap()
    };
    for (number, options) in ["--shrink", "--dedupe --compress zstd", "-b 32M --dedupe"].iter().enumerate() {
        let expected = made(&format!("{number}"), "umask 022; export LC_ALL=C", options);
        for (other, before) in [
            "umask 077; export LC_ALL=C.UTF-8 TZ=Asia/Tokyo",
            "umask 0; export LC_ALL=C; taskset -p 1 $$ >/dev/null",
        ]
        .iter()
        .enumerate()
        {
            assert!(made(&format!("{number}-{other}"), before, options) == expected, "{options}: {before}");
        }
    }
}

/// The files of another user, in the order in which that user's copy has them, with `--all-root`.
#[test]
fn another_user_makes_the_same_image() {
    require!(Root, Tool("setpriv"));
    let scratch = Scratch::new("filled_by_others");
    let source = source(&scratch);
    let shared = scratch.join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let script = "umask \"$3\"; mkdir \"$1/$2\"; cd \"$4\"; find . -type f | sort $5 | xargs -d '\\n' cp --parents -t \"$1/$2\"; \
        chmod -R u=rwX,go=rX \"$1/$2\"; SOURCE_DATE_EPOCH=1700000000 exec \"$0\" mkfs -q --shrink --all-root \
        -U 01234567-0123-0123-0123-0123456789ab --rootdir \"$1/$2\" \"$1/$2.img\"";
    let made = |user: &str, umask: &str, order: &str| {
        let ids = ["--reuid", user, "--regid", user, "--clear-groups", "sh", "-c", script];
        let of_script = [env!("CARGO_BIN_EXE_vlinder"), text(&shared), user, umask, text(&source), order];
        tool("setpriv", ids.into_iter().chain(of_script));
        std::fs::read(shared.join(format!("{user}.img"))).unwrap()
    };
    let expected = made("0", "022", "");
    assert!(made("54321", "077", "-r") == expected);
    assert!(made("54322", "0", "") == expected);
}

#[test]
fn equal_files_are_told_with_what_they_would_take() {
    let scratch = Scratch::new("filled");
    let (source, image) = (source(&scratch), scratch.join("image"));
    let made = run(["--json", "mkfs", "--dedupe", "--shrink", "--rootdir", text(&source), text(&image)]);
    let told = made.done().json();
    assert_eq!(told["shared_bytes"], 5000);
    assert_eq!(told["total_bytes"], std::fs::metadata(&image).unwrap().len());
    assert_eq!(run(["cat", &target(&image, "/copy")]).done().text(), "Z".repeat(5000));
    run(["check", "--check-data-csum", text(&image)]).done();
}
