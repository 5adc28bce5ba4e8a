//! CostKeeper: keeps the cost of each database in a file, so that it survives a restart.
//!
//! SUMMARY   [`load`] reads it before the service starts work; the actor writes it every [`SAVE_EVERY`], and once
//!           more when the service ends.
//! PROMISES  The file is complete at any time. It is written on a blocking thread. An unreadable file is not
//!           overwritten: then no costs are saved, and the log reports it.
//! LIMITS    A service that is killed loses the costs since the last write, at most those of [`SAVE_EVERY`].
//! CALLED    Started and stopped by the supervisor, which stops it after everything that runs calls.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use slog::{Logger, error, o, warn};

use crate::functions::records::CallRecords;
use crate::metrics::Metrics;
use crate::metrics::tenant_costs::TenantCosts;
use crate::otp::{PidGuard, Stop, system_time};
use settee_config::generated;

/// How often the file is written.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// Returns the contents of a file, and its path if costs can be saved there. Blocks.
pub(crate) fn load(file: Option<&Path>, log: &Logger) -> (TenantCosts, Option<PathBuf>) {
    let none = || TenantCosts::new(system_time());
    let Some(file) = file else {
        return (none(), None);
    };
    let kept = match fs::read_to_string(file) {
        Ok(text) => TenantCosts::read(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(none()),
        Err(error) => Err(error.to_string()),
    };
    match kept {
        Ok(costs) => (costs, Some(file.to_owned())),
        Err(error) => {
            error!(log, "costs of databases cannot be read";
                   "file" => %file.display(), "error" => error,
                   "effect" => "they are counted from now on, and not saved",
                   "remedy" => "fix or move the file, and restart");
            (none(), None)
        }
    }
}

/// Keeps the cost of each database.
pub(crate) struct CostKeeper {
    records: Rc<CallRecords>,
    file: Option<PathBuf>,
    metrics: Metrics,
    log: Logger,
    pid_guard: PidGuard,
}

impl CostKeeper {
    /// Creates a keeper that writes to `file`; without one, nothing is saved.
    pub fn new(
        records: Rc<CallRecords>,
        file: Option<PathBuf>,
        metrics: Metrics,
        log: &Logger,
        pid_guard: PidGuard,
    ) -> Self {
        Self {
            records,
            file,
            metrics,
            log: log.new(o!("component" => "cost_keeper")),
            pid_guard,
        }
    }

    /// Writes the file, if costs are kept.
    fn save(&self) -> impl ActorFuture<Self, Output = ()> + use<> {
        let file = self.file.clone();
        let wanted = file.map(|file| (file, self.records.tenant_costs()));
        let saving = async move {
            let Some((file, costs)) = wanted else {
                return Ok(());
            };
            let write = move || generated::replace(&file, &costs.lines());
            blocking::run("costs", write).await.flatten()
        };
        saving.into_actor(self).map(|saved, keeper: &mut Self, _| {
            let error = saved.err().map(|error| error.to_string());
            let before = std::mem::replace(&mut *keeper.metrics.costs_unsaved(), error.clone());
            if let Some(error) = error.filter(|_| before.is_none()) {
                warn!(keeper.log, "costs of databases cannot be written"; "error" => error,
                      "effect" => "a restart loses what was counted since the last write");
            }
        })
    }

    fn save_again_and_again(&mut self, ctx: &mut Context<Self>) {
        ctx.run_later(SAVE_EVERY, |keeper, ctx| {
            let saved = keeper.save();
            // A stop, which also saves, waits: with two writers the older might win.
            ctx.wait(saved.map(|(), keeper, ctx| keeper.save_again_and_again(ctx)));
        });
    }
}

impl Actor for CostKeeper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.file.is_some() {
            self.save_again_and_again(ctx);
        }
    }
}

impl Handler<Stop> for CostKeeper {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        let saved = self.save();
        // Nothing else writes meanwhile.
        ctx.wait(saved.map(|(), keeper, ctx| keeper.pid_guard.shut_down(ctx)));
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::sync::Arc;

    use rustix::fs::inotify;
    use slog::Discard;

    use super::*;
    use crate::app::when_ended;

    /// Returns whether a thread with this name exists.
    fn runs(name: &str) -> bool {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.into_iter().any(|found| found.trim() == name)
    }

    fn records(log: &Logger) -> Rc<CallRecords> {
        let (_config, config) = tokio::sync::watch::channel(Arc::default());
        let costs = TenantCosts::new(system_time());
        Rc::new(CallRecords::new(config, log.clone(), None, costs))
    }

    #[actix_rt::test]
    async fn costs_that_cannot_be_saved_are_a_problem_until_they_can() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("away").join("costs");
        let log = Logger::root(Discard, o!());
        let metrics = Metrics::new();
        let save = async || {
            let file = Some(file.clone());
            let pid_guard = PidGuard::new();
            let ended = when_ended(&pid_guard.pid());
            let keeper = CostKeeper::new(records(&log), file, metrics.clone(), &log, pid_guard);
            keeper.start().do_send(Stop { now: false });
            ended.await.unwrap();
            metrics.costs_unsaved().clone()
        };
        let error = save().await;
        assert!(error.is_some_and(|error| error.contains("No such file")));
        fs::create_dir(folder.path().join("away")).unwrap();
        assert_eq!(save().await, None);
    }

    #[actix_rt::test]
    async fn a_stop_that_comes_twice_writes_the_costs_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("costs");
        let watch =
            inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, folder.path(), inotify::WatchFlags::MOVED_FROM).unwrap();
        let log = Logger::root(Discard, o!());
        let (pid_guard, metrics) = (PidGuard::new(), Metrics::new());
        let ended = when_ended(&pid_guard.pid());
        let keeper = CostKeeper::new(records(&log), Some(file.clone()), metrics, &log, pid_guard);
        let keeper = keeper.start();
        for now in [false, true] {
            keeper.do_send(Stop { now });
        }
        ended.await.unwrap();
        while runs("costs") {
            actix_rt::task::yield_now().await;
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watch, &mut buffer);
        let written = std::iter::from_fn(|| events.next().is_ok().then_some(())).count();
        assert_eq!((written, file.exists()), (1, true));
    }
}
