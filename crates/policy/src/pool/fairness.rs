//! The order of waiters: by lane, then by their tenants' use of processes, then by arrival.
//!
//! SUMMARY   The interactive lane precedes the bulk lane where capacity is reserved for it. If `fairness = "per_db"`,
//!           each tenant has an account in each pool, and the tenant with the smallest account is served next. An
//!           account grows by one second for each second that a process is held for the tenant, starting when the
//!           process is chosen or opened, and by [`LOAN_COST`] for each loan; it halves every [`HALF_LIFE`]. A tenant
//!           that starts to wait joins with the account that the latest served tenant had when it was served, unless
//!           its own is larger: the newcomer is among the first, but gains nothing from having been idle.
//! PROMISES  A tenant gains nothing by repeating requests at once, with many clients, or for a long time. However
//!           much it has used, others precede it for at most one half-life because of that use. A change takes time
//!           logarithmic in the number of tenants; finding the next waiter takes one lookup for each distinct number
//!           of held processes.
//! CALLED    When a request joins the queue, when a process is assigned to it, and when its use ends.
//! SOURCE    Start-time fair queueing, with a cost that is known only at the end. Neither couch_proc_manager nor pidq
//!           has an equivalent: their waiters are one FIFO.
//! LIMITS    Keeps at most [`ACCOUNTS_MAX`] accounts of tenants that neither wait nor hold.
//!
//! # How accounts stay sorted while they change
//!
//! Time is counted in half-lives since an origin. An account is stored as its value at the origin, that is,
//! multiplied by two for each half-life since. So an account without additions keeps its stored value. Holding one
//! process forever makes an account of [`FULL`] seconds; its stored value, [`Accounts::full`], grows and is the same
//! for all tenants. An account is a fixed part plus that value for each held process, so tenants that hold equally
//! many are ordered by their fixed parts until a loan begins or ends.

use std::cmp::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::{Lane, PoolSettings, Tenant};
use crate::time::Timestamp;

/// After this time, a second of holding a process counts half.
const HALF_LIFE: Duration = Duration::from_secs(5);

/// The cost of a loan besides its duration, in seconds.
const LOAN_COST: f64 = 0.001;

/// The account of a tenant that has held one process forever, in seconds: a half-life divided by ln 2.
const FULL: f64 = 5.0 / std::f64::consts::LN_2;

/// Maximum accounts kept of tenants that neither wait nor hold a process.
const ACCOUNTS_MAX: usize = 10_000;

/// Number of accounts before the first attempt to forget some.
const ACCOUNTS_KEPT_MIN: usize = 64;

/// Half-lives after which the origin moves. A float has range for twice as many.
const ORIGIN_MOVES_AFTER: f64 = 500.0;

/// A lane's place in the queue; 0 is served first.
pub(super) const fn lane_place(settings: &PoolSettings, lane: Lane) -> usize {
    match lane {
        Lane::Bulk if settings.interactive_reserved > 0 => 1,
        Lane::Bulk | Lane::Interactive => 0,
    }
}

/// Seconds in stored form: their value at the origin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept(f64);

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Kept {}

/// A tenant's sort key; equal for all where waiters are served in order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub held: u32,
    /// Its account without the contribution of held processes.
    pub fixed: Kept,
}

impl Standing {
    /// The account, where `full` is the value of a process held forever.
    pub fn account(self, full: Kept) -> Kept {
        Kept(self.fixed.0 + f64::from(self.held) * full.0)
    }

    /// Adds to the fixed part. Avoids negative zero, so that equal accounts compare equal.
    fn add(&mut self, seconds: f64) {
        self.fixed = Kept(self.fixed.0 + seconds + 0.0);
    }
}

/// The accounts of one pool's tenants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    /// The reference time of stored values.
    origin: Timestamp,
    /// The stored value of a process held forever.
    pub full: Kept,
    /// The account of the tenant served last, as of then.
    floor: Kept,
    /// tenant -> its account; never iterated in order.
    rows: FxHashMap<Tenant, Standing>,
    /// Tenants left after the last cleanup.
    kept: usize,
}

impl Accounts {
    /// Updates the time. Returns whether all standings changed; their order did not.
    pub fn set_time(&mut self, now: Timestamp) -> bool {
        let moves = self.half_lives(now) > ORIGIN_MOVES_AFTER;
        if moves {
            let whole = self.half_lives(now).floor();
            self.origin = self.origin + HALF_LIFE.mul_f64(whole);
            let factor = (-whole).exp2();
            self.floor.0 *= factor;
            for standing in self.rows.values_mut() {
                standing.fixed = Kept(standing.fixed.0 * factor + 0.0);
            }
        }
        self.full = self.full_at(now);
        moves
    }

    /// The standing of a tenant that waits, or holds a process.
    pub fn standing(&self, tenant: &Tenant) -> Standing {
        self.rows.get(tenant).copied().unwrap_or_default()
    }

    /// The account that a tenant would join the queue with.
    pub fn account(&self, tenant: &Tenant) -> Kept {
        self.standing(tenant).account(self.full).max(self.floor)
    }

    /// A tenant without waiters requests a process: raises its account to the floor. `waits`: whether a tenant has
    /// waiters.
    pub fn join(&mut self, tenant: &Tenant, waits: impl Fn(&Tenant) -> bool) {
        self.forget(waits);
        let standing = self.rows.entry(tenant.clone()).or_default();
        let missing = self.floor.0 - standing.account(self.full).0;
        if missing > 0.0 {
            standing.add(missing);
        }
    }

