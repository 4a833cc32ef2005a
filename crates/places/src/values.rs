//! Values of flags: chosen from a few names, or numbers.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// Parses by a function that takes more than the names (other spellings, a level behind one), and has those
/// for completions.
#[derive(Clone, Copy)]
pub struct Choice<T> {
    names: &'static [&'static str],
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Choice<T> {
    /// From these names.
    pub const fn new(names: &'static [&'static str], parse: fn(&str) -> Result<T, String>) -> Self {
        Self { names, parse }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Choice<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        self.parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// A number: decimal (a leading minus counts down from 2^64), or hexadecimal after `0x`.
pub fn parse_number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    match text.strip_prefix('-') {
        Some(digits) => digits.parse::<u64>().ok().map(u64::wrapping_neg),
        None => text.parse().ok(),
    }
}

/// A number as an argument.
///
/// # Errors
/// The text for the user, where it is none.
pub fn number(text: &str) -> Result<u64, String> {
    parse_number(text).ok_or_else(|| format!("{text:?} is no number"))
}
