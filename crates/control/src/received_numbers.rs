//! Numbers that are judged when they are received: the server may be anybody's.

use serde::{Deserialize, Deserializer};

/// For a member that the receiver divides by.
pub(crate) fn power_of_two<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    match number.is_power_of_two() {
        true => Ok(number),
        false => Err(serde::de::Error::custom(format!("{number} is no power of two"))),
    }
}

#[cfg(test)]
mod tests {
    use crate::Answer;

    #[test]
    fn a_client_divides_by_powers_of_two_alone() {
        let answer = |block_bytes: u64| {
            let text =
                format!(r#"{{"answer":"file-map","size_bytes":1,"block_bytes":{block_bytes},"runs":[]}}"#);
            serde_json::from_str::<Answer>(&text)
        };
        assert!(answer(4096).is_ok());
        assert!(answer(0).is_err() && answer(12_345).is_err());
    }
}
