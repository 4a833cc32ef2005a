//! Commands with words or variables that they can't take. None of them begins its work.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// What a call has to say, and that it failed.
struct Case {
    /// The program, by its path from the root, and its words.
    words: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// A part of what it says.
    says: &'static str,
}

const fn case(words: &'static [&'static str], says: &'static str) -> Case {
    Case { words, variables: &[], says }
}

const fn with(
    words: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    says: &'static str,
) -> Case {
    Case { words, variables, says }
}

const XTASK: &str = env!("CARGO_BIN_EXE_vlinder-xtask");

const OF_XTASK: &[Case] = &[
    case(&[XTASK], "usage: cargo xtask"),
    case(&[XTASK, "nonsense"], "usage: cargo xtask"),
    case(&[XTASK, "long"], "usage: cargo xtask"),
    case(&[XTASK, "long", "nonsense"], "there is no job nonsense: full, "),
    case(&[XTASK, "user-test", "nonsense-user"], "there is no user nonsense-user"),
    with(&[XTASK, "long", "full"], &[("MINUTES", "x"), ("LIST", "1")], "MINUTES is no number: x"),
    with(&[XTASK, "long", "full"], &[("SEED", "x"), ("LIST", "1")], "SEED is no number: x"),
];

const SCRIPTS: &[Case] = &[
    case(&["tools/coverage.sh", "nonsense"], "coverage: takes no arguments"),
    with(&["tools/coverage.sh"], &[("INPUTS", "no/such")], "INPUTS=no/such is no directory"),
    with(
        &["tools/coverage.sh"],
        &[("REPORT", "no/such/page.md")],
        "REPORT=no/such/page.md lies in no directory",
    ),
    case(&["tools/demo.sh", "nonsense"], "demo: takes no arguments"),
    with(&["tools/demo.sh"], &[("DEMO_SOURCE", "no/such")], "DEMO_SOURCE=no/such is no directory"),
    case(&["tools/fio-engine.sh", "nonsense"], "fio-engine: takes no arguments"),
    case(&["tools/fio-jobs.sh", "nonsense"], "fio-jobs: takes no arguments"),
    with(&["tools/fio-jobs.sh"], &[("ROUNDS", "x")], "ROUNDS=x is no number"),
    case(&["tools/fuzz.sh", "nonsense"], "fuzz: takes no arguments"),
    with(&["tools/fuzz.sh"], &[("MINUTES", "x")], "MINUTES=x is no number"),
    with(&["tools/fuzz.sh"], &[("EXECUTIONS", "-1")], "EXECUTIONS=-1 is no number"),
    case(&["tools/fuzz-rustc.sh"], "make fuzz"),
    case(&["tools/suites.sh", "nonsense"], "suites: takes no arguments"),
    with(&["tools/suites.sh"], &[("ONLY", "nonsense")], "ONLY=nonsense is neither"),
    with(&["tools/suites.sh"], &[("OPERATIONS", "x")], "OPERATIONS=x is no number"),
    with(&["tools/suites.sh"], &[("SEEDS", "1 x")], "SEEDS=1 x is no list of numbers"),
];

