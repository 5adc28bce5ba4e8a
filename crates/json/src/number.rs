//! The order of JSON numbers by exact value, as bytes.
//!
//! SUMMARY   [`write_key`] splits a number into sign, exponent and digits, and writes these as bytes in numeric
//!           order.
//! SOURCE    Erlang's number order, in which an integer of any size and a float compare exactly.

use std::borrow::Cow;

/// First byte of a number's key.
const SIGN_NEGATIVE: u8 = 1;
const SIGN_ZERO: u8 = 2;
const SIGN_POSITIVE: u8 = 3;

/// 2^53: every larger double is an integer, which may have more digits than its shortest text.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// Maximum length of a number without an exponent that parsing and writing never change, in bytes: 15 digits and a
/// point.
const SHORT_BYTES: usize = 16;

/// Offset of exponents, so that they are written as unsigned numbers.
const EXPONENT_BIAS: i64 = 1 << 40;

/// Appends bytes that compare as the numbers do. No key is a prefix of another.
pub fn write_key(number: &[u8], key: &mut Vec<u8>) {
    let magnitude = number.strip_prefix(b"-").unwrap_or(number);
    let negative = magnitude.len() < number.len();
    let exact = as_exact(magnitude);
    let Some((exponent, digits)) = parts(&exact) else {
        return key.push(SIGN_ZERO);
    };
    key.push(if negative {
        SIGN_NEGATIVE
    } else {
        SIGN_POSITIVE
    });
    let start = key.len();
    let biased = exponent.clamp(-EXPONENT_BIAS, EXPONENT_BIAS) + EXPONENT_BIAS;
    // Six bytes hold twice the bias.
    key.extend_from_slice(&biased.to_be_bytes()[2..]);
    key.extend(digits);
    // Less than any digit: 1.2 precedes 1.23.
    key.push(0);
    if negative {
        for byte in &mut key[start..] {
            *byte = !*byte;
        }
    }
}

/// Converts a float to the exact decimal text of its double.
///
/// Integers are already exact. Below 2^53 the shortest text of a double lies between the same integers as the double
/// itself, and these texts keep the order of the doubles: exact enough.
fn as_exact(magnitude: &[u8]) -> Cow<'_, [u8]> {
    let has_exponent = || magnitude.iter().any(|byte| matches!(byte, b'e' | b'E'));
    if magnitude.len() <= SHORT_BYTES && !has_exponent() || magnitude.iter().all(u8::is_ascii_digit)
    {
        return Cow::Borrowed(magnitude);
    }
    let text = std::str::from_utf8(magnitude).unwrap_or("0");
    let exact = match text.parse::<f64>() {
        Ok(double) if double < EXACT_INTEGERS => double.to_string(),
        Ok(double) if double.is_finite() => format!("{double:.0}"),
        // Beyond any double: compared by digits.
        _ => return Cow::Borrowed(magnitude),
    };
    Cow::Owned(exact.into_bytes())
}

/// Splits a number into an exponent and digits without surrounding zeros: `12.50e3` is 0.125e5, so 5 and 125. `None`:
/// zero.
fn parts(magnitude: &[u8]) -> Option<(i64, impl Iterator<Item = u8>)> {
    let mut halves = magnitude.splitn(2, |byte| matches!(byte, b'e' | b'E'));
    let mantissa = halves.next().unwrap_or_default();
    let point = mantissa
        .iter()
        .position(|byte| *byte == b'.')
        .unwrap_or(mantissa.len());
    let digits = move || mantissa.iter().filter(|byte| **byte != b'.');
    let is_zero = |byte: &&u8| **byte == b'0';
    let leading = digits().take_while(is_zero).count();
    let trailing = digits().rev().take_while(is_zero).count();
    let count = digits().count();
    if leading == count {
        return None;
    }
    let exponent = halves
        .next()
        .and_then(|text| std::str::from_utf8(text).ok());
    let written = exponent.map_or(0, |text| {
        let overflowed = if text.starts_with('-') {
            -EXPONENT_BIAS
        } else {
            EXPONENT_BIAS
        };
        text.parse().unwrap_or(overflowed)
    });
    let place = i64::try_from(point).unwrap_or(i64::MAX) - i64::try_from(leading).unwrap_or(0);
    let significant = digits().skip(leading).take(count - leading - trailing);
    // Digits are shifted up by one, to be greater than the end.
    let bytes = significant.map(|digit| digit - b'0' + 1);
    Some((written.saturating_add(place), bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> Vec<u8> {
        let mut key = Vec::new();
        write_key(text.as_bytes(), &mut key);
        key
    }

    #[test]
    fn a_float_compares_as_its_double() {
        assert_eq!(key("0.1"), key("0.1000000000000000055"));
        assert_eq!(key("9007199254740993.0"), key("9007199254740992"));
        assert!(key("1e23") < key("100000000000000000000000"));
        assert_eq!(key("-0"), key("0"));
    }

    #[test]
    fn numbers_beyond_doubles_keep_their_order() {
        assert!(key("1e308") < key("1e400"));
        assert!(key("-1e400") < key("-1e308"));
        let googol = format!("1{}", "0".repeat(100));
        let more = format!("1{}1", "0".repeat(99));
        assert!(key(&googol) < key(&more));
    }

    proptest! {
        #[test]
        fn doubles_are_in_order(a in any::<f64>(), b in any::<f64>()) {
            prop_assume!(a.is_finite() && b.is_finite());
            let expected = if a == b { std::cmp::Ordering::Equal } else { a.total_cmp(&b) };
            prop_assert_eq!(key(&format!("{a:e}")).cmp(&key(&format!("{b:e}"))), expected);
        }

        #[test]
        fn a_short_number_has_the_key_of_its_double(whole in 0_u32..999_999, part in "[0-9]{1,9}") {
            let short = format!("{whole}.{part}");
            let double: f64 = short.parse().unwrap();
            prop_assert_eq!(key(&short), key(&format!("{double:e}")));
        }

        #[test]
        fn integers_and_doubles_compare_exactly(a in any::<i64>(), b in -1e19f64..1e19) {
            let expected = if (a as i128) < b.floor() as i128 || (a as i128 == b.floor() as i128 && b.fract() != 0.0) {
                std::cmp::Ordering::Less
            } else if a as i128 == b.floor() as i128 {
                std::cmp::Ordering::Equal
            } else {
                std::cmp::Ordering::Greater
            };
            prop_assert_eq!(key(&a.to_string()).cmp(&key(&format!("{b:?}"))), expected);
        }
    }
}
