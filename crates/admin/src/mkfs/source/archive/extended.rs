//! What stands in PAX headers and GNU tar's long names, and counts before the fields of the next header.

use std::collections::BTreeMap;

use vlinder_base::clock::Timestamp;

use super::fault::ArchiveFault;

/// Fields from records; what no record says is the header's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) user: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) modified: Option<Timestamp>,
    pub(super) accessed: Option<Timestamp>,
    pub(super) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) sparse: PaxSparse,
    /// It has an ACL as text, beside none as an attribute.
    pub(super) has_text_acl: bool,
}

/// The records of a sparse file, in any of the three forms that GNU tar has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaxSparse {
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    /// Offsets and lengths; none where the map stands before the data (form 1.0).
    pub(super) map: Vec<(u64, u64)>,
    /// Form 1.0.
    pub(super) map_before_data: bool,
    /// Where the next length of form 0.0 belongs.
    offset: Option<u64>,
    is_there: bool,
}

impl PaxSparse {
    /// Whether the file is a sparse one.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }
}

impl Extended {
    /// Takes the records of a PAX header: `LENGTH KEY=VALUE\n`, one behind the other.
    ///
    /// # Errors
    /// [`ArchiveFault::Record`].
    pub(super) fn read(&mut self, mut records: &[u8]) -> Result<(), ArchiveFault> {
        while !records.is_empty() {
            let (record, rest) = split_record(records).ok_or(ArchiveFault::Record)?;
            records = rest;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(ArchiveFault::Record)?;
            self.take(&record[..equals], &record[equals + 1..]).ok_or(ArchiveFault::Record)?;
        }
        Ok(())
    }

    /// None for a value that says nothing.
    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let is_name = matches!(key, b"path" | b"linkpath" | b"GNU.sparse.name");
        if key.contains(&0) || is_name && value.contains(&0) {
            // No system call takes such a name, so no file that was packed had it.
            return None;
        }
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            self.attributes.insert(decoded(name), value.to_vec());
            return Some(());
        }
        if let Some(word) = key.strip_prefix(b"GNU.sparse.") {
            return self.sparse.take(word, value);
        }
        // An empty value takes the field back to the header's.
        let is_said = !value.is_empty();
        let bytes = || is_said.then(|| value.to_vec());
        match key {
            b"path" => self.path = bytes(),
            b"linkpath" => self.link = bytes(),
            b"size" => self.size = said(is_said, || decimal(value))?,
            b"uid" => self.user = said(is_said, || u32::try_from(decimal(value)?).ok())?,
            b"gid" => self.group = said(is_said, || u32::try_from(decimal(value)?).ok())?,
            b"mtime" => self.modified = said(is_said, || moment(value))?,
            b"atime" => self.accessed = said(is_said, || moment(value))?,
            _ if key.starts_with(b"SCHILY.acl.") => self.has_text_acl |= is_said,
            _ => {}
        }
        Some(())
    }
}

impl PaxSparse {
    fn take(&mut self, word: &[u8], value: &[u8]) -> Option<()> {
        self.is_there = true;
        match word {
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.real_size = Some(decimal(value)?),
            b"major" => self.map_before_data = decimal(value)? == 1,
            b"offset" => self.offset = Some(decimal(value)?),
            b"numbytes" => self.map.push((self.offset.take()?, decimal(value)?)),
            b"map" if value.is_empty() => self.map.clear(),
            b"map" => {
                let numbers: Vec<u64> =
                    value.split(|byte| *byte == b',').map(decimal).collect::<Option<_>>()?;
                let (pairs, []) = numbers.as_chunks::<2>() else { return None };
                self.map = pairs.iter().map(|[offset, length]| (*offset, *length)).collect();
            }
            _ => {}
        }
        Some(())
    }
}

/// The value, or none where nothing is said; none at all for what can't be read.
#[allow(clippy::option_option, reason = "the outer one is the error")]
fn said<T>(is_said: bool, read: impl FnOnce() -> Option<T>) -> Option<Option<T>> {
    if is_said { read().map(Some) } else { Some(None) }
}

