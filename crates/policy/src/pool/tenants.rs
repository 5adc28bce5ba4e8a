//! Bounds of a tenant over all pools: lent processes, waiting calls, processor time, and the time to answer a prompt.
//!
//! SUMMARY   [`TenantRules`] are the bounds of each database. [`Tenants`] counts the usage of each active tenant. A
//!           request that would wait is refused at once if its tenant has reached its maximum of waiting calls; a
//!           request of a tenant at its process limit, or in debt of processor time, waits, and others overtake
//!           it.
//! PROMISES  Lending never takes a tenant above its process limit, and a tenant in debt of processor time gets no
//!           process. Its oldest waiter is served once the tenant returns a process or its share has covered the
//!           debt, in whichever pool.
//! CALLED    When a request arrives and ends, when a use of a process begins and ends, and when its cost is known.
//! SOURCE    None.
//! LIMITS    Clients that name no database, and all databases if they are one tenant (`db_tag = none`), have no
//!           bounds. Costs nothing without rules. Reaching or leaving a bound checks every pool; held-back requests
//!           that several pools may serve are checked one by one by each pool with a process to lend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::shares::Shares;
use super::{DbKey, Due, Ledger, Pool, PoolId, Pools, Refusal, RequestId, RequestPlace, Tenant};
use crate::time::Timestamp;

/// The rules for a name or pattern. `None`: inherited from a less specific rule; 0: no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantRule {
    /// Maximum lent processes, over all pools.
    pub processes_max: Option<u32>,
    /// Maximum waiting calls. They do not count toward the pools' queues.
    pub queue_max: Option<u32>,
    /// Maximum processor use of its functions, in thousandths of a core; see [`super::shares`].
    pub cpu_share: Option<u32>,
    /// Maximum time that a process may take to answer a prompt, in milliseconds.
    pub timeout: Option<u32>,
}

/// One of the bounds of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TenantBound {
    ProcessesMax,
    QueueMax,
    CpuShare,
    Timeout,
}

impl TenantBound {
    /// Returns the name of its key in the configuration.
    pub fn key(self) -> &'static str {
        self.into()
    }

    const fn of(self, rule: &TenantRule) -> Option<u32> {
        match self {
            Self::ProcessesMax => rule.processes_max,
            Self::QueueMax => rule.queue_max,
            Self::CpuShare => rule.cpu_share,
            Self::Timeout => rule.timeout,
        }
    }
}

/// The rules for all tenants, by name or pattern. A pattern ends in `*`, which matches any suffix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantRules {
    /// Shared, because there may be many.
    names: Arc<BTreeMap<String, TenantRule>>,
    /// The prefix before the star, longest first.
    patterns: Vec<(String, TenantRule)>,
    /// Whether any rule has a share of processor time.
    has_shares: bool,
}

impl TenantRules {
    /// Returns the rules with these names and patterns.
    pub fn new(rules: impl IntoIterator<Item = (String, TenantRule)>) -> Self {
        let (mut all, mut names) = (Self::default(), BTreeMap::new());
        for (name, rule) in rules {
            all.has_shares |= rule.cpu_share > Some(0);
            match name.strip_suffix('*') {
                Some(start) => all.patterns.push((start.to_owned(), rule)),
                None => drop(names.insert(name, rule)),
            }
        }
        all.names = Arc::new(names);
        let length = |(start, _): &(String, TenantRule)| std::cmp::Reverse(start.len());
        all.patterns.sort_by_key(length);
        all
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.patterns.is_empty()
    }

    /// Returns whether the costs of some tenants' uses have to be reported ([`super::Event::Charge`]).
    pub fn has_shares(&self) -> bool {
        self.has_shares
    }

    /// Returns a bound of a tenant, from the most specific rule that sets it.
    pub fn bound(&self, db: &str, bound: TenantBound) -> Option<u32> {
        let set = self.fitting(db).find_map(|(.., rule)| bound.of(rule));
        set.filter(|most| *most > 0)
    }

    /// Returns the name or pattern of the rule that sets a bound of a tenant.
    pub fn set_by(&self, db: &str, bound: TenantBound) -> Option<String> {
        let mut fitting = self.fitting(db);
        let (name, star, _) = fitting.find(|(.., rule)| bound.of(rule).is_some())?;
        Some(format!("{name}{star}"))
    }

    /// The rules that match a tenant, most specific first, each with its name or prefix.
    fn fitting<'a>(
        &'a self,
        db: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'static str, &'a TenantRule)> {
        let own = self.names.get(db).map(|rule| (db, "", rule));
        let patterns = self
            .patterns
            .iter()
            .map(|(start, rule)| (start.as_str(), "*", rule));
        own.into_iter()
            .chain(patterns.filter(move |(start, ..)| db.starts_with(start)))
    }
}

