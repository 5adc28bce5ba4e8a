//! Tests of the supervisor: restarts, intensity, order of shutdown, late children.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use test_support::{PATIENCE, Probe, within};

/// What happened, in order.
type Diary = Rc<RefCell<Vec<String>>>;

/// A scripted child that records its start and end in the diary.
struct Ward {
    id: &'static str,
    diary: Diary,
    stubborn: bool,
    pid_guard: PidGuard,
}

impl Actor for Ward {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.diary.borrow_mut().push(format!("{} starts", self.id));
    }
}

impl Handler<Stop> for Ward {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        let how = if msg.now { "at once" } else { "cleanly" };
        let line = format!("{} is stopped {how}", self.id);
        self.diary.borrow_mut().push(line);
        if !self.stubborn {
            self.pid_guard.shut_down(ctx);
        }
    }
}

/// Ends the child in this way.
#[derive(Message)]
#[rtype(result = "()")]
enum End {
    Panic,
    With(ExitReason),
}

impl Handler<End> for Ward {
    type Result = ();

    fn handle(&mut self, end: End, ctx: &mut Self::Context) {
        match end {
            End::Panic => panic!("a supervised actor that panics (meant to happen)"),
            End::With(reason) => {
                self.pid_guard.end(reason, ctx);
            }
        }
    }
}

/// Supervised wards, their current addresses and their records.
struct Family {
    supervisor: Addr<Supervisor>,
    wards: Rc<RefCell<Vec<Addr<Ward>>>>,
    diary: Diary,
    downs: Probe<Down>,
    restarts: Restarts,
}

struct Plan {
    id: &'static str,
    stubborn: bool,
    is_beside: bool,
}

const fn plan(id: &'static str) -> Plan {
    Plan {
        id,
        stubborn: false,
        is_beside: false,
    }
}

fn family(plans: Vec<Plan>, restarts_max: usize) -> Family {
    let (diary, wards) = (Diary::default(), Rc::default());
    let spec = |plan: Plan| {
        let (diary, wards) = (Rc::clone(&diary), Rc::clone(&wards));
        let is_beside = plan.is_beside;
        let spec = ChildSpec::new(plan.id, move |pid_guard| {
            start(&plan, &diary, &wards, pid_guard)
        });
        match is_beside {
            true => spec.beside(),
            false => spec,
        }
    };
    let intensity = Intensity {
        restarts_max,
        period: Duration::from_secs(60),
    };
    let specs = plans.into_iter().map(spec).collect();
    let log = Logger::root(slog::Discard, o!());
    let restarts = Restarts::default();
    let mut supervisor = Supervisor::new(specs, intensity, restarts.clone(), &log);
    supervisor.shutdown_max = Duration::from_secs(1);
    let downs = Probe::start();
    supervisor.pid().monitor(downs.recipient());
    Family {
        supervisor: supervisor.start(),
        wards,
        diary,
        downs,
        restarts,
    }
}

fn start(
    plan: &Plan,
    diary: &Diary,
    wards: &RefCell<Vec<Addr<Ward>>>,
    pid_guard: PidGuard,
) -> Addr<Ward> {
    let address = Ward {
        id: plan.id,
        diary: Rc::clone(diary),
        stubborn: plan.stubborn,
        pid_guard,
    }
    .start();
    wards.borrow_mut().push(address.clone());
    address
}

impl Family {
    /// Waits until the diary has this many lines, and returns it.
    async fn diary(&self, lines: usize) -> Vec<String> {
        let what = format!("{lines} lines in the diary");
        test_support::eventually(&what, async || self.diary.borrow().len() >= lines).await;
        self.diary.borrow().clone()
    }

    fn end_last(&self, end: End) {
        let last = self.wards.borrow().last().cloned();
        last.expect("a ward was started").do_send(end);
    }

    async fn stop(mut self, now: bool) -> (Vec<String>, ExitReason) {
        let stop = self.supervisor.send(Stop { now });
        within("the supervisor has stopped its children", stop)
            .await
            .expect("the supervisor answers before it ends");
        let down = self.downs.next().await;
        (self.diary.borrow().clone(), down.reason)
    }
}

