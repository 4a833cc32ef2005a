//! Completions for bash. Those of clap_complete offer all flags wherever a word is not begun, and know
//! nothing of the values of arguments without a flag; so this is a script with tables from the same
//! definitions.
//!
//! The script walks the words before the cursor through the tables: which verb it is, whether the last flag
//! waits for its value, how many arguments came. bash takes `:` and `=` for words of their own, so words are
//! put together first, and a candidate lacks what stands before the last of these. What has quotes or
//! variables in it is left to bash.

use std::fmt::Write as _;
use std::io::{Error, Write};

use clap::{Arg, Command, ValueHint};
use clap_complete::aot::Generator;

/// The script without its tables: NAME is the program's, FUNCTION what it is called in names of functions.
const SCRIPT: &str = r#"# Completions of NAME for bash 4.4 and later: put a line "source FILE" with the path of this file into ~/.bashrc.
_FUNCTION() {
    local verb="NAME" kind= waits= ended= place=0 glued= piece="${COMP_WORDS[COMP_CWORD]}" word letter current flags verbs places
    local -a words=()
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -gt 0 && ( -n $glued || $word == [:=] ) ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        if [[ $word == [:=] ]]; then glued=yes; else glued=; fi
    done
    current="${words[-1]}"
    unset 'words[-1]'
    for word in "${words[@]:1}"; do
        if [[ -n $waits ]]; then
            waits=
        elif [[ -z $ended && $word == -- ]]; then
            ended=yes
        elif [[ -z $ended && $word == --* ]]; then
            [[ $word == *=* ]] || waits="$(_FUNCTION_flag "$verb" "$word")"
        elif [[ -z $ended && $word == -?* ]]; then
            # Of several letters the first that takes a value takes the rest.
            for ((letter = 1; letter < ${#word}; letter++)); do
                waits="$(_FUNCTION_flag "$verb" "-${word:letter:1}")"
                [[ -n $waits ]] && break
            done
            ((letter + 1 < ${#word})) && waits=
        elif ! _FUNCTION_below "$word"; then
            ((++place))
        fi
    done
    [[ $piece == [:=] ]] && piece=
    if [[ -n $waits ]]; then
        kind="$waits"
    elif [[ -z $ended && $current == --*=* ]]; then
        kind="$(_FUNCTION_flag "$verb" "${current%%=*}")"
        current="${current#*=}"
    else
        _FUNCTION_table "$verb"
        if [[ -z $ended && $current == -* ]]; then
            kind="words $flags"
        elif [[ -n $verbs ]]; then
            kind="words $verbs"
        elif ((${#places[@]} > 0)); then
            kind="${places[place < ${#places[@]} ? place : -1]}"
        fi
    fi
    # Files are left to bash where they have to be unquoted first.
    [[ $kind == @(files|directories) && $current == *[\\\'\"\$\`]* ]] && return
    case "$kind" in
        "words "*) mapfile -t COMPREPLY < <(compgen -W "${kind#words }" -- "$current") ;;
        directories) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        files) [[ $current == *:/* ]] || mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    esac
    # Bash's own files are not offered where another thing is due, nor for a path in an image.
    compopt +o default +o bashdefault 2>/dev/null
    [[ $kind == @(files|directories) ]] && compopt -o filenames 2>/dev/null
    [[ $current == *"$piece" ]] && COMPREPLY=("${COMPREPLY[@]#"${current%"$piece"}"}")
    return 0
}

complete -F _FUNCTION -o nosort -o bashdefault -o default NAME
"#;

/// The generator.
pub struct Bash;

impl Generator for Bash {
    fn file_name(&self, name: &str) -> String {
        format!("{name}.bash")
    }

    fn generate(&self, command: &Command, output: &mut dyn Write) {
        self.try_generate(command, output).expect("completions can be written");
    }

    fn try_generate(&self, command: &Command, output: &mut dyn Write) -> Result<(), Error> {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let function = name.replace('-', "_");
        let mut tables = Tables::default();
        tables.add(command, name);
        let Tables { below, arguments, flags } = tables;
        let script = SCRIPT.replace("_FUNCTION", &format!("_{function}")).replace("NAME", name);
        write!(
            output,
            "{script}\n# The verb that a word names, after those before it.\n_{function}_below() {{\n    case \"$verb $1\" in\n\
             {below}        *) return 1 ;;\n    esac\n}}\n\n\
             # The flags and verbs that may follow, and what each argument without a flag is.\n_{function}_table() {{\n    \
             flags= verbs= places=()\n    case \"$1\" in\n{arguments}    esac\n}}\n\n\
             # What the value of a flag is; nothing where it takes none.\n_{function}_flag() {{\n    case \"$1 $2\" in\n{flags}    \
             esac\n}}\n"
        )
    }
}

/// The lines of each `case`.
#[derive(Default)]
struct Tables {
    below: String,
    arguments: String,
    flags: String,
}

impl Tables {
    fn add(&mut self, command: &Command, path: &str) {
        let shown = |argument: &&Arg| !argument.is_hide_set();
        let mut names = Vec::new();
        for argument in command.get_arguments().filter(shown) {
            names.extend(
                argument.get_short_and_visible_aliases().iter().flatten().map(|name| format!("-{name}")),
            );
            names.extend(
                argument.get_long_and_visible_aliases().iter().flatten().map(|name| format!("--{name}")),
            );
        }
        let visible: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
        let verbs: Vec<_> = visible.iter().map(|below| below.get_name()).collect();
        let places: Vec<_> =
            command.get_positionals().filter(shown).map(|place| format!("\"{}\"", kind(place))).collect();
        let line = format!(
            "        \"{path}\") flags=\"{}\" verbs=\"{}\" places=({}) ;;\n",
            names.join(" "),
            verbs.join(" "),
            places.join(" ")
        );
        self.arguments.push_str(&line);
        for flag in command.get_opts() {
            let shorts =
                flag.get_short().into_iter().chain(flag.get_all_short_aliases().into_iter().flatten());
            let longs = flag.get_long().into_iter().chain(flag.get_all_aliases().into_iter().flatten());
            let names = shorts.map(|name| format!("-{name}")).chain(longs.map(|name| format!("--{name}")));
            let names: Vec<_> = names.map(|name| format!("\"{path} {name}\"")).collect();
            self.flag(&names.join(" | "), &kind(flag));
        }
        for below in visible {
            let below_path = format!("{path} {}", below.get_name());
            let words = beginnings(command, below).into_iter().map(|word| format!("\"{path} {word}\""));
            let words = words.collect::<Vec<_>>().join(" | ");
            self.line_below(&words, &below_path);
            self.add(below, &below_path);
        }
    }

    fn flag(&mut self, names: &str, kind: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.flags, "        {names}) echo \"{kind}\" ;;");
    }

    fn line_below(&mut self, words: &str, path: &str) {
        let _ = writeln!(self.below, "        {words}) verb=\"{path}\" ;;");
    }
}

/// The words that name a verb among its neighbours: all of its names, and the beginnings that no other has.
fn beginnings(command: &Command, verb: &Command) -> Vec<String> {
    let names = |verb: &Command| -> Vec<String> {
        std::iter::once(verb.get_name()).chain(verb.get_all_aliases()).map(str::to_owned).collect()
    };
    let others: Vec<String> = command
        .get_subcommands()
        .filter(|other| other.get_name() != verb.get_name())
        .flat_map(names)
        .collect();
    let mut words = Vec::new();
    for name in names(verb) {
        let begun = (1..name.len()).filter_map(|length| name.get(..length));
        let own = begun.filter(|word| !others.iter().any(|other| other.starts_with(*word)));
        words.extend(own.map(str::to_owned).chain([name.clone()]));
    }
    words.sort();
    words.dedup();
    words
}

/// What a value is, as the script knows it.
fn kind(argument: &Arg) -> String {
    let values: Vec<_> =
        argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !values.is_empty() {
        return format!("words {}", values.join(" "));
    }
    let kind = match argument.get_value_hint() {
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::ExecutablePath => "files",
        ValueHint::DirPath => "directories",
        _ => "anything",
    };
    kind.to_owned()
}
