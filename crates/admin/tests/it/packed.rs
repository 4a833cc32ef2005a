//! Archives of tar, entry by entry, for what no tar would pack.

/// An archive that grows.
#[derive(Clone, Default)]
pub struct Packed(pub Vec<u8>);

impl Packed {
    /// A header with these fields, and what stands behind it.
    pub fn entry(mut self, path: &[u8], kind: u8, link: &[u8], size: u64, content: &[u8]) -> Self {
        self.header(path, kind, link, size);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(path.as_bytes(), b'0', b"", content.len() as u64, content)
    }

    pub fn directory(self, path: &str) -> Self {
        self.entry(path.as_bytes(), b'5', b"", 0, b"")
    }

    pub fn link(self, path: &str, target: &str) -> Self {
        self.entry(path.as_bytes(), b'2', target.as_bytes(), 0, b"")
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(path.as_bytes(), b'1', target.as_bytes(), 0, b"")
    }

    /// A PAX header for the next entry.
    pub fn records(self, records: &[(&str, &[u8])]) -> Self {
        self.records_of(b'x', records)
    }

    /// A PAX header for every entry behind it.
    pub fn global_records(self, records: &[(&str, &[u8])]) -> Self {
        self.records_of(b'g', records)
    }

    fn records_of(self, kind: u8, records: &[(&str, &[u8])]) -> Self {
        let mut content = Vec::new();
        for (key, value) in records {
            let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
            let mut length = body.len() + 1;
            while length != body.len() + length.to_string().len() {
                length = body.len() + length.to_string().len();
            }
            content.extend_from_slice(length.to_string().as_bytes());
            content.extend_from_slice(&body);
        }
        let size = content.len() as u64;
        self.entry(b"records", kind, b"", size, &content)
    }

    /// Two blocks of zeros, and the bytes.
    pub fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }

    fn header(&mut self, path: &[u8], kind: u8, link: &[u8], size: u64) {
        let mut block = [0; 512];
        block[..path.len()].copy_from_slice(path);
        block[100..107].copy_from_slice(b"0000640");
        block[108..115].copy_from_slice(b"0000014");
        block[116..123].copy_from_slice(b"0000042");
        if size < 1 << 33 {
            block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        } else {
            block[124] = 0x80;
            block[128..136].copy_from_slice(&size.to_be_bytes());
        }
        block[136..147].copy_from_slice(b"07777777777");
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        if matches!(kind, b'3' | b'4') {
            block[329..336].copy_from_slice(b"0000001");
            block[337..344].copy_from_slice(b"0000003");
        }
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend_from_slice(&block);
    }
}
