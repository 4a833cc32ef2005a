//! What a row was measured on.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// A machine, and the day.
#[derive(Serialize, Deserialize, Clone)]
pub struct Machine {
    /// As `date -I` gives it.
    pub date: String,
    /// The kernel's release.
    pub kernel: String,
    /// Processors that a process may use.
    pub processors: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

impl Machine {
    /// This one, today.
    pub fn here() -> Result<Self> {
        let line = |command: &str| Ok::<_, anyhow::Error>(crate::command::shell(command)?.trim().to_owned());
        let pages: u64 = line("getconf _PHYS_PAGES")?.parse()?;
        let page_bytes: u64 = line("getconf PAGE_SIZE")?.parse()?;
        Ok(Self {
            date: line("date -I")?,
            kernel: line("uname -r")?,
            processors: line("nproc")?.parse()?,
            memory_bytes: pages * page_bytes,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, kernel, processors, memory_bytes } = self;
        write!(formatter, "{date}, Linux {kernel}, {processors} processors, {} GiB", memory_bytes >> 30)
    }
}
