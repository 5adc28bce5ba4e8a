//! The recent cost of functions: the most expensive of the last minute and the last hour.
//! SUMMARY   [`FunctionCosts::note`] adds a finished call, [`FunctionCosts::page`] returns the functions of a period.
//!           Two halves of a period are kept, the current and the previous one: together they cover at least half of
//!           its length, or less after the start and after a period without calls. The covered time is reported.
//! PROMISES  Each half has at most [`FUNCTIONS_MAX`] functions. A new function evicts the cheapest, and starts
//!           with the evicted time as its `uncertain`: no function that cost more than the largest `uncertain` is
//!           missing.
//! LIMITS    Names are cut as in [`Subject`]: functions whose long names begin alike share a row.
//! SOURCE    The counters are those of Space-Saving (Metwally, Agrawal, El Abbadi 2005), weighted by time.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Times;
use super::cells::nanoseconds;
use crate::messages::costs::{Costs, CostsPage, CostsQuery, CostsRow, Period};
use crate::query_server::call::{Subject, micros};
use policy::time::Timestamp;

/// Maximum number of functions of half a period.
pub(crate) const FUNCTIONS_MAX: usize = 1_000;

/// The total cost of one function's calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct FunctionCost {
    pub costs: Costs,
    pub run: Times,
    /// The longest run.
    pub run_max: Duration,
    /// Upper bound of the time it took before it was recorded; not counted above.
    pub uncertain: Duration,
}

impl FunctionCost {
    fn note(&mut self, call: Costs) {
        let run = Duration::from_micros(call.run_us);
        self.costs += call;
        self.run.observe(run);
        self.run_max = self.run_max.max(run);
    }

    fn merge(&mut self, other: &Self) {
        self.costs += other.costs;
        self.run.merge(&other.run);
        self.run_max = self.run_max.max(other.run_max);
        self.uncertain += other.uncertain;
    }

    fn weight(&self) -> Duration {
        self.run.sum() + self.uncertain
    }
}

/// The functions of half a period.
#[derive(Debug, Default)]
struct Half {
    /// Function -> its place in the lists.
    places: FxHashMap<Subject, usize>,
    rows: Vec<(Subject, FunctionCost)>,
    /// The time of each with its `uncertain`, in nanoseconds; the function with the smallest is evicted.
    weights: Vec<u64>,
}

impl Half {
    fn note(&mut self, function: &Subject, call: Costs) {
        let place = match self.places.get(function) {
            Some(place) => *place,
            None => self.make_room(function.clone()),
        };
        let (_, total) = &mut self.rows[place];
        total.note(call);
        self.weights[place] = nanoseconds(total.weight());
    }

    /// Makes room for a new function, and returns its place.
    fn make_room(&mut self, function: Subject) -> usize {
        let mut cost = FunctionCost::default();
        let place = self.rows.len();
        if place < FUNCTIONS_MAX {
            self.places.insert(function.clone(), place);
            self.rows.push((function, cost));
            self.weights.push(0);
            return place;
        }
        let place = self
            .weights
            .iter()
            .enumerate()
            .min_by_key(|(_, weight)| **weight)
            .map_or(0, |(place, _)| place);
        let (evicted, evicted_cost) = &self.rows[place];
        cost.uncertain = evicted_cost.weight();
        self.places.remove(evicted);
        self.places.insert(function.clone(), place);
        self.rows[place] = (function, cost);
        place
    }
}

/// Both halves of a period.
#[derive(Debug)]
struct Halves {
    half: Duration,
    /// When the current one began.
    begun: Timestamp,
    running: Half,
    /// The previous one, if any.
    before: Option<Half>,
}

impl Halves {
    /// Begins another half once the current one is over.
    fn advance(&mut self, now: Timestamp) {
        let over = now.since(self.begun);
        if over < self.half {
            return;
        }
        let ended = std::mem::take(&mut self.running);
        let is_recent = over < self.half * 2;
        self.before = is_recent.then_some(ended);
        self.begun = if is_recent {
            self.begun + self.half
        } else {
            now
        };
    }

