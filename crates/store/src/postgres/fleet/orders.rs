//! Orders between daemons.

use tokio_postgres::Row;

use super::{keys, of_key};
use crate::fleet::Order;
use crate::postgres::shared::Param;

/// For each order, as often as there are daemons that have the job.
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
    let bodies = orders.iter().map(|order| order.body.clone());
    vec![keys, transient, Param::Texts(bodies.collect())]
}

/// Returns for each of so many orders whether somebody has it.
pub(super) fn found(orders: usize, rows: &[Row]) -> Result<Vec<bool>, tokio_postgres::Error> {
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

pub(super) fn order(row: &Row) -> Result<Order, tokio_postgres::Error> {
    Ok(Order {
        of: of_key(row.try_get(0)?, row.try_get(1)?),
        body: row.try_get(2)?,
    })
}
