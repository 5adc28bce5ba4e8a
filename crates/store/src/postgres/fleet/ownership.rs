//! Leases and claims, and servers that daemons cannot reach.
//!
//! SOURCE    policy::ownership: the content of the database; its simulated database behaves the same.

use std::time::Duration;

use tokio_postgres::{Error, Row};

use super::TELL_CLAIMS;
use crate::fleet::{Daemon, DaemonName, Report};
use crate::postgres::shared::{count, epoch};
use policy::ownership::{
    AVOID_FOR, AVOID_MAX, BATCH, Claimed, Counts, LEASE, ListedDoc, Request, SETTLE, Standing,
};

/// The number of documents that request a replication.
const WANTED: &str = "(SELECT count(*) FROM settee.jobs WHERE wanted)";

/// The number of live daemons besides the requesting one, `$1`.
const OTHERS: &str = "(SELECT count(*) FROM settee.instances \
     WHERE has_claimed AND NOT is_leaving AND lease_until > clock_timestamp() AND epoch <> $1)";

pub(super) const DAEMONS: &str = "SELECT i.epoch, address, version, is_leaving, \
     (extract(epoch FROM lease_until - clock_timestamp()) * 1000)::bigint, \
     (SELECT count(*) FROM settee.jobs WHERE owner = i.epoch), \
     r.body, (extract(epoch FROM clock_timestamp() - r.at) * 1000)::bigint \
     FROM settee.instances i LEFT JOIN settee.reports r ON r.epoch = i.epoch ORDER BY address, i.epoch";

/// A removed epoch has no row in `status_numbers`, so nothing is written for it. `instances` is not locked, so that no
/// renewal waits.
pub(super) const WRITE_REPORT: &str = "INSERT INTO settee.reports (epoch, body, at) \
     SELECT epoch, $2, clock_timestamp() FROM settee.status_numbers WHERE epoch = $1 \
     ON CONFLICT (epoch) DO UPDATE SET body = excluded.body, at = excluded.at";

fn until() -> String {
    format!("clock_timestamp() + interval '{} ms'", LEASE.as_millis())
}

/// Adds an epoch, and removes its daemon's former ones, `$4`, and all that have neither a lease nor documents. A
/// removed epoch leaves only statuses of documents.
pub(super) fn take_epoch() -> String {
    format!(
        "WITH over AS (SELECT epoch FROM settee.instances i WHERE lease_until <= clock_timestamp() \
         AND NOT EXISTS (SELECT 1 FROM settee.jobs j WHERE j.owner = i.epoch) ORDER BY epoch FOR UPDATE SKIP LOCKED), \
         gone AS (DELETE FROM settee.instances WHERE epoch = ANY($4) OR epoch IN (SELECT epoch FROM over) \
         RETURNING epoch), \
         entered AS (INSERT INTO settee.instances (epoch, address, version, lease_until) VALUES ($1, $2, $3, {until})), \
         numbered AS (INSERT INTO settee.status_numbers (epoch) VALUES ($1)), \
         stay AS (SELECT epoch FROM settee.instances WHERE epoch NOT IN (SELECT epoch FROM gone)), \
         numbers AS (DELETE FROM settee.status_numbers WHERE epoch NOT IN (SELECT epoch FROM stay)), \
         orders AS (DELETE FROM settee.orders WHERE epoch NOT IN (SELECT epoch FROM stay)), \
         unreached AS (DELETE FROM settee.unreached WHERE epoch NOT IN (SELECT epoch FROM stay)), \
         reports AS (DELETE FROM settee.reports WHERE epoch NOT IN (SELECT epoch FROM stay)), \
         statuses AS (DELETE FROM settee.job_status WHERE transient <> 0 AND transient NOT IN (SELECT epoch FROM stay)) \
         SELECT {WANTED}, {OTHERS} - (SELECT count(*) FROM settee.instances WHERE epoch = ANY($4) AND has_claimed \
         AND NOT is_leaving AND lease_until > clock_timestamp()), 0, \
         (SELECT {TELL_CLAIMS} WHERE EXISTS (SELECT 1 FROM gone))",
        until = until()
    )
}

