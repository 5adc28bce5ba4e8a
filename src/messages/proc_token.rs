//! A client's name for a process.

use std::fmt;
use std::str::FromStr;

use policy::pool::{PoolId, ProcId, Token};

/// A client's name for a process: `POOL.NUMBER.TOKEN`, opaque to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcToken {
    /// The process.
    pub proc: ProcId,
    /// The loan.
    pub token: Token,
}

impl fmt::Display for ProcToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.proc, self.token.0)
    }
}

impl FromStr for ProcToken {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let numbers: Vec<u64> = text
            .split('.')
            .map(|part| part.parse().map_err(drop))
            .collect::<Result<_, _>>()?;
        let [pool, number, token] = numbers[..] else {
            return Err(());
        };
        let (pool, token) = (PoolId(u32::try_from(pool).map_err(drop)?), Token(token));
        Ok(Self {
            proc: ProcId { pool, number },
            token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_as_it_is_written_and_nothing_else_is_one() {
        let token = ProcToken {
            proc: ProcId {
                pool: PoolId(3),
                number: 17,
            },
            token: Token(4),
        };
        assert_eq!(token.to_string(), "3.17.4");
        assert_eq!("3.17.4".parse(), Ok(token));
        for text in [
            "",
            "3.17",
            "3.17.4.",
            "3.17.4.1",
            "a.b.c",
            "3.17.-4",
            "4294967296.1.1",
        ] {
            assert_eq!(text.parse::<ProcToken>(), Err(()), "{text}");
        }
    }
}
