//! Shared by the benches: timing, a table of results beside their floors, a process that does nothing.
#![allow(dead_code, reason = "each bench uses a part of it")]

pub mod php;
pub mod service;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use policy::pool::Reuse;
use settee::actors::language::{Language, Registry, StartContext};
use settee::actors::proc_manager::ManagerSettings;
use settee::messages::opener::StartError;
use settee::messages::process::{ProcShared, ProcessRef, Prompt, SetTimeout, StopProc};
use settee::otp::pid::{ExitReason, PidGuard};
use settee::policy::pool::Limits;

/// Runs one batch of an operation, and returns its number of operations.
pub type Batch<'a> = Box<dyn FnMut() -> LocalBoxFuture<'a, u64> + 'a>;

/// Runs several operations in turn, batch by batch, and returns the nanoseconds per operation of each one's best
/// batch. Measures this thread's CPU time, to which other programs add nothing; takes the best batch, because they
/// still compete for the caches.
pub async fn best_batches<const N: usize>(rounds: u32, mut batches: [Batch<'_>; N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    for _ in 0..rounds {
        for (batch, best) in batches.iter_mut().zip(&mut best) {
            let start = thread_nanoseconds();
            let count = batch().await;
            *best = best.min((thread_nanoseconds() - start) / count as f64);
        }
    }
    best
}

/// The CPU time of this thread so far.
fn thread_nanoseconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The CPU time of all threads of a process so far; 0 if it is gone.
pub fn nanoseconds(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let used = threads.into_iter().flatten().flatten().map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat"));
        let text = text.unwrap_or_default();
        let first = text.split(' ').next().and_then(|word| word.parse().ok());
        first.unwrap_or(0.0)
    });
    used.sum()
}

/// The children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let texts = threads
        .flatten()
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let all: Vec<String> = texts.collect();
    let words = all.iter().flat_map(|text| text.split_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The median.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Prints one line: a figure, its floor, their ratio, and the maximum ratio wanted.
pub fn report(what: &str, figure: f64, floor: f64, unit: &str, wanted: f64) {
    let ratio = figure / floor;
    let verdict = if ratio <= wanted { "ok" } else { "over" };
    println!(
        "{what:<44} {figure:>10.2} {unit}   floor {floor:>9.2} {unit}   ratio {ratio:>5.2}   wanted {wanted:.2} {verdict}"
    );
}

/// Settings for a manager with one language.
pub fn settings(
    name: &str,
    language: impl Language + 'static,
    hard_limit: u32,
) -> Arc<ManagerSettings> {
    let mut languages = Registry::new();
    languages.register(name, language);
    Arc::new(ManagerSettings {
        limits: Limits {
            hard_limit,
            soft_limit: hard_limit,
            affinity_wait: Duration::from_millis(20),
        },
        tenants: Default::default(),
        processes_max: None,
        pools_max: 256,
        pools: Default::default(),
        service_terms: Default::default(),
        os_process_timeout: Duration::from_secs(60),
        idle_limit: Duration::from_secs(300),
        stop_grace: Duration::from_secs(2),
        line_bytes_max: 64 << 20,
        log_lines_max: 100,
        log_bytes_max: 1 << 20,
        reuse: Some(Reuse::Any),
        isolates_max: 32,
        db_tag: Default::default(),
        reset_config: Arc::from(
            r#"{"reduce_limit":true,"reduce_limit_threshold":5000,"reduce_limit_ratio":2.0,"timeout":5000}"#,
        ),
        languages,
        external: Default::default(),
        cells: Default::default(),
    })
}

/// A log that discards everything.
pub fn no_log() -> slog::Logger {
    slog::Logger::root(slog::Discard, slog::o!())
}

/// A language whose processes are actors that do nothing.
pub struct Nothing;

impl Language for Nothing {
    fn describe(&self) -> String {
        "nothing".into()
    }

    fn start(&self, _: StartContext) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        async {
            let shared = ProcShared::new(None);
            let pid_guard = PidGuard::new();
            let pid = pid_guard.pid();
            let address = NothingProcess { pid_guard }.start();
            Ok(ProcessRef::new(&address, pid, shared))
        }
        .boxed_local()
    }
}

struct NothingProcess {
    pid_guard: PidGuard,
}

impl Actor for NothingProcess {
    type Context = Context<Self>;
}

impl Handler<Prompt> for NothingProcess {
    type Result = ();

    fn handle(&mut self, mut prompt: Prompt, _: &mut Self::Context) {
        for _ in 0..prompt.commands().count() {
            let answer = bytes::Bytes::from_static(b"true");
            prompt.answer_to.send(Ok(answer));
        }
    }
}

impl Handler<SetTimeout> for NothingProcess {
    type Result = bool;

    fn handle(&mut self, _: SetTimeout, _: &mut Self::Context) -> bool {
        true
    }
}

impl Handler<StopProc> for NothingProcess {
    type Result = ();

    fn handle(&mut self, _: StopProc, ctx: &mut Self::Context) {
        self.pid_guard.ending(ExitReason::Shutdown);
        ctx.stop();
    }
}
