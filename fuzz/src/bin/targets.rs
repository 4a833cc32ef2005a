//! `targets SELECTION`: the names of targets, one a line; the selection is names or groups, separated by
//! commas.

use std::process::ExitCode;

use vlinder_fuzz::target;

fn main() -> ExitCode {
    let selection = std::env::args().nth(1).unwrap_or_else(|| "all".to_owned());
    let mut chosen = Vec::new();
    for word in selection.split(',') {
        let of_word: Vec<&str> = target::listed()
            .filter(|(name, group)| word == "all" || word == *name || word == *group)
            .map(|(name, _)| name)
            .collect();
        if of_word.is_empty() {
            eprintln!(
                "there is no target or group {word}; groups are items, structures, codecs, images, all"
            );
            return ExitCode::from(2);
        }
        chosen.extend(of_word);
    }
    chosen.iter().for_each(|name| println!("{name}"));
    ExitCode::SUCCESS
}
