//! Replications as tests run them: a single job, and its events.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr};
use serde_json::{Value, json};
use settee::actors::replication_job::ReplicationJob;
use settee::app::replication::{defaults, http_config};
use settee::messages::replication_job::{
    JobEnd, JobEvent, JobNews, JobProgress, JobSettings, JobStart, NewRun, StopJob,
};
use settee::policy::schedule::Run;
use settee::replication::counters::Stats;
use settee::replication::crash::Crash;
use settee::replication::endpoint::Http;
use settee::replication::filter::FilterPool;
use settee::replication::id::{Identity, replication_id};
use settee::replication::refused::RefusedDoc;
use settee::replication::spec::{Replication, UserCtx};
use settee_testkit::Probe;
use slog::{Discard, Logger, o};
use tokio::time::timeout;

/// How long a replication may take, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running replication.
pub struct Job {
    pub address: Option<Addr<ReplicationJob>>,
    events: Probe<JobEvent>,
    pub base: String,
    pub progress: Option<JobProgress>,
    pub refused: Vec<RefusedDoc>,
}

/// How a replication ended.
pub struct Outcome {
    pub end: JobEnd,
    pub progress: Option<JobProgress>,
    pub refused: Vec<RefusedDoc>,
    pub base: String,
}

/// Returns the body of a replication with the shortest sensible timeouts.
pub fn body(source: &str, target: &str) -> Value {
    json!({"source": source, "target": target, "retries_per_request": 3, "connection_timeout": 3000})
}

/// Returns a body like [`body`], with further members.
pub fn body_with(source: &str, target: &str, more: Value) -> Value {
    let mut body = body(source, target);
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

impl Job {
    pub fn start(body: &Value) -> Self {
        let (start, mut job) = Self::prepare(body);
        job.address = Some(ReplicationJob::new(start).start());
        job
    }

    /// Returns the start message of a job, and the listener for its events.
    pub fn prepare(body: &Value) -> (JobStart, Self) {
        let defaults = defaults(&Default::default());
        let replication = Replication::parse(body, &defaults, UserCtx::default(), None).unwrap();
        let code = body.get("filter_code").and_then(Value::as_str);
        let identity = Identity {
            uuid: "0123456789abcdef0123456789abcdef".into(),
            host: "h".into(),
            port: 5984,
        };
        let id = replication_id(&replication, &identity, code);
        let log = Logger::root(Discard, o!());
        let http = Http::new(http_config(&Default::default()), &log).unwrap();
        let events = Probe::start();
        let settings = JobSettings {
            http,
            identity,
            startup_jitter: Duration::ZERO,
            health_threshold: Duration::from_secs(120),
            max_document_id_length: body.get("id_max").and_then(Value::as_u64),
            missing_doc_retry: Duration::from_millis(50),
            filters: FilterPool::none(),
        };
        let base = id.base.clone();
        let run = NewRun {
            replication: Arc::new(replication),
            id,
            number: Run(7),
            earlier: Stats::default(),
            guard: Default::default(),
            events: events.recipient(),
            log,
        };
        let start = JobStart { run, settings };
        let job = Self {
            address: None,
            events,
            base,
            progress: None,
            refused: Vec::new(),
        };
        (start, job)
    }

    /// Waits for the job's next event. Returns its end, if that is the event.
    pub async fn next(&mut self) -> Option<JobEnd> {
        let event = timeout(PATIENCE, self.events.next())
            .await
            .expect("the job reports an event");
        assert_eq!(event.run, Run(7));
        match event.news {
            JobNews::Started(progress) | JobNews::Progress(progress) => {
                self.progress = Some(progress);
            }
            JobNews::Refused(doc) => self.refused.push(doc),
            JobNews::Ended(end) => return Some(end),
        }
        None
    }

    /// Waits until the job ends.
    pub async fn outcome(mut self) -> Outcome {
        let waiting = async {
            loop {
                if let Some(end) = self.next().await {
                    return end;
                }
            }
        };
        let end = timeout(PATIENCE, waiting)
            .await
            .expect("the replication ends");
        assert!(self.events.take().is_empty(), "no event follows the end");
        Outcome {
            end,
            progress: self.progress,
            refused: self.refused,
            base: self.base,
        }
    }

    pub fn stop(&self) {
        self.address.as_ref().unwrap().do_send(StopJob);
    }

    pub async fn stopped_or_crashed(self) -> JobEnd {
        self.stop();
        self.outcome().await.end
    }

    pub async fn stopped(self) -> Outcome {
        self.stop();
        let outcome = self.outcome().await;
        assert!(matches!(outcome.end, JobEnd::Stopped), "{:?}", outcome.end);
        outcome
    }
}

/// Runs a replication to its end.
pub async fn run(body: &Value) -> Outcome {
    Job::start(body).outcome().await
}

impl Outcome {
    /// Returns the result and the counters of a completed replication.
    pub fn normal(self) -> (Value, Stats) {
        match self.end {
            JobEnd::Normal(completed) => {
                let result = serde_json::from_str(completed.result.get());
                (result.unwrap(), completed.progress.stats)
            }
            end => panic!("the replication did not complete: {end:?}"),
        }
    }

    pub fn crash(self) -> Crash {
        match self.end {
            JobEnd::Crashed(crash) => crash,
            end => panic!("the replication did not crash: {end:?}"),
        }
    }
}

/// Replicates, and returns the counters.
pub async fn replicate(source: &str, target: &str) -> Stats {
    run(&body(source, target)).await.normal().1
}
