//! Detects a pool that starts a process for most requests, because it has fewer processes than databases in use.
//!
//! SUMMARY   [`ExchangeWatch::look`] takes a pool's counts after each start, and reports the condition once per
//!           period.
//! PROMISES  Pure. Ignores periods with fewer than [`REQUESTS_MIN`] requests, and starts that fill a pool.
//! CALLED    By the manager, for the pool of each process that starts.
//! SOURCE    None: CouchDB does not report it.

use std::time::Duration;

use crate::pool::{PoolTotals, StopReason};
use crate::time::Timestamp;

/// The counting period.
pub const PERIOD: Duration = Duration::from_secs(60);

/// Periods with fewer requests are ignored.
pub const REQUESTS_MIN: u64 = 100;

/// A pool's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanges {
    /// Processes assigned to clients.
    pub requests: u64,
    /// Started processes.
    pub starts: u64,
    /// Idle processes stopped to make room for another database.
    pub replaced: u64,
}

impl Exchanges {
    /// Extracts the counts from a pool's totals.
    pub const fn of(totals: &PoolTotals) -> Self {
        Self {
            requests: totals.taken,
            starts: totals.started,
            replaced: totals.stopped(StopReason::Reaped),
        }
    }

    const fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            starts: self.starts.saturating_sub(before.starts),
            replaced: self.replaced.saturating_sub(before.replaced),
        }
    }

    /// Whether there were at least [`REQUESTS_MIN`] requests, more than half of them started a process, and more than
    /// half of the starts replaced one.
    pub const fn are_too_many(self) -> bool {
        self.requests >= REQUESTS_MIN
            && self.starts * 2 > self.requests
            && self.replaced * 2 > self.starts
    }
}

/// Watches one pool.
#[derive(Debug, Default)]
pub struct ExchangeWatch {
    /// The start of the period, and the counts at that time.
    begun: Option<(Timestamp, Exchanges)>,
    /// Whether it was reported in this period.
    is_said: bool,
}

impl ExchangeWatch {
    /// Takes the pool's counts until now. Returns those of the period if they are excessive, once per period.
    pub fn look(&mut self, all: Exchanges, now: Timestamp) -> Option<Exchanges> {
        let begun = self.begun.filter(|(begun, _)| now.since(*begun) < PERIOD);
        let Some((_, before)) = begun else {
            self.begun = Some((now, all));
            self.is_said = false;
            return None;
        };
        let exchanges = all.since(before);
        if self.is_said || !exchanges.are_too_many() {
            return None;
        }
        self.is_said = true;
        Some(exchanges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{
        Affinity, ClientId, Condition, Event, Lane, LanguageId, Limits, PoolAction, PoolSettings,
        Pools, RequestId, ReturnStatus, Reuse, Target, Tenant,
    };

    /// Calls functions of `databases` in turn, `gap` apart, on a pool with this many processes. Returns the times of
    /// reports, in seconds, and the reports.
    fn said(
        databases: u64,
        processes: u32,
        reuse: Reuse,
        gap: Duration,
        calls: u64,
    ) -> Vec<(u64, Exchanges)> {
        let mut core = Pools::default();
        let limits = Limits {
            hard_limit: processes,
            soft_limit: processes,
            affinity_wait: Duration::ZERO,
        };
        let pool = core.add_pool(PoolSettings {
            reuse,
            ..PoolSettings::of_language(LanguageId(0), limits)
        });
        let mut watch = ExchangeWatch::default();
        let (mut now, mut said) = (Timestamp::ZERO, Vec::new());
        let client = ClientId(1);
        for call in 1..=calls {
            now = now + gap;
            let asked = Event::GetProc {
                request: RequestId(call),
                client,
                target: Target::Pool(pool),
                lane: Lane::Interactive,
                affinity: Some(Affinity {
                    tenant: Tenant::Database(format!("db{}", call % databases).into()),
                    ddoc: None,
                }),
                deadline: now + Duration::from_secs(5),
            };
            let mut events = vec![asked];
            while let Some(event) = events.pop() {
                let mut actions = Vec::new();
                core.handle(event, now, &mut actions);
                for action in actions {
                    match action {
                        PoolAction::Open { proc, .. } => events.push(Event::SpawnOk { proc }),
                        PoolAction::Stop { proc, .. } => events.push(Event::ProcExit { proc }),
                        PoolAction::Assign { proc, token, .. } => {
                            let exchanges = watch.look(Exchanges::of(&core.totals(pool)), now);
                            let second = now.since(Timestamp::ZERO).as_secs();
                            said.extend(exchanges.map(|exchanges| (second, exchanges)));
                            events.push(Event::RetProc {
                                client,
                                proc,
                                token,
                                status: ReturnStatus::Ok,
                                condition: Condition::Clean,
                            });
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        said
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn more_databases_than_processes_are_reported_once_a_period() {
        // Ten calls a second for three minutes.
        let said = said(30, 20, Reuse::Database, SECOND / 10, 1800);
        let times: Vec<_> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(times.len(), 3, "{said:?}");
        assert!(times[0] < 60 && (60..120).contains(&times[1]) && (120..180).contains(&times[2]));
        for (_, exchanges) in said {
            assert!(exchanges.requests >= REQUESTS_MIN, "{exchanges:?}");
            assert!(exchanges.starts * 2 > exchanges.requests, "{exchanges:?}");
            assert!(exchanges.replaced * 2 > exchanges.starts, "{exchanges:?}");
        }
    }

    #[test]
    fn as_many_processes_as_databases_are_fine() {
        assert_eq!(said(20, 20, Reuse::Database, SECOND / 100, 10_000), []);
    }

    #[test]
    fn processes_that_serve_everybody_are_fine() {
        assert_eq!(said(300, 20, Reuse::Any, SECOND / 100, 10_000), []);
    }

    #[test]
    fn starts_that_fill_a_pool_are_fine() {
        assert_eq!(said(200, 200, Reuse::Database, SECOND / 100, 200), []);
    }

    #[test]
    fn few_requests_do_not_matter() {
        assert_eq!(said(30, 20, Reuse::Database, SECOND, 600), []);
    }

    #[test]
    fn the_report_ends_with_its_cause() {
        let mut watch = ExchangeWatch::default();
        let all = |requests, starts, replaced| Exchanges {
            requests,
            starts,
            replaced,
        };
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        assert_eq!(watch.look(all(0, 0, 0), at(0)), None);
        assert_eq!(watch.look(all(100, 51, 25), at(9)), None);
        assert_eq!(watch.look(all(100, 51, 26), at(10)), Some(all(100, 51, 26)));
        assert_eq!(watch.look(all(300, 200, 190), at(59)), None);
        // The next period begins without trouble.
        assert_eq!(watch.look(all(301, 200, 190), at(60)), None);
        assert_eq!(watch.look(all(5000, 210, 200), at(119)), None);
    }
}
