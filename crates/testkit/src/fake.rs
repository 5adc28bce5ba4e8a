//! FakeLanguage: processes without a child or a thread, for tests under paused time.
//!
//! SUMMARY   A fake process answers from a closure, on the test's arbiter, after the time that the closure sets. With
//!           `tokio::time::pause` that time is simulated.
//! PROMISES  To the manager a fake is like any other process: it has a token, deadlines, ordered answers, an idle
//!           time and a lifetime.
//! LIMITS    Never mix fakes under paused time with real children: simulated time advances while a child works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix_rt::time::sleep;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use settee::actors::language::{Language, StartContext};
use settee::actors::native_process::NativeProcess;
use settee::messages::opener::StartError;
use settee::messages::process::{ExitReport, Fault, ProcessRef};

/// The result of starting a fake process.
#[derive(Clone, Debug)]
pub enum FakeStart {
    /// It runs at once.
    Runs,
    /// It runs after this time.
    RunsAfter(Duration),
    /// It fails with this reason.
    Fails(String),
    /// It never finishes.
    Hangs,
}

/// A fake process's reaction to one prompt.
#[derive(Clone, Debug)]
pub enum FakeAnswer {
    /// Answers this at once.
    Now(String),
    /// Answers this after that time.
    After(Duration, String),
    /// Never answers.
    Never,
    /// Exits.
    Exits,
}

type Starts = dyn Fn(u32) -> FakeStart + Send + Sync;
type Answers = dyn Fn(&str) -> FakeAnswer + Send + Sync;

/// A language whose processes are fakes.
#[derive(Clone)]
pub struct FakeLanguage {
    starts: Arc<Starts>,
    answers: Arc<Answers>,
    can_forget: bool,
    count: Arc<AtomicU32>,
}

impl Default for FakeLanguage {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeLanguage {
    /// Returns a language whose processes start at once, answer `true` to every prompt, and stop at once.
    pub fn new() -> Self {
        Self {
            starts: Arc::new(|_| FakeStart::Runs),
            answers: Arc::new(|_| FakeAnswer::Now("true".into())),
            can_forget: false,
            count: Arc::default(),
        }
    }

    /// Sets the result of each start; the first is number 1.
    #[must_use]
    pub fn starts(mut self, starts: impl Fn(u32) -> FakeStart + Send + Sync + 'static) -> Self {
        self.starts = Arc::new(starts);
        self
    }

    /// Sets its processes' reaction to each prompt.
    #[must_use]
    pub fn answers(mut self, answers: impl Fn(&str) -> FakeAnswer + Send + Sync + 'static) -> Self {
        self.answers = Arc::new(answers);
        self
    }

    /// Lets its processes forget a database; otherwise each database gets its own processes.
    #[must_use]
    pub fn forgetting(mut self) -> Self {
        self.can_forget = true;
        self
    }

    /// Returns the number of starts, successful or not.
    pub fn start_count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Language for FakeLanguage {
    fn describe(&self) -> String {
        "fake".into()
    }

    /// A fake runs no functions.
    fn isolates_functions(&self) -> bool {
        true
    }

    fn can_forget(&self) -> bool {
        self.can_forget
    }

    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let start = (self.starts)(number);
        let language = self.clone();
        async move {
            match start {
                FakeStart::Runs => {}
                FakeStart::RunsAfter(time) => sleep(time).await,
                FakeStart::Hangs => return std::future::pending().await,
                FakeStart::Fails(reason) => {
                    return Err(StartError::new(reason, Fault::QueryServer));
                }
            }
            let answers = move |line: Bytes, _| {
                answered((language.answers)(&String::from_utf8_lossy(&line))).boxed_local()
            };
            Ok(NativeProcess::start_answering(answers, context))
        }
        .boxed_local()
    }
}

async fn answered(answer: FakeAnswer) -> Result<Bytes, ExitReport> {
    match answer {
        FakeAnswer::Now(text) => Ok(Bytes::from(text)),
        FakeAnswer::After(time, text) => {
            sleep(time).await;
            Ok(Bytes::from(text))
        }
        FakeAnswer::Never => std::future::pending().await,
        FakeAnswer::Exits => Err(ExitReport::default()),
    }
}
