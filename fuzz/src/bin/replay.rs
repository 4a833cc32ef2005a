//! Gives inputs to the targets that their first bytes name, once each: `replay FILE…`, and says what those of
//! whole images change. Needs no fuzzer. The first finding ends it as a panic; so a case can be shortened or
//! looked at in a debugger.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        eprintln!("usage: replay FILE…  (inputs of the fuzz targets: {})", vlinder_fuzz::names().join(", "));
        return ExitCode::from(2);
    }
    for file in files {
        match std::fs::read(&file) {
            Ok(input) => {
                #[cfg(feature = "engine")]
                if input.first() == vlinder_fuzz::by_name("image").map(|target| &target.number) {
                    vlinder_fuzz::images::explain(&input[1..]).iter().for_each(|line| println!("{line}"));
                }
                let known = vlinder_fuzz::run(&input);
                println!(
                    "{}: {}",
                    file.display(),
                    if known { "passed" } else { "no target has this first byte" }
                );
            }
            Err(error) => {
                eprintln!("{}: {error}", file.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
