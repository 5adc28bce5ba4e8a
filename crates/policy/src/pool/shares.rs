//! Each tenant's remaining share of processor time (`cpu_share`).
//!
//! SUMMARY   [`Shares`] keeps an account for each tenant that has used processor time recently. It is a bucket that
//!           holds the share of one [`WINDOW`], and refills at the rate of the share. The cost of a process's use is
//!           taken out when the use ends; a tenant that has used more than the bucket held is in debt until the share
//!           has refilled it.
//! PROMISES  A debt lasts at most [`DEBT_MAX`]. Each change takes time logarithmic in the number of accounts.
//! CALLED    By [`super::tenants`], which holds back tenants in debt.
//! SOURCE    The generic cell rate algorithm: a bucket is stored as the time when it will be full.
//! LIMITS    At most [`ACCOUNTS_MAX`] accounts; the fullest buckets are forgotten first, as if they were full.

use std::collections::BTreeSet;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::DbKey;
use crate::time::Timestamp;

/// The time in which an empty bucket fills.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// Maximum debt, as the time in which the share covers it.
pub(crate) const DEBT_MAX: Duration = Duration::from_secs(180);

/// Maximum number of accounts.
pub(crate) const ACCOUNTS_MAX: usize = 10_000;

/// The accounts of all tenants with a bucket that is not full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// database -> its account; unordered: looked up by database.
    pub accounts: FxHashMap<DbKey, Account>,
    /// (when it will be full, database); ordered: tenants in debt are last, the deepest debt at the end.
    pub order: BTreeSet<(Timestamp, DbKey)>,
    /// The time up to which ended debts have been handled.
    now: Timestamp,
}

/// The bucket of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// When it will be full if nothing is taken out.
    pub full_at: Timestamp,
    /// In thousandths of a core.
    share: u32,
}

impl Shares {
    /// When a tenant's debt ends; `None`: it has none.
    pub fn debt_end(&self, db: &str) -> Option<Timestamp> {
        let account = self.accounts.get(db)?;
        self.is_debt(account.full_at)
            .then(|| end_of_debt(account.full_at))
    }

    /// When the first debt ends.
    pub fn next_end(&self) -> Option<Timestamp> {
        let mut debts = self.order.range(after(self.now + WINDOW)..);
        debts.next().map(|(full_at, _)| end_of_debt(*full_at))
    }

    /// Sets the time, and adds tenants whose debt has ended to `changed`. Full buckets are forgotten.
    pub fn set_time(&mut self, now: Timestamp, changed: &mut Vec<DbKey>) {
        let ended = after(self.now + WINDOW)..after(now + WINDOW);
        let ended = self.order.range(ended).map(|(_, db)| DbKey::clone(db));
        changed.extend(ended);
        self.now = now;
        while self.order.first().is_some_and(|(at, _)| *at <= now) {
            self.forget_fullest();
        }
    }

    /// Takes the cost of a use out of the bucket of a tenant with a share of `share` thousandths of a core. Adds to
    /// `changed` tenants that are now in debt, or no longer are because their account was forgotten.
    pub fn charge(&mut self, db: &DbKey, share: u32, cost: Duration, changed: &mut Vec<DbKey>) {
        let was_debt = self.debt_end(db).is_some();
        let full_at = self.accounts.get(db).map_or(self.now, |row| row.full_at);
        let most = self.now + WINDOW + DEBT_MAX;
        let full_at = (full_at + scaled(cost, 1000, share)).min(most);
        self.set(db, Account { full_at, share });
        if self.is_debt(full_at) != was_debt {
            changed.push(DbKey::clone(db));
        }
        if self.order.len() > ACCOUNTS_MAX
            && let Some((full_at, db)) = self.forget_fullest()
            && self.is_debt(full_at)
        {
            changed.push(db);
        }
    }

    /// Applies new shares. The content of each bucket is kept, up to its new size; the bucket of a tenant without a
    /// share is forgotten.
    pub fn follow(&mut self, share_of: impl Fn(&str) -> Option<u32>) {
        for (db, Account { full_at, share }) in self.accounts.clone() {
            let Some(new) = share_of(&db) else {
                self.order.remove(&(full_at, DbKey::clone(&db)));
                self.accounts.remove(&db);
                continue;
            };
            let debt = scaled(full_at.since(self.now + WINDOW), share, new);
            let rest = scaled((self.now + WINDOW).since(full_at), share, new);
            let full_at = self.now + (WINDOW + debt.min(DEBT_MAX)).saturating_sub(rest);
            self.set(
                &db,
                Account {
                    full_at,
                    share: new,
                },
            );
        }
    }

    fn set(&mut self, db: &DbKey, account: Account) {
        if let Some(before) = self.accounts.insert(DbKey::clone(db), account) {
            self.order.remove(&(before.full_at, DbKey::clone(db)));
        }
        self.order.insert((account.full_at, DbKey::clone(db)));
    }

    fn forget_fullest(&mut self) -> Option<(Timestamp, DbKey)> {
        let (full_at, db) = self.order.pop_first()?;
        self.accounts.remove(&db);
        Some((full_at, db))
    }

    /// Whether a bucket that will be full at this time is below empty now.
    fn is_debt(&self, full_at: Timestamp) -> bool {
        full_at > self.now + WINDOW
    }
}

/// When a tenant's debt ends, that is, its bucket is exactly empty, given when the bucket will be full.
fn end_of_debt(full_at: Timestamp) -> Timestamp {
    Timestamp::ZERO + full_at.since(Timestamp::ZERO + WINDOW)
}

/// The lower bound, in the order, of the buckets that will be full after this time.
fn after(at: Timestamp) -> (Timestamp, DbKey) {
    (at + Duration::from_nanos(1), DbKey::from(""))
}

/// Converts a time at one share to the time at another share.
fn scaled(time: Duration, share: u32, other: u32) -> Duration {
    let nanoseconds = time.as_nanos() * u128::from(share);
    let nanoseconds = nanoseconds.div_ceil(u128::from(other.max(1)));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
