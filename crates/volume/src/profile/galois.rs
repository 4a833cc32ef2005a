//! Arithmetic of RAID6: the field of 256 elements with the polynomial x^8 + x^4 + x^3 + x^2 + 1 and the
//! generator 2 (H. Peter Anvin, "The mathematics of RAID-6").

/// The polynomial without its highest term.
const POLYNOMIAL: u8 = 0x1d;

/// Powers of the generator: `EXPONENTS[n]` is 2 to the n.
const EXPONENTS: [u8; 256] = exponents();
/// The inverse: `LOGARITHMS[2^n]` is n; that of 0 has no meaning.
const LOGARITHMS: [u8; 256] = logarithms();

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated when compiling")]
const fn exponents() -> [u8; 256] {
    let mut table = [0; 256];
    let (mut value, mut power) = (1u8, 0);
    while power < 256 {
        table[power] = value;
        value = (value << 1) ^ if value & 0x80 != 0 { POLYNOMIAL } else { 0 };
        power += 1;
    }
    table
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "evaluated when compiling"
)]
const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut power = 0;
    while power < 255 {
        table[EXPONENTS[power] as usize] = power as u8;
        power += 1;
    }
    table
}

/// 2 to this power.
pub(super) fn power(exponent: usize) -> u8 {
    EXPONENTS.get(exponent % 255).copied().unwrap_or(1)
}

/// The product of two elements.
pub(super) fn multiply(left: u8, right: u8) -> u8 {
    if left == 0 || right == 0 {
        return 0;
    }
    let logarithm = |value: u8| LOGARITHMS.get(usize::from(value)).copied().map_or(0, usize::from);
    power(logarithm(left).saturating_add(logarithm(right)))
}

/// What an element other than 0 must be multiplied with for 1.
pub(super) fn inverse(value: u8) -> u8 {
    let logarithm = LOGARITHMS.get(usize::from(value)).copied().map_or(0, usize::from);
    power(255usize.saturating_sub(logarithm))
}

/// Adds `factor` times the bytes to the sum.
pub(super) fn add_multiple(sum: &mut [u8], bytes: &[u8], factor: u8) {
    if factor == 1 {
        for (sum, byte) in sum.iter_mut().zip(bytes) {
            *sum ^= byte;
        }
        return;
    }
    for (sum, byte) in sum.iter_mut().zip(bytes) {
        *sum ^= multiply(*byte, factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: shift and reduce.
    fn slow(mut left: u8, mut right: u8) -> u8 {
        let mut product = 0;
        while right != 0 {
            if right & 1 != 0 {
                product ^= left;
            }
            left = (left << 1) ^ if left & 0x80 != 0 { POLYNOMIAL } else { 0 };
            right >>= 1;
        }
        product
    }

    #[test]
    fn products_and_inverses_are_right() {
        for left in 0..=255u8 {
            for right in 0..=255u8 {
                assert_eq!(multiply(left, right), slow(left, right));
            }
            assert!(left == 0 || multiply(left, inverse(left)) == 1);
        }
    }
}
