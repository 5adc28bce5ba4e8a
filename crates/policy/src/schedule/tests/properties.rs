//! Random histories: the core against the simple model, event by event.
//!
//! SUMMARY   Jobs are added, with or without a history, replaced, removed, paused, resumed, restarted; incarnations
//!           exit when stopped or unasked, at once or late; settings change; time passes; late exits arrive. After
//!           every event the actions and jobs equal the model's, no more incarnations run than there are slots, and
//!           no job starts before its `not_before`, unless it is restarted.

use super::model::Model;
use super::*;
use test_support::TestRandom;

const HISTORIES: usize = 300;
const EVENTS: usize = 250;
const JOBS: usize = 14;

/// A random world, with the core and the model.
struct Pair {
    random: TestRandom,
    core: Scheduler,
    model: Model,
    now: WallTime,
    /// Every incarnation so far.
    runs: Vec<Run>,
    /// The earliest start of each job.
    not_before: BTreeMap<JobId, WallTime>,
    /// The events so far, for debugging.
    events: Vec<String>,
}

impl Pair {
    fn new(mut random: TestRandom) -> Self {
        let settings = any_settings(&mut random);
        Self {
            random,
            core: Scheduler::new(settings.clone()),
            model: Model::new(settings),
            now: NOW,
            runs: Vec::new(),
            not_before: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    fn id(&mut self) -> JobId {
        format!("job-{:02}", self.random.below(JOBS)).into()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.random.below(count) == 0
    }

    fn new_job(&mut self) -> NewJob {
        let db = *self.random.one_of(&["a", "b", "c"]);
        let paused = self.one_in(10).then(|| Pause {
            by: "x".into(),
            since: at(0),
        });
        NewJob {
            id: self.id(),
            key: db.into(),
            continuous: !self.one_in(3),
            transient: self.one_in(4),
            level: Level(if self.one_in(5) {
                self.random.below(3) as i8 - 1
            } else {
                0
            }),
            paused,
            earlier: self.earlier(),
        }
    }

    /// A time close to now, before or after it.
    fn near(&mut self) -> WallTime {
        let span = *self.random.one_of(&[1, 10_000_000, 700_000_000]);
        let before = self.now.as_micros() - span as u64 / 2;
        WallTime::from_micros(before) + Duration::from_micros(self.random.below(span) as u64)
    }

    fn earlier(&mut self) -> Earlier {
        if self.one_in(2) {
            return Earlier::default();
        }
        let past_events = [
            HistoryEvent::Added,
            HistoryEvent::Started,
            HistoryEvent::Stopped,
            HistoryEvent::Crashed(reason("x")),
            HistoryEvent::Crashed(reason("y")),
            HistoryEvent::Crashed(Reason::new("max_backoff", true).into()),
        ];
        let count = self.random.below(8);
        let mut history: Vec<_> = (0..count)
            .map(|_| HistoryEntry {
                at: self.near(),
                what: self.random.one_of(&past_events).clone(),
            })
            .collect();
        if !self.one_in(5) {
            history.sort_by_key(|entry| std::cmp::Reverse(entry.at));
        }
        let not_before = match self.one_in(3) {
            true => self.near(),
            false => WallTime::ZERO,
        };
        Earlier {
            history: History::of(history),
            not_before,
        }
    }

    fn end(&mut self) -> End {
        match self.random.below(6) {
            0 => End::Normal,
            1 => End::Crashed(Reason::new("max_backoff", true).into()),
            2 | 3 => crash("x"),
            _ => End::Stopped,
        }
    }

    /// The exit of a stopping, running, former or unknown incarnation.
    fn exit(&mut self) -> Event {
        let of = |job: &model::ModelJob, stopping| job.run.filter(|_| job.stopping == stopping);
        let stopping: Vec<_> = self
            .model
            .jobs
            .iter()
            .filter_map(|job| of(job, true))
            .collect();
        let running: Vec<_> = self
            .model
            .jobs
            .iter()
            .filter_map(|job| of(job, false))
            .collect();
        let end = self.end();
        let run = match self.random.below(12) {
            0 if !self.runs.is_empty() => *self.random.one_of(&self.runs),
            1..=5 if !running.is_empty() => *self.random.one_of(&running),
            _ if !stopping.is_empty() => *self.random.one_of(&stopping),
            _ => Run(self.random.below(2000) as u64),
        };
        Event::Exited { run, end }
    }

    fn event(&mut self) -> Event {
        match self.random.below(40) {
            0..=8 => Event::Add(self.new_job()),
            9 => Event::Lose { id: self.id() },
            10 | 11 => Event::Remove { id: self.id() },
            12 => Event::Restart { id: self.id() },
            13 => Event::Pause {
                id: self.id(),
                by: "x".into(),
            },
            14 | 15 => Event::Resume { id: self.id() },
            16 => Event::SetLevel {
                id: self.id(),
                level: Level(self.random.below(3) as i8 - 1),
            },
            17..=28 => self.exit(),
            29..=36 => Event::Cycle,
            37 => Event::Tick,
            38 => Event::Probed {
                server: "http://h:5984".into(),
                answers: self.one_in(2),
            },
            _ if self.one_in(3) => Event::Configure(any_settings(&mut self.random).into()),
            _ if self.one_in(40) => Event::Shutdown,
            _ => Event::Tick,
        }
    }

    fn step(&mut self) {
        if self.one_in(2) {
            let bound = *self.random.one_of(&[1, 1_000_000, 70_000_000, 400_000_000]);
            let micros = self.random.below(bound) as u64;
            self.now = self.now + Duration::from_micros(micros);
        }
        let event = self.event();
        self.events
            .push(format!("{} {event:?}", self.now.as_micros()));
        match &event {
            Event::Add(new) => {
                let not_before = new.earlier.not_before;
                self.not_before.insert(new.id.clone(), not_before);
            }
            Event::Restart { id } => drop(self.not_before.remove(id)),
            _ => {}
        }
        let before = self.core.census().running;
        let mut actions = Vec::new();
        self.core.handle(event.clone(), self.now, &mut actions);
        let mut expected = self.model.handle(event, self.now);
        // The order of stops at shutdown is arbitrary.
        if self.core.shutting_down {
            actions.sort_by_key(|action| format!("{action:?}"));
            expected.sort_by_key(|action| format!("{action:?}"));
        }
        assert_eq!(actions, expected, "{:#?}", self.events);
        for action in &actions {
            if let ScheduleAction::Start { id, run, .. } = action {
                assert!(!self.runs.contains(run), "a run id is never reused");
                self.runs.push(*run);
                let not_before = self.not_before.get(id);
                assert!(
                    not_before.is_none_or(|at| *at <= self.now),
                    "{id} starts before its time: {:#?}",
                    self.events
                );
            }
        }
        let after = self.core.census().running;
        let max = self.core.settings().max_jobs;
        assert!(after <= max.max(before), "{after} of {max} run");
        self.compare();
    }

    /// Compares every job.
    fn compare(&self) {
        for expected in self.model.jobs.iter().filter(|job| !job.leaving) {
            let job = self.core.job(&expected.id).expect("the job exists");
            assert_eq!(job.history, &expected.history, "{:#?}", self.events);
            assert_eq!(job.penalty, expected.penalty, "{:#?}", self.events);
            assert_eq!(job.shown.run, expected.run);
            assert_eq!(job.shown.paused, expected.paused);
            assert_eq!(job.shown.level, expected.level);
            let runs = expected.run.is_some() && !expected.stopping;
            assert_eq!(job.shown.why_not.is_none(), runs);
        }
        let count =
            |is: fn(&model::ModelJob) -> bool| self.model.jobs.iter().filter(|job| is(job)).count();
        let census = Census {
            total: self.model.total(),
            running: self.model.occupied(),
            stopping: count(|job| job.stopping),
            pending: count(|job| job.run.is_none() && job.history.fresh_crash().is_none()),
            crashed: count(|job| job.run.is_none() && job.history.fresh_crash().is_some()),
            paused: count(|job| job.run.is_none() && job.paused.is_some()),
        };
        assert_eq!(*self.core.census(), census);
        assert_eq!(self.core.jobs().count(), census.total);
    }
}

fn any_settings(random: &mut TestRandom) -> Settings {
    let mut shares = Shares::default();
    for db in ["a", "b"] {
        shares.set(db, *random.one_of(&[1, 100, 1000]));
    }
    let seconds = |random: &mut TestRandom, of: &[u64]| Duration::from_secs(*random.one_of(of));
    Settings {
        rules: *random.one_of(&[RuleSet::Current, RuleSet::Current, RuleSet::First]),
        max_jobs: random.below(8),
        max_churn: random.below(5),
        max_history: *random.one_of(&[0, 1, 2, 5, 20]),
        interval: seconds(random, &[0, 1, 60]),
        health_threshold: seconds(random, &[0, 10, 120]),
        backoff: Backoff {
            base: seconds(random, &[0, 1, 30]),
            ceiling: seconds(random, &[0, 60, 100_000]),
        },
        usage_coeff: Coefficient::new(*random.one_of(&[0.0, 0.5, 1.0])),
        priority_coeff: Coefficient::new(*random.one_of(&[0.0, 0.5, 0.98])),
        shares,
    }
}

#[test]
fn the_core_agrees_with_a_naive_model() {
    let mut random = TestRandom::for_test("the_core_agrees_with_a_naive_model");
    for _ in 0..HISTORIES {
        let mut pair = Pair::new(random.fork());
        (0..EVENTS).for_each(|_| pair.step());
    }
}
