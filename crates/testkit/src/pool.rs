//! TestPool: a real process manager for one test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use slog::Logger;

use crate::client::TestClient;
use crate::quiet::alive;
use crate::recorder::{Recorded, Started};
use crate::scripted_child::ScriptedChild;
use child::Spawner;
use policy::pool::Limits;
use policy::pool::Reuse;
use policy::pool::db_tag::DbTag;
use settee::actors::language::{Language, Registry};
use settee::actors::proc_manager::ProcManager;
use settee::actors::proc_manager::{GetStatus, ManagerSettings, ReloadConfig};
use settee::functions::caller::Caller;
use settee::languages::command::CommandLanguage;
use settee::messages::proc_manager::{
    GetProcCount, GetStaleProcCount, SetThresholdTs, TerminateStaleProcs, Want,
};
use settee::messages::process::ProcessRef;
use settee::metrics::{Metrics, Snapshot};
use settee::otp::pid::Pid;
use settee::otp::registered_name::RegisteredName;
use settee::otp::supervisor::Stop;
use settee::query_server::cells::Cells;
use settee::query_server::ddoc::Ddoc;
use settee::query_server::language::LanguageName;
use settee::query_server::status::PoolStatus;
use test_support::eventually;

/// The settings and languages of a test pool. Every default suits a quick test.
pub struct TestPoolBuilder {
    settings: ManagerSettings,
    started: Started,
    scripts: Vec<ScriptedChild>,
    default_language: Option<String>,
    metrics: Metrics,
    log: Logger,
}

impl TestPoolBuilder {
    /// Sets `os_process_limit`, 3 by default.
    #[must_use]
    pub fn hard_limit(mut self, processes: u32) -> Self {
        self.settings.limits.hard_limit = processes;
        self
    }

    /// Sets `os_process_soft_limit`, 2 by default.
    #[must_use]
    pub fn soft_limit(mut self, processes: u32) -> Self {
        self.settings.limits.soft_limit = processes;
        self
    }

    /// Sets `os_process_timeout`, 5 seconds by default.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.settings.os_process_timeout = time;
        self
    }

    /// Sets which tenants a process may serve, any by default; `None`: decided by its language.
    #[must_use]
    pub fn reuse(mut self, reuse: Option<Reuse>) -> Self {
        self.settings.reuse = reuse;
        self
    }

    /// Changes any other setting of the manager.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut ManagerSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Sets the log of the pool; none by default.
    #[must_use]
    pub fn log(mut self, log: &Logger) -> Self {
        self.log = log.clone();
        self
    }

    /// Adds a language. [`TestPool::any`] and [`TestPool::ddoc`] use the first one.
    #[must_use]
    pub fn language(mut self, name: &str, language: impl Language + 'static) -> Self {
        let recorded = Recorded {
            language: Arc::new(language),
            started: self.started.clone(),
        };
        self.settings.languages.register(name, recorded);
        self.default_language.get_or_insert_with(|| name.to_owned());
        self
    }

    /// Adds a language with a command, as a configuration would.
    #[must_use]
    pub fn command(self, name: &str, command: &str) -> Self {
        self.language(name, CommandLanguage::new(command))
    }

    /// Adds a language whose processes are scripted children.
    #[must_use]
    pub fn script(mut self, name: &str, child: &ScriptedChild) -> Self {
        self.scripts.push(child.clone());
        self.language(name, child.language())
    }

    /// Starts the manager on the current arbiter.
    ///
    /// # Panics
    /// No thread can be spawned.
    pub fn start(self) -> TestPool {
        let spawner = Spawner::start().expect("the spawner's thread starts");
        let settings = Arc::new(self.settings);
        let manager = ProcManager::new(Arc::clone(&settings), spawner, &self.log)
            .with_metrics(self.metrics.clone());
        let pid = manager.pid();
        TestPool {
            manager: RegisteredName::new(manager.start()),
            pid,
            settings,
            metrics: self.metrics,
            started: self.started,
            scripts: self.scripts,
            default_language: self.default_language.unwrap_or_default(),
        }
    }
}