    fn read(&mut self, now: Timestamp) -> PeriodCosts {
        self.advance(now);
        let mut costs: FxHashMap<&Subject, FunctionCost> = FxHashMap::default();
        for half in self.before.iter().chain([&self.running]) {
            for (function, cost) in &half.rows {
                costs.entry(function).or_default().merge(cost);
            }
        }
        let before = self.before.as_ref().map_or(Duration::ZERO, |_| self.half);
        PeriodCosts {
            covered: now.since(self.begun) + before,
            functions: costs
                .into_iter()
                .map(|(function, cost)| (function.clone(), cost))
                .collect(),
        }
    }
}

/// The costs of functions in a period.
#[derive(Debug)]
struct PeriodCosts {
    /// The time covered.
    covered: Duration,
    /// Unordered.
    functions: Vec<(Subject, FunctionCost)>,
}

/// Returns a function for display.
fn row(subject: &Subject, cost: &FunctionCost) -> CostsRow {
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    // Interpolated within a range, whose end may be longer than any run.
    let quantile =
        |share| micros(Duration::from_secs_f64(cost.run.quantile(share)).min(cost.run_max));
    CostsRow {
        db: text(&subject.db),
        ddoc: text(&subject.ddoc),
        function: subject.function.clone(),
        costs: cost.costs,
        run_p50_us: quantile(0.5),
        run_p99_us: quantile(0.99),
        uncertain_us: micros(cost.uncertain),
    }
}

/// The recent cost of functions.
#[derive(Debug)]
pub(crate) struct FunctionCosts {
    minute: Halves,
    hour: Halves,
}

impl FunctionCosts {
    pub fn new(now: Timestamp) -> Self {
        let halves = |seconds| Halves {
            half: Duration::from_secs(seconds),
            begun: now,
            running: Half::default(),
            before: None,
        };
        Self {
            minute: halves(30),
            hour: halves(1_800),
        }
    }

    /// Adds a finished call.
    pub fn note(&mut self, function: &Subject, call: Costs, now: Timestamp) {
        for halves in [&mut self.minute, &mut self.hour] {
            halves.advance(now);
            halves.running.note(function, call);
        }
    }

    /// Returns the most expensive functions of a period until now.
    pub fn page(&mut self, query: CostsQuery, now: Timestamp) -> CostsPage {
        let costs = self.of(query.period, now);
        let mut functions: Vec<_> = costs
            .functions
            .iter()
            .map(|(subject, cost)| row(subject, cost))
            .collect();
        functions.sort_by_key(|row| std::cmp::Reverse(row.sort_key(query.sort)));
        functions.truncate(query.limit);
        CostsPage {
            period: query.period,
            seconds: costs.covered.as_secs_f64(),
            total_rows: costs.functions.len(),
            functions,
        }
    }