/// The usage of each tenant, and its remaining processor time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenants {
    rules: TenantRules,
    /// database -> its usage while active; unordered: looked up by database.
    rows: FxHashMap<DbKey, Has>,
    /// Remaining processor time.
    pub shares: Shares,
    /// When the next debt ends.
    pub wake: Option<Timestamp>,
    /// Tenants that reached or left a bound of processes or processor time in this event.
    changed: Vec<DbKey>,
}

/// A tenant's bounds (`None`: no bound) and usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Has {
    processes_max: Option<u32>,
    queue_max: Option<u32>,
    /// Queued requests.
    waiting: u32,
    /// Processes lent to it, or being opened, taught or made to forget for its requests.
    held: u32,
}

impl Has {
    fn is_full(&self) -> bool {
        self.processes_max.is_some_and(|most| self.held >= most)
    }
}

impl Tenants {
    /// Whether a tenant must not get another process now.
    pub fn is_held_back(&self, tenant: &Tenant) -> bool {
        self.held_back_by(tenant).is_some()
    }

    /// The bound that holds a tenant back, and until when, if it ends by time alone.
    pub fn held_back_by(&self, tenant: &Tenant) -> Option<(TenantBound, Option<Timestamp>)> {
        let debt_end = self.shares.debt_end(tenant.db()?);
        if debt_end.is_some() {
            return Some((TenantBound::CpuShare, debt_end));
        }
        let is_full = self.of(tenant).is_some_and(Has::is_full);
        is_full.then_some((TenantBound::ProcessesMax, None))
    }

    /// Whether a tenant has more waiting calls than allowed.
    pub fn is_crowded(&self, tenant: &Tenant) -> bool {
        let has = self.of(tenant);
        has.is_some_and(|has| has.queue_max.is_some_and(|most| has.waiting > most))
    }

    /// Whether an active tenant has its own bound on waiting calls.
    pub fn has_own_queue(&self, tenant: &Tenant) -> bool {
        let has = self.of(tenant);
        has.is_some_and(|has| has.queue_max.is_some())
    }

    /// A request of a tenant starts to wait.
    pub fn wait(&mut self, tenant: &Tenant) {
        self.change(tenant, |has| has.waiting += 1);
    }

    /// A request of a tenant no longer waits.
    pub fn leave(&mut self, tenant: &Tenant) {
        self.change(tenant, |has| has.waiting -= 1);
    }

    /// A process is held for a tenant from now on.
    pub fn begin(&mut self, tenant: &Tenant) {
        self.change(tenant, |has| has.held += 1);
    }

    /// A process is no longer held for a tenant.
    pub fn end(&mut self, tenant: &Tenant) {
        self.change(tenant, |has| has.held -= 1);
    }

    /// The usage of each tenant, rebuilt from the tables.
    pub fn rebuilt(&self, pools: &[Pool], ledger: &Ledger) -> Self {
        let mut rebuilt = Self {
            rules: self.rules.clone(),
            ..Self::default()
        };
        for row in ledger.requests.values() {
            if row.place == RequestPlace::Queue {
                rebuilt.wait(&row.tenant);
            }
        }
        for (id, pool) in (0..).map(PoolId).zip(pools) {
            pool.uses(id, ledger)
                .for_each(|tenant| rebuilt.begin(tenant));
        }
        rebuilt.changed.clear();
        rebuilt
    }

    fn of(&self, tenant: &Tenant) -> Option<&Has> {
        self.rows.get(tenant.db()?)
    }

    fn change(&mut self, tenant: &Tenant, change: impl FnOnce(&mut Has)) {
        let rules = &self.rules;
        let Some(db) = tenant.db().filter(|_| !rules.is_empty()) else {
            return;
        };
        let row = self.rows.entry(DbKey::clone(db));
        let has = row.or_insert_with(|| Has {
            processes_max: rules.bound(db, TenantBound::ProcessesMax),
            queue_max: rules.bound(db, TenantBound::QueueMax),
            waiting: 0,
            held: 0,
        });
        let was_full = has.is_full();
        change(has);
        if has.is_full() != was_full {
            self.changed.push(DbKey::clone(db));
        }
        if (has.waiting, has.held) == (0, 0) {
            self.rows.remove(db);
        }
    }
}

/// Compares only what [`Tenants::rebuilt`] rebuilds: rules and counts.
impl PartialEq for Tenants {
    fn eq(&self, other: &Self) -> bool {
        (&self.rules, &self.rows) == (&other.rules, &other.rows)
    }
}

impl Ledger {
    /// Finds the tenants whose debts have ended by now.
    pub fn set_debt_time(&mut self) {
        let Tenants {
            shares, changed, ..
        } = &mut self.tenants;
        shares.set_time(self.now, changed);
    }

    /// Sets the timer for the end of the next debt.
    pub fn set_debt_timer(&mut self) {
        let next = self.tenants.shares.next_end();
        Due::Debts.set(&mut self.tenants.wake, next, &mut self.due);
    }
}

