//! What the long tiers (`make matrix`, `make proof`, `make judges`) have in common: where they read their
//! bounds and leave their results. A bound that can't be read is told before any work begins.

use std::path::PathBuf;

/// The number in an environment variable; none where it is not set or empty.
///
/// # Errors
/// A sentence, where it holds anything else, so that a mistyped bound is not taken for none.
pub fn number(name: &str) -> Result<Option<u64>, String> {
    parsed(name, std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
}

fn parsed(name: &str, text: Option<String>) -> Result<Option<u64>, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let number =
        text.parse().map_err(|_| format!("{name}={text} is no number: give digits alone, as in {name}=5"));
    number.map(Some)
}

/// The directory for a tier's results, beside the build; it is made.
///
/// # Errors
/// A sentence, where it can't be made.
pub fn results(tier: &str) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let directory = target.join(tier);
    match std::fs::create_dir_all(&directory) {
        Ok(()) => Ok(directory),
        Err(error) => {
            Err(format!("{}: {error}; CARGO_TARGET_DIR chooses another place", directory.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_number_or_nothing() {
        let parsed = |text: &str| parsed("SEED", Some(text.to_owned()));
        assert_eq!(
            (parsed(""), parsed("12"), super::parsed("SEED", None)),
            (Ok(None), Ok(Some(12)), Ok(None))
        );
        for text in ["x", "-1", "1.5", "18446744073709551616"] {
            assert!(parsed(text).unwrap_err().starts_with(&format!("SEED={text} is no number")), "{text}");
        }
    }
}