    fn of(&mut self, period: Period, now: Timestamp) -> PeriodCosts {
        let halves = match period {
            Period::Minute => &mut self.minute,
            Period::Hour => &mut self.hour,
        };
        halves.read(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(function: &str) -> Subject {
        Subject {
            function: function.to_owned(),
            ..Subject::default()
        }
    }

    fn took(milliseconds: u64) -> Costs {
        Costs {
            calls: 1,
            run_us: 1000 * milliseconds,
            bytes: 10,
            ..Costs::default()
        }
    }

    fn named(costs: &PeriodCosts, function: &str) -> Option<FunctionCost> {
        let mut found = costs
            .functions
            .iter()
            .filter(|(name, _)| name.function == function);
        found.next().map(|(_, cost)| cost.clone())
    }

    #[test]
    fn calls_of_a_function_are_added_up_by_how_they_ended() {
        let now = Timestamp::ZERO;
        let mut costs = FunctionCosts::new(now);
        for (errors, kills) in [(0, 0), (1, 0), (1, 1)] {
            let call = Costs {
                errors,
                kills,
                ..took(20)
            };
            costs.note(&subject("f"), call, now);
        }
        let f = named(&costs.of(Period::Hour, now), "f").unwrap();
        let Costs {
            calls,
            errors,
            kills,
            bytes,
            run_us,
            ..
        } = f.costs;
        assert_eq!((calls, errors, kills, bytes, run_us), (3, 2, 1, 30, 60_000));
        assert_eq!(f.run.sum(), Duration::from_millis(60));
    }

    #[test]
    fn the_names_of_a_period_have_a_bound_in_bytes_however_long_they_are() {
        let now = Timestamp::ZERO;
        let mut costs = FunctionCosts::new(now);
        let long: Arc<str> = "\u{e9}".repeat(1 << 15).into();
        for number in 0..2 * FUNCTIONS_MAX {
            let function = format!("{number}{long}");
            let subject = Subject::new(Some(&long), Some(&long), &function);
            costs.note(&subject, took(1), now);
        }
        let functions = costs.of(Period::Hour, now).functions;
        let bytes: usize = functions.iter().map(|(subject, _)| subject.bytes()).sum();
        assert_eq!(functions.len(), FUNCTIONS_MAX);
        assert!(bytes <= FUNCTIONS_MAX * 3 * 262, "{bytes}");
    }

    #[test]
    fn no_quantile_is_longer_than_the_longest_run() {
        let mut cost = FunctionCost::default();
        cost.note(took(3_000));
        let row = row(&subject("f"), &cost);
        assert!(
            (1_000_000..=3_000_000).contains(&row.run_p50_us),
            "{}",
            row.run_p50_us
        );
        assert_eq!(row.run_p99_us, 3_000_000);
    }

    #[test]
    fn a_period_covers_at_least_half_of_its_length_and_reports_the_covered_time() {
        let begun = Timestamp::ZERO;
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut costs = FunctionCosts::new(begun);
        costs.note(&subject("f"), took(1), after(29));
        for (at, covered, calls) in [(29, 29, 1), (31, 31, 1), (59, 59, 1), (60, 30, 0)] {
            let minute = costs.of(Period::Minute, after(at));
            assert_eq!(minute.covered, Duration::from_secs(covered), "after {at} s");
            let found = named(&minute, "f").map_or(0, |cost| cost.costs.calls);
            assert_eq!(found, calls, "after {at} s");
        }
        // Old calls are not reported as current ones.
        costs.note(&subject("f"), took(1), after(61));
        let minute = costs.of(Period::Minute, after(200));
        assert!(minute.functions.is_empty());
        assert_eq!(minute.covered, Duration::ZERO);
        assert_eq!(
            named(&costs.of(Period::Hour, after(200)), "f")
                .unwrap()
                .costs
                .calls,
            2
        );
    }

    #[test]
    fn the_most_expensive_functions_stay_however_many_others_there_are() {
        let now = Timestamp::ZERO;
        let mut costs = FunctionCosts::new(now);
        for number in 0..20 * FUNCTIONS_MAX {
            let function = match number % 4 {
                0 => "expensive".to_owned(),
                _ => format!("f{number}"),
            };
            costs.note(&subject(&function), took(1), now);
        }
        let minute = costs.of(Period::Minute, now);
        assert_eq!(minute.functions.len(), FUNCTIONS_MAX);
        let expensive = named(&minute, "expensive").unwrap();
        assert_eq!(expensive.costs.calls, 5 * FUNCTIONS_MAX as u64);
        assert_eq!(expensive.uncertain, Duration::ZERO);
        // The time of evicted functions is reported as the uncertainty of new ones: none is missing.
        let all: Duration = minute.functions.iter().map(|(_, cost)| cost.weight()).sum();
        assert_eq!(all, Duration::from_millis(20 * FUNCTIONS_MAX as u64));
    }
}
