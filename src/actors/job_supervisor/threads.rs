//! The threads that jobs run on.
//!
//! SUMMARY   [`JobThreads`] starts a run on the thread with the fewest runs, out of the configured number of threads.
//!           Each thread is started with its first run.
//! PROMISES  A run stays on its thread with everything that it opens: connections are tasks of the thread that opened
//!           them. If a thread ends, only its runs end, and it is replaced when the next run starts. A surplus thread
//!           ends with its last run. All threads end when [`JobThreads`] is dropped.
//! DIFFERS   CouchDB's virtual machine spreads the processes of all jobs over its scheduler threads.

use std::io;
use std::sync::Arc;

use actix::prelude::*;
use slog::{Logger, error, o};

use super::prepare;
use crate::messages::replication_job::{RunningJob, StopJob};
use child::watches;
use replication::crash::Crash;
use replication::endpoint::Http;

/// A thread, and what its runs share.
struct JobThread {
    arbiter: Arbiter,
    /// The connections of its runs.
    http: Http,
    /// Counts its runs: each holds a clone.
    place: Arc<()>,
}

impl JobThread {
    fn start(http: &Http) -> io::Result<Self> {
        Ok(Self {
            arbiter: Arbiter::try_new().map_err(watches::named)?,
            http: http.with_own_connections(),
            place: Arc::default(),
        })
    }

    fn runs(&self) -> usize {
        Arc::strong_count(&self.place) - 1
    }
}

impl Drop for JobThread {
    fn drop(&mut self) {
        self.arbiter.stop();
    }
}

/// See the module's documentation.
pub(crate) struct JobThreads {
    /// Shared by the connections of all threads.
    http: Http,
    threads: Vec<JobThread>,
    log: Logger,
}

impl JobThreads {
    /// Creates an empty set: the first run starts a thread.
    pub fn new(http: Http, log: &Logger) -> Self {
        Self {
            http,
            threads: Vec::new(),
            log: log.new(o!("component" => "job_threads")),
        }
    }

    /// Runs an actor on one of `wanted` threads. `make` makes it there, with the thread's connections.
    ///
    /// # Errors
    /// There is no thread, and none can be started.
    pub fn run<A>(
        &mut self,
        wanted: usize,
        make: impl FnOnce(Http) -> A + Send + 'static,
    ) -> Result<RunningJob, Crash>
    where
        A: Actor<Context = Context<A>> + Handler<StopJob>,
    {
        let thread = self.least_loaded(wanted.max(1))?;
        let (http, place) = (thread.http.clone(), Arc::clone(&thread.place));
        let (running, begin) = prepare(move || make(http), place);
        // If the thread has just ended, so has the run, and its monitors are notified.
        thread.arbiter.spawn_fn(begin);
        Ok(running)
    }

