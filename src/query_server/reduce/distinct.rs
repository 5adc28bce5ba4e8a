//! `_approx_count_distinct`: the approximate number of distinct keys.
//!
//! SUMMARY   HyperLogLog++ with 2^11 registers over the SHA-1 of each key's external term. An intermediate result has
//!           the registers; [`finalize`] computes the rounded estimate.
//! PROMISES  The estimates equal CouchDB's. Keys are distinguished like Erlang terms: 1 and 1.0 are different keys.
//! SOURCE    couch_query_servers: approx_count_distinct; S. Heule, M. Nunkesser, A. Hall, "HyperLogLog in Practice"
//!           (2013), with its bias tables.
//! DIFFERS   The intermediate result is JSON, `{"precision":11,"registers":TEXT}`: a base64 character for each
//!           register, and `~` with two characters (12 bits) for a run of zero registers. At most 2.1 KB; 34 bytes
//!           without keys.

use serde::Deserialize;
use serde_json::value::RawValue;
use sha1::{Digest, Sha1};

use super::bias::estimates;
use super::{Fold, InvalidValue, ReduceRow, Reducer, Reduction, quoted, raw};
use json::erlang;

/// `_approx_count_distinct`.
pub(super) const APPROX_COUNT_DISTINCT: Reducer = Reducer {
    finalize,
    ..Reducer::new("_approx_count_distinct", |_| Box::new(Sketch::new()))
};

/// The number of bits of a hash that select its register.
const PRECISION: u32 = 11;

/// The number of registers.
const REGISTERS: usize = 1 << PRECISION;

/// The number of significant bits of a hash, including those of the register.
const HASH_BITS: u32 = 64;

/// Up to this number, an estimate from the number of empty registers is more accurate.
const LINEAR_COUNTING_MAX: f64 = 1800.0;

/// The number of nearest raw estimates averaged for the bias.
const NEIGHBOURS: usize = 6;

/// Characters for register values, which are below 64.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Starts a run of zero registers.
const RUN: u8 = b'~';

/// Maximum registers stored sparsely.
const FEW_MAX: usize = 32;

/// Minimum length of an encoded run.
const RUN_MIN: usize = 4;

/// The largest register value: no bit in the rest of the hash is set.
const VALUE_MAX: u8 = (HASH_BITS - PRECISION + 1) as u8;

/// The encoded registers.
#[derive(Deserialize)]
struct Written<'a> {
    precision: u32,
    registers: &'a str,
}

/// For each register the longest run of zero bits, plus one; 0 if unset.
#[derive(Debug)]
enum Sketch {
    /// Nonzero registers with their numbers.
    Few(Vec<(u16, u8)>),
    All(Box<[u8; REGISTERS]>),
}

impl Sketch {
    fn new() -> Self {
        Self::Few(Vec::new())
    }

    fn raise(&mut self, index: u16, value: u8) {
        let few = match self {
            Self::All(all) => {
                let register = &mut all[usize::from(index)];
                *register = value.max(*register);
                return;
            }
            Self::Few(few) => few,
        };
        match few.iter_mut().find(|(known, _)| *known == index) {
            Some((_, register)) => *register = value.max(*register),
            None if value == 0 => {}
            None => few.push((index, value)),
        }
        if few.len() > FEW_MAX {
            *self = Self::All(Box::new(self.registers()));
        }
    }

    fn registers(&self) -> [u8; REGISTERS] {
        match self {
            Self::All(all) => **all,
            Self::Few(few) => {
                let mut all = [0; REGISTERS];
                few.iter()
                    .for_each(|(index, value)| all[usize::from(*index)] = *value);
                all
            }
        }
    }

    /// Estimates the number of distinct keys.
    fn cardinality(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "2048")]
        let count = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / count);
        let registers = self.registers();
        let harmonic: f64 = registers
            .iter()
            .map(|value| (-f64::from(*value)).exp2())
            .sum();
        let estimate = alpha * count * count / harmonic;
        let corrected = if estimate <= 5.0 * count {
            estimate - bias(estimate)
        } else {
            estimate
        };
        let empty = registers.iter().filter(|value| **value == 0).count();
        #[expect(clippy::cast_precision_loss, reason = "at most 2048")]
        let linear = match empty {
            0 => corrected,
            empty => count * (count / empty as f64).ln(),
        };
        if linear <= LINEAR_COUNTING_MAX {
            linear
        } else {
            corrected
        }
    }
}