/// Returns no row if the lease has expired, which is checked once its row is locked: by then another daemon may have
/// found it expired, and own the documents.
pub(super) fn renew() -> String {
    format!(
        "WITH known AS (SELECT lease_until, is_leaving FROM settee.instances WHERE epoch = $1 FOR UPDATE), \
         renewed AS (UPDATE settee.instances i SET lease_until = {until}, is_leaving = k.is_leaving OR $2 \
         FROM known k WHERE i.epoch = $1 AND k.lease_until > clock_timestamp() \
         RETURNING (i.has_claimed AND NOT i.is_leaving)::int AS is_live), {noted}, {closed} \
         SELECT {WANTED}, {OTHERS}, r.is_live, j.doc_id, j.claim, j.wanted, \
         j.doc_id IN (SELECT doc_id FROM closed), \
         (SELECT min(t.server) FROM told t WHERE t.avoids AND t.epoch = $1 AND t.server = ANY (j.servers)), \
         (SELECT {TELL_CLAIMS} FROM known WHERE $2 AND NOT is_leaving) \
         FROM renewed r LEFT JOIN settee.jobs j ON j.owner = $1",
        until = until(),
        noted = noted(),
        // This renewal's own reports are not visible yet.
        closed = closed(
            "NOT (u.epoch = $1 AND u.server = ANY ($4::text[]))",
            "j.owner = $1"
        )
    )
}

/// Scans the jobs once to count those of each owner. Jobs whose owner has no lease are then read from the index
/// `jobs_claims`, in the order of their hashes, up to the limit: each epoch starts at a different place, reads up to
/// the greatest hash, and then wraps around.
///
/// Locked rows may have been claimed since the statement began, by an epoch invisible to it: hence `has_lease`, which
/// is called for few rows.
pub(super) fn claim() -> String {
    format!(
        "WITH lease AS (SELECT has_claimed, is_leaving FROM settee.instances \
         WHERE epoch = $1 AND lease_until > clock_timestamp()), \
         begun AS (UPDATE settee.instances i SET has_claimed = true FROM lease l \
         WHERE i.epoch = $1 AND NOT l.has_claimed RETURNING i.epoch), {closed}, \
         owned AS MATERIALIZED (SELECT owner, count(*) AS docs FROM settee.jobs WHERE wanted GROUP BY owner), \
         free AS (SELECT f.* FROM owned j CROSS JOIN (VALUES (hashint8($1)::bigint, 2147483647), \
         (-2147483648, hashint8($1)::bigint - 1)) AS part (first, last) \
         CROSS JOIN LATERAL (SELECT doc_id, owner FROM settee.jobs WHERE wanted \
         AND coalesce(owner, 0) = coalesce(j.owner, 0) AND owner IS NOT DISTINCT FROM j.owner \
         AND hashtext(doc_id) BETWEEN first AND last AND doc_id NOT IN (SELECT doc_id FROM closed) \
         ORDER BY hashtext(doc_id) LIMIT $3 FOR UPDATE SKIP LOCKED) f \
         WHERE {free} AND EXISTS (SELECT 1 FROM lease) LIMIT $3), \
         room AS (SELECT closed_to, ceil(count(*)::numeric / ((SELECT count(*) FROM live) - cardinality(closed_to))) \
         - count(*) FILTER (WHERE owner = $1) AS room FROM closed GROUP BY closed_to), \
         picked AS (SELECT j.doc_id, room, row_number() OVER (PARTITION BY closed_to ORDER BY hashtextextended(j.doc_id, $1)) \
         AS place FROM closed j JOIN room USING (closed_to) WHERE $1 <> ALL (closed_to) AND {free}), \
         extra AS (SELECT j.doc_id, j.owner FROM settee.jobs j WHERE j.wanted AND EXISTS (SELECT 1 FROM lease) \
         AND EXISTS (SELECT 1 FROM closed) \
         AND j.doc_id IN (SELECT doc_id FROM picked WHERE place <= room) AND {free} \
         ORDER BY hashtextextended(j.doc_id, $1) LIMIT {BATCH} FOR UPDATE OF j SKIP LOCKED), \
         claimed AS (UPDATE settee.jobs j SET owner = $1, claim = $2 \
         FROM (SELECT *, false AS is_extra FROM free UNION ALL SELECT *, true FROM extra) f WHERE j.doc_id = f.doc_id \
         AND (f.owner IS NULL OR settee.has_lease(f.owner) IS NOT TRUE) RETURNING j.doc_id, f.is_extra) \
         SELECT (SELECT coalesce(sum(docs), 0)::bigint FROM owned), {OTHERS}, \
         coalesce((SELECT (NOT is_leaving)::int FROM lease), 0), c.doc_id, c.is_extra, \
         (SELECT {TELL_CLAIMS} FROM begun) FROM (SELECT 1) one LEFT JOIN claimed c ON true",
        closed = closed("true", "true"),
        free = "(j.owner IS NULL OR j.owner <> ALL (ARRAY(SELECT epoch FROM settee.instances \
                WHERE lease_until > clock_timestamp())))"
    )
}

