//! Restoring and naming files whose names are no text: bytes that are no UTF-8, newlines, control characters.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::common::{make_image, run, target};
use vlinder_testkit::Scratch;

const NAMES: [&[u8]; 4] = [b"\xff\xfe", b"a\nb", b"c\x1b[31m\x07d", b"caf\xe9"];
const ESCAPED: [&str; 4] = ["\\377\\376", "a\\012b", "c\\033[31m\\007d", "caf\\351"];

struct Place {
    scratch: Scratch,
    image: PathBuf,
}

/// An image with a directory of each name in which a file of each name lies.
fn place() -> Place {
    let scratch = Scratch::new("restore-names");
    let (image, source) = (scratch.join("disk.img"), scratch.join("source"));
    make_image(&image);
    for directory in NAMES {
        let directory = source.join(OsStr::from_bytes(directory));
        fs::create_dir_all(&directory).unwrap();
        for name in NAMES {
            fs::write(directory.join(OsStr::from_bytes(name)), name).unwrap();
        }
    }
    run(["cp", "-rT", source.to_str().unwrap(), &target(&image, "/")]).done();
    Place { scratch, image }
}

/// Paths of the files that were restored, sorted.
fn restore(place: &Place, flags: &[&OsStr]) -> Vec<Vec<u8>> {
    let out = place.scratch.join("out");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).unwrap();
    let mut words = vec![OsStr::new("restore")];
    words.extend(flags);
    words.extend([place.image.as_os_str(), out.as_os_str()]);
    run(words).done();
    let mut paths = Vec::new();
    for directory in fs::read_dir(&out).unwrap() {
        for file in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            assert_eq!(fs::read(&path).unwrap(), path.file_name().unwrap().as_bytes());
            paths.push(path.strip_prefix(&out).unwrap().as_os_str().as_bytes().to_vec());
        }
    }
    paths.sort();
    paths
}

fn regex(expression: &str) -> Vec<OsString> {
    vec!["--path-regex".into(), expression.into()]
}

fn all_of(directory: &[u8]) -> Vec<Vec<u8>> {
    let mut paths: Vec<Vec<u8>> = NAMES.iter().map(|name| [directory, b"/", *name].concat()).collect();
    paths.sort();
    paths
}

#[test]
fn names_of_any_bytes_are_restored_and_selected() {
    let place = place();
    let selected = |expression: &str| {
        let words = regex(expression);
        restore(&place, &words.iter().map(OsString::as_os_str).collect::<Vec<_>>())
    };
    let mut every: Vec<Vec<u8>> = NAMES.iter().flat_map(|directory| all_of(directory)).collect();
    every.sort();
    assert_eq!(restore(&place, &[]), every);
    assert_eq!(selected("^/.*$"), every);
    assert_eq!(selected("^/[^/]*(|/.*)$"), every);
    assert_eq!(selected(r"^/(|(?-u:\xff\xfe)(|/.*))$"), all_of(NAMES[0]));
    assert_eq!(selected("^/(|..(|/.*))$"), all_of(NAMES[0]));
    assert_eq!(selected("^/(|a\nb(|/.*))$"), all_of(NAMES[1]));
    assert_eq!(selected("^/(|a.b(|/.*))$"), all_of(NAMES[1]));
    assert_eq!(selected(r"^/(|c\x1b\[31m\x07d(|/.*))$"), all_of(NAMES[2]));
    assert_eq!(selected("^/(|caf.(|/caf.))$"), [b"caf\xe9/caf\xe9".to_vec()]);
    assert_eq!(selected("^/(|a$|a/.*)$"), Vec::<Vec<u8>>::new());
}

#[test]
fn names_of_any_bytes_are_told_without_control_characters() {
    let place = place();
    let out = place.scratch.join("told");
    fs::create_dir(&out).unwrap();
    let (image, out) = (place.image.to_str().unwrap(), out.to_str().unwrap());
    for flags in [&["restore", "-D", "-v"][..], &["restore", "-v"], &["restore", "-v", "-o"]] {
        let said = run(flags.iter().copied().chain([image, out])).done().text();
        for (directory, name) in ESCAPED.iter().flat_map(|one| ESCAPED.iter().map(move |other| (one, other)))
        {
            let line = format!("/{directory}/{name}");
            assert!(said.lines().any(|found| found.ends_with(&line)), "{line} is not in {said}");
        }
        assert!(!said.contains(['\x1b', '\x07', '\u{fffd}']), "{said}");
    }
    // Failures too: a directory is where a file should go.
    let blocked = place.scratch.join("blocked");
    fs::create_dir_all(blocked.join(OsStr::from_bytes(NAMES[1])).join(OsStr::from_bytes(NAMES[2]))).unwrap();
    let ended = run(["restore", image, blocked.to_str().unwrap()]);
    assert_eq!(ended.code, 3);
    assert!(
        ended.text().contains("/a\\012b/c\\033[31m\\007d") || ended.err.contains("/a\\012b/c\\033[31m\\007d")
    );
    assert!(!ended.err.contains('\x1b') && !ended.text().contains('\x1b'));
}

#[test]
fn file_verbs_take_and_tell_names_of_any_bytes() {
    let place = place();
    let at = |path: &[&[u8]]| {
        let mut target = place.image.clone().into_os_string().into_vec();
        target.push(b':');
        path.iter().for_each(|name| target.extend([b"/", *name].concat()));
        OsString::from_vec(target)
    };
    for (name, escaped) in NAMES.iter().zip(ESCAPED) {
        let file = at(&[name, name]);
        assert_eq!(run([OsStr::new("cat"), &file]).done().out, *name);
        let moved = at(&[name, &[*name, b"-moved"].concat()]);
        for (words, told) in [
            (vec![OsStr::new("cp"), OsStr::new("-v"), &file, &moved], format!("{escaped}-moved\n")),
            (vec![OsStr::new("rm"), OsStr::new("-v"), &file], format!("/{escaped}/{escaped}\n")),
            (vec![OsStr::new("mv"), OsStr::new("-v"), &moved, &file], format!("/{escaped}/{escaped}\n")),
        ] {
            let said = run(words).done().text();
            assert!(said.ends_with(&told) && said.lines().count() == 1, "{said:?}");
        }
        let failed = run([OsStr::new("cat"), &at(&[name, b"missing"])]);
        assert!(failed.err.contains(&format!("/{escaped}/missing")), "{}", failed.err);
        let slashed = run([OsStr::new("rm"), &at(&[name])]);
        assert!(slashed.err.contains(&format!("/{escaped}: ")), "{}", slashed.err);
    }
}
