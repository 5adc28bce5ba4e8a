//! `settee replicate`: one replication in the foreground.
//!
//! SUMMARY   Builds a replication from the command line, runs its job in a separate actix system, shows progress,
//!           and sums up documents read, written and refused. A filter that the source does not run is run by the
//!           command's own pool. With `--verify` both databases are compared afterwards.
//! PROMISES  A run resumes where an earlier run of the same replication ended. The first SIGINT or SIGTERM stops it
//!           with a checkpoint, the second at once. The comparison ends at the first one.
//! SOURCE    The options are those of a document in CouchDB's `_replicator`.

mod identity;
mod options;
mod outcome;
mod progress;
mod refusals;
mod resume;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use slog::{Drain, Level, LevelFilter, Logger, o};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::actors::language::Registry;
use crate::actors::replication_job::ReplicationJob;
use crate::app::replication::job_settings;
use crate::auth::rights::CallerLimits;
use crate::config::{Config, Replicator};
use crate::functions::caller::Caller;
use crate::functions::{QueryServers, filter_pool};
use crate::logging::Logging;
use crate::messages::replication_job::{
    JobEnd, JobEvent, JobNews, JobSettings, JobStart, NewRun, StopJob,
};
use crate::otp::Tell;
use crate::replicator;
use replication::counters::Stats;
use replication::crash::Crash;
use replication::endpoint::{Http, HttpSettings};
use replication::filter::{FilterAt, FilterErrorKind, FilterPool, fetch_code};
use replication::id::{Identity, ReplicationId, replication_id};
use replication::refused::RefusedDoc;
use replication::spec::{Replication, SpecError, UserCtx};

use super::config_args::ConfigArgs;
use super::exit::{CliError, CliResult, Exit};
use super::map::pool::Pool;
use super::terminal::{ClearingDrain, clear_line};
use super::{output, system};
use options::Options;
use outcome::{CORRECT_FILTER, GIVE_PASSWORD, explain, settings_to_correct, summary};
use progress::Progress;
use refusals::Refusals;
pub(super) use verify::Comparing;

/// Options of `settee replicate`.
#[derive(clap::Args)]
#[command(after_long_help = "\
SOURCE and TARGET are URLs of databases, with a name and password for Basic authentication or a
session: http://NAME:PASSWORD@host:5984/db. Other users of the machine can see passwords on a command
line, but not $SETTEE_SOURCE_PASSWORD and $SETTEE_TARGET_PASSWORD, which go with the name in the URL.
A run leaves checkpoints in both databases, from which the next one continues.

Exit codes:
  0   everything is replicated, except what the target refused; or stopped by a signal
  64  the command line is wrong
  65  a database or the filter is missing, an answer is invalid, or the filter failed here;
      --verify: the target lacks something
  74  a file cannot be written
  75  a temporary failure: try again later; completed work is not repeated
  77  a database refused this user: a wrong password, for example
  78  the configuration is wrong

Example:
  settee replicate http://localhost:5984/orders http://ann:secret@backup:5984/orders --create-target
  settee replicate http://a:5984/db http://b:5984/db --continuous --selector '{\"type\": \"order\"}'
  settee replicate http://a:5984/db http://b:5984/db --filter app/mine --filter-at settee
  settee replicate http://a:5984/db http://b:5984/db --verify=only --deep")]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    options: Options,
    /// Write the documents that the target refused into this file: one object a line, with id, rev, error and reason.
    #[arg(long, value_name = "FILE")]
    refused: Option<PathBuf>,
    /// Do not verify certificates of databases: for tests. Attackers in the network can read passwords and documents.
    #[arg(long)]
    insecure: bool,
    /// Compare the target with the source `after` the replication (bare --verify), or `only` compare. Prints a line per
    /// revision or attachment that the target lacks.
    #[arg(long, value_name = "after|only", num_args = 0..=1, require_equals = true, default_missing_value = "after")]
    verify: Option<When>,
    /// With --verify: also compare the bytes of attachments.
    #[arg(long, requires = "verify")]
    deep: bool,
    /// With --verify: keep the progress in this file, and resume from it if it exists.
    #[arg(long, value_name = "FILE", requires = "verify")]
    resume: Option<PathBuf>,
    /// With --verify: print differences and the sum as JSON, an object per line.
    #[arg(long, requires = "verify")]
    json: bool,
}

