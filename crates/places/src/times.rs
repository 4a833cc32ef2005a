//! Times as text.

use jiff::tz::TimeZone;
use vlinder_format::inode::Timestamp;

/// Seconds since 1970 as the user's clock shows them.
pub fn local_time(seconds: i64, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(timestamp) => timestamp.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        // Before year -9999 or after 9999.
        Err(_) => "out of range".to_owned(),
    }
}

/// Local time with the offset, to the second.
pub fn local_time_with_offset(time: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(timestamp) => timestamp.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %z").to_string(),
        Err(_) => format!("{} s", time.seconds),
    }
}

/// Local time with the offset, to the nanosecond.
pub fn full_time(time: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(seconds) => {
            let zoned = seconds.to_zoned(zone.clone());
            let (date, offset) = (zoned.strftime("%Y-%m-%d %H:%M:%S"), zoned.strftime("%z"));
            format!("{date}.{:09} {offset}", time.nanoseconds)
        }
        Err(_) => format!("{}.{:09} s", time.seconds, time.nanoseconds),
    }
}

/// Local time to the minute.
pub fn short_time(time: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(seconds) => seconds.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => format!("{} s", time.seconds),
    }
}
