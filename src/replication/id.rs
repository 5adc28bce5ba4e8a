//! The name of a replication, and of its checkpoints.
//!
//! SUMMARY   A [`ReplicationId`] is a base, which names the checkpoints, and an extension, which tells
//!           jobs apart that share them. [`replication_id`] computes it; [`base_ids`] computes the
//!           bases of all versions, for checkpoints that were written under an older one.
//! SOURCE    couch_replicator_ids.

use std::fmt;
use std::str::FromStr;

use super::spec::Replication;

/// The version of ids that checkpoints are written under.
pub const VERSION: u8 = 4;

/// The name of a replication.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicationId {
    /// 32 hexadecimal digits in lower case; names the checkpoints.
    pub base: String,
    /// Empty, or `+continuous`, `+create_target`, or both in this order.
    pub ext: String,
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.base, self.ext)
    }
}

impl FromStr for ReplicationId {
    type Err = std::convert::Infallible;

    /// Splits a text at its first plus. Blanks count as pluses: so a plus arrives that was not encoded
    /// in a URL's query.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.replace(' ', "+");
        let at = text.find('+').unwrap_or(text.len());
        let (base, ext) = text.split_at(at);
        Ok(Self {
            base: base.to_owned(),
            ext: ext.to_owned(),
        })
    }
}

/// Who computes ids: part of every one of them, so that two servers never share checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The server's own id, of version 3 and later. A new one starts every replication anew.
    pub uuid: String,
    /// The server's host name, of versions 1 and 2.
    pub host: String,
    /// The server's port, of version 2.
    pub port: u16,
}

/// Returns the id of a replication.
///
/// `filter_code` is the source of the filter function, where the filter is one
/// ([`super::filter::fetch_code`]).
#[must_use]
pub fn replication_id(
    replication: &Replication,
    identity: &Identity,
    filter_code: Option<&str>,
) -> ReplicationId {
    let [base, ..] = base_ids(replication, identity, filter_code);
    ReplicationId {
        base,
        ext: extension(replication),
    }
}

/// Returns the base ids of all versions, newest first: 4, 3, 2, 1.
#[must_use]
pub fn base_ids(
    _replication: &Replication,
    _identity: &Identity,
    _filter_code: Option<&str>,
) -> [String; VERSION as usize] {
    unreachable!("nothing computes ids yet")
}

fn extension(replication: &Replication) -> String {
    let mut text = String::new();
    if replication.options.continuous {
        text.push_str("+continuous");
    }
    if replication.options.create_target {
        text.push_str("+create_target");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_with_pluses_and_with_blanks() {
        let parse = |text: &str| text.parse::<ReplicationId>().unwrap();
        assert_eq!(
            parse("abc"),
            ReplicationId {
                base: "abc".into(),
                ext: String::new()
            }
        );
        for text in ["abc+x+y", "abc x y"] {
            assert_eq!(parse(text).base, "abc");
            assert_eq!(parse(text).ext, "+x+y");
            assert_eq!(parse(text).to_string(), "abc+x+y");
        }
    }
}
