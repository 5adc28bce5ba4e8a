//! Settings changed at run time, and secrets.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use crate::fleet::Override;
use crate::postgres::shared::Param;

pub(super) const OVERRIDES: &str =
    "SELECT section, key, value FROM settee.overrides ORDER BY section, key";

pub(super) const SET: &str = "WITH made AS (INSERT INTO settee.overrides (section, key, value) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) \
     ON CONFLICT (section, key) DO UPDATE SET value = excluded.value RETURNING 1) \
     SELECT pg_notify('settee_fleet', 'overrides') WHERE EXISTS (SELECT 1 FROM made)";

/// The no-op update is needed for `RETURNING` to yield an existing value.
pub(super) const SECRET: &str = "INSERT INTO settee.secrets AS known (name, value) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET value = known.value RETURNING value";

/// Returns the parameters of [`SET`]: the last value of each setting, sorted so that transactions cannot deadlock.
pub(super) fn last_of_each(overrides: Vec<Override>) -> Vec<Param> {
    let last: BTreeMap<_, _> = overrides
        .into_iter()
        .map(|made| ((made.section, made.key), made.value))
        .collect();
    let (names, values): (Vec<_>, Vec<_>) = last.into_iter().unzip();
    let (sections, keys) = names.into_iter().unzip();
    vec![
        Param::Texts(sections),
        Param::Texts(keys),
        Param::OptionalTexts(values),
    ]
}

pub(super) fn setting(row: &Row) -> Result<Override, tokio_postgres::Error> {
    Ok(Override {
        section: row.try_get(0)?,
        key: row.try_get(1)?,
        value: row.try_get(2)?,
    })
}