    /// A process is held for a tenant from now on.
    pub fn begin(&mut self, tenant: &Tenant) -> Standing {
        let cost = self.cost(self.full);
        let standing = self.rows.entry(tenant.clone()).or_default();
        self.floor = standing.account(self.full);
        standing.held += 1;
        standing.add(cost);
        *standing
    }

    /// A process is no longer held for a tenant.
    pub fn end(&mut self, tenant: &Tenant) -> Standing {
        self.change_held(tenant, self.full.0)
    }

    /// Undoes a loan that began at this instant but failed.
    pub fn undo(&mut self, tenant: &Tenant, begun: Timestamp) -> Standing {
        self.change_held(tenant, -self.cost(self.full_at(begun)))
    }

    /// Processes held for each tenant.
    pub fn held(&self) -> impl Iterator<Item = (&Tenant, u32)> {
        let held = self.rows.iter().map(|(tenant, row)| (tenant, row.held));
        held.filter(|(_, held)| *held > 0)
    }

    fn change_held(&mut self, tenant: &Tenant, seconds: f64) -> Standing {
        let standing = self.rows.entry(tenant.clone()).or_default();
        debug_assert!(standing.held > 0, "PM-25: what ends has begun");
        standing.held = standing.held.saturating_sub(1);
        standing.add(seconds);
        *standing
    }

    /// Returns what a loan adds to the fixed part when it begins; `full` is as of that instant.
    fn cost(&self, full: Kept) -> f64 {
        full.0 * (LOAN_COST / FULL) - full.0
    }

    fn full_at(&self, at: Timestamp) -> Kept {
        Kept(FULL * self.half_lives(at).exp2())
    }

    /// Half-lives from the origin to an instant; negative if it is earlier.
    fn half_lives(&self, at: Timestamp) -> f64 {
        let seconds = at.since(self.origin).as_secs_f64() - self.origin.since(at).as_secs_f64();
        seconds / HALF_LIFE.as_secs_f64()
    }

    /// Drops accounts that carry no information: those of tenants that neither wait nor hold a process, and that would
    /// rejoin with the same account, or with an account smaller by at most the cost of a loan. Runs only when the table
    /// has doubled, so each request pays for one row.
    fn forget(&mut self, waits: impl Fn(&Tenant) -> bool) {
        if self.rows.len() < 2 * self.kept + ACCOUNTS_KEPT_MIN {
            return;
        }
        let least = Kept(self.floor.0 + self.full.0 * (LOAN_COST / FULL));
        let is_active = |tenant: &Tenant, row: &Standing| row.held > 0 || waits(tenant);
        self.rows
            .retain(|tenant, row| row.fixed > least || is_active(tenant, row));
        if self.rows.len() > ACCOUNTS_MAX {
            self.rows.retain(|tenant, row| is_active(tenant, row));
        }
        self.kept = self.rows.len().min(ACCOUNTS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(number: u64) -> Tenant {
        Tenant::Database(format!("db{number}").into())
    }

    fn seconds(accounts: &Accounts, tenant: &Tenant) -> f64 {
        let standing = accounts.standing(tenant);
        standing.account(accounts.full).0 / accounts.full.0 * FULL
    }

    #[test]
    fn a_held_second_counts_half_after_a_half_life_even_if_the_origin_has_moved() {
        let mut accounts = Accounts::default();
        let mut now = Timestamp::ZERO;
        accounts.set_time(now);
        // Whether the process is held for an hour, a day or a week.
        for hours in [1, 24, 168] {
            let one = tenant(hours);
            accounts.join(&one, |_| false);
            let before = seconds(&accounts, &one);
            accounts.begin(&one);
            now = now + Duration::from_secs(hours * 3600);
            accounts.set_time(now);
            let held = seconds(&accounts, &one);
            assert!((held - FULL).abs() < 1e-6, "{held} after {before}");
            accounts.end(&one);
            for halved in 1..=3 {
                now = now + HALF_LIFE;
                accounts.set_time(now);
                let left = seconds(&accounts, &one) * f64::from(1 << halved);
                assert!((left - FULL).abs() < 1e-6, "{left} is left");
            }
        }
    }

    #[test]
    fn an_opening_that_failed_leaves_the_account_unchanged() {
        let mut accounts = Accounts::default();
        let (one, other) = (tenant(1), tenant(2));
        let begun = Timestamp::ZERO + Duration::from_secs(7);
        accounts.set_time(begun);
        for tenant in [&one, &other] {
            accounts.join(tenant, |_| false);
            accounts.begin(tenant);
        }
        accounts.begin(&one);
        accounts.set_time(begun + Duration::from_secs(4000));
        accounts.undo(&one, begun);
        let difference = seconds(&accounts, &one) - seconds(&accounts, &other);
        assert!(difference.abs() < 1e-6, "{difference}");
    }

    #[test]
    fn accounts_of_idle_tenants_are_bounded() {
        let mut accounts = Accounts::default();
        accounts.set_time(Timestamp::ZERO);
        let holder = tenant(0);
        accounts.join(&holder, |_| false);
        accounts.begin(&holder);
        for number in 1..100_000 {
            let now = Timestamp::ZERO + Duration::from_millis(number);
            accounts.set_time(now);
            let one = tenant(number);
            accounts.join(&one, |_| false);
            accounts.begin(&one);
            accounts.set_time(now + Duration::from_micros(900));
            accounts.end(&one);
            assert!(accounts.rows.len() <= 2 * ACCOUNTS_MAX + ACCOUNTS_KEPT_MIN);
        }
        assert_eq!(accounts.held().collect::<Vec<_>>(), [(&holder, 1)]);
    }
}
