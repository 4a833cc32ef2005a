//! The LZO1X decoder, from the public description of the format (Linux's `Documentation/staging/lzo.rst`).
//!
//! A stream is a sequence of instructions: copy literals from the stream, or a match from the output made so
//! far. Two bits of every match say how many literals (0 to 3) follow it; that number decides what the next
//! instruction's low codes mean. The stream ends with a match of length 3 at distance 16384, which no other
//! instruction gives.

use crate::compress::error::Damage;

/// What is wrong with a stream, and at which of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub offset: usize,
    pub damage: Damage,
}

/// What the instruction before left behind: 0 to 3 literals after a match, or a run of 4 and more.
const AFTER_RUN: usize = 4;
const END_DISTANCE: usize = 0x4000;
/// Copies of so many bytes compile to single moves.
const STEP: usize = 16;

struct Decoder<'a> {
    input: &'a [u8],
    read: usize,
    output: &'a mut [u8],
    written: usize,
}

/// Decodes one whole stream and gives the number of bytes it made. Bytes of `output` behind them may be
/// overwritten.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize, Fault> {
    let mut decoder = Decoder { input, read: 0, output, written: 0 };
    decoder.run()
}

impl Decoder<'_> {
    fn run(&mut self) -> Result<usize, Fault> {
        let mut state = 0;
        // Only the first instruction may say up to 238 literals in one byte.
        if let Some(first) = self.input.first().filter(|first| **first > 17) {
            let count = usize::from(*first) - 17;
            self.read = 1;
            self.literals(count)?;
            state = count.min(AFTER_RUN);
        }
        // Bounded: every turn reads at least one byte of input.
        loop {
            let code = usize::from(self.byte()?);
            let (distance, length, literals) = if code >= 64 {
                let high = usize::from(self.byte()?);
                ((high << 3) + ((code >> 2) & 7) + 1, (code >> 5) + 1, code & 3)
            } else if code >= 32 {
                let length = 2 + self.length(code & 31, 31)?;
                let low = self.word()?;
                ((low >> 2) + 1, length, low & 3)
            } else if code >= 16 {
                let length = 2 + self.length(code & 7, 7)?;
                let low = self.word()?;
                let distance = END_DISTANCE + ((code & 8) << 11) + (low >> 2);
                if distance == END_DISTANCE {
                    return self.end(length, low);
                }
                (distance, length, low & 3)
            } else if state == 0 {
                let count = 3 + self.length(code, 15)?;
                self.literals(count)?;
                state = AFTER_RUN;
                continue;
            } else {
                let near = (usize::from(self.byte()?) << 2) + (code >> 2);
                if state == AFTER_RUN { (near + 2049, 3, code & 3) } else { (near + 1, 2, code & 3) }
            };
            self.copy_match(distance, length)?;
            self.few_literals(literals)?;
            state = literals;
        }
    }

    fn fault<T>(&self, damage: Damage) -> Result<T, Fault> {
        Err(Fault { offset: self.read, damage })
    }

    fn end(&self, length: usize, low: usize) -> Result<usize, Fault> {
        if length != 3 || low != 0 {
            return self.fault(Damage::Distance);
        }
        if self.read != self.input.len() {
            return self.fault(Damage::BehindEnd);
        }
        Ok(self.written)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        match self.input.get(self.read) {
            Some(byte) => {
                self.read += 1;
                Ok(*byte)
            }
            None => self.fault(Damage::Truncated),
        }
    }

    #[inline]
    fn word(&mut self) -> Result<usize, Fault> {
        let Some(bytes) = self.input.get(self.read..).and_then(<[u8]>::first_chunk::<2>) else {
            return self.fault(Damage::Truncated);
        };
        self.read += 2;
        Ok(usize::from(u16::from_le_bytes(*bytes)))
    }

    /// A length whose instruction has `short`, or if that is 0, `base` plus the bytes that follow: 255 for
    /// each zero, then a last one that is not zero.
    #[inline]
    fn length(&mut self, short: usize, base: usize) -> Result<usize, Fault> {
        if short != 0 {
            return Ok(short);
        }
        let mut length = base;
        // Bounded by the input, whose length also keeps the sum far from overflow.
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Ok(length + usize::from(last)),
            }
        }
    }

    #[inline]
    fn few_literals(&mut self, count: usize) -> Result<(), Fault> {
        // Copying four where at most three are wanted needs no branch on the count.
        let source = self.input.get(self.read..).and_then(<[u8]>::first_chunk::<4>);
        let target = self.output.get_mut(self.written..).and_then(<[u8]>::first_chunk_mut::<4>);
        if let (Some(source), Some(target)) = (source, target) {
            *target = *source;
            self.read += count;
            self.written += count;
            return Ok(());
        }
        self.literals(count)
    }

    #[inline]
    fn literals(&mut self, count: usize) -> Result<(), Fault> {
        let Some(source) = self.input.get(self.read..).filter(|rest| rest.len() >= count) else {
            return self.fault(Damage::Truncated);
        };
        let Some(target) = self.output.get_mut(self.written..).filter(|rest| rest.len() >= count) else {
            return self.fault(Damage::SegmentOutput);
        };
        match (source.first_chunk::<STEP>(), target.first_chunk_mut::<STEP>()) {
            (Some(source), Some(target)) if count <= STEP => *target = *source,
            _ => target[..count].copy_from_slice(&source[..count]),
        }
        self.read += count;
        self.written += count;
        Ok(())
    }

    #[inline]
    fn copy_match(&mut self, distance: usize, length: usize) -> Result<(), Fault> {
        if distance > self.written {
            return self.fault(Damage::Distance);
        }
        if length > self.output.len() - self.written {
            return self.fault(Damage::SegmentOutput);
        }
        let (source, end) = (self.written - distance, self.written + length);
        // Whole steps may write past the match's end: later instructions overwrite that, if any come.
        if distance >= STEP && self.output.len() - self.written >= length + STEP {
            self.copy_steps::<STEP>(source, end);
        } else if distance >= 8 && self.output.len() - self.written >= length + 8 {
            self.copy_steps::<8>(source, end);
        } else if distance == 1 {
            let byte = self.output[source];
            self.output[self.written..end].fill(byte);
        } else if distance >= length {
            self.output.copy_within(source..source + length, self.written);
        } else {
            self.repeat(source, distance, end);
        }
        self.written = end;
        Ok(())
    }

    /// Copies in steps that are no longer than the distance, so none reads what it writes itself.
    #[inline]
    fn copy_steps<const N: usize>(&mut self, mut source: usize, end: usize) {
        let mut target = self.written;
        while target < end {
            self.output.copy_within(source..source + N, target);
            source += N;
            target += N;
        }
    }

    /// Repeats the last `distance` bytes up to `end`, each time copying all that is there already.
    fn repeat(&mut self, source: usize, distance: usize, end: usize) {
        let (mut target, mut ready) = (self.written, distance);
        while target < end {
            let count = ready.min(end - target);
            self.output.copy_within(source..source + count, target);
            target += count;
            ready += count;
        }
    }
}
