//! What the tests of the command share.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// The command, as users call it.
pub fn vlinder() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vlinder"));
    command.env("TZ", "UTC").env_remove("SOURCE_DATE_EPOCH");
    command
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its number.
    pub code: i32,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.text(), self.err))
    }

    /// Asserts that it ended well, with nothing to complain about.
    #[track_caller]
    pub fn done(self) -> Self {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.text());
        self
    }

    /// Asserts that it failed with this number, and said all of these words on standard error.
    #[track_caller]
    pub fn failed(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{}{}", self.text(), self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {:?}", self.err);
        }
        self
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: output.stdout, err }
    }
}

/// Runs a command to its end.
pub fn end(command: &mut Command) -> Ended {
    command.output().unwrap().into()
}

/// Runs `vlinder` with these arguments.
pub fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
    end(vlinder().args(arguments))
}

/// Runs a program that must succeed.
#[track_caller]
pub fn tool<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> String {
    let output = Command::new(program).args(arguments).env("TZ", "UTC").env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes an empty image of 128 MiB.
pub fn make_image(path: &Path) {
    run([OsStr::new("mkfs"), "-q".as_ref(), "-b".as_ref(), "128M".as_ref(), path.as_os_str()]).done();
}

/// `IMAGE:/PATH`.
pub fn target(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// The verbs that the help of the command, or of a verb that has verbs, lists.
fn verbs_below(above: &[&str]) -> Vec<String> {
    let help = run(above.iter().copied().chain(["--help"])).done().text();
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let verbs = lines.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let verbs = verbs.filter_map(|line| line.split_whitespace().next());
    verbs.filter(|verb| *verb != "help").map(str::to_owned).collect()
}

/// All verbs but those, as the help lists them: a verb with verbs below it counts once for each of these.
pub fn verbs_but(elsewhere: &[&str]) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for verb in verbs_below(&[]).into_iter().filter(|verb| !elsewhere.contains(&verb.as_str())) {
        match verbs_below(&[&verb]) {
            inner if inner.is_empty() => drop(known.insert(verb)),
            inner => known.extend(inner.into_iter().map(|inner| format!("{verb} {inner}"))),
        }
    }
    assert!(known.len() > 30, "{known:?}");
    known
}
