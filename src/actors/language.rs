//! The extension point: the trait of languages, and the registry that finds them by name.
//!
//! SUMMARY   [`Language`] starts one process and declares its abilities; [`Registry`] maps names to languages.
//! CALLED    By openers, on the pool's arbiter.
//! SOURCE    couch_proc_manager's `servers` table and new_proc/1.
//! DIFFERS   Names ignore case, so each language has one pool and one limit (D16).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use futures_util::future::LocalBoxFuture;
use slog::Logger;

use crate::messages::opener::StartError;
use crate::messages::proc_manager::OsProcIdle;
use crate::messages::process::ProcessRef;
use crate::metrics::ProcessMetrics;
use crate::otp::{Clock, Pid};
use crate::query_server::abilities::Abilities;
use crate::query_server::child_log::LogTerms;
use crate::query_server::isolates::IsolateTerms;
use crate::query_server::language::LanguageName;
use child::Spawner;
use child::cell::terms::CellTerms;
use child::cell::trial::CellTrial;
use policy::pool::ProcId;

/// A process's dependencies.
#[derive(Clone)]
pub struct StartContext {
    /// Identifies the process in every notice about it; `number` is its `generation` in logs.
    pub proc: ProcId,
    /// Its language.
    pub language: LanguageName,
    /// The service's clock.
    pub clock: Clock,
    /// Starts children.
    pub spawner: Spawner,
    /// Notified when it has been idle for `idle_limit`.
    pub manager: Recipient<OsProcIdle>,
    /// The manager: the process ends with it.
    pub owner: Pid,
    /// The default timeout of prompts.
    pub prompt_timeout: Duration,
    /// `os_process_idle_limit`.
    pub idle_limit: Duration,
    /// The line sent before its input is closed on a polite stop.
    pub stop_send: Option<Arc<str>>,
    /// How long a polite stop may take.
    pub stop_grace: Duration,
    /// Maximum length of a line that it may print, in bytes.
    pub line_bytes_max: usize,
    /// Its cell, if it is a child.
    pub cell: CellTerms,
    /// How it isolates tenants, if it does.
    pub isolates: Option<IsolateTerms>,
    /// Whether its pool is under stress: the process should keep its work short.
    pub stress: bool,
    /// The log, with the process's identity.
    pub log: Logger,
    /// How many of its log lines are logged.
    pub log_terms: LogTerms,
    /// Counts its prompts, answers and ends.
    pub metrics: ProcessMetrics,
}

/// A language: how to start one process of it.
///
/// [`NativeLanguage`](crate::languages::native::NativeLanguage) runs inside this program,
/// [`CommandLanguage`](crate::languages::command::CommandLanguage) as children.
pub trait Language: Send + Sync {
    /// Returns how its processes are started, for `status` and the log: a command, or `native`.
    fn describe(&self) -> String;

    /// Returns the abilities of its processes: declared, or to be probed. Called once when the language is registered
    /// with a manager, so a reload starts over. By default nothing is declared, and then nothing is refused.
    fn abilities(&self) -> Abilities {
        Abilities::undeclared()
    }

    /// Returns whether no function can see or change what another function of the same process does or will do.
    /// Otherwise a process runs functions of one database only (`reuse`).
    fn isolates_functions(&self) -> bool {
        false
    }

    /// Returns whether its processes support the command `["forget", CONFIG]`: they drop everything taught and
    /// everything that functions left behind, return to the state after a first `["reset", CONFIG]`, and answer `true`.
    /// Such a process forgets before it serves another database, unless it has isolates.
    fn can_forget(&self) -> bool {
        false
    }

    /// Returns whether its processes have isolates ([`IsolateTerms`]).
    fn has_isolates(&self) -> bool {
        false
    }

    /// Returns how to test which cell layers are effective for its processes; `None`: they get no cell, regardless of
    /// the terms.
    fn cell_trial(&self, _: &CellTerms) -> Option<CellTrial> {
        None
    }

    /// Returns the language with children in cells made by `launcher`, if it leaves cells to the service. Abilities
    /// are probed in a cell with the terms `of_own_pool`, those of the language's own pool.
    fn in_cells(&self, _launcher: &Path, _of_own_pool: CellTerms) -> Option<Arc<dyn Language>> {
        None
    }

    /// Starts one process. Runs inside an opener, which may be dropped at any time: everything started must end with
    /// the future or with the returned process.
    ///
    /// # Errors
    /// The failure and its remedy; nothing may be left running.
    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>>;
}

/// Languages by name (`servers`). Cheap to clone; a reload builds a new one.
#[derive(Clone, Default)]
pub struct Registry {
    languages: BTreeMap<LanguageName, Arc<dyn Language>>,
}

impl Registry {
    /// Makes an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a language, replacing one of the same name.
    pub fn register(&mut self, name: &str, language: impl Language + 'static) {
        self.insert(LanguageName::new(name), Arc::new(language));
    }

    /// Adds a shared language.
    pub(crate) fn insert(&mut self, name: LanguageName, language: Arc<dyn Language>) {
        self.languages.insert(name, language);
    }

    /// Finds a language.
    pub fn get(&self, name: &LanguageName) -> Option<Arc<dyn Language>> {
        self.languages.get(name).cloned()
    }

    /// Returns all languages, sorted by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&LanguageName, &Arc<dyn Language>)> {
        self.languages.iter()
    }

    /// Returns the names of all languages, sorted.
    pub fn names(&self) -> impl Iterator<Item = &LanguageName> {
        self.languages.keys()
    }
}