impl Pools {
    /// Applies other rules. Nothing is revoked from tenants that exceed them.
    pub(super) fn set_tenants(&mut self, rules: TenantRules) {
        self.ledger.set_debt_time();
        self.ledger.tenants.rules = rules;
        let rebuilt = self.ledger.tenants.rebuilt(&self.pools, &self.ledger);
        let mut before = std::mem::replace(&mut self.ledger.tenants, rebuilt);
        let tenants = &mut self.ledger.tenants;
        let rules = &tenants.rules;
        (before.shares).follow(|db| rules.bound(db, TenantBound::CpuShare));
        (tenants.shares, tenants.wake) = (before.shares, before.wake);
        self.ledger.set_debt_timer();
        let tenants = &self.ledger.tenants;
        for pool in &mut self.pools {
            let waiters = &mut pool.waiters;
            waiters.note_all(|tenant, state| {
                state.is_held_back = tenants.is_held_back(tenant);
                state.has_own_queue = tenants.has_own_queue(tenant);
            });
        }
        self.on_all(|_| {});
    }

    /// Refuses a new request if it waits and its tenant has too many waiting calls.
    pub(super) fn keep_tenant_queue_short(&mut self, newest: RequestId) {
        if self.ledger.tenants.rules.is_empty() {
            return;
        }
        let row = self.ledger.request(newest);
        let row = row.filter(|row| row.place == RequestPlace::Queue);
        let crowded = row.filter(|row| self.ledger.tenants.is_crowded(&row.tenant));
        if let Some(pool) = crowded.map(|row| row.pool) {
            self.on_pool(pool, |turn| turn.refuse(newest, Refusal::TenantBusy));
        }
    }

    /// Charges a tenant for the processor time of a use.
    pub(super) fn charge(&mut self, db: &DbKey, cost: Duration) {
        let tenants = &self.ledger.tenants;
        let Some(share) = tenants.rules.bound(db, TenantBound::CpuShare) else {
            return;
        };
        self.ledger.set_debt_time();
        let Tenants {
            shares, changed, ..
        } = &mut self.ledger.tenants;
        shares.charge(db, share, cost, changed);
        self.ledger.set_debt_timer();
    }

    /// Holds back waiters of tenants that have reached a bound, which may change the next waiter, and serves those
    /// of tenants that have left it.
    pub(super) fn settle_tenants(&mut self) {
        while let Some(db) = self.ledger.tenants.changed.pop() {
            let tenant = Tenant::Database(db);
            let is_held_back = self.ledger.tenants.is_held_back(&tenant);
            let mut waiting = Vec::new();
            for (id, pool) in (0..).map(PoolId).zip(&mut self.pools) {
                let oldest = pool.waiters.oldest_of(&tenant);
                waiting.extend(oldest.map(|oldest| (oldest, id)));
                let waiters = &mut pool.waiters;
                waiters.note(&tenant, |state| state.is_held_back = is_held_back);
            }
            waiting.sort_unstable();
            for (oldest, pool) in waiting {
                self.on_pool(pool, |_| {});
                let row = self.ledger.request(oldest).filter(|_| !is_held_back);
                if row.is_some_and(|row| row.place == RequestPlace::Queue) {
                    self.offer(oldest);
                }
            }
            // If a pool cannot serve its first waiter, other pools may be able to serve those behind it.
            if !is_held_back && !self.ledger.roaming.is_empty() {
                for index in 0..self.pools.len() {
                    self.take_over(PoolId(index as u32));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_comes_from_the_name_or_the_longest_pattern_that_sets_it() {
        let rule = |processes_max, queue_max| TenantRule {
            processes_max,
            queue_max,
            ..TenantRule::default()
        };
        let rules = [
            ("*", rule(Some(4), Some(100))),
            ("acme-*", rule(Some(8), None)),
            ("acme-eu-*", rule(None, Some(200))),
            ("acme-eu-1", rule(Some(0), None)),
        ];
        let rules = TenantRules::new(rules.map(|(name, rule)| (name.to_owned(), rule)));
        let bounds =
            |db| [TenantBound::ProcessesMax, TenantBound::QueueMax].map(|of| rules.bound(db, of));
        assert_eq!(bounds("other"), [Some(4), Some(100)]);
        assert_eq!(bounds("acme-"), [Some(8), Some(100)]);
        assert_eq!(bounds("acme-eu-2"), [Some(8), Some(200)]);
        assert_eq!(bounds("acme-eu-1"), [None, Some(200)]);
        assert_eq!(bounds("acme-eu-10"), [Some(8), Some(200)]);
        let set_by = |db| rules.set_by(db, TenantBound::ProcessesMax).unwrap();
        assert_eq!(set_by("other"), "*");
        assert_eq!(set_by("acme-eu-2"), "acme-*");
        assert_eq!(set_by("acme-eu-1"), "acme-eu-1");
        assert_eq!(
            TenantRules::default().bound("a", TenantBound::QueueMax),
            None
        );
    }
}
