//! How bytes and times are written.

use std::io::{self, Write};

/// The days from the beginning of the year 0 (Gregorian, counted back) to 1970.
const DAYS_TO_1970: i128 = 719_528;
/// Days of 400 years, after which the calendar repeats.
const DAYS_OF_400_YEARS: i128 = 146_097;

/// What C makes of bytes: they end at the first zero.
pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Appends bytes so that they stay on their line, and a space is not the end of a path.
pub(super) fn escape(bytes: &[u8], line: &mut Vec<u8>) {
    for byte in bytes {
        let letter = match byte {
            0x07 => b'a',
            0x08 => b'b',
            0x1b => b'e',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            b' ' | b'\\' => *byte,
            b'!'..=b'~' => {
                line.push(*byte);
                continue;
            }
            _ => {
                let digit = |shift: u8| b'0' + (byte >> shift & 7);
                line.extend_from_slice(&[b'\\', digit(6), digit(3), digit(0)]);
                continue;
            }
        };
        line.extend_from_slice(&[b'\\', letter]);
    }
}

/// Appends a time as strftime(3) has it by `%FT%T%z`: `2023-11-14T22:13:20+0000`.
pub(super) fn write_time(seconds: i64, utc_offset: i32, line: &mut Vec<u8>) -> io::Result<()> {
    // Of 64 bits each, so that nothing overflows.
    let local = i128::from(seconds) + i128::from(utc_offset);
    let (days, of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let (sign, ahead) = if utc_offset < 0 { ('-', -i64::from(utc_offset)) } else { ('+', utc_offset.into()) };
    write!(line, "{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    write!(line, "{sign}{:02}{:02}", ahead / 3600, ahead / 60 % 60)
}

/// Year, month and day of a number of days since 1970.
fn date_of(days: i128) -> (i128, i128, i128) {
    let days = days + DAYS_TO_1970;
    let (era, mut day) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let mut year = era * 400;
    // At most 399 steps: a time is printed, not searched for.
    while day >= days_of_year(year) {
        day -= days_of_year(year);
        year += 1;
    }
    let mut month = 1;
    while day >= days_of_month(year, month) {
        day -= days_of_month(year, month);
        month += 1;
    }
    (year, month, day + 1)
}

fn is_leap(year: i128) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_year(year: i128) -> i128 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: i128, month: i128) -> i128 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64, offset: i32) -> String {
        let mut line = Vec::new();
        write_time(seconds, offset, &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        // As date(1) prints them.
        assert_eq!(time(0, 0), "1970-01-01T00:00:00+0000");
        assert_eq!(time(1_700_000_000, 0), "2023-11-14T22:13:20+0000");
        assert_eq!(time(951_782_400, 19_800), "2000-02-29T05:30:00+0530");
        assert_eq!(time(951_868_800, -34_200), "2000-02-29T14:30:00-0930");
        assert_eq!(time(-1, 0), "1969-12-31T23:59:59+0000");
        assert_eq!(time(4_107_542_400, 0), "2100-03-01T00:00:00+0000");
        assert_eq!(time(i64::MAX, 0), "292277026596-12-04T15:30:07+0000");
        assert_eq!(time(i64::MIN, 0), "-292277022657-01-27T08:29:52+0000");
    }

    #[test]
    fn bytes_that_would_break_a_line_are_escaped() {
        let mut line = Vec::new();
        escape(b"a b\\\n\x1b\x07\x08\x0c\r\t\x0b\x01\x7f\xc3~!", &mut line);
        assert_eq!(line, br"a\ b\\\n\e\a\b\f\r\t\v\001\177\303~!");
        assert_eq!(until_zero(b"ab\0c"), b"ab");
        assert_eq!(until_zero(b""), b"");
    }
}
