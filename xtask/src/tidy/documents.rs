//! Documents that must exist and keep up.

use std::path::Path;

/// The claims of docs/status.md: none may be dropped from there, shown or not.
const CLAIMS: [&str; 32] = [
    "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "A11", "B1", "B2", "B3", "B4", "B5", "B6",
    "B7", "B8", "B9", "B10", "B11", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10",
];

/// What is missing.
pub fn check(root: &Path) -> Vec<String> {
    let Ok(status) = std::fs::read_to_string(root.join("docs/status.md")) else {
        return vec!["docs/status.md is missing: it holds one row for each claim".to_owned()];
    };
    missing_rows(&status).map(|claim| format!("docs/status.md has no row for {claim}")).collect()
}

fn missing_rows(status: &str) -> impl Iterator<Item = &'static str> {
    let rows: Vec<&str> =
        status.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next()).map(str::trim).collect();
    let has_row = move |claim: &str| {
        let is_for =
            |row: &&str| row.split_whitespace().next().is_some_and(|word| word.trim_matches('*') == claim);
        rows.iter().any(is_for)
    };
    CLAIMS.into_iter().filter(move |claim| !has_row(claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_needs_a_row_of_its_own() {
        let status =
            "| claim | command |\n|---|---|\n| **A1** mkfs | x |\n| A10 bad bytes | y |\nA2 in the text\n";
        let missing: Vec<&str> = missing_rows(status).filter(|claim| claim.starts_with('A')).collect();
        assert_eq!(missing, ["A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A11"]);
    }
}