/// Programs in Python; each of those that take options is called with one that there is not, besides.
const PROGRAMS: &[Case] = &[
    case(&["tools/coverage.py"], "usage: coverage.py"),
    case(&["tools/coverage.py", "no/such", "no/page"], "no/such"),
    case(&["tools/coverage.py", "Cargo.toml", "no/page"], "llvm-cov export"),
    case(&["tools/programs/client.py"], "tools/programs/run.py starts it"),
    case(&["tools/programs/client.py", "nonsense"], "tools/programs/run.py starts it"),
    case(&["tools/programs/run.py", "nonsense"], "invalid choice: 'nonsense'"),
    case(&["tools/full/run.py"], "usage: run.py"),
    case(&["tools/full/run.py", "fill", "--dir", "no/such"], "the directory no/such"),
    case(&["tools/hostile/run.py", "--part", "9/8"], "--part 9/8 is not like 1/8"),
    case(&["tools/latency/run.py", "--rounds", "0"], "--rounds is at least 1"),
    case(&["tools/latency/run.py", "--dir", "no/such"], "--dir no/such is no directory"),
    case(&["tools/memory/run.py", "--dir", "no/such"], "--dir no/such is no directory"),
    case(&["tools/setid/table.py", "--share", "0"], "--share is at least 1"),
    case(&["tools/setid/table.py", "--way", "nonsense"], "invalid choice: 'nonsense'"),
    case(&["tools/unmount/plug.py", "--runs", "0"], "--runs is at least 1"),
    case(&["tools/attributes/table.py", "--tool", "no/such"], "table.py needs root"),
    case(&["tools/nfs/run.py", "--vlinder", "no/such"], "run.py needs root"),
    case(&["tools/attributes/table.py", "--nonsense"], "unrecognized arguments: --nonsense"),
    case(&["tools/latency/run.py", "--nonsense"], "unrecognized arguments: --nonsense"),
    case(&["tools/memory/run.py", "--nonsense"], "unrecognized arguments: --nonsense"),
    case(&["tools/nfs/run.py", "--nonsense"], "unrecognized arguments: --nonsense"),
    case(&["tools/setid/table.py", "--nonsense"], "unrecognized arguments: --nonsense"),
    case(&["tools/strangers/run.py", "--nonsense"], "unrecognized arguments: --nonsense"),
    case(&["tools/unmount/plug.py", "--nonsense"], "unrecognized arguments: --nonsense"),
    case(&["tools/unmount/table.py", "--nonsense"], "unrecognized arguments: --nonsense"),
];

/// Variables that the commands read, so that what is set around the tests decides nothing.
const READ: [&str; 15] = [
    "MINUTES",
    "SEED",
    "SEEDS",
    "EXECUTIONS",
    "BTRFS_CHECK",
    "TARGET",
    "ROUNDS",
    "JOB_MIB",
    "ONLY",
    "OPERATIONS",
    "INPUTS",
    "REPORT",
    "DEMO_SOURCE",
    "RESUME",
    "LIST",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies below the root")
}

/// What is wrong with what a call says; nothing if it fails in words.
fn judge(Case { words, variables, says }: &Case) -> Option<String> {
    let is_python = words[0].ends_with(".py");
    let mut command = if is_python {
        let mut command = Command::new("python3");
        command.arg("-B").args(*words);
        command
    } else {
        // A path below the root is not looked for in the directory of the command otherwise.
        let mut command = Command::new(root().join(words[0]));
        command.args(&words[1..]);
        command
    };
    for name in READ {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).env("RUST_BACKTRACE", "1").current_dir(root());
    let output = command.stdin(std::process::Stdio::null()).output().expect("the program starts");
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let said = String::from_utf8_lossy(&said);
    let is_backtrace =
        ["Traceback", "stack backtrace", "unbound variable"].iter().any(|word| said.contains(word));
    let is_good = !output.status.success() && !is_backtrace && said.contains(says);
    (!is_good).then(|| format!("{variables:?} {words:?}: {}, without “{says}”: {said}", output.status))
}

fn all_fail_in_words(cases: &[Case]) {
    let wrong: Vec<String> = cases.iter().filter_map(judge).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn xtask_says_what_it_takes() {
    all_fail_in_words(OF_XTASK);
}

#[test]
fn scripts_say_which_word_or_variable_is_wrong() {
    all_fail_in_words(SCRIPTS);
}

#[test]
fn programs_in_python_end_without_a_traceback() {
    if Command::new("python3").arg("--version").output().is_err() {
        let line =
            "SKIPPED wrong_words::programs_in_python_end_without_a_traceback: needs the tool python3\n";
        if let Some(log) = std::env::var_os("VLINDER_SKIP_LOG") {
            let mut log =
                std::fs::OpenOptions::new().append(true).open(log).expect("the log of skipped tests");
            log.write_all(line.as_bytes()).expect("the log of skipped tests");
        }
        assert_ne!(std::env::var("VLINDER_REQUIRE").as_deref(), Ok("all"), "python3 is not there");
        return;
    }
    all_fail_in_words(PROGRAMS);
}

#[test]
fn no_script_is_left_out() {
    let named = |path: &str| SCRIPTS.iter().any(|case| case.words[0] == path);
    for entry in std::fs::read_dir(root().join("tools")).expect("tools") {
        let name = entry.expect("tools").file_name().into_string().expect("a plain name");
        assert!(!name.ends_with(".sh") || named(&format!("tools/{name}")), "tools/{name} has no row");
    }
}
