//! Numbers in words.

use std::fmt::Write as _;

use crate::row::{RowResult, SideResult};

/// A row in one line.
pub fn line(result: &RowResult) -> String {
    let mut line = format!("{}:", result.id);
    for side in &result.sides {
        let (time, peak) = (time(side.median_seconds), memory(side));
        let _ = write!(line, " {} {time} (× {:.2}, {peak})", side.name, side.ratio);
        let counts = counts(side);
        if !counts.is_empty() {
            let _ = write!(line, " [{}]", counts.join(", "));
        }
    }
    line
}

/// A time, in a unit that leaves something of it.
pub fn time(seconds: f64) -> String {
    if seconds < 0.01 { format!("{:.3} ms", seconds * 1000.0) } else { format!("{seconds:.3} s") }
}

/// A ratio, in as many digits as mean something.
pub fn ratio(ratio: f64) -> String {
    if ratio < 10.0 { format!("× {ratio:.2}") } else { format!("× {ratio:.1}") }
}

/// The most memory that a side took.
pub fn memory(side: &SideResult) -> String {
    format!("{} MiB", side.peak_bytes >> 20)
}

/// What a side counted.
pub fn counts(side: &SideResult) -> Vec<String> {
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    side.counts.iter().map(|(name, value)| format!("{name} {}", rounded(*value))).collect()
}

/// A paragraph in lines of at most 110 columns.
pub fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 110;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { continue };
        let is_full = !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS;
        match (is_full, line.is_empty()) {
            (true, _) => lines.push(word.to_owned()),
            (false, true) => line.push_str(word),
            (false, false) => {
                line.push(' ');
                line.push_str(word);
            }
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_is_wrapped_between_words() {
        let text = "word ".repeat(50);
        let wrapped = wrapped(&text);
        assert!(wrapped.lines().count() == 3 && wrapped.lines().all(|line| line.len() <= 110), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().count(), 50);
    }

    #[test]
    fn short_times_are_shown_in_milliseconds() {
        assert_eq!((time(0.000_317_4), time(0.0123)), ("0.317 ms".into(), "0.012 s".into()));
    }
}
