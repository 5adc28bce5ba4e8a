//! The cost of metrics: counting a prompt and a loan, beside one relaxed addition, and a snapshot of all metrics. Also
//! the manager's check of its own tables.

mod common;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::report;
use settee::metrics::{Metrics, prometheus_text, stats_json};
use settee::policy::invariants::violations;
use settee::policy::pool::{
    ClientId, Event, Lane, LanguageId, Limits, PoolSettings, Pools, RequestId, ReturnStatus, Target,
};
use settee::policy::time::Timestamp;
use settee::query_server::prompt::PromptClass;
use settee::query_server::status::DaemonStatus;

/// Returns nanoseconds per call.
fn nanoseconds(times: u64, mut call: impl FnMut()) -> f64 {
    (0..times / 10).for_each(|_| call());
    let start = Instant::now();
    (0..times).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / times as f64
}

fn counting() {
    const TIMES: u64 = 5_000_000;
    let floor = AtomicU64::new(0);
    let addition = nanoseconds(TIMES, || {
        black_box(&floor).fetch_add(1, Ordering::Relaxed);
    });
    let metrics = Metrics::new();
    let (pool, language) = (metrics.pool("p"), metrics.language("l"));
    let line = [b'x'; 300];
    let mut took = 0;
    let prompt = nanoseconds(TIMES, || {
        took = (took + 977) % 1_000_000;
        language.prompts_sent(1, black_box(&line).len());
        let time = Duration::from_nanos(black_box(took));
        language.prompt_done(PromptClass::Map, time, black_box(&Ok(&line)));
    });
    report("counting a prompt", prompt, addition, "ns", 8.0);
    let loan = nanoseconds(TIMES, || {
        let wait = black_box(Duration::from_nanos(700));
        pool.count().wait.observe(wait);
        pool.count().returns.one(ReturnStatus::Ok);
    });
    report("counting a loan", loan, addition, "ns", 5.0);
}

fn reading() {
    let metrics = Metrics::new();
    for number in 0..4 {
        metrics.pool(&format!("p{number}"));
        metrics.language(&format!("l{number}"));
    }
    let status = DaemonStatus::default();
    let snapshot = nanoseconds(1000, || drop(black_box(metrics.snapshot(&status)))) / 1e3;
    let taken = metrics.snapshot(&status);
    for (what, figure) in [
        ("snapshot of 4 pools and 4 languages", snapshot),
        (
            "its Prometheus form",
            nanoseconds(1000, || drop(black_box(prometheus_text(&taken)))) / 1e3,
        ),
        (
            "its _stats form",
            nanoseconds(1000, || drop(black_box(stats_json(&taken)))) / 1e3,
        ),
    ] {
        println!("{what:<44} {figure:>10.2} us");
    }
}

/// Checks tables of the largest size that the manager still checks periodically.
fn checking() {
    const ROWS: u64 = 4096;
    let mut core = Pools::default();
    let limits = Limits {
        hard_limit: 100,
        soft_limit: 100,
        affinity_wait: Duration::ZERO,
    };
    let pool = core.add_pool(PoolSettings::of_language(LanguageId(0), limits));
    for number in 1..=ROWS {
        let event = Event::GetProc {
            request: RequestId(number),
            client: ClientId(number),
            target: Target::Pool(pool),
            lane: Lane::Interactive,
            affinity: None,
            deadline: Timestamp::ZERO + Duration::from_secs(number),
        };
        core.handle(event, Timestamp::ZERO, &mut Vec::new());
    }
    assert_eq!(violations(&core).count(), 0);
    let check = nanoseconds(100, || {
        black_box(violations(&core).count());
    }) / 1e3;
    println!(
        "{:<44} {check:>10.2} us",
        "check of all invariants, 4096 requests"
    );
}

fn main() {
    counting();
    reading();
    checking();
}
