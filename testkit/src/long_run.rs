//! What the long tiers (`make matrix`, `make proof`) have in common: where they read their bounds and leave
//! their results.

use std::path::PathBuf;

/// The number in an environment variable; none where it is not set or empty.
///
/// # Panics
/// Where it holds anything else, so that a mistyped bound is not taken for none.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={text} is no number"),
    }
}

/// The directory for a tier's results, beside the build; it is made.
///
/// # Panics
/// Where it can't be made.
#[must_use]
pub fn results(tier: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let directory = target.join(tier);
    if let Err(error) = std::fs::create_dir_all(&directory) {
        panic!("{}: {error}", directory.display());
    }
    directory
}
