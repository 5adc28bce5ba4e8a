//! `$mod`: the remainder of integers of any length, computed digit by digit.

use super::members::is_integer;
use json::cursor::Elements;

/// Maximum digits of a divisor or a remainder: ten times the number still fits an `i128`.
const DIGITS_MAX: usize = 37;

/// The error for an argument that is not `[divisor, remainder]`.
pub(crate) const PAIR: &str = "it needs [divisor, remainder], two whole numbers";

/// A divisor and the required remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modulo {
    divisor: i128,
    remainder: i128,
}

impl Modulo {
    /// Reads `[divisor, remainder]`.
    ///
    /// # Errors
    /// The mistake; this includes a divisor of 0, on which CouchDB crashes at the first document.
    pub fn new(argument: &str) -> Result<Self, &'static str> {
        let elements: Vec<&str> = Elements::of(argument).take(3).collect();
        let [divisor, remainder] = elements[..] else {
            return Err(PAIR);
        };
        if !is_integer(divisor) || !is_integer(remainder) {
            return Err(PAIR);
        }
        let (Some(divisor), Some(remainder)) = (short(divisor), short(remainder)) else {
            return Err("a number has more than 37 digits");
        };
        if divisor == 0 {
            return Err("the divisor is 0");
        }
        Ok(Self { divisor, remainder })
    }

    /// Whether a value is an integer with this remainder; a remainder has the sign of the value.
    pub fn holds(self, value: &str) -> bool {
        is_integer(value) && self.rest(value) == self.remainder
    }

    fn rest(self, value: &str) -> i128 {
        let digits = value.strip_prefix('-').unwrap_or(value);
        let rest = digits.bytes().fold(0, |rest: i128, digit| {
            (rest * 10 + i128::from(digit - b'0')) % self.divisor
        });
        if value.starts_with('-') { -rest } else { rest }
    }
}

fn short(number: &str) -> Option<i128> {
    let digits = number.strip_prefix('-').unwrap_or(number);
    (digits.len() <= DIGITS_MAX).then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remainder_has_the_values_sign() {
        for (modulo, value, holds) in [
            ("[3,1]", "7", true),
            ("[3,-1]", "-7", true),
            ("[3,2]", "-7", false),
            ("[-3,1]", "7", true),
            ("[3,0]", "-0", true),
            ("[10,5]", "7.5", false),
            ("[10,5]", "5.0", false),
            ("[10,5]", "5e0", false),
            ("[10,5]", "\"5\"", false),
            (
                "[7,1]",
                "100000000000000000000000000000000000000000000000000",
                false,
            ),
            (
                "[7,2]",
                "100000000000000000000000000000000000000000000000000",
                true,
            ),
            (
                "[7,-2]",
                "-100000000000000000000000000000000000000000000000000",
                true,
            ),
        ] {
            assert_eq!(
                Modulo::new(modulo).unwrap().holds(value),
                holds,
                "{modulo} {value}"
            );
        }
    }

    #[test]
    fn only_two_whole_numbers_with_a_nonzero_divisor_are_accepted() {
        for bad in [
            "[0,1]",
            "[-0,1]",
            "[1]",
            "[1,2,3]",
            "[1.0,2]",
            "[2,1e0]",
            "2",
            "[\"2\",1]",
        ] {
            assert!(Modulo::new(bad).is_err(), "{bad}");
        }
        assert!(Modulo::new(&format!("[1{},1]", "0".repeat(40))).is_err());
    }
}
