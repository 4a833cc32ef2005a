//! Bytes as letters that need no quotes in a shell: base64 with `-` and `_`, unpadded (RFC 4648, section 5).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The letters of some bytes.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for letter in 0..=group.len() as u32 {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * letter) & 63) as usize]));
        }
    }
    text
}

/// The bytes of some letters; none where [`encode`] does not give these letters.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0;
        for index in 0..4 {
            let letter = group.get(index).copied().unwrap_or(b'A');
            bits = bits << 6 | ALPHABET.iter().position(|known| *known == letter)? as u32;
        }
        let [_, first, second, third] = bits.to_be_bytes();
        bytes.extend_from_slice([first, second, third].get(..group.len().checked_sub(1)?)?);
    }
    (encode(&bytes) == text).then_some(bytes)
}
