//! Statuses of jobs, which their daemons write and the others read, and orders between daemons.
//!
//! PROMISES  The numbers of an epoch become visible in order: a reader that sees one has seen all before it.
//! LIMITS    The status of an ended transient job is removed by its daemon's first write after 10 minutes, or once
//!           that daemon has left.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::{Error, Row};

use super::{keys, of_key};
use crate::fleet::{JobStatus, Order, ReadStatus, StatusOf};
use crate::postgres::shared::{Param, count, epoch};
use policy::ownership::Epoch;

/// The row of `status_numbers` serializes the writes of an epoch; a job's row is locked so that it gets no other owner
/// before the status is written. A daemon that released a job may still update its status until another owns it.
pub(super) const WRITE: &str = "WITH next AS (UPDATE settee.status_numbers SET number = number + $2 WHERE epoch = $1 \
     RETURNING number - $2 AS before), \
     asked AS (SELECT * FROM unnest($3::text[], $4::boolean[], $5::text[]) \
     WITH ORDINALITY AS a (key, is_transient, body, place)), \
     owned AS MATERIALIZED (SELECT j.doc_id FROM (SELECT key FROM asked WHERE NOT is_transient \
     ORDER BY key COLLATE \"C\") a CROSS JOIN LATERAL (SELECT doc_id FROM settee.jobs WHERE doc_id = a.key \
     AND wanted AND (owner IS NOT DISTINCT FROM $1 OR owner IS NULL AND EXISTS (SELECT 1 FROM settee.job_status s \
     WHERE s.key = doc_id AND s.transient = 0 AND s.epoch = $1)) FOR SHARE) j), \
     old AS (DELETE FROM settee.job_status WHERE transient = $1 AND body IS NULL AND key <> ALL ($3) \
     AND at < clock_timestamp() - interval '10 min') \
     INSERT INTO settee.job_status (key, transient, epoch, number, body, at) \
     SELECT a.key, CASE WHEN a.is_transient THEN $1 ELSE 0 END, $1, n.before + a.place, a.body, clock_timestamp() \
     FROM asked a, next n WHERE a.is_transient OR a.key IN (SELECT doc_id FROM owned) ORDER BY a.place \
     ON CONFLICT (key, transient) DO UPDATE SET epoch = excluded.epoch, number = excluded.number, \
     body = excluded.body, at = excluded.at";

/// Oldest first; those of one epoch in the order of their numbers, regardless of the clock.
pub(super) const READ: &str = "SELECT s.key, s.transient <> 0, s.epoch, s.number, s.body, \
     (extract(epoch FROM clock_timestamp() - s.at) * 1000)::bigint FROM settee.job_status s \
     LEFT JOIN unnest($2::bigint[], $3::bigint[]) AS k (epoch, number) ON k.epoch = s.epoch \
     WHERE s.epoch <> ALL ($1) AND s.number > coalesce(k.number, 0) \
     ORDER BY max(s.at) OVER (PARTITION BY s.epoch ORDER BY s.number), s.number LIMIT $4";

/// Returns the parameters of [`WRITE`]: each job's last status, in the order in which all daemons lock jobs.
pub(super) fn written(epoch: Epoch, statuses: Vec<JobStatus>) -> Vec<Param> {
    let last: BTreeMap<StatusOf, _> = statuses
        .into_iter()
        .map(|status| (status.of, status.body))
        .collect();
    let (keys, transient) = keys(last.keys());
    vec![
        Param::Epoch(epoch),
        Param::Number(last.len() as u64),
        keys,
        transient,
        Param::OptionalTexts(last.into_values().collect()),
    ]
}

pub(super) fn status(row: &Row) -> Result<ReadStatus, Error> {
    Ok(ReadStatus {
        epoch: epoch(row.try_get(2)?),
        number: count(row.try_get(3)?),
        status: JobStatus {
            of: of_key(row.try_get(0)?, row.try_get(1)?),
            body: row.try_get(4)?,
        },
        age: Duration::from_millis(count(row.try_get(5)?)),
    })
}

/// Leaves each order for every daemon that has the job, and returns a row for each.
pub(super) const LEAVE: &str = "WITH asked AS (SELECT * FROM unnest($1::text[], $2::boolean[], $3::text[]) \
     WITH ORDINALITY AS a (key, is_transient, body, place)), \
     found AS (SELECT a.*, i.epoch FROM asked a JOIN settee.instances i ON lease_until > clock_timestamp() \
     AND CASE WHEN a.is_transient THEN EXISTS (SELECT 1 FROM settee.job_status s \
     WHERE s.key = a.key AND s.transient = i.epoch AND s.body IS NOT NULL) \
     ELSE EXISTS (SELECT 1 FROM settee.jobs j WHERE j.doc_id = a.key AND j.owner = i.epoch) END), \
     noted AS (INSERT INTO settee.orders (epoch, key, is_transient, body, at) \
     SELECT epoch, key, is_transient, body, clock_timestamp() FROM found ORDER BY place) \
     SELECT place, (SELECT pg_notify('settee_fleet', 'orders')) FROM found";

pub(super) const TAKE: &str = "WITH taken AS (DELETE FROM settee.orders WHERE epoch = $1 \
     RETURNING number, key, is_transient, body) SELECT key, is_transient, body FROM taken ORDER BY number";

pub(super) fn left(orders: &[Order]) -> Vec<Param> {
    let (mut keys, transient) = keys(orders.iter().map(|order| &order.of));
    if let Param::Texts(keys) = &mut keys {
        // No job has such an id.
        keys.iter_mut()
            .filter(|key| key.contains('\0'))
            .for_each(String::clear);
    }
    vec![
        keys,
        transient,
        Param::Texts(orders.iter().map(|order| order.body.clone()).collect()),
    ]
}

/// Returns for each order whether a daemon has its job.
pub(super) fn found(orders: usize, rows: &[Row]) -> Result<Vec<bool>, Error> {
    let mut found = vec![false; orders];
    for row in rows {
        let place: i64 = row.try_get(0)?;
        let place = usize::try_from(place - 1).ok();
        if let Some(found) = place.and_then(|place| found.get_mut(place)) {
            *found = true;
        }
    }
    Ok(found)
}

pub(super) fn order(row: &Row) -> Result<Order, Error> {
    Ok(Order {
        of: of_key(row.try_get(0)?, row.try_get(1)?),
        body: row.try_get(2)?,
    })
}
