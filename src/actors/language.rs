//! The extension point: what a language is, and the registry that finds it by name.
//!
//! SUMMARY   [`Language`] starts one process and says what it can do; [`Registry`] maps names to it.
//! CALLED    By openers, on the pool's arbiter.
//! SOURCE    couch_proc_manager's `servers` table and new_proc/1.
//! DIFFERS   Names are one whatever their case, so each language has one pool and one limit (D16).

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
use crate::otp::clock::Clock;
use crate::otp::pid::Pid;
use crate::query_server::abilities::Abilities;
use crate::query_server::child_log::LogTerms;
use crate::query_server::isolates::IsolateTerms;
use crate::query_server::language::LanguageName;
use child::Spawner;
use child::cell::terms::CellTerms;
use child::cell::trial::CellTrial;
use policy::pool::ProcId;

/// What a process needs to start and to live.
#[derive(Clone)]
pub struct StartContext {
    /// The identity it gets: its generation, in logs and in every notice about it.
    pub proc: ProcId,
    /// Its language.
    pub language: LanguageName,
    /// The service's clock.
    pub clock: Clock,
    /// Starts children.
    pub spawner: Spawner,
    /// Where to say that it has been idle for `idle_limit`.
    pub manager: Recipient<OsProcIdle>,
    /// The manager's life: a process ends with it.
    pub owner: Pid,
    /// The timeout of a prompt that brings none.
    pub prompt_timeout: Duration,
    /// `os_process_idle_limit`.
    pub idle_limit: Duration,
    /// The line that a process is sent before its input is closed, where it is stopped politely.
    pub stop_send: Option<Arc<str>>,
    /// How long a polite stop may take.
    pub stop_grace: Duration,
    /// The longest line that it may print, in bytes.
    pub line_bytes_max: usize,
    /// The cell that it is put in, if it is a child.
    pub cell: CellTerms,
    /// How it keeps several tenants apart in isolates, if it does.
    pub isolates: Option<IsolateTerms>,
    /// Whether its pool is under stress: it should work for shorter times.
    pub stress: bool,
    /// The log, with the process's identity.
    pub log: Logger,
    /// How much of what the process writes for the log goes there.
    pub log_terms: LogTerms,
    /// Where its prompts, answers and ends are counted.
    pub metrics: ProcessMetrics,
}

/// A language: how one process of it is started.
///
/// [`NativeLanguage`](crate::languages::native::NativeLanguage) is one inside this program,
/// [`CommandLanguage`](crate::languages::command::CommandLanguage) one of children.
pub trait Language: Send + Sync {
    /// Describes how it is started, for `status` and the log: a command, or `native`.
    fn describe(&self) -> String;

    /// Tells what its processes can do: what it declares, or that it is to be probed. Asked once
    /// when the language is registered with a manager, so that a reload starts over. Nothing is
    /// declared unless a language says otherwise, and then nothing is refused.
    fn abilities(&self) -> Abilities {
        Abilities::undeclared()
    }

    /// Tells whether no function can see or change what another function of the same process does, or
    /// does later. Otherwise a process runs functions of one database only (`reuse`).
    fn isolates_functions(&self) -> bool {
        false
    }

    /// Tells whether its processes take the command `["forget", CONFIG]`: they forget all that they were
    /// taught and all that functions left in them, are then as after a first `["reset", CONFIG]`, and answer
    /// `true`. Only then may a process serve another database afterwards.
    fn can_forget(&self) -> bool {
        false
    }

    /// Tells whether its processes have isolates ([`IsolateTerms`]).
    fn has_isolates(&self) -> bool {
        false
    }

    /// Tells how to find out which layers of a cell hold for its processes; `None`: they are put in none,
    /// whatever the terms are.
    fn cell_trial(&self, _: &CellTerms) -> Option<CellTrial> {
        None
    }

    /// Returns the language with its children in cells that `launcher` makes, if it leaves them to the
    /// service. Abilities are probed on the terms `of_own_pool`.
    fn in_cells(&self, _launcher: &Path, _of_own_pool: CellTerms) -> Option<Arc<dyn Language>> {
        None
    }

    /// Starts one process. Runs inside an opener, which may be dropped at any time: whatever is
    /// started by then must end with the future or with the returned process.
    ///
    /// # Errors
    /// What happened and what to do; nothing may be left running.
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

    /// Adds a language; it replaces an earlier one of the same name.
    pub fn register(&mut self, name: &str, language: impl Language + 'static) {
        self.insert(LanguageName::new(name), Arc::new(language));
    }

    /// Adds a language that others may have too.
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