/// When the databases are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum When {
    After,
    Only,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub(super) fn run(args: &Args, languages: &Registry) -> CliResult {
    let mut config = args.config.load(languages)?.config;
    if args.insecure {
        config.replicator.verify_ssl_certificates = false;
    }
    let body = args.options.body()?;
    let replication = Replication::parse(
        &body,
        &replicator::defaults(&config.replicator),
        UserCtx::default(),
        None,
    )
    .map_err(|error| wrong_replication(&error))?;
    let comparing = args.verify.map(|_| Comparing {
        deep: args.deep,
        resume: args.resume.clone(),
        json: args.json,
        one_of: None,
    });
    let unfit = match args.verify {
        Some(When::After) if replication.options.continuous => Some((
            "a continuous replication has no end after which it could be verified",
            "run --verify=only while it replicates",
        )),
        Some(When::Only) if args.refused.is_some() => Some((
            "--verify=only writes no documents, so none is refused",
            "leave out --refused, which would empty its file",
        )),
        _ => None,
    };
    if let Some((problem, remedy)) = unfit {
        return Err(CliError::new(Exit::Usage, problem, remedy));
    }
    let logging = Logging::to_stderr(&config.log);
    let run = Run {
        log: logger(&logging),
        replication,
        config,
        languages,
        refusals: Refusals::open(args.refused.as_deref())?,
        refused: Vec::new(),
        replicates: args.verify != Some(When::Only),
        comparing,
    };
    system()?.block_on(run.run()).map(drop)
}

/// Reports an error of the command line by its argument, without the value, which may have a password.
fn wrong_replication(error: &SpecError) -> CliError {
    match error.side {
        Some(side) => CliError::at(
            Exit::Usage,
            side.to_uppercase(),
            &error.text,
            "write it as http://host:5984/db; `settee replicate --help` has more",
        ),
        None => CliError::new(Exit::Usage, &error.text, "see `settee replicate --help`"),
    }
}

/// Compares both sides of a replication without running it; `refused` lists known refusals of the target. Returns
/// `false` if the reader of the differences is gone, or if the target of one of several replications lacks something.
///
/// # Errors
/// Those of `settee replicate --verify=only`.
pub(super) fn verify(
    replication: Replication,
    config: Config,
    languages: &Registry,
    refused: Vec<RefusedDoc>,
    comparing: Comparing,
) -> CliResult<bool> {
    let logging = Logging::to_stderr(&config.log);
    let run = Run {
        log: logger(&logging),
        replication,
        config,
        languages,
        refusals: Refusals::open(None)?,
        refused,
        replicates: false,
        comparing: Some(comparing),
    };
    system()?.block_on(run.run())
}

/// Progress and summary show normal events, so the log omits them.
fn logger(logging: &Logging) -> Logger {
    Logger::root(
        LevelFilter::new(ClearingDrain(logging.logger.clone()), Level::Warning).ignore_res(),
        o!(),
    )
}

/// The work to do.
struct Run<'a> {
    replication: Replication,
    config: Config,
    languages: &'a Registry,
    refusals: Refusals,
    /// Documents that the target refused, at most [`REFUSED_MAX`].
    refused: Vec<RefusedDoc>,
    replicates: bool,
    /// How both sides are compared at the end, if at all.
    comparing: Option<Comparing>,
    log: Logger,
}

/// Maximum number of refused documents kept for the comparison.
const REFUSED_MAX: usize = 10_000;

/// What replicating and comparing share: the HTTP client, the replicator's identity, and the replication's id.
struct Prepared {
    http: Http,
    identity: Identity,
    id: ReplicationId,
}

/// Forwards a job's events.
struct Listener(mpsc::UnboundedSender<JobEvent>);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<JobEvent> for Listener {
    type Result = ();

    fn handle(&mut self, event: JobEvent, _: &mut Context<Self>) {
        // At the end of the command the receiver is gone.
        let _ = self.0.send(event);
    }
}

