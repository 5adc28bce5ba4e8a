//! Numbers as Erlang has them: integers of any size are exact, floats are doubles.
//!
//! SUMMARY   [`Number::parse`] parses JSON text; sums and squares of integers are integers.
//! PROMISES  No result is infinite: a result beyond the range of floats is `None`, where Erlang fails. Every result
//!           can be parsed again.
//! LIMITS    An integer of more than [`BITS_MAX`] bits is not a number.

use std::fmt;

use json::erlang::DIGITS_MAX;
use json::number::write_key;
use num_bigint::BigInt;

/// Maximum number of bits of an integer: no more than the digits' limit allows.
const BITS_MAX: u64 = 13_606;

/// The number of digits that always fit in 64 bits.
const SHORT_DIGITS: usize = 18;

/// Integers up to this number are exact as floats.
const EXACT_AS_FLOAT: u128 = 1 << 53;

/// A number.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Integer(i128),
    /// More than 128 bits.
    Huge(Box<BigInt>),
    Float(f64),
}

impl Number {
    /// Parses a JSON text; `None` if it is not a number, or too large.
    #[inline]
    pub(super) fn parse(json: &str) -> Option<Self> {
        let (negative, digits) = match json.as_bytes() {
            [b'-', digits @ ..] => (true, digits),
            digits => (false, digits),
        };
        if !digits.first()?.is_ascii_digit() {
            return None;
        }
        if digits.len() > SHORT_DIGITS {
            return Self::parse_any(json, digits);
        }
        let mut magnitude: i64 = 0;
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return Self::parse_any(json, digits);
            }
            magnitude = magnitude * 10 + i64::from(digit);
        }
        let integer = if negative { -magnitude } else { magnitude };
        Some(Self::Integer(integer.into()))
    }

    /// Parses an array of numbers; `None` for anything else.
    pub(super) fn parse_array(json: &str) -> Option<Vec<Self>> {
        let inside = json.strip_prefix('[')?.strip_suffix(']')?.trim_ascii();
        if inside.is_empty() {
            return Some(Vec::new());
        }
        // A comma inside an element leaves parts that are not numbers.
        inside
            .split(',')
            .map(|element| Self::parse(element.trim_ascii()))
            .collect()
    }

    fn parse_any(json: &str, digits: &[u8]) -> Option<Self> {
        if !digits.iter().all(u8::is_ascii_digit) {
            return Self::float(json.parse().ok()?);
        }
        if let Ok(integer) = json.parse() {
            return Some(Self::Integer(integer));
        }
        if digits.len() > DIGITS_MAX {
            return None;
        }
        Self::huge(json.parse().ok()?)
    }

    fn float(float: f64) -> Option<Self> {
        float.is_finite().then_some(Self::Float(float))
    }

    fn huge(integer: BigInt) -> Option<Self> {
        if let Ok(integer) = i128::try_from(&integer) {
            return Some(Self::Integer(integer));
        }
        (integer.bits() <= BITS_MAX).then(|| Self::Huge(Box::new(integer)))
    }

    /// Returns the nearest float; `None` beyond the range of floats.
    fn as_f64(&self) -> Option<f64> {
        let float = match self {
            #[expect(clippy::cast_precision_loss, reason = "as Erlang converts it")]
            Self::Integer(integer) => *integer as f64,
            Self::Huge(integer) => integer.to_string().parse().ok()?,
            Self::Float(float) => *float,
        };
        float.is_finite().then_some(float)
    }

    /// Returns the integer as a [`BigInt`]; `None` for a float.
    fn as_big(&self) -> Option<BigInt> {
        match self {
            Self::Integer(integer) => Some(BigInt::from(*integer)),
            Self::Huge(integer) => Some(BigInt::clone(integer)),
            Self::Float(_) => None,
        }
    }

    #[inline]
    pub(super) fn add(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Integer(one), Self::Integer(two)) => match one.checked_add(*two) {
                Some(sum) => Some(Self::Integer(sum)),
                None => self.add_any(other),
            },
            (Self::Float(one), Self::Float(two)) => Self::float(one + two),
            _ => self.add_any(other),
        }
    }

    /// Separate, so that the fast paths of [`Self::add`] are small enough to inline.
    #[inline(never)]
    fn add_any(&self, other: &Self) -> Option<Self> {
        match (self.as_big(), other.as_big()) {
            (Some(one), Some(two)) => Self::huge(one + two),
            _ => Self::float(self.as_f64()? + other.as_f64()?),
        }
    }

    #[inline]
    pub(super) fn square(&self) -> Option<Self> {
        match self {
            Self::Integer(integer) => match integer.checked_mul(*integer) {
                Some(square) => Some(Self::Integer(square)),
                None => Self::huge(BigInt::from(*integer) * integer),
            },
            Self::Float(float) => Self::float(float * float),
            Self::Huge(integer) => Self::huge(integer.as_ref() * integer.as_ref()),
        }
    }

    /// Returns whether this number is less than another, by exact value regardless of kind.
    #[inline]
    pub(super) fn is_less(&self, other: &Self) -> bool {
        if let (Self::Integer(one), Self::Integer(two)) = (self, other) {
            return one < two;
        }
        #[expect(clippy::cast_precision_loss, reason = "checked to be exact")]
        let exact = |number: &Self| match number {
            Self::Integer(small) if small.unsigned_abs() <= EXACT_AS_FLOAT => Some(*small as f64),
            Self::Integer(_) | Self::Huge(_) => None,
            Self::Float(float) => Some(*float),
        };
        match exact(self).zip(exact(other)) {
            Some((one, two)) => one < two,
            None => self.sort_key() < other.sort_key(),
        }
    }

    fn sort_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        write_key(self.to_string().as_bytes(), &mut key);
        key
    }

    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Integer(integer) => *integer == 0,
            Self::Huge(_) => false,
            Self::Float(float) => *float == 0.0,
        }
    }
}