    fn least_loaded(&mut self, wanted: usize) -> Result<&JobThread, Crash> {
        self.tidy(wanted);
        let few = &self.threads[..self.threads.len().min(wanted)];
        let all_are_busy = few.iter().all(|thread| thread.runs() > 0);
        if few.len() < wanted && all_are_busy {
            match JobThread::start(&self.http) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    error!(self.log, "no further thread for replications can be started";
                           "error" => %error,
                           "remedy" => watches::remedy(&error)
                               .unwrap_or("raise the limit of threads, or lower [replicator] threads"));
                    if self.threads.is_empty() {
                        return Err(Crash::JobDied(format!(
                            "no thread can be started for it: {error}"
                        )));
                    }
                }
            }
        }
        Ok(self
            .threads
            .iter()
            .take(wanted)
            .min_by_key(|thread| thread.runs())
            .expect("JT-1: there is a thread, or its start has failed"))
    }

    /// Forgets threads that have ended, and ends surplus threads without runs.
    fn tidy(&mut self, wanted: usize) {
        let mut nth = 0;
        self.threads.retain(|thread| {
            if !thread.arbiter.alive() {
                error!(
                    self.log,
                    "a thread of replications has ended and is replaced"
                );
                return false;
            }
            nth += 1;
            nth <= wanted || thread.runs() > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use slog::Discard;

    use super::*;
    use crate::otp::{Down, ExitReason};
    use test_support::Probe;

    const WITHIN: Duration = Duration::from_secs(30);

    /// Reports which thread it runs on, and ends on request.
    struct Where(mpsc::Sender<ThreadId>);

    impl Actor for Where {
        type Context = Context<Self>;

        fn started(&mut self, _: &mut Self::Context) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    impl Handler<StopJob> for Where {
        type Result = ();

        fn handle(&mut self, _: StopJob, ctx: &mut Self::Context) {
            ctx.stop();
        }
    }

    fn threads() -> JobThreads {
        let log = Logger::root(Discard, o!());
        JobThreads::new(
            Http::new(crate::replicator::http_config(&Default::default()), &log).unwrap(),
            &log,
        )
    }

    /// Starts a run; returns it with its thread.
    fn run(threads: &mut JobThreads, wanted: usize) -> (RunningJob, ThreadId) {
        let (here, told) = mpsc::channel();
        let running = threads.run(wanted, move |_| Where(here)).unwrap();
        (running, told.recv_timeout(WITHIN).unwrap())
    }

    async fn ended(running: &RunningJob) -> ExitReason {
        let mut downs = Probe::<Down>::start();
        let _watch = running.pid.watch(downs.recipient());
        downs.next().await.reason
    }

    #[actix_rt::test]
    async fn runs_are_spread_over_as_many_threads_as_are_wanted() {
        let mut threads = threads();
        let (_first, one) = run(&mut threads, 2);
        let (second, two) = run(&mut threads, 2);
        assert_ne!(one, two);
        assert_ne!(one, thread::current().id());
        let (_third, _) = run(&mut threads, 2);
        let (_fourth, _) = run(&mut threads, 2);
        assert_eq!(threads.threads.len(), 2);
        assert!(threads.threads.iter().all(|thread| thread.runs() == 2));
        second.stop.do_send(StopJob);
        assert_eq!(ended(&second).await, ExitReason::Normal);
        let (_fifth, freed) = run(&mut threads, 2);
        assert_eq!(freed, two, "the thread with the fewest runs");
    }

    #[actix_rt::test]
    async fn a_thread_is_started_only_if_no_other_is_idle() {
        let mut threads = threads();
        assert!(threads.threads.is_empty());
        let (first, one) = run(&mut threads, 8);
        first.stop.do_send(StopJob);
        ended(&first).await;
        let (_second, again) = run(&mut threads, 8);
        assert_eq!(one, again);
        assert_eq!(threads.threads.len(), 1);
    }

    #[actix_rt::test]
    async fn a_surplus_thread_gets_no_new_run_and_ends_with_its_last_one() {
        let mut threads = threads();
        let (_first, one) = run(&mut threads, 2);
        let (second, _) = run(&mut threads, 2);
        for _ in 0..3 {
            let (running, on) = run(&mut threads, 1);
            assert_eq!(on, one);
            running.stop.do_send(StopJob);
            ended(&running).await;
        }
        assert_eq!(threads.threads.len(), 2, "the second still has a run");
        second.stop.do_send(StopJob);
        ended(&second).await;
        run(&mut threads, 1);
        assert_eq!(threads.threads.len(), 1);
    }

    #[actix_rt::test]
    async fn a_run_on_another_thread_can_be_killed() {
        let mut threads = threads();
        let (running, _) = run(&mut threads, 1);
        (running.kill)();
        assert_eq!(ended(&running).await, ExitReason::Killed);
    }

    #[actix_rt::test]
    async fn a_thread_that_ends_takes_its_own_runs_with_it_and_is_replaced() {
        let mut threads = threads();
        let (lost, one) = run(&mut threads, 2);
        let (kept, _) = run(&mut threads, 2);
        threads.threads[0].arbiter.stop();
        assert_eq!(ended(&lost).await, ExitReason::Killed);
        assert!(kept.pid.is_alive());
        let (_next, on) = run(&mut threads, 2);
        assert_ne!(on, one);
        assert_eq!(threads.threads.len(), 2);
        assert!(kept.pid.is_alive());
    }

    #[actix_rt::test]
    async fn a_run_that_panics_ends_alone() {
        let mut threads = threads();
        let (kept, one) = run(&mut threads, 1);
        let panics = threads.run(1, |_| -> Where { panic!("panics on request") });
        assert_eq!(ended(&panics.unwrap()).await, ExitReason::Panicked);
        let (_next, on) = run(&mut threads, 1);
        assert_eq!(on, one);
        assert!(kept.pid.is_alive());
    }

    #[actix_rt::test]
    async fn all_threads_end_with_their_owner() {
        let mut threads = threads();
        let runs = [run(&mut threads, 2).0, run(&mut threads, 2).0];
        drop(threads);
        for running in runs {
            assert_eq!(ended(&running).await, ExitReason::Killed);
        }
    }
}
