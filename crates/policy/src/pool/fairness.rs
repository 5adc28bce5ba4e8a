//! The order of the waiters: by lane, then by the time that their tenants have had processes for, then by
//! arrival.
//!
//! SUMMARY   The interactive lane goes before the bulk lane where capacity is reserved for it. With
//!           `fairness = "per_db"` each tenant has an account in each pool, and the tenant with the smallest
//!           one is the next. It grows by a second for each second for which a process is held for the
//!           tenant, from when the process is chosen or opened, and by [`LOAN_COST`] for each loan; what is
//!           in it halves each [`HALF_LIFE`]. A tenant that did not wait starts at the account of the one
//!           that was served last, as it was then, unless its own is larger: it is among the first, and has
//!           no claim for a time when it asked for nothing.
//! PROMISES  Asking again at once, with many clients, or for long, gains nothing. However much a
//!           tenant had, others are before it for that for one half-life at most. Each change costs a
//!           logarithm of the number of tenants; finding the next one costs as many looks as tenants differ
//!           in how many processes they hold.
//! CALLED    When a request joins the queue, when a process is meant for it, and when its use ends.
//! SOURCE    Start-time fair queueing, with a cost that is known at the end. Neither couch_proc_manager nor
//!           pidq has anything of the kind: their waiters are one FIFO.
//! LIMITS    [`ACCOUNTS_MAX`] accounts are kept of tenants that neither wait nor hold.
//!
//! # How accounts are kept in order while they change
//!
//! Time is counted in half-lives since an origin. An account is kept as what it was worth there: multiplied by
//! two for each half-life since. So what is not added to stays the same number. A process that was held for
//! ever is an account of [`FULL`] seconds; as kept, that is the same growing number for all, [`Accounts::full`]. An
//! account is a fixed part and that number for each process held, so among tenants that hold equally many the
//! fixed parts are the order, as long as nothing begins or ends.

use std::cmp::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::id::{Lane, Tenant};
use super::settings::PoolSettings;
use crate::time::Timestamp;

/// After how long a second that a process was held counts half.
const HALF_LIFE: Duration = Duration::from_secs(5);

/// What a loan costs beside the time that it takes, in seconds.
const LOAN_COST: f64 = 0.001;

/// The account of a tenant that has always held one process, in seconds: a half-life divided by ln 2.
const FULL: f64 = 5.0 / std::f64::consts::LN_2;

/// How many accounts are kept of tenants that neither wait nor hold a process.
const ACCOUNTS_MAX: usize = 10_000;

/// How many accounts there are before the first look for some to forget.
const ACCOUNTS_KEPT_MIN: usize = 64;

/// After how many half-lives the origin moves. A number has room for twice as many.
const ORIGIN_MOVES_AFTER: f64 = 500.0;

/// The place of a lane in the queue: 0 goes first.
pub(super) const fn lane_place(settings: &PoolSettings, lane: Lane) -> usize {
    match lane {
        Lane::Bulk if settings.interactive_reserved > 0 => 1,
        Lane::Bulk | Lane::Interactive => 0,
    }
}

/// Seconds as they are kept: worth what they were at the origin.
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

/// What decides when a tenant is served; the same for all where waiters are served in order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// How many processes are held for it.
    pub(super) held: u32,
    /// Its account without what these add to it from the origin on.
    pub(super) fixed: Kept,
}

impl Standing {
    /// The account, where a process that was held forever is worth `full`.
    pub(super) fn account(self, full: Kept) -> Kept {
        Kept(self.fixed.0 + f64::from(self.held) * full.0)
    }

    /// Adds to the fixed part. Zero has no sign, so that equal accounts are equal.
    fn add(&mut self, seconds: f64) {
        self.fixed = Kept(self.fixed.0 + seconds + 0.0);
    }
}

/// The accounts of one pool's tenants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    /// What accounts are worth as they are kept.
    origin: Timestamp,
    /// What a process that was held forever is worth now.
    full: Kept,
    /// The account of the tenant that was served last, as it was then.
    floor: Kept,
    /// tenant -> its account; unordered: always asked for one tenant.
    rows: FxHashMap<Tenant, Standing>,
    /// How many tenants were left when the table was last cleaned.
    kept: usize,
}

impl Accounts {
    /// Notes what time it is. Returns whether the standings of all tenants are others now, though in the same
    /// order.
    pub(super) fn set_time(&mut self, now: Timestamp) -> bool {
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

    /// What a process that was held forever is worth now.
    pub(crate) const fn full(&self) -> Kept {
        self.full
    }

    /// The standing of a tenant that waits, or holds a process.
    pub(super) fn standing(&self, tenant: &Tenant) -> Standing {
        self.rows.get(tenant).copied().unwrap_or_default()
    }

    /// The account that a tenant would wait with.
    pub(super) fn account(&self, tenant: &Tenant) -> Kept {
        self.standing(tenant).account(self.full).max(self.floor)
    }

    /// A tenant asks that does not wait yet. `waits`: who else does.
    pub(super) fn join(&mut self, tenant: &Tenant, waits: impl Fn(&Tenant) -> bool) {
        self.forget(waits);
        let standing = self.rows.entry(tenant.clone()).or_default();
        let missing = self.floor.0 - standing.account(self.full).0;
        if missing > 0.0 {
            standing.add(missing);
        }
    }

    /// A process is held for a tenant from now on.
    pub(super) fn begin(&mut self, tenant: &Tenant) -> Standing {
        let cost = self.cost(self.full);
        let standing = self.rows.entry(tenant.clone()).or_default();
        self.floor = standing.account(self.full);
        standing.held += 1;
        standing.add(cost);
        *standing
    }

    /// A process is held for a tenant no more.
    pub(super) fn end(&mut self, tenant: &Tenant) -> Standing {
        let full = self.full.0;
        self.change_held(tenant, full)
    }

    /// What was begun at an instant came to nothing, and the tenant's account is as if it had not been.
    pub(super) fn undo(&mut self, tenant: &Tenant, begun: Timestamp) -> Standing {
        let cost = self.cost(self.full_at(begun));
        self.change_held(tenant, -cost)
    }

    /// Processes held for each tenant.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&Tenant, u32)> {
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

    /// What a process that is held from an instant on adds to the fixed part, where one that was held forever
    /// is worth `full` then.
    fn cost(&self, full: Kept) -> f64 {
        full.0 * (LOAN_COST / FULL) - full.0
    }

    fn full_at(&self, at: Timestamp) -> Kept {
        Kept(FULL * self.half_lives(at).exp2())
    }

    /// How many half-lives an instant is after the origin; less than none if it is before.
    fn half_lives(&self, at: Timestamp) -> f64 {
        let seconds = at.since(self.origin).as_secs_f64() - self.origin.since(at).as_secs_f64();
        seconds / HALF_LIFE.as_secs_f64()
    }

    /// Forgets the accounts that say nothing: of tenants that neither wait nor hold a process, and would start
    /// where they are without it, or not as much as a loan's cost behind that. Looks only when the table has
    /// doubled, so that each request pays for one row of it.
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
    fn a_held_second_counts_half_after_a_half_life_also_when_the_origin_has_moved() {
        let mut accounts = Accounts::default();
        let mut now = Timestamp::ZERO;
        accounts.set_time(now);
        // As one process that was held for an hour, for a day, and for a week.
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
