//! The order of the waiters: by lane, then by tenant in turn, then by arrival.
//!
//! SUMMARY   Gives a request the rank by which it stands in the queue. The interactive lane goes
//!           before the bulk lane where capacity is reserved for it. With `fairness = "per_db"` each
//!           tenant's oldest request is in this round, its second one in the next, and so on. A
//!           database that was served in a round is back in the next one, so that asking again at
//!           once, or with many clients, brings no gain.
//! PROMISES  A rank is a matter of who asks, whatever process can serve the request. It costs one look
//!           at a table, which forgets a tenant as soon as it says nothing.
//! CALLED    When a request joins the queue, and when it leaves it to be served.
//! SOURCE    Start-time fair queueing, with a cost of one for every request. Neither
//!           couch_proc_manager nor pidq has anything of the kind: their waiters are one FIFO.
//! LIMITS    Requests are counted, not the time for which they hold a process.

use rustc_hash::FxHashMap;

use super::id::{Lane, Tenant};
use super::settings::{Fairness, PoolSettings};

/// The bit of a rank that puts the bulk lane behind the interactive one.
pub(super) const BULK: u64 = 1 << 63;

/// How many tenants are remembered before the first look for some to forget.
const TENANTS_KEPT_MIN: usize = 64;

/// The first rank of a lane.
pub(super) const fn first(settings: &PoolSettings, lane: Lane) -> u64 {
    match lane {
        Lane::Bulk if settings.interactive_reserved > 0 => BULK,
        Lane::Bulk | Lane::Interactive => 0,
    }
}

/// The rounds of one pool: one count for each lane, so that neither lane moves the other's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    interactive: LaneRounds,
    bulk: LaneRounds,
}

#[derive(Clone, Debug, Default)]
struct LaneRounds {
    /// The round of the request that was served last.
    now: u64,
    /// tenant -> the round of its newest request; unordered: always asked for one tenant.
    newest: FxHashMap<Tenant, u64>,
    /// How many tenants were left when the table was last cleaned.
    kept: usize,
}

impl Rounds {
    /// Returns the rank of a request that joins the queue now.
    pub(super) fn join(&mut self, settings: &PoolSettings, lane: Lane, tenant: &Tenant) -> u64 {
        let bit = first(settings, lane);
        match settings.fairness {
            Fairness::Fifo => bit,
            Fairness::PerDb => bit | self.of(bit).join(tenant),
        }
    }

    /// Notes that a request of this rank leaves the queue to be served.
    pub(super) fn served(&mut self, rank: u64) {
        let rounds = self.of(rank);
        rounds.now = rounds.now.max(rank & !BULK);
    }

    /// The rounds of a rank's lane.
    const fn of(&mut self, rank: u64) -> &mut LaneRounds {
        match rank & BULK {
            0 => &mut self.interactive,
            _ => &mut self.bulk,
        }
    }
}

impl LaneRounds {
    fn join(&mut self, tenant: &Tenant) -> u64 {
        self.forget();
        let newest = self.newest.get(tenant).map_or(0, |newest| newest + 1);
        let round = self.now.max(newest);
        self.newest.insert(tenant.clone(), round);
        round
    }

    /// Forgets the tenants whose next request is in this round with or without their row. Looks
    /// only when the table has doubled, so that each request pays for one row of it.
    fn forget(&mut self) {
        if self.newest.len() >= 2 * self.kept + TENANTS_KEPT_MIN {
            let now = self.now;
            self.newest.retain(|_, newest| *newest >= now);
            self.kept = self.newest.len();
        }
    }
}
