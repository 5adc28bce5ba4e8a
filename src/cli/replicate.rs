//! `settee replicate`: one replication in the foreground.
//!
//! SUMMARY   Makes a replication of the command line, runs its job in an actix system of its own,
//!           shows how far it is, and sums up what was read, written and refused. A filter that the
//!           source does not run is run by a pool of the command's own.
//! PROMISES  It goes on where an earlier run of the same replication ended. A first interrupt stops
//!           it with a checkpoint, a second one at once.
//! SOURCE    The options are those of a document in CouchDB's `_replicator`.

mod identity;
mod options;
mod progress;
mod refusals;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use slog::{Drain, Level, LevelFilter, Logger, o};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::actors::language::Registry;
use crate::actors::proc_manager::ProcManager;
use crate::actors::replication_job::ReplicationJob;
use crate::app::replication::job_settings;
use crate::auth::rights::CallerLimits;
use crate::config::Config;
use crate::functions::caller::Caller;
use crate::functions::{QueryServers, filter_pool};
use crate::logging::Logging;
use crate::messages::replication_job::{
    JobEnd, JobEvent, JobNews, JobProgress, JobSettings, JobStart, NewRun, StopJob,
};
use crate::otp::registered_name::RegisteredName;
use crate::replicator;
use replication::crash::Crash;
use replication::endpoint::{Cause, Http, HttpSettings};
use replication::filter::{FilterAt, FilterErrorKind, FilterPool, fetch_code};
use replication::id::replication_id;
use replication::spec::{Replication, UserCtx};
use replication::stats::Stats;

use super::config_args::ConfigArgs;
use super::exit::{CliError, Exit};
use super::map::pool::Pool;
use super::output;
use super::terminal::ClearingDrain;
use options::Options;
use progress::Progress;
use refusals::Refusals;

/// Options of `settee replicate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
SOURCE and TARGET are URLs of databases; with a name and a password for Basic authentication or a
session: http://NAME:PASSWORD@host:5984/db. Passwords on a command line are seen by others on the
same machine: $SETTEE_SOURCE_PASSWORD and $SETTEE_TARGET_PASSWORD are not, and go with the name of
the URL. A run leaves checkpoints in both databases and the next one goes on from there.

Exit codes:
  0   everything is replicated, but for what the target refused; or stopped by a signal
  64  the command line is wrong
  65  a database or the filter is not there, or an answer is none; or the filter failed here
  74  a file cannot be written
  75  a failure worth another try later; what is done is not done again
  77  a database does not let this user in: a wrong password, for example
  78  the configuration is wrong

Example:
  settee replicate http://localhost:5984/orders http://ann:secret@backup:5984/orders --create-target
  settee replicate http://a:5984/db http://b:5984/db --continuous --selector '{\"type\": \"order\"}'
  settee replicate http://a:5984/db http://b:5984/db --filter app/mine --filter-at settee")]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    options: Options,
    /// Write what the target did not take to this file: an object with id, rev, error and reason a
    /// line.
    #[arg(long, value_name = "FILE")]
    refused: Option<PathBuf>,
    /// Do not verify the certificates of databases: for tests. Whoever is on the way reads passwords and documents.
    #[arg(long)]
    insecure: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub(super) fn run(args: &Args, languages: &Registry) -> Result<(), CliError> {
    let loaded = args.config.load()?;
    let mut config = loaded.config;
    if args.insecure {
        config.replicator.verify_ssl_certificates = false;
    }
    let body = args.options.body()?;
    let defaults = replicator::defaults(&config.replicator);
    let replication = Replication::parse(&body, &defaults, UserCtx::default(), None)
        .map_err(|error| CliError::new(Exit::Usage, error.text, "see `settee replicate --help`"))?;
    let refusals = Refusals::open(args.refused.as_deref())?;
    let logging = Logging::to_stderr(&config.log);
    // What happens as it should is shown by the progress and the summary.
    let log = ClearingDrain(logging.logger.clone());
    let log = LevelFilter::new(log, Level::Warning).ignore_res();
    let log = Logger::root(log, o!());
    let run = Run {
        replication,
        config,
        languages,
        refusals,
        log,
    };
    System::new().block_on(run.run())
}