/// A record without its length and end, and what comes behind it.
fn split_record(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = records.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(&records[..blank])?).ok()?;
    let (whole, rest) = records.split_at_checked(length)?;
    let record = whole.get(blank + 1..)?.strip_suffix(b"\n")?;
    Some((record, rest))
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Seconds since 1970 with a fraction.
fn moment(text: &[u8]) -> Option<Timestamp> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let fraction = parts.next().unwrap_or_default();
    let mut nanoseconds = 0_u32;
    for place in 0..9 {
        let digit = match fraction.get(place) {
            Some(digit @ b'0'..=b'9') => u32::from(digit - b'0'),
            Some(_) => return None,
            None => 0,
        };
        nanoseconds = nanoseconds * 10 + digit;
    }
    Some(match (is_negative, nanoseconds) {
        (false, _) => Timestamp::new(seconds, nanoseconds),
        (true, 0) => Timestamp::new(-seconds, 0),
        (true, _) => Timestamp::new(-seconds - 1, 1_000_000_000 - nanoseconds),
    })
}

/// The name of an attribute: GNU tar writes `=` as `%3D` and `%` as `%25`.
fn decoded(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        (rest, _) = match after {
            [b'3', b'D', after @ ..] if *first == b'%' => (after, decoded.push(b'=')),
            [b'2', b'5', after @ ..] if *first == b'%' => (after, decoded.push(b'%')),
            _ => (after, decoded.push(*first)),
        };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let mut length = body.len();
        while length != body.len() + length.to_string().len() {
            length = body.len() + length.to_string().len();
        }
        [length.to_string().as_bytes(), &body[..]].concat()
    }

    #[test]
    fn records_are_read_as_pax_writes_them() {
        let records = [
            record("path", "a/ä=\n".as_bytes()),
            record("uid", b"4000000000"),
            record("mtime", b"-1.25"),
            record("atime", b"17.000000009"),
            record("SCHILY.xattr.user.a%3Db%25", b"\0=\n"),
            record("GNU.sparse.map", b"0,512,4096,0"),
            record("comment", b"anything"),
        ];
        let mut read = Extended::default();
        read.read(&records.concat()).unwrap();
        assert_eq!(read.path.as_deref(), Some("a/ä=\n".as_bytes()));
        assert_eq!(read.user, Some(4_000_000_000));
        assert_eq!(read.modified, Some(Timestamp::new(-2, 750_000_000)));
        assert_eq!(read.accessed, Some(Timestamp::new(17, 9)));
        assert_eq!(read.attributes[&b"user.a=b%"[..]], b"\0=\n");
        assert_eq!(read.sparse.map, [(0, 512), (4096, 0)]);
        read.read(&record("path", b"")).unwrap();
        assert_eq!(read.path, None);
    }

    #[test]
    fn records_that_say_nothing_are_refused() {
        for bad in [
            &b"x"[..],
            b"3 a",
            b"99 path=a\n",
            b"0 a=\n",
            b"9 path=abc",
            b"8 patha\n",
            b"18446744073709551616 a=b\n",
        ] {
            assert!(Extended::default().read(bad).is_err(), "{bad:?}");
        }
        for (key, value) in [
            ("uid", "x"),
            ("mtime", "1.x"),
            ("GNU.sparse.map", "1"),
            ("GNU.sparse.numbytes", "1"),
            ("path", "a\0b"),
            ("linkpath", "a\0"),
            ("GNU.sparse.name", "\0"),
            ("SCHILY.xattr.user.a\0b", ""),
        ] {
            assert!(Extended::default().read(&record(key, value.as_bytes())).is_err(), "{key}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_header_holds_reading_it_ends(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Extended::default().read(&bytes);
        }

        #[test]
        fn attributes_come_back(name in "[a-z%=.]{1,20}", value in proptest::collection::vec(any::<u8>(), 0..50)) {
            let written = name.replace('%', "%25").replace('=', "%3D");
            let mut read = Extended::default();
            read.read(&record(&format!("SCHILY.xattr.{written}"), &value)).unwrap();
            prop_assert_eq!(read.attributes.get(name.as_bytes()), Some(&value));
        }
    }
}