impl Fold for Sketch {
    fn take(&mut self, row: &ReduceRow<'_>, term: &mut Vec<u8>) -> Reduction {
        term.clear();
        term.push(erlang::VERSION);
        erlang::json(row.key, term);
        let bits = Sha1::digest(term)
            .iter()
            .take(size_of::<u64>())
            .fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        let index = u16::try_from(bits >> (HASH_BITS - PRECISION)).unwrap_or_default();
        // A bit after the last one ends a run that reaches the end.
        let rest = bits << PRECISION | 1 << (PRECISION - 1);
        let value = u8::try_from(rest.leading_zeros() + 1).unwrap_or(VALUE_MAX);
        self.raise(index, value);
        Ok(())
    }

    fn take_result(&mut self, result: &str, _: &mut Vec<u8>) -> Reduction {
        let wrong = || {
            InvalidValue(format!(
                "_approx_count_distinct merges its own results, not '{}'",
                quoted(result)
            ))
        };
        let written: Written<'_> = serde_json::from_str(result).map_err(|_| wrong())?;
        if written.precision != PRECISION {
            return Err(wrong());
        }
        let mut characters = written.registers.bytes();
        let mut index = 0;
        while let Some(character) = characters.next() {
            if character == RUN {
                let high = characters.next().and_then(value_of).ok_or_else(wrong)?;
                let low = characters.next().and_then(value_of).ok_or_else(wrong)?;
                index += usize::from(high) * ALPHABET.len() + usize::from(low);
                continue;
            }
            let value = value_of(character).filter(|value| *value <= VALUE_MAX);
            if index >= REGISTERS {
                return Err(wrong());
            }
            let place = u16::try_from(index).unwrap_or_default();
            self.raise(place, value.ok_or_else(wrong)?);
            index += 1;
        }
        if index == REGISTERS {
            Ok(())
        } else {
            Err(wrong())
        }
    }

    fn finish(&self) -> Box<RawValue> {
        let mut text = String::new();
        let character = |value: usize| char::from(ALPHABET[value % ALPHABET.len()]);
        for run in self.registers().chunk_by(|one, two| *one == 0 && *two == 0) {
            if run.len() >= RUN_MIN {
                text.push(char::from(RUN));
                text.push(character(run.len() / ALPHABET.len()));
                text.push(character(run.len()));
            } else {
                text.extend(run.iter().map(|value| character(usize::from(*value))));
            }
        }
        raw(format!(
            "{{\"precision\":{PRECISION},\"registers\":\"{text}\"}}"
        ))
    }
}

fn value_of(character: u8) -> Option<u8> {
    let place = ALPHABET.iter().position(|known| *known == character)?;
    u8::try_from(place).ok()
}

/// Returns the bias of a raw estimate: the mean bias of its nearest neighbours.
fn bias(estimate: f64) -> f64 {
    let distance = |(known, _): &(f64, f64)| (known - estimate).abs();
    let mut known: Vec<(f64, f64)> = estimates().collect();
    known.sort_by(|one, two| distance(one).total_cmp(&distance(two)));
    let sum: f64 = known[..NEIGHBOURS].iter().map(|(_, bias)| bias).sum();
    #[expect(clippy::cast_precision_loss, reason = "6")]
    let mean = sum / NEIGHBOURS as f64;
    mean
}

/// Converts an intermediate result to the rounded estimate.
///
/// # Errors
/// The value is not an intermediate result.
fn finalize(result: &RawValue) -> Reduction<Box<RawValue>> {
    let mut sketch = Sketch::new();
    sketch.take_result(result.get(), &mut Vec::new())?;
    Ok(raw(format!("{:.0}", sketch.cardinality().round())))
}