/// What is to be done.
struct Run<'a> {
    replication: Replication,
    config: Config,
    languages: &'a Registry,
    refusals: Refusals,
    log: Logger,
}

/// Passes on what a job tells.
struct Listener(mpsc::UnboundedSender<JobEvent>);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<JobEvent> for Listener {
    type Result = ();

    fn handle(&mut self, event: JobEvent, _: &mut Context<Self>) {
        // Nobody is left to tell when the command is at its end.
        let _ = self.0.send(event);
    }
}

impl Run<'_> {
    async fn run(self) -> Result<(), CliError> {
        let pool = match self.replication.options.filter_at {
            FilterAt::Source => None,
            FilterAt::Settee => Some(Pool::start(&self.config, self.languages, &self.log)?),
        };
        let filters = match &pool {
            Some(pool) => filters_of(pool.manager()),
            None => FilterPool::none(),
        };
        let done = self.replicate(filters).await;
        if let Some(pool) = pool {
            pool.stop().await;
        }
        done
    }

    async fn replicate(mut self, filters: FilterPool) -> Result<(), CliError> {
        let (events, mut told) = mpsc::unbounded_channel();
        let events = Listener(events).start().recipient();
        let job = self.start(events, filters).await?;
        let stopper = actix_rt::spawn(stop_on_signals(job));
        let mut progress = Progress::start();
        let mut last = None;
        let end = loop {
            let Some(event) = told.recv().await else {
                break JobEnd::Crashed(Crash::JobDied("it said nothing".to_owned()));
            };
            match event.news {
                JobNews::Started(now) => {
                    progress.begins(&now);
                    last = Some(now);
                }
                JobNews::Progress(now) => {
                    progress.shows(&now);
                    last = Some(now);
                }
                JobNews::Refused(doc) => self.refusals.note(&doc)?,
                JobNews::Ended(end) => break end,
            }
        };
        stopper.abort();
        let began_with = progress.end();
        self.refusals.flush()?;
        if let Some(last) = &last {
            output::print(&summary(&end, last, began_with, &self.refusals))?;
        }
        match end {
            JobEnd::Normal(_) | JobEnd::Stopped => Ok(()),
            JobEnd::Crashed(crash) => Err(explain(&crash)),
        }
    }

    async fn start(
        &self,
        events: Recipient<JobEvent>,
        filters: FilterPool,
    ) -> Result<Addr<ReplicationJob>, CliError> {
        let replicator = &self.config.replicator;
        let config_error =
            |what: String| CliError::new(Exit::Config, what, "correct it in [replicator]");
        let http = Http::new(replicator::http_config(replicator), &self.log)
            .map_err(|error| config_error(error.to_string()))?;
        let identity = identity::of(&self.config, &self.log).await;
        let code = self.filter_code(&http).await?;
        let id = replication_id(&self.replication, &identity, code.as_deref());
        let id_text = id.to_string();
        let run = NewRun {
            replication: Arc::new(self.replication.clone()),
            id,
            number: policy::schedule::Run(1),
            earlier: Stats::default(),
            guard: Default::default(),
            events,
            log: self.log.new(o!("replication" => id_text)),
        };
        let settings = JobSettings {
            // There is nobody else to give way to.
            startup_jitter: Duration::ZERO,
            ..job_settings(replicator, http, identity, filters)
        };
        Ok(ReplicationJob::new(JobStart { run, settings }).start())
    }

    /// The code of a filter is part of the replication's id.
    async fn filter_code(&self, http: &Http) -> Result<Option<String>, CliError> {
        let options = &self.replication.options;
        let settings = HttpSettings::of_source(options, self.config.replicator.health_threshold);
        let source = http
            .endpoint(&self.replication.source, settings)
            .map_err(|error| explain(&error.into()))?;
        let code = fetch_code(&source, &options.filter).await;
        code.map_err(|error| {
            let by_kind = match error.kind {
                FilterErrorKind::Refused => (Exit::NoPermission, GIVE_PASSWORD),
                FilterErrorKind::Missing => (Exit::Data, CORRECT_FILTER),
                FilterErrorKind::Unknown => (Exit::TryAgain, "see that the source is there"),
            };
            let by_cause = error.cause.as_ref().and_then(settings_to_correct);
            let (exit, hint) = by_cause.unwrap_or(by_kind);
            CliError::new(exit, error.to_string(), hint)
        })
    }
}

