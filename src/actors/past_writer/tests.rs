//! The writer against a counting store, in paused time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde_json::json;
use slog::Discard;

use super::*;
use policy::schedule::{Event, Level, NewJob, Scheduler, Settings, WallTime};
use replication::spec::UserCtx;
use test_support::within;
use tokio::time::Instant;

/// A finished request.
#[derive(Debug)]
struct Tried {
    at: Instant,
    epoch: Epoch,
    pasts: Vec<(DocId, String)>,
}

/// The finished requests, the number of requests to fail next, and the number in flight.
#[derive(Clone, Default)]
struct Saves {
    requests: Rc<RefCell<Vec<Tried>>>,
    failures: Rc<Cell<usize>>,
    in_flight: Rc<Cell<usize>>,
}

impl Saves {
    fn writer(&self) -> PastWriter {
        tokio::time::pause();
        let saves = self.clone();
        let save = move |epoch, pasts| {
            let saves = saves.clone();
            async move {
                saves.in_flight.update(|count| count + 1);
                assert_eq!(saves.in_flight.get(), 1, "one request at a time");
                // Longer than the time between requests.
                tokio::time::sleep(SAVE_EVERY * 3).await;
                saves.in_flight.update(|count| count - 1);
                let at = Instant::now();
                let tried = Tried { at, epoch, pasts };
                saves.requests.borrow_mut().push(tried);
                match saves.failures.get().checked_sub(1) {
                    Some(left) => {
                        saves.failures.set(left);
                        Err(StoreError::Failed("scripted failure".into()))
                    }
                    None => Ok(()),
                }
            }
        };
        let (writer, task) = PastWriter::new(save, &Logger::root(Discard, o!()));
        actix_rt::spawn(task);
        writer
    }

    fn count(&self) -> usize {
        self.requests.borrow().len()
    }

    /// The saved texts of a document's job, in order.
    fn of(&self, doc: &str) -> Vec<String> {
        let requests = self.requests.borrow();
        let pasts = requests.iter().flat_map(|tried| &tried.pasts);
        let of_it = pasts.filter(|(id, _)| &**id == doc);
        of_it.map(|(_, text)| text.clone()).collect()
    }
}

/// Notes a past with this `not_before`.
fn note(writer: &PastWriter, doc: &str, epoch: u64, not_before: u64) {
    let mut scheduler = Scheduler::new(Settings::default());
    let new = NewJob {
        id: doc.into(),
        key: "_replicator".into(),
        continuous: true,
        transient: false,
        level: Level::default(),
        paused: None,
        earlier: Earlier {
            history: History::default(),
            not_before: WallTime::from_micros(not_before),
        },
    };
    scheduler.handle(Event::Add(new), WallTime::ZERO, &mut Vec::new());
    let of = PastOf {
        doc: doc.into(),
        epoch: Epoch(epoch),
        replication: replication(),
    };
    let job = scheduler.job(doc).expect("the job was added");
    writer.note(&of.into(), &job, &VecDeque::new());
}

fn replication() -> Arc<Replication> {
    let body = json!({"source": "http://s.example/a", "target": "http://t.example/b"});
    let parsed = Replication::parse(
        &body,
        &crate::replicator::defaults(&Default::default()),
        UserCtx::default(),
        None,
    );
    Arc::new(parsed.expect("the replication is valid"))
}

fn not_before(text: &str) -> u64 {
    past::read(text, &replication().digest())
        .earlier
        .not_before
        .as_micros()
}

async fn saved(writer: &PastWriter, doc: &str) {
    within("a past is saved", writer.clone().saved(doc.into())).await;
}

#[actix_rt::test]
async fn latest_pasts_are_saved_one_request_at_a_time_and_at_most_once_a_second() {
    let saves = Saves::default();
    let writer = saves.writer();
    note(&writer, "a", 1, 1);
    while saves.in_flight.get() == 0 {
        tokio::task::yield_now().await;
    }
    // While the first request is in flight.
    (2..=9).for_each(|at| note(&writer, "a", 1, at));
    note(&writer, "b", 1, 5);
    assert!(writer.has(&"a".into()));
    saved(&writer, "a").await;
    saved(&writer, "b").await;
    assert!(!writer.has(&"a".into()));
    let requests = saves.requests.borrow();
    let [first, second] = &requests[..] else {
        panic!("two requests: {requests:?}");
    };
    assert!(second.at.duration_since(first.at) >= SAVE_EVERY * 4);
    let texts = saves.of("a");
    assert_eq!(
        texts
            .iter()
            .map(|text| not_before(text))
            .collect::<Vec<_>>(),
        [1, 9]
    );
}

#[actix_rt::test]
async fn a_request_holds_at_most_500_pasts_of_one_owner() {
    let saves = Saves::default();
    let writer = saves.writer();
    (0..1200).for_each(|n| note(&writer, &format!("d{n}"), 1 + n / 1100, 0));
    saved(&writer, "d1199").await;
    let requests = saves.requests.borrow();
    let sizes = requests
        .iter()
        .map(|tried| (tried.epoch.0, tried.pasts.len()));
    assert_eq!(
        sizes.collect::<Vec<_>>(),
        [(1, 500), (1, 500), (1, 100), (2, 100)]
    );
}

#[actix_rt::test]
async fn failed_saves_are_retried_with_the_latest_past_of_each_job() {
    let saves = Saves::default();
    let writer = saves.writer();
    saves.failures.set(2);
    note(&writer, "a", 1, 1);
    note(&writer, "b", 1, 1);
    while saves.count() < 1 {
        tokio::time::sleep(SAVE_EVERY).await;
    }
    note(&writer, "a", 1, 2);
    saved(&writer, "a").await;
    saved(&writer, "b").await;
    let last = |doc| saves.of(doc).last().map(|text| not_before(text));
    assert_eq!((last("a"), last("b"), saves.count()), (Some(2), Some(1), 3));
}

#[actix_rt::test]
async fn waiting_pasts_are_bounded() {
    let saves = Saves::default();
    let writer = saves.writer();
    (0..=WAITING_MAX).for_each(|n| note(&writer, &format!("d{n}"), 1, 0));
    let doc = |n: usize| DocId::from(format!("d{n}"));
    assert!(writer.has(&doc(WAITING_MAX - 1)));
    assert!(!writer.has(&doc(WAITING_MAX)));
}

#[actix_rt::test]
async fn waiters_return_when_the_store_is_closed() {
    tokio::time::pause();
    let save = |_, _| std::future::ready(Err(StoreError::Closed));
    let (writer, task) = PastWriter::new(save, &Logger::root(Discard, o!()));
    let task = actix_rt::spawn(task);
    note(&writer, "a", 1, 1);
    saved(&writer, "a").await;
    within("the task ends", task)
        .await
        .expect("it does not panic");
}
