//! Derives the tag that ties processes to a database from its name (`db_tag`).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use super::{DbKey, Tenant};

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
    pub fn tenant(self, db: &str) -> Tenant {
        self.key(db).map_or(Tenant::Databases, Tenant::Database)
    }

    /// Returns the tag of a database.
    ///
    /// # Source
    /// couch_query_servers 001, db_key/1.
    fn key(self, db: &str) -> Option<DbKey> {
        let name = name_of_shard(db);
        match self {
            Self::Name => Some(Arc::from(name)),
            Self::Prefix => match name.split_once('/') {
                Some((prefix, _)) if !prefix.is_empty() => Some(Arc::from(prefix)),
                _ => Some(Arc::from(name)),
            },
            Self::None => None,
        }
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
        let key = |tag: DbTag, db| tag.key(db).map(|key| key.to_string());
        assert_eq!(key(DbTag::Name, "shop/eu").as_deref(), Some("shop/eu"));
        assert_eq!(key(DbTag::Prefix, "shop/eu/x").as_deref(), Some("shop"));
        assert_eq!(key(DbTag::Prefix, "shop").as_deref(), Some("shop"));
        assert_eq!(key(DbTag::Prefix, "/foo").as_deref(), Some("/foo"));
        assert_eq!(key(DbTag::None, "shop"), None);
    }

    #[test]
    fn a_shard_counts_as_its_database() {
        let key = |db| DbTag::Name.key(db).map(|key| key.to_string());
        assert_eq!(
            key("shards/00000000-7fffffff/shop.1700000000").as_deref(),
            Some("shop")
        );
        assert_eq!(
            key("shards/00000000-7fffffff/a/b.c.17").as_deref(),
            Some("a/b.c")
        );
        assert_eq!(key("shards").as_deref(), Some("shards"));
    }
}
