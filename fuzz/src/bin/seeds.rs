//! `seeds DIRECTORY`: writes the inputs that runs begin with, each under its target's name.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds DIRECTORY");
        return ExitCode::from(2);
    };
    let inputs = vlinder_fuzz::seeds::inputs();
    for (number, (name, input)) in inputs.iter().enumerate() {
        let target = directory.join(name);
        let written = std::fs::create_dir_all(&target)
            .and_then(|()| std::fs::write(target.join(format!("{number:05}")), input));
        if let Err(error) = written {
            eprintln!("{}: {error}", target.display());
            return ExitCode::FAILURE;
        }
    }
    println!("{} seeds in {}", inputs.len(), directory.display());
    ExitCode::SUCCESS
}
