//! How a test says what it needs of the machine, and how a test that can't run is counted and named.
//!
//! `require!(Root, Tool("btrfs"))` at the head of a test returns from it where something is missing, after
//! one line `SKIPPED crate::module::test: reason` on standard error (past the capture of the test runner) and
//! in the file that `VLINDER_SKIP_LOG` names, from which `cargo xtask test` counts. With
//! `VLINDER_REQUIRE=all` it panics instead, unless all that is missing is what no preparation of the machine
//! can give ([`Requirement::can_be_given`]). With `VLINDER_QUICK=1` nothing is there that `cargo xtask test
//! quick` goes without ([`Requirement::is_quick`]).

use std::fmt;
use std::path::{Path, PathBuf};

use vlinder_base::affinity::Affinity;

/// Something that not every machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// The super-user.
    Root,
    /// Anybody but the super-user (file modes mean nothing to root).
    OrdinaryUser,
    /// Mounting through /dev/fuse: the device can be opened, and the user is root or has fusermount3.
    Fuse,
    /// Loop devices (root as well).
    LoopDevices,
    /// The kernel's own btrfs, mountable (root and loop devices as well).
    KernelBtrfs,
    /// So many processors that this process may use.
    Processors(u32),
    /// A program in PATH (or in /usr/sbin, /sbin).
    Tool(&'static str),
    /// The corpus of foreign images beside the checkout; see [`corpus`].
    Corpus,
    /// Time for a long run: of seeds, of cuts at every write, of a whole table of odd images. Every machine
    /// has it; the tests of every edit do without.
    LongRun,
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Root => formatter.write_str("needs root"),
            Requirement::OrdinaryUser => formatter.write_str("needs an ordinary user"),
            Requirement::Fuse => formatter.write_str("needs /dev/fuse"),
            Requirement::LoopDevices => formatter.write_str("needs loop devices"),
            Requirement::KernelBtrfs => formatter.write_str("needs the kernel's btrfs"),
            Requirement::Processors(count) => write!(formatter, "needs {count} processors"),
            Requirement::Tool(name) => write!(formatter, "needs the tool {name}"),
            Requirement::Corpus => {
                formatter.write_str("needs the corpus beside the checkout (../shared/corpus)")
            }
            Requirement::LongRun => formatter.write_str("takes long"),
        }
    }
}

impl Requirement {
    /// Whether this machine and user have it, and the tests may use it.
    pub fn is_met(&self) -> bool {
        (self.is_quick() || std::env::var_os("VLINDER_QUICK").is_none()) && self.is_there()
    }

    /// Whether tests that need it run at every edit: they use neither the rights of root nor the kernel's
    /// mounts, nor do they take long.
    pub const fn is_quick(&self) -> bool {
        matches!(self, Requirement::OrdinaryUser | Requirement::Processors(_) | Requirement::Tool(_))
    }

    fn is_there(&self) -> bool {
        let is_root = rustix::process::geteuid().is_root();
        match self {
            Requirement::Root => is_root,
            Requirement::OrdinaryUser => !is_root,
            Requirement::Fuse => {
                let opens = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
                opens && (is_root || find_tool("fusermount3").is_some())
            }
            Requirement::LoopDevices => is_root && Path::new("/dev/loop-control").exists(),
            Requirement::KernelBtrfs => Requirement::LoopDevices.is_there() && kernel_has_btrfs(),
            Requirement::Processors(count) => {
                Affinity::current().is_some_and(|allowed| allowed.count() >= *count)
            }
            Requirement::Tool(name) => find_tool(name).is_some(),
            Requirement::Corpus => corpus().is_some(),
            Requirement::LongRun => true,
        }
    }
}

impl Requirement {
    /// False for what `VLINDER_REQUIRE=all` can't ask for: another user, another machine, or files that are
    /// not part of the project. Such a test is skipped, counted and named even then.
    pub fn can_be_given(&self) -> bool {
        !matches!(self, Requirement::OrdinaryUser | Requirement::Processors(_) | Requirement::Corpus)
    }
}

