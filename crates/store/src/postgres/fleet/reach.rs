//! Which servers daemons do not reach, and which documents are closed to whom for that.
//!
//! SOURCE    policy::ownership: servers that one daemon cannot reach; its simulated database says the same.

use policy::ownership::{AVOID_FOR, AVOID_MAX, SETTLE};

/// Notes what a renewal tells: `$3` are servers that are not reached, `$4` those that are again.
pub(super) fn noted() -> String {
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

/// What is closed to whom, among the documents for which `which` holds. `told` says which rows of `unreached` count. Where
/// none does, no document is looked at. The planner does not know how many are closed: `closed` is asked with `IN`, and not joined
/// to jobs, for which it would take a loop in a loop.
pub(super) fn closed(told: &str, which: &str) -> String {
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
