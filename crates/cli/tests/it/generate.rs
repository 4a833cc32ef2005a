//! What `vlinder generate` writes: a manual page for every verb and completions for four shells, with every
//! verb and flag.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::common::{end, run, tool};
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
        assert!(!page.contains(".SH EXTRA"), "{verb:?}");
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{verb:?}");
        let help = run(verb.iter().cloned().chain(["--help".to_owned()])).done().text();
        if !help.contains("\nCommands:\n") {
            let call = format!("vlinder {}", verb.join(" "));
            let examples = page.split(".SH EXAMPLES\n").nth(1);
            assert!(examples.is_some_and(|text| text.contains(&call)), "{verb:?} has no example:\n{page}");
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

/// What bash offers behind these words, the last of which is begun or empty, in a directory with files of
/// these names.
fn offered(scratch: &Scratch, words: &[&str]) -> Vec<String> {
    let script = format!(
        "source '{}'; cd '{}'; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _$1; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        scratch.join(format!("completions/{}.bash", words[0])).display(),
        scratch.join("work").display(),
    );
    let said = tool("bash", ["-uc", &script, "bash"].iter().chain(words));
    let mut offered: Vec<String> = said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    offered.sort();
    offered
}

#[test]
fn bash_offers_what_is_due() {
    require!(Tool("bash"));
    let scratch = Scratch::new("generate-offers");
    run(["generate", "completions", scratch.join("completions").to_str().unwrap()]).done();
    std::fs::create_dir_all(scratch.join("work/made")).unwrap();
    for name in ["disk.img", "data.img", "my notes"] {
        std::fs::write(scratch.join("work").join(name), b"").unwrap();
    }
    let all = ["data.img", "disk.img", "made", "my notes"];
    let cases: &[(&[&str], &[&str])] = &[
        // Paths, wherever a target, an image or a place is due; after flags and their values too.
        (&["vlinder", "ls", ""], &all),
        (&["vlinder", "ls", "d"], &["data.img", "disk.img"]),
        (&["vlinder", "cp", "-a", "disk.img", "m"], &["made", "my notes"]),
        (&["vlinder", "--json", "mount", "-o", "ro", "disk.img", "ma"], &["made"]),
        (&["vlinder", "cp", "-D", "da"], &["data.img"]),
        (&["vlinder", "subvolume", "list", "di"], &["disk.img"]),
        (&["btrfs", "fi", "usage", "di"], &["disk.img"]),
        // Directories, where nothing else will do.
        (&["vlinder", "generate", "man", ""], &["made"]),
        (&["vlinder", "umount", ""], &["made"]),
        (&["vlinder", "mkfs", "-r", ""], &["data.img", "disk.img", "made", "my notes"]),
        (&["vlinder", "check", "--temporary-directory", ""], &["made"]),
        (&["vlinder", "restore", "disk.img", ""], &["made"]),
        // Bash splits at colons; a path in an image is none of the host.
        (&["vlinder", "ls", "disk.img", ":", "/e"], &[]),
        (&["vlinder", "ls", "disk.img", ":", "/d"], &[]),
        // Flags where one is begun, and not behind --.
        (&["vlinder", "ls", "--inod"], &["--inode"]),
        (&["vlinder", "mkfs", "--no"], &["--nodesize", "--nodiscard"]),
        (&["vlinder", "ls", "--", "--inod"], &[]),
        // Verbs, by their beginnings too.
        (&["vlinder", "sub"], &["subvolume"]),
        (&["vlinder", "files", "us"], &["usage"]),
        // Values of closed sets, however the flag is written; nothing where anything may stand.
        (&["vlinder", "mkfs", "--csum", ""], &["blake2", "crc32c", "sha256", "xxhash"]),
        (&["vlinder", "mkfs", "--csum", "=", "x"], &["xxhash"]),
        (&["vlinder", "mkfs", "--csum", "="], &["blake2", "crc32c", "sha256", "xxhash"]),
        (&["vlinder", "mkfs", "-fd", ""], &["dup", "single"]),
        (&["vlinder", "mkfs", "--metadata", "d"], &["dup"]),
        (&["vlinder", "mkfs", "--compress", "z"], &["zlib", "zstd"]),
        (&["vlinder", "property", "get", "-t", "s"], &["subvol"]),
        (&["vlinder", "property", "get", "disk.img", ""], &["compression", "label", "ro"]),
        (&["vlinder", "generate", "m"], &["man"]),
        (&["vlinder", "inspect-internal", "dump-tree", "-t", "free"], &["free-space"]),
        (&["vlinder", "subvolume", "list", "--sort", "og"], &["ogen"]),
        (&["vlinder", "mkfs", "-L", ""], &[]),
        (&["vlinder", "filesystem", "label", "disk.img", ""], &[]),
    ];
    for (words, expected) in cases {
        assert_eq!(offered(&scratch, words), *expected, "{words:?}");
    }
}

/// As readline asks for them: what a key of the terminal makes of the line.
#[test]
fn bash_puts_completions_into_the_line() {
    require!(Tool("bash"), Tool("script"));
    let scratch = Scratch::new("generate-line");
    generate("completions", &scratch);
    std::fs::write(scratch.join("my notes"), b"").unwrap();
    let program = scratch.join("bin/vlinder");
    std::fs::create_dir(scratch.join("bin")).unwrap();
    // Tells what it was called with.
    std::fs::write(&program, "#!/bin/sh\nprintf '<%s>' \"$@\"; echo\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let settings = format!("PATH={}:$PATH\nsource vlinder.bash\n", program.parent().unwrap().display());
    std::fs::write(scratch.join("settings"), settings).unwrap();
    let typed =
        "vlinder mkf\t--csum=x\tmy\tend\nvlinder cat my\\ n\tend\nvlinder ls disk.img:/vlin\tend\nexit\n";
    let mut shell = Command::new("script")
        .args(["-qec", "bash --noprofile --rcfile settings -i", "/dev/null"])
        .current_dir(scratch.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), typed.as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    for line in ["<mkfs><--csum=xxhash><my notes><end>", "<cat><my notes><end>", "<ls><disk.img:/vlinend>"] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
}

#[test]
fn help_says_how_to_load_completions() {
    let help = run(["generate", "--help"]).done().text();
    assert!(help.contains("source DIRECTORY/vlinder.bash"), "{help}");
    assert!(help.contains("~/.bashrc"), "{help}");
}