/// Has filters run by the processes of a manager on this thread.
fn filters_of(manager: RegisteredName<ProcManager>) -> FilterPool {
    filter_pool(move || {
        let caller = Caller::new(manager.clone());
        caller.hold_to(Some(CallerLimits::of_other_databases()));
        QueryServers::new(caller)
    })
}

/// The first interrupt stops with a checkpoint, the second ends the program as it would without us.
async fn stop_on_signals(job: Addr<ReplicationJob>) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    job.do_send(StopJob);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    std::process::exit(i32::from(Exit::TryAgain as u8));
}

/// What is left to say at the end.
fn summary(end: &JobEnd, last: &JobProgress, began_with: Stats, refusals: &Refusals) -> String {
    let last = match end {
        JobEnd::Normal(completed) => &completed.progress,
        JobEnd::Stopped | JobEnd::Crashed(_) => last,
    };
    let how = match end {
        JobEnd::Normal(_) => "everything is replicated",
        JobEnd::Stopped => "stopped",
        JobEnd::Crashed(_) => "not finished",
    };
    let done = last.stats.since(&began_with);
    let mut text = format!(
        "{how}: {} revisions looked at, {} missing at the target, {} read, {} written ({} bytes), {} refused\n\
         through sequence {}, checkpoint at {}\n",
        done.missing_checked,
        done.missing_found,
        done.docs_read,
        done.docs_written,
        last.bytes_written,
        done.doc_write_failures,
        last.through_seq.as_text(),
        last.checkpointed_source_seq.as_text(),
    );
    if done.doc_write_failures > 0 {
        text.push_str(&refusals.advice());
    }
    text
}

const GIVE_PASSWORD: &str = "give a name and a password that may, in the URL or by $SETTEE_SOURCE_PASSWORD and $SETTEE_TARGET_PASSWORD";
const CORRECT_FILTER: &str = "see that the source has the filter, its design document and its view, and what it wants to be given";

/// Whether a source says that it cannot make this feed, now or later.
fn is_wrong(code: Option<u16>) -> bool {
    code.is_some_and(|code| (400..500).contains(&code))
}

/// What to correct where a request fails however often it is made.
fn settings_to_correct(cause: &Cause) -> Option<(Exit, &'static str)> {
    match cause {
        Cause::RedirectedElsewhere { .. } => Some((
            Exit::Data,
            "correct the URL, or name the other origin in [replicator] redirects_to",
        )),
        Cause::Denied(_) => Some((
            Exit::Config,
            "correct the URL, or [replicator] endpoints_allowed and endpoints_denied",
        )),
        _ => None,
    }
}

/// Turns the reason of a failure into one for people.
fn explain(crash: &Crash) -> CliError {
    let (code, hint) = match crash {
        crash if crash.is_refusal() => (Exit::NoPermission, GIVE_PASSWORD),
        Crash::DbNotFound(_) => (
            Exit::Data,
            "correct the URL; --create-target makes a target that is not there",
        ),
        Crash::ChangesReqFailed(answered) if is_wrong(answered.code) => {
            (Exit::Data, CORRECT_FILTER)
        }
        crash if crash.code() == Some(404) => (
            Exit::Data,
            "see that the database is still there; then run this again: it goes on from its checkpoint",
        ),
        Crash::FilterFailed(_) => (
            Exit::Data,
            "correct the filter at the source; then run this again: it goes on from its checkpoint",
        ),
        Crash::DocWriteFailed { .. } => (
            Exit::Data,
            "look at the document and the target; then run this again: it goes on from its checkpoint",
        ),
        crash => crash.cause().and_then(settings_to_correct).unwrap_or((
            Exit::TryAgain,
            "run this again later: it goes on from its checkpoint",
        )),
    };
    CliError::new(code, crash.to_string(), hint)
}