#[actix_rt::test]
async fn a_child_that_panics_or_exits_is_restarted_and_counted() {
    let family = family(vec![plan("b"), plan("a")], 10);
    let restarts = family.restarts.clone();
    family.diary(2).await;
    for (lines, end) in [
        (3, End::Panic),
        (4, End::With(ExitReason::Failed("no luck".into()))),
        (5, End::With(ExitReason::Normal)),
    ] {
        family.end_last(end);
        assert_eq!(family.diary(lines).await.last().unwrap(), "a starts");
    }
    let (diary, reason) = family.stop(false).await;
    assert_eq!(diary[5], "a is stopped cleanly");
    assert_eq!(*lock(&restarts), [("a", 3), ("b", 0)].into());
    assert_eq!(reason, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn children_are_stopped_one_by_one_in_reverse_order_of_start() {
    let plans = ["a", "b", "c"].map(plan);
    let family = family(plans.into(), 10);
    family.diary(3).await;
    let (diary, _) = family.stop(true).await;
    assert_eq!(
        diary,
        [
            "a starts",
            "b starts",
            "c starts",
            "c is stopped at once",
            "b is stopped at once",
            "a is stopped at once",
        ]
    );
}

#[actix_rt::test]
async fn a_child_that_fails_too_often_ends_the_supervisor_and_the_other_children() {
    let plans = ["steady", "failing"].map(plan);
    let mut family = family(plans.into(), 2);
    for lines in 2..=4 {
        family.diary(lines).await;
        family.end_last(End::Panic);
    }
    let down = family.downs.next().await;
    let expected = ExitReason::Failed("failing failed too often: panicked".into());
    assert_eq!(down.reason, expected);
    assert_eq!(family.diary(5).await[4], "steady is stopped at once");
}

#[actix_rt::test]
async fn restarts_older_than_the_period_do_not_count() {
    tokio::time::pause();
    let family = family(vec![plan("a")], 1);
    for lines in 1..=4 {
        family.diary(lines).await;
        family.end_last(End::Panic);
        family.diary(lines + 1).await;
        tokio::time::advance(Duration::from_secs(61)).await;
    }
    let (_, reason) = family.stop(false).await;
    assert_eq!(reason, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn a_child_that_does_not_stop_in_time_is_left_behind() {
    tokio::time::pause();
    let stubborn = Plan {
        stubborn: true,
        ..plan("b")
    };
    let family = family(vec![plan("a"), stubborn], 10);
    family.diary(2).await;
    let began = Instant::now();
    let (diary, reason) = family.stop(false).await;
    let took = began.elapsed();
    assert!(
        took >= Duration::from_secs(1) && took < PATIENCE,
        "{took:?}"
    );
    assert_eq!(diary[2..], ["b is stopped cleanly", "a is stopped cleanly"]);
    assert_eq!(reason, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn children_beside_each_other_stop_concurrently_before_earlier_children() {
    tokio::time::pause();
    let stubborn = |id, is_beside| Plan {
        id,
        stubborn: true,
        is_beside,
    };
    let plans = vec![plan("a"), stubborn("b", false), stubborn("c", true)];
    let family = family(plans, 10);
    family.diary(3).await;
    let began = Instant::now();
    let (diary, reason) = family.stop(false).await;
    let took = began.elapsed();
    let one = Duration::from_secs(1);
    assert!(took >= one && took < 2 * one, "{took:?}");
    let asked = ["c", "b", "a"].map(|id| format!("{id} is stopped cleanly"));
    assert_eq!(diary[3..], asked);
    assert_eq!(reason, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn a_registered_name_resolves_to_the_successor() {
    let family = family(vec![plan("a"), plan("b")], 1);
    family.diary(2).await;
    let [first, second] = &family.wards.borrow().clone()[..] else {
        panic!("there are two wards");
    };
    let named = RegisteredName::new(first.clone());
    let same = named.clone();
    named.replace(second.clone());
    assert_eq!(same.address(), *second);
    family.stop(true).await;
}