/// A process manager with its languages, for one test.
pub struct TestPool {
    manager: RegisteredName<ProcManager>,
    pid: Pid,
    settings: Arc<ManagerSettings>,
    metrics: Metrics,
    started: Started,
    scripts: Vec<ScriptedChild>,
    default_language: String,
}

impl TestPool {
    /// Starts building a pool with hard limit 3 and soft limit 2, the limits of CouchDB's own tests.
    pub fn builder() -> TestPoolBuilder {
        TestPoolBuilder {
            settings: ManagerSettings {
                limits: Limits {
                    hard_limit: 3,
                    soft_limit: 2,
                    affinity_wait: Duration::ZERO,
                },
                processes_max: None,
                pools_max: 256,
                tenants: Default::default(),
                pools: BTreeMap::new(),
                service_terms: BTreeMap::new(),
                os_process_timeout: Duration::from_secs(5),
                idle_limit: Duration::from_secs(300),
                stop_grace: Duration::from_millis(400),
                line_bytes_max: 1 << 20,
                log_lines_max: 100,
                log_bytes_max: 1 << 20,
                reuse: Some(Reuse::Any),
                isolates_max: 32,
                db_tag: DbTag::Name,
                reset_config: Arc::from("{}"),
                languages: Registry::new(),
                external: BTreeSet::new(),
                cells: Cells::default(),
            },
            started: Started::default(),
            scripts: Vec::new(),
            default_language: None,
            metrics: Metrics::new(),
            log: Logger::root(slog::Discard, slog::o!()),
        }
    }

    /// Makes a scripted client.
    pub fn client(&self, name: &str) -> TestClient {
        TestClient::new(name, self.manager.clone())
    }

    /// Makes scripted clients that hold one process each.
    ///
    /// # Panics
    /// One of them gets no process.
    pub async fn clients<const N: usize>(&self, names: [&str; N]) -> [TestClient; N] {
        let mut clients = names.map(|name| self.client(name));
        for client in &mut clients {
            client.takes(self.any()).await;
        }
        clients
    }

    /// Makes a client with the same calls as the service's own clients.
    pub fn caller(&self) -> Caller {
        Caller::new(self.manager.clone())
    }

    /// Returns a request for any process of the default language.
    pub fn any(&self) -> Want {
        self.any_of(&self.default_language)
    }

    /// Returns a request for any process of a language.
    pub fn any_of(&self, language: &str) -> Want {
        Want::language(LanguageName::new(language))
    }