impl Run<'_> {
    /// Returns the result of [`Self::compare`]; `false` if nothing was compared.
    async fn run(self) -> CliResult<bool> {
        let pool = match self.replication.options.filter_at {
            FilterAt::Source => None,
            FilterAt::Settee => Some(Pool::start(&self.config, self.languages, &self.log)?),
        };
        let filters = match &pool {
            Some(pool) => {
                // Filters run in the processes of this thread's manager.
                let manager = pool.manager();
                filter_pool(move || {
                    let caller = Caller::new(manager.clone());
                    caller.hold_to(Some(CallerLimits::of_other_databases()));
                    QueryServers::new(caller)
                })
            }
            None => FilterPool::none(),
        };
        let done = self.replicate_and_compare(filters).await;
        if let Some(pool) = pool {
            pool.stop().await;
        }
        done
    }

    async fn replicate_and_compare(mut self, filters: FilterPool) -> CliResult<bool> {
        let http = http_client(&self.config.replicator, &self.log)?;
        let identity = identity::of(&self.config, &self.log).await;
        let code = self.filter_code(&http).await?;
        let id = replication_id(&self.replication, &identity, code.as_deref());
        let prepared = Prepared { http, identity, id };
        if self.replicates && !self.replicate(&prepared, filters.clone()).await? {
            return Ok(false);
        }
        match self.comparing.take() {
            Some(comparing) => self.compare(&comparing, &prepared, &filters).await,
            None => Ok(false),
        }
    }

    /// Returns whether everything is replicated; false after an interrupt.
    async fn replicate(&mut self, prepared: &Prepared, filters: FilterPool) -> CliResult<bool> {
        let (events, mut told) = mpsc::unbounded_channel();
        let job = self.start(prepared, Listener(events).start().recipient(), filters);
        actix_rt::spawn(stop_on_signals(job));
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
                JobNews::Refused(doc) => {
                    self.refusals.note(&doc)?;
                    if self.comparing.is_some() && self.refused.len() < REFUSED_MAX {
                        self.refused.push(doc);
                    }
                }
                JobNews::Ended(end) => break end,
            }
        };
        let began_with = progress.end();
        self.refusals.flush()?;
        if let Some(last) = &last {
            let summary = summary(&end, last, began_with, &self.refusals);
            if self.comparing.as_ref().is_some_and(|how| how.json) {
                // Only JSON goes to standard output.
                output::print_error(&summary)
            } else {
                output::print(&summary)?
            }
        }
        match end {
            JobEnd::Normal(_) => Ok(true),
            JobEnd::Stopped => Ok(false),
            JobEnd::Crashed(crash) => Err(explain(crash)),
        }
    }

    fn start(
        &self,
        prepared: &Prepared,
        events: Recipient<JobEvent>,
        filters: FilterPool,
    ) -> Addr<ReplicationJob> {
        let (id, identity) = (prepared.id.clone(), prepared.identity.clone());
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
            // No other jobs start, so there is nothing to spread.
            startup_jitter: Duration::ZERO,
            ..job_settings(
                &self.config.replicator,
                prepared.http.clone(),
                identity,
                filters,
            )
        };
        ReplicationJob::new(JobStart { run, settings }).start()
    }

    /// Fetches the code of the filter, which is part of the replication's id; `None` without a filter function.
    async fn filter_code(&self, http: &Http) -> CliResult<Option<String>> {
        let options = &self.replication.options;
        let source = http
            .endpoint(
                &self.replication.source,
                HttpSettings::of_source(options, self.config.replicator.health_threshold),
            )
            .map_err(explain)?;
        fetch_code(&source, &options.filter).await.map_err(|error| {
            let by_kind = match error.kind {
                FilterErrorKind::Refused => (Exit::NoPermission, GIVE_PASSWORD),
                FilterErrorKind::Missing => (Exit::Data, CORRECT_FILTER),
                FilterErrorKind::Unknown => (Exit::TryAgain, "check that the source is reachable"),
            };
            let (exit, hint) = error
                .cause()
                .and_then(settings_to_correct)
                .unwrap_or(by_kind);
            CliError::new(exit, error.to_string(), hint)
        })
    }
}

/// Makes the HTTP client of replications.
///
/// # Errors
/// `[replicator]` names unusable files or addresses.
pub(super) fn http_client(config: &Replicator, log: &Logger) -> CliResult<Http> {
    Http::new(replicator::http_config(config), log).map_err(|error| {
        CliError::new(
            Exit::Config,
            error.to_string(),
            "correct it in [replicator]",
        )
    })
}

/// The first SIGINT or SIGTERM stops the job with a checkpoint; the second, or one after the job's end, exits at once
/// with [`Exit::TryAgain`]. It must run until the end: signals do not get their default action back.
async fn stop_on_signals(job: Addr<ReplicationJob>) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    next().await;
    if job.connected() {
        job.tell(StopJob);
        next().await;
    }
    clear_line();
    std::process::exit(Exit::TryAgain as i32);
}
