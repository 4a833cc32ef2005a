//! What a verb prints on standard output: text, or one JSON object.

use std::io::{self, Write};

use serde_json::Value;

use crate::failure::Failure;

/// Standard output; a reader that went away (`| head`) ends the output, not the verb.
pub struct Output {
    inner: Option<io::BufWriter<io::Stdout>>,
    list: List,
}

/// A list that is written item by item, as the first field of the verb's object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    None,
    Empty,
    Begun,
}

impl Output {
    /// Standard output with a buffer.
    pub fn new() -> Self {
        Self { inner: Some(io::BufWriter::with_capacity(1 << 16, io::stdout())), list: List::None }
    }

    fn settle(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                // What is left in the buffer can't be written either, and a drop would try.
                if let Some(writer) = self.inner.take() {
                    drop(writer.into_parts());
                }
                Ok(())
            }
            Err(error) => Err(Failure::host(&error, "standard output")),
            Ok(()) => Ok(()),
        }
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let result = self.inner.as_mut().map_or(Ok(()), |writer| writer.write_all(bytes));
        self.settle(result)
    }

    /// Writes a line.
    pub fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    /// Begins the verb's object with a list, whose items follow one by one: so a long list takes no memory.
    pub fn begin_list(&mut self, name: &str) -> Result<(), Failure> {
        self.list = List::Empty;
        self.bytes(format!("{{{}:[", Value::from(name)).as_bytes())
    }

    /// Writes an item of the list.
    pub fn list_item(&mut self, value: &Value) -> Result<(), Failure> {
        let separator: &[u8] = if self.list == List::Begun { b"," } else { b"" };
        self.list = List::Begun;
        self.bytes(separator)?;
        self.bytes(value.to_string().as_bytes())
    }

    /// Writes a JSON object on a line of its own. A list that was begun ends, and the object's fields come
    /// behind it.
    pub fn json(&mut self, value: &Value) -> Result<(), Failure> {
        let text = value.to_string();
        if std::mem::replace(&mut self.list, List::None) == List::None {
            return self.line(text);
        }
        self.bytes(b"],")?;
        self.line(text.strip_prefix('{').unwrap_or(&text))
    }

    /// True once nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.inner.is_none()
    }

    /// Hands everything to the system.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let result = self.inner.as_mut().map_or(Ok(()), Write::flush);
        self.settle(result)
    }
}