    /// Returns a request for a process of the default language that knows the design document `id` of `db`, which has a
    /// fixed body.
    pub fn ddoc(&self, db: &str, id: &str) -> Want {
        self.ddoc_with(
            db,
            id,
            &format!(r#""language":"{}""#, self.default_language),
        )
    }

    /// Returns a request for a process that knows the design document `id` of `db` with these further members, given as
    /// JSON text without braces.
    ///
    /// # Panics
    /// It is not a valid design document.
    pub fn ddoc_with(&self, db: &str, id: &str, members: &str) -> Want {
        let json = format!(r#"{{"_id":"{id}","_rev":"1-a",{members}}}"#);
        let ddoc = Ddoc::parse(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
        Want::ddoc(Arc::from(db), Arc::new(ddoc))
    }

    /// Returns the manager's address.
    pub fn manager(&self) -> Addr<ProcManager> {
        self.manager.address()
    }

    /// Returns the manager's pid.
    pub fn pid(&self) -> &Pid {
        &self.pid
    }

    /// Returns every process started so far.
    pub fn started(&self) -> Vec<ProcessRef> {
        self.started.lock().clone()
    }

    /// Returns the state of the default language's pool.
    pub async fn status(&self) -> PoolStatus {
        self.status_of(&self.default_language).await
    }

    /// Returns the state of a language's pool.
    ///
    /// # Panics
    /// There is no such pool.
    pub async fn status_of(&self, language: &str) -> PoolStatus {
        let name = LanguageName::new(language);
        let pool = self
            .statuses(Some(name.to_string()))
            .await
            .into_iter()
            .next();
        pool.unwrap_or_else(|| panic!("there is no pool '{language}'"))
    }

    async fn statuses(&self, pool: Option<String>) -> Vec<PoolStatus> {
        self.call(GetStatus { pool }).await.status().pools
    }

    /// Waits until the default language's pool reaches a state.
    ///
    /// # Panics
    /// It does not within [`PATIENCE`](crate::PATIENCE).
    pub async fn becomes(&self, what: &str, wanted: impl Fn(&PoolStatus) -> bool) {
        eventually(what, async || wanted(&self.status().await)).await;
    }

    /// Returns the counts so far, with the manager's current state.
    pub async fn metrics(&self) -> Snapshot {
        let snapshot = self.call(GetStatus::default()).await;
        self.metrics.snapshot(&snapshot.status())
    }

    /// Returns the number of processes of all languages, including those being opened.
    pub async fn proc_count(&self) -> u32 {
        self.call(GetProcCount).await
    }

    /// Returns the number of processes from before the last reload.
    pub async fn stale_proc_count(&self) -> u32 {
        self.call(GetStaleProcCount).await
    }

    /// Replaces all processes.
    pub async fn reload(&self) {
        self.call(SetThresholdTs).await;
    }

    /// Stops idle processes from before the last reload.
    ///
    /// # Panics
    /// There is no pool of the default language.
    pub async fn terminate_stale_procs(&self) {
        let name = self.default_language.clone();
        let order = TerminateStaleProcs { name };
        self.call(order).await.expect("the default language's pool");
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Arc<ManagerSettings> {
        Arc::clone(&self.settings)
    }

    /// Changes the settings, as a reload of the configuration does.
    pub async fn reconfigure(&mut self, change: impl FnOnce(&mut ManagerSettings)) {
        let mut settings = ManagerSettings::clone(&self.settings);
        change(&mut settings);
        self.settings = Arc::new(settings);
        self.call(ReloadConfig(Arc::clone(&self.settings))).await;
    }

    async fn call<M>(&self, message: M) -> M::Result
    where
        M: Message + Send + 'static,
        M::Result: Send,
        ProcManager: Handler<M>,
    {
        self.manager()
            .send(message)
            .await
            .unwrap_or_else(|_| panic!("the process manager is gone"))
    }

    /// Stops the pool and proves that nothing is left: no client with a process or request, no process actor, child,
    /// grandchild, zombie or file.
    ///
    /// # Panics
    /// Something is left after [`PATIENCE`](crate::PATIENCE); says what.
    pub async fn assert_quiet(self) {
        eventually("no client holds a process or waits for one", async || {
            let busy = |pool: &PoolStatus| pool.used + pool.waiting + pool.opening;
            self.statuses(None).await.iter().all(|pool| busy(pool) == 0)
        })
        .await;
        // A manager that is already gone is fine.
        let _ = self.manager().send(Stop { now: false }).await;
        self.assert_gone().await;
    }

    /// Stops the pool in any state, and proves that nothing is left.
    ///
    /// # Panics
    /// Something is left after [`PATIENCE`](crate::PATIENCE); says what.
    pub async fn stop_at_once(self) {
        // A manager that is already gone is fine.
        let _ = self.manager().send(Stop { now: true }).await;
        self.assert_gone().await;
    }

    /// Proves that nothing is left of a pool after its manager was stopped or failed.
    ///
    /// # Panics
    /// Something is left after [`PATIENCE`](crate::PATIENCE); says what.
    pub async fn assert_gone(self) {
        eventually("the process manager ends", async || !self.pid.is_alive()).await;
        let processes = self.started();
        eventually("every process actor ends", async || {
            processes.iter().all(|process| !process.pid.is_alive())
        })
        .await;
        let mut groups: Vec<u32> = processes.iter().filter_map(|p| p.shared.os_pid).collect();
        groups.extend(self.scripts.iter().flat_map(ScriptedChild::started));
        let grandchildren: Vec<u32> = self
            .scripts
            .iter()
            .flat_map(ScriptedChild::grandchildren)
            .collect();
        eventually(
            &format!("no child of {groups:?} and no grandchild of {grandchildren:?} is left"),
            async || alive(&groups, &grandchildren).is_empty(),
        )
        .await;
        self.scripts.iter().for_each(ScriptedChild::remove_folder);
        // Just removed: this finds a folder that was recreated.
        let mut folders = self.scripts.iter().map(ScriptedChild::folder);
        assert!(!folders.any(Path::exists), "a file is left");
    }
}