/// Writes the number as JSON text.
impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => integer.fmt(formatter),
            Self::Huge(integer) => integer.fmt(formatter),
            // Unlike `{}`, `{:?}` keeps the decimal point, and writes large floats with an exponent.
            Self::Float(float) => write!(formatter, "{float:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(json: &str) -> Number {
        Number::parse(json).unwrap()
    }

    #[test]
    fn numbers_are_parsed_exactly() {
        for text in [
            "0",
            "-1",
            "999999999999999999",
            "-9223372036854775809",
            "170141183460469231731687303715884105728",
            "-123456789012345678901234567890123456789012345678901234567890",
            "1.5",
            "-0.0",
            "1e300",
        ] {
            assert_eq!(number(text).to_string(), text);
        }
        assert_eq!(number("1E2").to_string(), "100.0");
        assert_eq!(number("-0").to_string(), "0");
    }

    #[test]
    fn only_arrays_of_numbers_are_parsed_as_arrays() {
        let read = |json: &str| {
            let numbers = Number::parse_array(json);
            numbers.map(|all| all.iter().map(Number::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read("[]").unwrap(), [""; 0]);
        assert_eq!(read("[ 1 ,\n-2.5, 3]").unwrap(), ["1", "-2.5", "3"]);
        for json in ["[[1],2]", "[1,[2]]", r#"["1,2"]"#, "[null]", "1", "{}"] {
            assert_eq!(read(json), None, "{json}");
        }
    }

    #[test]
    fn invalid_and_too_large_numbers_are_none() {
        let long = "9".repeat(DIGITS_MAX + 1);
        for text in ["\"1\"", "null", "[1]", "{}", "1e400", "-1e400", &long] {
            assert!(Number::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn integers_are_exact_beyond_128_bits_and_after_shrinking() {
        let large = number("170141183460469231731687303715884105727");
        let larger = large.add(&number("1")).unwrap();
        assert_eq!(
            larger.to_string(),
            "170141183460469231731687303715884105728"
        );
        assert!(matches!(
            larger.add(&number("-1")),
            Some(Number::Integer(_))
        ));
        let square = number("100000000000000000001").square().unwrap();
        assert_eq!(
            square.to_string(),
            "10000000000000000000200000000000000000001"
        );
    }

    #[test]
    fn an_integer_and_a_float_make_a_float() {
        assert_eq!(number("1").add(&number("0.5")).unwrap().to_string(), "1.5");
        let huge = format!("1{}", "0".repeat(50));
        assert_eq!(
            number(&huge).add(&number("0.0")).unwrap().to_string(),
            "1e50"
        );
    }

    #[test]
    fn results_beyond_the_range_of_floats_are_none() {
        assert!(number("1e308").add(&number("1e308")).is_none());
        assert!(number("-1e200").square().is_none());
        let huge = number(&format!("1{}", "0".repeat(400)));
        assert!(huge.add(&number("1.0")).is_none());
        assert!(huge.add(&huge).is_some());
    }

    #[test]
    fn an_integer_that_could_not_be_read_again_is_not_computed() {
        let nines = |digits: usize| number(&"9".repeat(digits));
        assert!(Number::parse(&"9".repeat(DIGITS_MAX)).is_none());
        let largest = nines(DIGITS_MAX - 1);
        let sum = largest.add(&largest).unwrap().to_string();
        assert_eq!((sum.len(), number(&sum).to_string()), (DIGITS_MAX, sum));
        assert!(nines(DIGITS_MAX / 2).square().is_none());
        assert!(nines(DIGITS_MAX / 2 - 1).square().is_some());
    }

    #[test]
    fn order_is_by_exact_value() {
        let sorted = [
            "-1e300",
            "-10000000000000000000000000000000000000000001",
            "-10000000000000000000000000000000000000000000",
            "-9007199254740993",
            "-9007199254740992.0",
            "-1.5",
            "0",
            "1",
            "9007199254740992.0",
            "9007199254740993",
            "1e300",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (beside, two) in sorted.iter().enumerate() {
                assert_eq!(
                    number(one).is_less(&number(two)),
                    at < beside,
                    "{one} {two}"
                );
            }
        }
        assert!(!number("1").is_less(&number("1.0")) && !number("1.0").is_less(&number("1")));
    }
}
