//! Derives the tag that ties processes to a database from its name (`db_tag`).

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use super::Tenant;

/// The setting `[query_server_config] db_tag`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DbTag {
    /// The database's name.
    #[default]
    Name,
    /// The part of the name before the first `/`; the whole name if that part is empty.
    Prefix,
    /// No tag: processes serve all databases.
    None,
}

impl DbTag {
    /// Returns a database's tenant. The name may be that of a shard (`shards/00000000-ffffffff/NAME.1700000000`).
    ///
    /// # Source
    /// couch_query_servers 001, db_key/1.
    pub fn tenant(self, db: &str) -> Tenant {
        let name = name_of_shard(db);
        let key = match self {
            Self::Name => name,
            Self::Prefix => match name.split_once('/') {
                Some((prefix, _)) if !prefix.is_empty() => prefix,
                _ => name,
            },
            Self::None => return Tenant::Databases,
        };
        Tenant::Database(key.into())
    }
}

fn name_of_shard(db: &str) -> &str {
    let inside = db
        .strip_prefix("shards/")
        .and_then(|rest| rest.split_once('/'));
    let Some((_, name_and_suffix)) = inside else {
        return db;
    };
    match name_and_suffix.rsplit_once('.') {
        Some((name, suffix)) if suffix.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name_and_suffix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_the_name_its_prefix_or_nothing() {
        let of = |key: &str| Tenant::Database(key.into());
        assert_eq!(DbTag::Name.tenant("shop/eu"), of("shop/eu"));
        assert_eq!(DbTag::Prefix.tenant("shop/eu/x"), of("shop"));
        assert_eq!(DbTag::Prefix.tenant("shop"), of("shop"));
        assert_eq!(DbTag::Prefix.tenant("/foo"), of("/foo"));
        assert_eq!(DbTag::None.tenant("shop"), Tenant::Databases);
    }

    #[test]
    fn a_shard_counts_as_its_database() {
        let is_of = |db, key: &str| DbTag::Name.tenant(db) == Tenant::Database(key.into());
        assert!(is_of("shards/00000000-7fffffff/shop.1700000000", "shop"));
        assert!(is_of("shards/00000000-7fffffff/a/b.c.17", "a/b.c"));
        assert!(is_of("shards", "shards"));
    }
}
