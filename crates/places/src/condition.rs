//! What keeps a file system from storing what it is given, as the verbs that show its state tell it.

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use vlinder_control::protocol::{ConditionRecord, FailedCommitRecord};

use crate::text::counted;

/// For JSON.
pub fn object(condition: &ConditionRecord) -> Value {
    let failed = |failed: &FailedCommitRecord| {
        json!({
            "time_seconds": failed.time.seconds,
            "generation": failed.generation,
            "reason": failed.reason,
            "count": failed.count,
            "over": failed.is_over,
        })
    };
    json!({
        "read_only": condition.read_only,
        "host_full": condition.is_host_full,
        "held_bytes": condition.held_bytes,
        "lost_bytes": condition.lost_bytes,
        "failed_commit": condition.failed_commit.as_ref().map(failed),
    })
}

/// A line for each thing that there is to tell; none of a file system that fares well.
pub fn lines(condition: &ConditionRecord) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(reason) = &condition.read_only {
        lines.push(format!("Read-only: {reason}"));
    }
    if condition.is_host_full {
        lines.push(
            "Host full: the host has no space for the image; free some there, it is tried again".into(),
        );
    }
    if condition.held_bytes > 0 {
        let bytes = counted(condition.held_bytes, "byte", "bytes");
        let again = if condition.held_bytes == 1 { "it is" } else { "they are" };
        lines.push(format!("Held: {bytes} in memory found no room; {again} tried again"));
    }
    if condition.lost_bytes > 0 {
        let bytes = counted(condition.lost_bytes, "byte", "bytes");
        lines.push(format!("Lost: {bytes} from the kernel's cache found no room in memory either"));
    }
    if let Some(failed) = &condition.failed_commit {
        let times = counted(failed.count, "time", "times");
        let since = if failed.is_over { "; commits succeed again" } else { "" };
        let (time, reason) = (time(failed.time.seconds), &failed.reason);
        lines.push(format!("Failed commit: {reason} ({times} since {time}){since}"));
    }
    lines
}

/// In UTC, since the log of a server has it so.
fn time(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => format!("second {seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use vlinder_control::protocol::Time;

    use super::*;

    #[test]
    fn nothing_is_told_of_a_file_system_that_fares_well() {
        assert!(lines(&ConditionRecord::default()).is_empty());
    }

    #[test]
    fn each_trouble_has_its_line() {
        let failed = FailedCommitRecord {
            time: Time { seconds: 1_700_000_000, nanoseconds: 5 },
            generation: 7,
            reason: "no space".into(),
            count: 2,
            is_over: true,
        };
        let condition = ConditionRecord {
            read_only: Some("an error".into()),
            is_host_full: true,
            held_bytes: 4096,
            lost_bytes: 1,
            failed_commit: Some(failed),
        };
        let told = lines(&condition);
        let expected = [
            "Read-only: an error",
            "Host full: the host has no space for the image; free some there, it is tried again",
            "Held: 4096 bytes in memory found no room; they are tried again",
            "Lost: 1 byte from the kernel's cache found no room in memory either",
            "Failed commit: no space (2 times since 2023-11-14 22:13:20 UTC); commits succeed again",
        ];
        assert_eq!(told, expected);
        assert_eq!(object(&condition)["failed_commit"]["generation"], 7);
        let condition = ConditionRecord { held_bytes: 1, lost_bytes: 4097, ..Default::default() };
        let expected = [
            "Held: 1 byte in memory found no room; it is tried again",
            "Lost: 4097 bytes from the kernel's cache found no room in memory either",
        ];
        assert_eq!(lines(&condition), expected);
    }
}