pub(super) fn release() -> String {
    format!(
        "WITH held AS (SELECT j.doc_id FROM settee.jobs j \
         JOIN unnest($3::text[], $2::bigint[]) AS r (doc_id, claim) ON j.doc_id = r.doc_id AND j.claim = r.claim \
         WHERE j.owner = $1 ORDER BY j.doc_id FOR UPDATE OF j), \
         released AS (UPDATE settee.jobs j SET owner = NULL, claim = NULL FROM held h WHERE j.doc_id = h.doc_id \
         RETURNING 1) \
         SELECT {TELL_CLAIMS} WHERE EXISTS (SELECT 1 FROM released)"
    )
}

/// Removes an epoch. Its claims are free once its row is gone.
pub(super) fn depart() -> String {
    format!(
        "WITH gone AS (DELETE FROM settee.instances WHERE epoch = $1 RETURNING epoch), \
         numbers AS (DELETE FROM settee.status_numbers WHERE epoch = $1), \
         orders AS (DELETE FROM settee.orders WHERE epoch = $1), \
         unreached AS (DELETE FROM settee.unreached WHERE epoch = $1), \
         reports AS (DELETE FROM settee.reports WHERE epoch = $1), \
         statuses AS (DELETE FROM settee.job_status WHERE transient = $1) \
         SELECT {TELL_CLAIMS} FROM gone"
    )
}

/// Reads the first columns of any row: wanted documents, other live daemons, and whether the requesting one is
/// alive.
pub(super) fn counts(rows: &[Row]) -> Result<Counts, Error> {
    let Some(row) = rows.first() else {
        return Ok(Counts::default());
    };
    let (wanted, others, own): (i64, i64, i32) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let number = |number| usize::try_from(number).unwrap_or(0);
    Ok(Counts {
        wanted: number(wanted),
        live: number(others + i64::from(own)),
    })
}

pub(super) fn listed(rows: &[Row]) -> Result<Vec<ListedDoc>, Error> {
    let mut docs = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(id) = row.try_get::<_, Option<&str>>(3)? {
            let (claim, wanted): (i64, bool) = (row.try_get(4)?, row.try_get(5)?);
            let avoided: Option<&str> = row.try_get(7)?;
            let standing = match (row.try_get(6)?, avoided) {
                (false, _) => Standing::Shared,
                (true, None) => Standing::Extra,
                (true, Some(server)) => Standing::Avoided(server.into()),
            };
            docs.push(ListedDoc {
                doc: id.into(),
                claim: Request(claim.cast_unsigned()),
                wanted,
                standing,
            });
        }
    }
    Ok(docs)
}

pub(super) fn claimed(rows: &[Row]) -> Result<Claimed, Error> {
    let mut claimed = Claimed {
        counts: counts(rows)?,
        ..Claimed::default()
    };
    for row in rows {
        if let Some(id) = row.try_get::<_, Option<&str>>(3)? {
            if row.try_get(4)? {
                claimed.extra.push(id.into())
            } else {
                claimed.docs.push(id.into())
            }
        }
    }
    Ok(claimed)
}

