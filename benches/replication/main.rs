//! Measures a replication between two databases that answer immediately: documents per second, and CPU time of Settee's
//! thread per document. The databases run on other threads.
//!
//! The floor beside each figure of documents without attachments is the cost of the same bytes, fetched and sent
//! unparsed by the same HTTP client.
//!
//! The last figures are for concurrent replications in a service, on one thread and on two, with the CPU time of the
//! service's process.

#[path = "../common/mod.rs"]
mod common;
mod endpoint;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use settee::actors::replication_job::ReplicationJob;
use settee::app::replication::{defaults, http_config};
use settee::messages::replication_job::{JobEnd, JobEvent, JobNews, JobSettings, JobStart, NewRun};
use settee::policy::schedule::Run;
use settee::replication::counters::Stats;
use settee::replication::endpoint::{Http, HttpSettings, Request};
use settee::replication::filter::FilterPool;
use settee::replication::id::{Identity, replication_id};
use settee::replication::spec::{Replication, UserCtx};
use slog::{Discard, Logger, o};
use tokio::sync::mpsc;

use common::service::Service;
use endpoint::Shape;

/// Minimum documents per second, of 300 bytes each.
const WANTED_RATE: f64 = 20_000.0;

/// Maximum CPU time of a document of 300 bytes, in microseconds.
const WANTED_CPU: f64 = 60.0;
const BATCH: usize = 500;

struct Figures {
    elapsed: Duration,
    cpu: Duration,
}

struct Listener(mpsc::UnboundedSender<JobEvent>);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<JobEvent> for Listener {
    type Result = ();

