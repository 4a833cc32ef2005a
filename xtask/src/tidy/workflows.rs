//! What runs elsewhere can't rot unseen: the commands that the public workflows and `.ci/run` name exist
//! here. A workflow takes each action at one full version, and asks for no more rights than to read.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

/// Where public workflows lie.
const WORKFLOWS: &str = ".github/workflows";
/// The script for a machine of one's own.
const OWN_SCRIPT: &str = ".ci/run";

/// What can be called by name.
struct Commands {
    make_targets: BTreeSet<String>,
    xtask_verbs: BTreeSet<String>,
}

/// What is wrong with the workflows and `.ci/run`.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} can't be read"))
    };
    let commands = Commands {
        make_targets: make_targets(&read("Makefile")?),
        xtask_verbs: xtask_verbs(&read("xtask/src/main.rs")?),
    };
    let mut findings = commands.missing_in(OWN_SCRIPT, &read(OWN_SCRIPT)?, root);
    let mut count = 0;
    for entry in std::fs::read_dir(root.join(WORKFLOWS)).context(WORKFLOWS)? {
        let name = format!("{WORKFLOWS}/{}", entry?.file_name().to_string_lossy());
        let text = read(&name)?;
        findings.extend(judge_workflow(&name, &text));
        findings.extend(commands.missing_in(&name, &scripts(&text).join("\n"), root));
        count += 1;
    }
    if count == 0 {
        findings.push(format!("{WORKFLOWS} holds no workflow"));
    }
    Ok(findings)
}

/// The targets of a Makefile.
fn make_targets(makefile: &str) -> BTreeSet<String> {
    let is_name = |name: &&str| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
    };
    let heads = makefile.lines().filter_map(|line| line.split_once(':').map(|(head, _)| head));
    heads.filter(is_name).map(str::to_owned).collect()
}

/// The verbs that `xtask` takes: what its arms begin with.
fn xtask_verbs(source: &str) -> BTreeSet<String> {
    let arms = source.lines().filter_map(|line| line.trim_start().strip_prefix("[\""));
    arms.filter_map(|arm| arm.split('"').next()).map(str::to_owned).collect()
}

/// What each `run:` of a workflow holds, without its indentation.
fn scripts(workflow: &str) -> Vec<String> {
    let lines: Vec<&str> = workflow.lines().collect();
    let mut scripts = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some((indent, value)) = line.split_once("run: ") else { continue };
        if !indent.trim_matches([' ', '-']).is_empty() {
            continue;
        }
        if !value.starts_with(['|', '>']) {
            scripts.push(value.to_owned());
            continue;
        }
        let is_inside =
            |line: &&&str| line.trim().is_empty() || line.len() - line.trim_start().len() > indent.len();
        let block: Vec<&str> =
            lines[number + 1..].iter().take_while(is_inside).map(|line| line.trim()).collect();
        scripts.push(block.join("\n"));
    }
    scripts
}

/// Faults of a workflow's own.
fn judge_workflow(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.contains("\npermissions:\n  contents: read\n\n") {
        findings.push(format!("{name}: the workflow must have `permissions:` with `contents: read` alone"));
    }
    if text.contains("secrets.") || text.contains(": write") {
        findings.push(format!("{name}: a fork has no secrets and no right to write"));
    }
    let used = text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("uses: "));
    for action in used.filter(|action| !is_full_version(action)) {
        findings.push(format!("{name}: {action} names no full version (OWNER/NAME@vN.N.N)"));
    }
    findings
}

fn is_full_version(action: &str) -> bool {
    let version = action.trim().split_once("@v").map_or("", |(_, version)| version);
    let parts: Vec<&str> = version.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

impl Commands {
    /// Commands, packages and files of this tree that a script names in vain. Comments are not read.
    fn missing_in(&self, name: &str, script: &str, root: &Path) -> Vec<String> {
        let mut findings = BTreeSet::new();
        for line in script.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let words: Vec<&str> =
                line.split_whitespace().map(|word| word.trim_matches(['"', '\'', ';', '(', ')'])).collect();
            for pair in words.windows(2) {
                match pair {
                    ["make", target] if !self.make_targets.contains(*target) => {
                        findings.insert(format!("{name}: the Makefile has no target {target}"));
                    }
                    ["xtask", verb] if !self.xtask_verbs.contains(*verb) => {
                        findings.insert(format!("{name}: there is no cargo xtask {verb}"));
                    }
                    ["-p" | "--package", package]
                        if package.starts_with("vlinder-") && !has_package(root, package) =>
                    {
                        findings.insert(format!("{name}: there is no package {package}"));
                    }
                    _ => {}
                }
            }
            let is_own = |word: &&&str| [".ci/", "tools/"].iter().any(|room| word.starts_with(room));
            for word in words.iter().filter(is_own).filter(|word| !root.join(word).exists()) {
                findings.insert(format!("{name}: there is no {word}"));
            }
        }
        findings.into_iter().collect()
    }
}