pub(super) fn daemon(row: &Row) -> Result<(Daemon, usize), Error> {
    let (left, claimed): (i64, i64) = (row.try_get(4)?, row.try_get(5)?);
    let (body, age): (Option<String>, Option<i64>) = (row.try_get(6)?, row.try_get(7)?);
    let report = body.map(|body| Report {
        body,
        age: Duration::from_millis(age.map_or(0, count)),
    });
    let daemon = Daemon {
        epoch: epoch(row.try_get(0)?),
        name: DaemonName {
            address: row.try_get::<_, &str>(1)?.into(),
            version: row.try_get::<_, &str>(2)?.into(),
        },
        lease: Some(Duration::from_millis(count(left))).filter(|left| !left.is_zero()),
        is_leaving: row.try_get(3)?,
        report,
    };
    Ok((daemon, usize::try_from(claimed).unwrap_or(0)))
}

// Servers that daemons cannot reach, and the documents that they must not claim for that reason.
//
// SOURCE    policy::ownership: servers that one daemon cannot reach; its simulated database behaves the same.

/// Records a renewal's reports: `$3` are unreachable servers, `$4` those reachable again.
fn noted() -> String {
    let is_over = "u.until <= clock_timestamp() OR u.avoided_from = 'infinity'";
    let span = format!(
        "CASE WHEN NOT ({is_over}) THEN u.span_ms \
         WHEN clock_timestamp() < u.until + u.span_ms * interval '1 ms' THEN least(u.span_ms * 2, {max}) ELSE {span} END",
        max = AVOID_MAX.as_millis(),
        span = AVOID_FOR.as_millis()
    );
    format!(
        "noted AS (INSERT INTO settee.unreached AS u (epoch, server, avoided_from, until, span_ms) \
         SELECT $1, s, clock_timestamp() + {settle}, clock_timestamp() + interval '{avoid} ms', {avoid} \
         FROM renewed, unnest($3::text[]) AS s ON CONFLICT (epoch, server) DO UPDATE SET span_ms = {span}, \
         avoided_from = CASE WHEN {is_over} THEN clock_timestamp() + {settle} ELSE u.avoided_from END, \
         until = clock_timestamp() + ({span}) * interval '1 ms'), \
         back AS (UPDATE settee.unreached u SET avoided_from = 'infinity', \
         until = least(u.until, clock_timestamp() + {settle}) FROM renewed \
         WHERE u.epoch = $1 AND u.server = ANY ($4::text[]))",
        settle = format_args!("interval '{} ms'", SETTLE.as_millis()),
        avoid = AVOID_FOR.as_millis()
    )
}

/// Selects documents that some live daemons must not claim, each with these daemons, `closed_to`: they cannot reach one
/// of the document's servers, while another live daemon can reach all. Only documents that satisfy `which` are checked,
/// and none unless `told` selects rows of `unreached`. The planner cannot estimate the number of these documents:
/// `closed` is used with `IN` rather than joined to jobs, which would become a nested loop.
fn closed(told: &str, which: &str) -> String {
    format!(
        "live AS (SELECT epoch FROM settee.instances WHERE lease_until > clock_timestamp() \
         AND (epoch = $1 OR has_claimed AND NOT is_leaving)), \
         told AS (SELECT u.epoch, u.server, u.avoided_from <= clock_timestamp() AS avoids \
         FROM settee.unreached u JOIN live USING (epoch) WHERE u.until > clock_timestamp() AND {told}), \
         closed AS MATERIALIZED (SELECT j.doc_id, j.owner, \
         (SELECT array_agg(DISTINCT t.epoch ORDER BY t.epoch) FROM told t WHERE t.avoids AND t.server = ANY (j.servers)) \
         AS closed_to FROM settee.jobs j WHERE EXISTS (SELECT 1 FROM told WHERE avoids) AND j.wanted AND {which} \
         AND j.servers && ARRAY(SELECT server FROM told WHERE avoids) \
         AND EXISTS (SELECT 1 FROM live l WHERE NOT EXISTS \
         (SELECT 1 FROM told t WHERE t.epoch = l.epoch AND t.server = ANY (j.servers))))"
    )
}