fn kernel_has_btrfs() -> bool {
    let listed = || std::fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("\tbtrfs\n"));
    // Where it is a module, the first mount would load it; loading it here makes the answer right.
    listed() || std::process::Command::new("modprobe").arg("btrfs").status().is_ok_and(|_| listed())
}

/// The program's path, if it is installed.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The corpus of damaged, odd and golden images that lies beside the checkout on some machines.
pub fn corpus() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    directory.is_dir().then_some(directory)
}

/// True if the test must return because of a missing requirement; see the module. Use
/// [`require!`](crate::require!).
///
/// # Panics
/// If something is missing that could be given, and `VLINDER_REQUIRE=all` says that nothing may be.
pub fn is_skipped(test: &str, requirements: &[Requirement]) -> bool {
    let missing: Vec<&Requirement> = requirements.iter().filter(|one| !one.is_met()).collect();
    if missing.is_empty() {
        return false;
    }
    let reasons: Vec<String> = missing.iter().map(|one| one.to_string()).collect();
    let reason = reasons.join(", ");
    if missing.iter().any(|one| one.can_be_given()) {
        skip(test, &reason);
    } else {
        report(test, &reason);
    }
    true
}

/// Counts and names a test, or a part of one, that did not run.
///
/// # Panics
/// If `VLINDER_REQUIRE=all` says that nothing may be skipped.
pub fn skip(test: &str, reason: &str) {
    assert!(
        std::env::var("VLINDER_REQUIRE").map_or(true, |value| value != "all"),
        "{test}: {reason}, and VLINDER_REQUIRE=all forbids to skip it"
    );
    report(test, reason);
}

fn report(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    // Not eprintln!, whose output the test runner swallows for tests that pass. The log below is what counts.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    if let Some(log) = std::env::var_os("VLINDER_SKIP_LOG") {
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
        assert!(written.is_ok(), "the skip log {} can't be written: {written:?}", log.display());
    }
}

/// Returns from the test (with `()`) where the machine or user lacks one of these
/// [`Requirement`]s.
///
/// ```
/// # use vlinder_testkit::require;
/// fn kernel_walks_equal() {
///     require!(KernelBtrfs, Tool("btrfs"));
///     // …
/// }
/// ```
#[macro_export]
macro_rules! require {
    ($($requirement:ident $(($argument:expr))?),+ $(,)?) => {{
        fn here() {}
        let name = ::std::any::type_name_of_val(&here);
        let test = name.strip_suffix("::here").unwrap_or(name);
        let requirements = [$($crate::require::Requirement::$requirement $(($argument))?),+];
        if $crate::require::is_skipped(test, &requirements) {
            return;
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_by_name() {
        assert!(find_tool("sh").is_some());
        assert!(find_tool("no-such-tool-anywhere").is_none());
        assert!(Requirement::Processors(1).is_met() && !Requirement::Processors(u32::MAX).is_met());
        assert!(Requirement::Root.is_there() != Requirement::OrdinaryUser.is_there());
    }

    /// The macro in a process of its own: it must name the test, log the line, and obey `VLINDER_REQUIRE`.
    #[test]
    fn a_missing_tool_is_named_counted_and_forbidden_on_demand() {
        if std::env::var_os("VLINDER_TEST_CHILD").is_some() {
            crate::require!(Tool("no-such-tool-anywhere"));
            unreachable!("require! must return");
        }
        let log = std::env::temp_dir().join(format!("vlinder-skip-log-{}", std::process::id()));
        let run = |require: &str| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "require::tests::a_missing_tool_is_named_counted_and_forbidden_on_demand"])
                .envs([("VLINDER_TEST_CHILD", "1"), ("VLINDER_REQUIRE", require)])
                .env("VLINDER_SKIP_LOG", &log)
                .output()
                .unwrap()
        };
        let skipped = run("");
        let logged = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert!(skipped.status.success());
        let line = "SKIPPED vlinder_testkit::require::tests::a_missing_tool_is_named_counted_and_forbidden_on_demand: \
                    needs the tool no-such-tool-anywhere\n";
        assert_eq!(logged, line);
        assert!(String::from_utf8_lossy(&skipped.stderr).contains(line));
        assert!(!run("all").status.success());
    }
}
