//! A pool of processes for one command, with its own ProcManager.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr};
use slog::Logger;

use crate::actors::language::Registry;
use crate::actors::proc_manager::ProcManager;
use crate::app::settings::manager_settings;
use crate::app::when_ended;
use crate::cli::exit::{CliResult, IoAt, own_program};
use crate::config::Config;
use crate::conform_target::Target;
use crate::functions::caller::Caller;
use crate::functions::view::Processes;
use crate::messages::proc_manager::{TakeFrom, TenantName};
use crate::otp::{Pid, RegisteredName, Stop};
use crate::query_server::call::Call;
use crate::query_server::language::LanguageName;
use child::Spawner;

/// How long to wait until the processes have ended. All have been killed by then; only the kernel can delay their
/// exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A running pool.
pub(in crate::cli) struct Pool {
    manager: Addr<ProcManager>,
    pid: Pid,
    languages: Registry,
}

impl Pool {
    /// Starts a manager on this thread's actor system. Processes are started on demand. `languages` are the program's
    /// own.
    pub(in crate::cli) fn start(
        config: &Config,
        languages: &Registry,
        log: &Logger,
    ) -> CliResult<Self> {
        let program = own_program()?;
        let spawner = Spawner::start().io_at("a thread for starting processes")?;
        let mut settings = manager_settings(&Arc::new(config.clone()), &program, languages, &[]);
        settings.cells = settings.cells.untried();
        // Pool sections are meant for a service; only the settings that a configured command needs to run apply here.
        let languages = &settings.languages;
        let is_language = |name: &str| languages.get(&LanguageName::new(name)).is_some();
        settings.pools.retain(|name, _| is_language(name));
        for section in settings.pools.values_mut() {
            *section = Arc::new(section.of_cell());
        }
        let languages = settings.languages.clone();
        let manager = ProcManager::new(Arc::new(settings), spawner, log);
        let pid = manager.pid();
        Ok(Self {
            manager: manager.start(),
            pid,
            languages,
        })
    }

    /// Returns the manager.
    pub(in crate::cli) fn manager(&self) -> RegisteredName<ProcManager> {
        RegisteredName::new(self.manager.clone())
    }

    /// Returns the language of this name as the target of a test, if it exists.
    pub(in crate::cli) fn target(&self, name: &LanguageName) -> Option<Target> {
        Some(Target::Language {
            name: name.clone(),
            language: self.languages.get(name)?,
            caller: Rc::new(Caller::new(self.manager())),
        })
    }

    /// Returns a client of the pool, its only tenant, for a call.
    pub(super) fn processes(&self, call: Arc<Call>) -> Processes {
        Processes::Pool(
            Rc::new(Caller::new(self.manager()).for_call(call)),
            TakeFrom::Own,
            TenantName::Client,
        )
    }

    /// Ends all processes and waits until they are gone.
    pub(in crate::cli) async fn stop(self) {
        let gone = when_ended(&self.pid);
        // The answer would only confirm the order's arrival.
        let _ = self.manager.send(Stop { now: true }).await;
        drop(actix_rt::time::timeout(STOP_TIMEOUT, gone).await);
    }
}