fn has_package(root: &Path, package: &str) -> bool {
    let short = package.trim_start_matches("vlinder-");
    [format!("crates/{short}"), short.to_owned()]
        .iter()
        .any(|place| root.join(place).join("Cargo.toml").exists())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::workspace::root;

    const GOOD: &str = "on: [push]\npermissions:\n  contents: read\n\njobs:\n  one:\n    steps:\n      \
        - uses: a/b@v1.2.3\n      - run: cargo xtask tidy\n      - name: two\n        run: |\n          make test\n\n          \
        # make nothing\n          tools/demo.sh\n      - uses: c/d@v4.5.6\n";

    fn commands() -> Commands {
        Commands {
            make_targets: make_targets(
                "# note: x\n.PHONY: test\nTEXT = 1\ntest:\n\tcargo test\nfio-engine: test\n",
            ),
            xtask_verbs: xtask_verbs(
                "    [\"tidy\"] => a(),\n    [\"user-test\", user] => b(user),\n    _ => c,\n",
            ),
        }
    }

    #[test]
    fn targets_verbs_and_scripts_are_found() {
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
        assert_eq!(names(&commands().make_targets), ["fio-engine", "test"]);
        assert_eq!(names(&commands().xtask_verbs), ["tidy", "user-test"]);
        assert_eq!(scripts(GOOD), ["cargo xtask tidy", "make test\n\n# make nothing\ntools/demo.sh"]);
    }

    #[test]
    fn a_sound_workflow_passes_and_each_fault_is_told() {
        assert_eq!(judge_workflow("w", GOOD), Vec::<String>::new());
        assert_eq!(commands().missing_in("w", &scripts(GOOD).join("\n"), root()), Vec::<String>::new());
        for (right, wrong, told) in [
            ("b@v1.2.3", "b@v1", "no full version"),
            ("b@v1.2.3", "b@main", "no full version"),
            ("contents: read\n", "contents: write\n", "permissions"),
            ("contents: read\n", "contents: read\n  issues: write\n", "no right to write"),
            ("a/b@v1.2.3", "a/b@v1.2.3\n        with: ${{ secrets.X }}", "no secrets"),
        ] {
            let found = judge_workflow("w", &GOOD.replace(right, wrong)).join("\n");
            assert!(found.contains(told), "{wrong}: {found}");
        }
        for (script, told) in [
            ("make nonsense", "no target nonsense"),
            ("sudo env A=b cargo xtask nonsense", "no cargo xtask nonsense"),
            ("cargo test -p vlinder-nonsense", "no package vlinder-nonsense"),
            ("step 'x' 5 tools/nonsense.sh", "no tools/nonsense.sh"),
        ] {
            assert_eq!(commands().missing_in("w", script, root()), [format!("w: {}", in_full(told))]);
        }
    }

    fn in_full(told: &str) -> String {
        if told.starts_with("no target") {
            format!("the Makefile has {told}")
        } else {
            format!("there is {told}")
        }
    }

    #[test]
    fn the_shell_can_read_every_script_of_ours() {
        for entry in std::fs::read_dir(root().join(WORKFLOWS)).unwrap() {
            let path = entry.unwrap().path();
            let scripts = scripts(&std::fs::read_to_string(&path).unwrap());
            assert!(!scripts.is_empty(), "{}", path.display());
            for script in scripts {
                let read = Command::new("bash").args(["-n", "-c", &script]).output().unwrap();
                assert!(read.status.success(), "{}: {script}: {read:?}", path.display());
            }
        }
    }
}
