//! Sizes as the user writes and reads them.

use clap::Args;

/// How sizes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Plain numbers of bytes.
    Raw,
    /// The largest unit that leaves at least 1, as a power of this base.
    Human(Base),
    /// One unit for all: the power of the base.
    Fixed(Base, u32),
}

/// 1024 or 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// KiB, MiB …
    Binary,
    /// kB, MB …
    Decimal,
}

impl Base {
    const fn number(self) -> u64 {
        match self {
            Self::Binary => 1024,
            Self::Decimal => 1000,
        }
    }

    const fn suffix(self, power: u32) -> &'static str {
        match (self, power) {
            (_, 0) => "B",
            (Self::Binary, 1) => "KiB",
            (Self::Binary, 2) => "MiB",
            (Self::Binary, 3) => "GiB",
            (Self::Binary, 4) => "TiB",
            (Self::Binary, 5) => "PiB",
            (Self::Binary, _) => "EiB",
            (Self::Decimal, 1) => "kB",
            (Self::Decimal, 2) => "MB",
            (Self::Decimal, 3) => "GB",
            (Self::Decimal, 4) => "TB",
            (Self::Decimal, 5) => "PB",
            (Self::Decimal, _) => "EB",
        }
    }
}

impl Units {
    /// A number of bytes in these units.
    pub fn show(self, bytes: u64) -> String {
        let (base, power) = match self {
            Self::Raw => return bytes.to_string(),
            Self::Fixed(base, power) => (base, power),
            Self::Human(base) => (base, bytes.checked_ilog(base.number()).unwrap_or(0).min(6)),
        };
        let unit = u128::from(base.number()).pow(power);
        // Two decimals, rounded half to even on the exact value as printf does on its nearest double.
        let hundredths = u128::from(bytes) * 100;
        let (mut whole, rest) = (hundredths / unit, hundredths % unit);
        if rest * 2 > unit || (rest * 2 == unit && whole % 2 == 1) {
            whole += 1;
        }
        format!("{}.{:02}{}", whole / 100, whole % 100, base.suffix(power))
    }
}

/// The flags of btrfs-progs that choose units.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct UnitArguments {
    /// Show plain numbers of bytes.
    #[arg(short = 'b', long)]
    raw: bool,
    /// Show sizes in units of 1024 (the default).
    #[arg(short = 'h', long = "human-readable")]
    human_readable: bool,
    /// Show sizes in units of 1000.
    #[arg(short = 'H')]
    human_decimal: bool,
    /// Units of 1024: KiB, MiB, GiB, TiB.
    #[arg(long)]
    iec: bool,
    /// Units of 1000: kB, MB, GB, TB.
    #[arg(long)]
    si: bool,
    /// Show sizes in KiB, or kB with --si.
    #[arg(short = 'k', long)]
    kbytes: bool,
    /// Show sizes in MiB, or MB with --si.
    #[arg(short = 'm', long)]
    mbytes: bool,
    /// Show sizes in GiB, or GB with --si.
    #[arg(short = 'g', long)]
    gbytes: bool,
    /// Show sizes in TiB, or TB with --si.
    #[arg(short = 't', long)]
    tbytes: bool,
}

impl UnitArguments {
    /// The units that they choose.
    pub fn units(self) -> Units {
        let base = if self.si || (self.human_decimal && !self.iec) { Base::Decimal } else { Base::Binary };
        let fixed = [(self.kbytes, 1), (self.mbytes, 2), (self.gbytes, 3), (self.tbytes, 4)];
        if self.raw {
            return Units::Raw;
        }
        match fixed.iter().find(|(chosen, _)| *chosen) {
            Some((_, power)) => Units::Fixed(base, *power),
            None => Units::Human(base),
        }
    }
}

/// Reads a number of bytes with an optional suffix: `k`, `m`, `g`, `t`, `p` or `e` of either case, units of
/// 1024; a `B`, `iB` behind it changes nothing.
///
/// # Errors
/// The text for the user, where it is no such number, or one of more than 64 bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad =
        || format!("{text:?} is no size: give a number of bytes, or one with K, M, G, T, P or E behind it");
    let lower = text.to_ascii_lowercase();
    let number = lower.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let shift = match &lower[number.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        "e" | "eb" | "eib" => 60,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_btrfs_progs_writes_them() {
        let human = Units::Human(Base::Binary);
        assert_eq!(human.show(0), "0.00B");
        assert_eq!(human.show(1023), "1023.00B");
        assert_eq!(human.show(16384), "16.00KiB");
        assert_eq!(human.show(8 << 20), "8.00MiB");
        assert_eq!(human.show(u64::MAX), "16.00EiB");
        assert_eq!(Units::Human(Base::Decimal).show(1_500_000), "1.50MB");
        assert_eq!(Units::Fixed(Base::Binary, 2).show(1 << 30), "1024.00MiB");
        assert_eq!(Units::Raw.show(12), "12");
    }

    #[test]
    fn sizes_are_read_with_suffixes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("16k"), Ok(16384));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert!(parse_size("x").is_err() && parse_size("").is_err() && parse_size("16E").is_err());
        assert!(parse_size("1z").is_err());
    }
}
