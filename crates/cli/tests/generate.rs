//! What `vlinder generate` writes: a manual page for every verb and completions for four shells, with every verb and flag.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::{end, run, tool};
use vlinder_testkit::{Scratch, require};

fn generate(what: &str, scratch: &Scratch) {
    run(["generate", what, scratch.path().to_str().unwrap()]).done();
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The verbs with pages of their own, as `--help` lists them, families included.
fn verbs(path: &[String]) -> Vec<Vec<String>> {
    let help = run(path.iter().cloned().chain(["--help".to_owned()])).done().text();
    let Some(list) = help.split("\nCommands:\n").nth(1) else { return vec![path.to_vec()] };
    let list = list.split("\n\n").next().unwrap().lines();
    let listed: Vec<String> =
        list.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned)).collect();
    let below = listed.into_iter().filter(|name| !name.is_empty() && name != "help");
    let mut all = vec![path.to_vec()];
    for name in below {
        all.extend(verbs(&[path, &[name]].concat()));
    }
    all
}

#[test]
fn every_verb_has_a_page_with_its_flags_and_an_example() {
    let scratch = Scratch::new("generate-man");
    generate("man", &scratch);
    let verbs = verbs(&[]);
    assert!(verbs.len() > 35, "{verbs:?}");
    let page_of = |verb: &[String]| [&["vlinder".to_owned()], verb].concat().join("-") + ".1";
    let pages: BTreeSet<String> = verbs.iter().map(|verb| page_of(verb)).collect();
    assert_eq!(names(scratch.path()), pages);
    for verb in &verbs {
        let page = std::fs::read_to_string(scratch.join(page_of(verb))).unwrap().replace("\\-", "-");
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{verb:?}");
        let help = run(verb.iter().cloned().chain(["--help".to_owned()])).done().text();
        if !help.contains("\nCommands:\n") {
            let call = format!("vlinder {}", verb.join(" "));
            assert!(page.contains("Example") && page.contains(&call), "{verb:?} has no example:\n{page}");
        }
        let flags = help.split(|character: char| !(character.is_ascii_alphanumeric() || character == '-'));
        for flag in flags.filter(|word| word.starts_with("--") && word.len() > 3) {
            assert!(page.contains(flag), "{verb:?}: {flag} is not in its page");
        }
    }
}

/// A verb's description is longer than its line in the list of verbs, and none of it gets lost on the way.
#[test]
fn pages_and_help_have_whole_descriptions() {
    let scratch = Scratch::new("generate-descriptions");
    generate("man", &scratch);
    let phrases = [
        ("mkfs", "which Linux mounts from 6.1 on"),
        ("check", "a commit is made first"),
        ("restore", "as btrfs rescue chunk-recover does"),
        ("cp", "Holes stay holes."),
        ("ls", "Owners are shown by number"),
        ("filesystem sync", "Each verb on an unmounted image does so"),
        ("inspect-internal tree-stats", "Without --tree: the root,"),
    ];
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\-", "-");
    for (verb, phrase) in phrases {
        let page = scratch.join(format!("vlinder-{}.1", verb.replace(' ', "-")));
        let page = words(&std::fs::read_to_string(page).unwrap());
        assert!(page.contains(phrase), "{verb}: {page}");
        let help = words(&run(verb.split(' ').chain(["--help"])).done().text());
        assert!(help.contains(phrase), "{verb}: {help}");
    }
}

#[test]
fn the_pages_are_sound_for_man() {
    require!(Tool("man"));
    let scratch = Scratch::new("generate-sound");
    generate("man", &scratch);
    for name in ["vlinder.1", "vlinder-mount.1", "vlinder-subvolume-list.1"] {
        let page = scratch.join(name);
        let shown = end(Command::new("man").args(["--warnings", "-l"]).arg(page).env("LC_ALL", "C.UTF-8"));
        assert!(shown.text().contains("SYNOPSIS"), "{name}: {}", shown.text());
        assert_eq!((shown.code, shown.err.as_str()), (0, ""), "{name}");
    }
}

#[test]
fn the_page_of_mount_names_every_option() {
    let scratch = Scratch::new("generate-options");
    generate("man", &scratch);
    let page = std::fs::read_to_string(scratch.join("vlinder-mount.1")).unwrap().replace("\\-", "-");
    let options = [
        "ro",
        "rw",
        "subvol=",
        "subvolid=",
        "compress",
        "compress-force",
        "nodatacow",
        "nodatasum",
        "max_inline=",
        "commit=",
        "ssd",
        "discard",
        "notreelog",
        "flushoncommit",
        "degraded",
        "user_subvol_rm_allowed",
        "rescue=",
        "cache=",
        "dirty=",
        "threads=",
        "writeback=",
        "owners=",
        "transport=",
        "disable=",
        "relatime",
        "noatime",
        "nosuid",
        "nodev",
        "noexec",
        "user",
        "nofail",
        "_netdev",
        "x-",
        "allow_other",
        "default_permissions",
        "fsname=",
        "subtype=",
        "auto_unmount",
        "remount",
    ];
    for option in options {
        assert!(page.contains(option), "{option} is not in the page of mount");
    }
}

#[test]
fn completions_know_every_verb_and_long_flag() {
    let scratch = Scratch::new("generate-completions");
    generate("completions", &scratch);
    let files = ["vlinder.bash", "_vlinder", "vlinder.fish", "vlinder.elv"];
    let others = ["btrfs.bash", "_btrfs", "btrfs.fish", "btrfs.elv"];
    let expected: BTreeSet<String> = files.iter().chain(&others).map(|name| (*name).to_owned()).collect();
    assert_eq!(names(scratch.path()), expected);
    let verbs = verbs(&[]);
    for file in files {
        let text = std::fs::read_to_string(scratch.join(file)).unwrap();
        for verb in &verbs {
            if let Some(name) = verb.last() {
                assert!(text.contains(name.as_str()), "{file}: {verb:?}");
            }
        }
        let is_fish = file.ends_with(".fish");
        for flag in ["rootdir", "commit-after", "subvolid", "openmetrics", "json", "sort"] {
            let flag = if is_fish { format!("-l {flag}") } else { format!("--{flag}") };
            assert!(text.contains(&flag), "{file}: {flag}");
        }
    }
}

#[test]
fn bash_takes_the_completions() {
    require!(Tool("bash"));
    let scratch = Scratch::new("generate-bash");
    generate("completions", &scratch);
    let script = format!(
        "source {}; COMP_WORDS=(vlinder subvolume sn); COMP_CWORD=2; _vlinder vlinder sn subvolume; echo ${{COMPREPLY[*]}}",
        scratch.join("vlinder.bash").display()
    );
    assert_eq!(tool("bash", ["-c", &script]), "snapshot\n");
}