    fn handle(&mut self, event: JobEvent, _: &mut Context<Self>) {
        drop(self.0.send(event));
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

async fn measure(work: impl Future<Output = ()>) -> Figures {
    let (start, before) = (Instant::now(), cpu());
    work.await;
    Figures {
        elapsed: start.elapsed(),
        cpu: cpu().saturating_sub(before),
    }
}

fn replication(shape: Shape, workers: usize) -> Replication {
    let url = |address| format!("http://{address}/db");
    let body = json!({
        "source": url(endpoint::start(shape)), "target": url(endpoint::start(shape)),
        "worker_processes": workers, "worker_batch_size": BATCH});
    Replication::parse(
        &body,
        &defaults(&Default::default()),
        UserCtx::default(),
        None,
    )
    .expect("a replication")
}

fn http() -> Http {
    Http::new(
        http_config(&Default::default()),
        &Logger::root(Discard, o!()),
    )
    .expect("HTTP")
}

async fn replicate(replication: Replication, documents: usize) {
    let identity = Identity {
        uuid: "0".repeat(32),
        host: "h".into(),
        port: 5984,
    };
    let (events, mut told) = mpsc::unbounded_channel();
    let run = NewRun {
        id: replication_id(&replication, &identity, None),
        replication: Arc::new(replication),
        number: Run(1),
        earlier: Stats::default(),
        guard: Default::default(),
        events: Listener(events).start().recipient(),
        log: Logger::root(Discard, o!()),
    };
    let settings = JobSettings {
        http: http(),
        identity,
        startup_jitter: Duration::ZERO,
        health_threshold: Duration::from_secs(120),
        max_document_id_length: None,
        missing_doc_retry: Duration::from_secs(2),
        filters: FilterPool::none(),
    };
    ReplicationJob::new(JobStart { run, settings }).start();
    while let Some(event) = told.recv().await {
        if let JobNews::Ended(end) = event.news {
            let JobEnd::Normal(completed) = end else {
                panic!("the replication failed: {end:?}");
            };
            assert_eq!(completed.progress.stats.docs_written, documents as u64);
            return;
        }
    }
}

/// Fetches and sends the bytes of a replication unparsed.
async fn floor(replication: Replication, shape: Shape) {
    let settings = HttpSettings::of_source(&replication.options, Duration::from_secs(120));
    let endpoint = |spec| {
        http()
            .endpoint(spec, settings.clone())
            .expect("an endpoint")
    };
    let (source, target) = (endpoint(&replication.source), endpoint(&replication.target));
    let feed = source
        .request(Request::get("_changes"))
        .await
        .expect("a feed");
    let rows = feed.body.len() / shape.documents;
    for start in (0..shape.documents).step_by(BATCH) {
        let count = BATCH.min(shape.documents - start);
        let ids: Vec<String> = (start..start + count)
            .map(|number| {
                format!(
                    "{{\"id\":\"document-{number:08}\",\"rev\":\"{}\",\"atts_since\":[]}}",
                    "x".repeat(34)
                )
            })
            .collect();
        let asked = format!("{{\"docs\":[{}]}}", ids.join(","));
        let diff = vec![b'x'; count * rows.min(64)];
        target
            .request(Request::post("_revs_diff").json(diff))
            .await
            .expect("an answer");
        let documents = source
            .request(Request::post("_bulk_get").json(asked))
            .await
            .expect("documents");
        target
            .request(Request::post("_bulk_docs").json(documents.body))
            .await
            .expect("an answer");
    }
}

fn run(work: impl Future<Output = ()>) -> Figures {
    System::new().block_on(measure(work))
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn report(name: &str, shape: Shape, workers: usize) {
    let figures = run(replicate(replication(shape, workers), shape.documents));
    let each = |figures: &Figures| {
        let documents = shape.documents as f64;
        let rate = documents / figures.elapsed.as_secs_f64();
        (rate, figures.cpu.as_secs_f64() * 1e6 / documents)
    };
    let (rate, cpu) = each(&figures);
    print!("{name:<28} {workers} workers {rate:>9.0} documents/s {cpu:>9.1} us of CPU each");
    if shape.attachment == 0 {
        let (floor_rate, floor_cpu) = each(&run(floor(replication(shape, 1), shape)));
        print!(
            "; floor {floor_rate:>9.0} and {floor_cpu:>6.1}: {:.1} times its CPU",
            cpu / floor_cpu
        );
    } else {
        let bytes = shape.attachment as f64 * rate / 1e6;
        print!("; {bytes:.0} MB/s");
    }
    if shape.bytes == 300 && shape.attachment == 0 && (rate < WANTED_RATE || cpu > WANTED_CPU) {
        print!("  (wanted: {WANTED_RATE:.0} and {WANTED_CPU:.0} us)");
    }
    println!();
}

/// Measures concurrent replications in a service with these lines in `[replicator]`.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn report_service(name: &str, replicator: &str) {
    let (documents, at_once) = (200_000, 4);
    let shape = Shape {
        documents,
        bytes: 300,
        attachment: 0,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(folder.path(), replicator);
    let servers: Vec<_> = (0..2).map(|_| endpoint::start(shape)).collect();
    let (start, before) = (Instant::now(), service.cpu());
    std::thread::scope(|scope| {
        for n in 0..at_once {
            let body = format!(
                "{{\"source\":\"http://{}/a{n}\",\"target\":\"http://{}/b{n}\"}}",
                servers[0], servers[1]
            );
            let service = &service;
            scope.spawn(move || {
                let answer = service.call("POST", "/_replicate", &body);
                let written = format!("\"docs_written\":{documents}");
                assert!(answer.contains(&written), "{answer}");
            });
        }
    });
    let (elapsed, all) = (start.elapsed(), (documents * at_once) as f64);
    println!(
        "{at_once} at once in a service, {name:<10} {:>9.0} documents/s {:>9.1} us of CPU each",
        all / elapsed.as_secs_f64(),
        (service.cpu() - before) * 1e6 / all
    );
}

fn main() {
    let shapes = [
        (
            "300 bytes",
            Shape {
                documents: 100_000,
                bytes: 300,
                attachment: 0,
            },
        ),
        (
            "10 KB",
            Shape {
                documents: 10_000,
                bytes: 10_000,
                attachment: 0,
            },
        ),
        (
            "300 bytes, 1 MB attachment",
            Shape {
                documents: 300,
                bytes: 300,
                attachment: 1 << 20,
            },
        ),
    ];
    for (name, shape) in shapes {
        for workers in [1, 4] {
            report(name, shape, workers);
        }
    }
    // Alternates, because other programs may load the machine.
    for _ in 0..5 {
        report_service("1 thread", "threads = 1");
        report_service("2 threads", "threads = 2");
    }
}
