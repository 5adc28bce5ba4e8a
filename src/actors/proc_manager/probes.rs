//! Probes and tests by the manager's own children: the abilities of the pools' query servers, and which layers of the
//! pools' cells are effective, for the log and for `status`.
//!
//! PROMISES  Probes and tests run beside the manager's turns, each with a deadline; a shutdown ends them. Each cell is
//!           tested at startup, at each reload, and when the first pool gets it. Until the next reload, the same missing
//!           layers are logged once, with the remedy. The start and each reload log the names of the pools without a
//!           cell.
//! LIMITS    One child at a time for each language, and one for each change of the pools' cells.

use std::collections::BTreeSet;
use std::sync::Arc;

use actix::prelude::*;
use slog::warn;

use super::ProcManager;
use crate::config::SandboxMode;
use crate::otp::Tell;
use crate::query_server::tried_cell::TriedCell;
use policy::pool::PoolId;

/// Maximum messages about cells logged between two reloads.
const TOLD_MAX: usize = 64;

/// Probes and tests in progress, and what was logged about cells.
#[derive(Default)]
pub(super) struct Probes {
    /// Each has at most one child.
    pub running: Vec<SpawnHandle>,
    /// The number of them that are not done.
    pub count: usize,
    /// The messages about cells logged since the last reload.
    told: BTreeSet<String>,
}

/// A probe or a test is done, or was dropped.
#[derive(Message)]
#[rtype(result = "()")]
struct ProbeDone;

/// Reports the end of a probe, even if it is dropped.
struct ProbeEnd(Addr<ProcManager>);

impl Drop for ProbeEnd {
    fn drop(&mut self) {
        self.0.tell(ProbeDone);
    }
}

impl Handler<ProbeDone> for ProcManager {
    type Result = ();

    fn handle(&mut self, _: ProbeDone, ctx: &mut Self::Context) {
        self.probes.count -= 1;
        if self.probes.count == 0 {
            self.probes.running.clear();
        }
        self.finish_shutdown(ctx);
    }
}

/// A trial has ended.
#[derive(Message)]
#[rtype(result = "()")]
struct CellTried(Arc<TriedCell>);

impl Handler<CellTried> for ProcManager {
    type Result = ();

    /// Warns of a cell's missing layers, unless already logged.
    fn handle(&mut self, CellTried(cell): CellTried, _: &mut Self::Context) {
        let text = match cell.found() {
            None => return,
            Some(Err(error)) => format!("the cell cannot be made: {error}"),
            Some(Ok(layers)) => layers
                .missing
                .iter()
                .map(|(layer, why)| format!("{layer}: {why}"))
                .collect::<Vec<_>>()
                .join("; "),
        };
        let mode = cell.trial.mode;
        // Empty for a cell tried before the latest reload.
        let names = self.names_of_pools(|other| Arc::ptr_eq(other, &cell));
        let told = &mut self.probes.told;
        let is_over = names.is_empty() || told.len() >= TOLD_MAX;
        if text.is_empty() || is_over || !told.insert(format!("{mode} {text}")) {
            return;
        }
        let effect = match (mode, cell.found()) {
            (SandboxMode::Strict, _) | (_, Some(Err(_))) => "no process of these pools is started",
            _ => "their processes are started without these layers",
        };
        warn!(self.log, "layers of a cell are missing";
              "pool" => names,
              "error" => text,
              "effect" => effect,
              "remedy" => "docs/cells.md says what each layer needs; with sandbox = \"strict\" no \
                           process is started if a layer is missing");
    }
}

impl ProcManager {
    /// Runs a probe or a test beside the manager's turns.
    pub(super) fn run_probe(
        &mut self,
        probe: impl Future<Output = ()> + 'static,
        ctx: &mut Context<Self>,
    ) {
        let done = ProbeEnd(ctx.address());
        self.probes.count += 1;
        let probe = async move {
            // Dropped however the probe ends, which notifies the manager.
            let _done = done;
            probe.await;
        };
        let handle = ctx.spawn(probe.into_actor(self));
        self.probes.running.push(handle);
    }

    /// Tests the cells of all pools, including those tested before, and warns of pools without one.
    pub(super) fn try_all_cells(&mut self, ctx: &mut Context<Self>) {
        self.pools.iter_mut().for_each(|pool| pool.cell = None);
        self.probes.told.clear();
        self.try_cells(&self.pools.ids(), ctx);
        let names = self.names_of_pools(|cell| cell.trial.mode == SandboxMode::Off);
        if !names.is_empty() {
            warn!(self.log, "query servers run without a cell";
                  "pool" => names,
                  "effect" => "their functions may do whatever the service may: read its files and \
                               passwords, end it, use the network",
                  "remedy" => "remove sandbox = \"off\"; grant what a command needs with read_paths, env and \
                               network");
        }
    }

    /// Tests the cells of those pools that are new or have changed.
    pub(super) fn try_cells(&mut self, pools: &[PoolId], ctx: &mut Context<Self>) {
        if !self.settings.cells.are_tried() || self.shutting_down {
            return;
        }
        let mut new = Vec::new();
        for id in pools {
            let cell = self.cell_of(*id, &mut new);
            self.pools.at_mut(*id).cell = cell;
        }
        if new.is_empty() {
            return;
        }
        let (spawner, manager) = (self.spawner.clone(), ctx.address());
        let trials = async move {
            for cell in new {
                cell.set_found(cell.trial.run(&spawner).await);
                manager.tell(CellTried(cell));
            }
        };
        self.run_probe(trials, ctx);
    }

    /// Returns the cell of a pool, which may be shared with another pool, and adds it to `new` if no pool has it yet.
    fn cell_of(&self, id: PoolId, new: &mut Vec<Arc<TriedCell>>) -> Option<Arc<TriedCell>> {
        let pool = self.pools.at(id);
        let trial = self
            .settings
            .languages
            .get(&pool.language)?
            .cell_trial(&pool.cell_terms)?;
        let mut known = self.pools.iter().filter_map(|(_, pool)| pool.cell.as_ref());
        if let Some(cell) = known.find(|cell| cell.trial == trial) {
            return Some(Arc::clone(cell));
        }
        let cell = TriedCell::new(trial);
        new.push(Arc::clone(&cell));
        Some(cell)
    }

    /// Returns the names of the pools whose cell is `wanted`.
    fn names_of_pools(&self, wanted: impl Fn(&Arc<TriedCell>) -> bool) -> String {
        let pools = self.pools.iter();
        let named = pools.filter(|(_, pool)| pool.cell.as_ref().is_some_and(&wanted));
        let names: Vec<&str> = named.map(|(_, pool)| &*pool.name).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::sync::Mutex;

    use serde_json::json;
    use slog::{Logger, OwnedKVList, Record, o};

    use super::*;
    use crate::actors::language::Registry;
    use crate::actors::proc_manager::GetStatus;
    use crate::actors::proc_manager::{ProcManager, ReloadConfig};
    use crate::app::settings::manager_settings;
    use crate::config::{Config, LanguageCommand, PoolConfig};
    use crate::messages::pools::{PoolOrder, ReconfigurePool};
    use crate::otp::Stop;
    use crate::query_server::status::{PoolStatus, SandboxStatus};
    use child::Spawner;
    use child::cell::terms::CellTerms;
    use child::cell::trial::CellTrial;
    use test_support::eventually;

    /// Replaces `settee`: records its calls, and reports one missing layer of external commands.
    const STAND_IN: &str = r#"#!/bin/sh
        echo "$2" >>"$0.calls"
        case $2 in
            --report-own) echo '{"held":["files","network"],"missing":{}}';;
            *) echo '{"held":["files"],"missing":{"cpu":"no cgroup"}}';;
        esac
    "#;

    #[derive(Clone, Default)]
    struct Warnings(Arc<Mutex<Vec<String>>>);

    impl slog::Drain for Warnings {
        type Ok = ();
        type Err = slog::Never;

        fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), slog::Never> {
            let mut pools = PoolNames(String::new());
            slog::KV::serialize(&record.kv(), record, &mut pools).ok();
            let text = format!("{}: {}", record.msg(), pools.0);
            self.0.lock().unwrap().push(text);
            Ok(())
        }
    }

    struct PoolNames(String);

    impl slog::Serializer for PoolNames {
        fn emit_arguments(
            &mut self,
            key: slog::Key,
            value: &std::fmt::Arguments<'_>,
        ) -> slog::Result {
            if key == "pool" {
                self.0 = value.to_string();
            }
            Ok(())
        }
    }

    struct World {
        _folder: tempfile::TempDir,
        program: PathBuf,
        config: Config,
        warnings: Warnings,
        manager: Addr<ProcManager>,
    }

    impl World {
        fn start(config: Config) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("settee");
            fs::write(&program, STAND_IN).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
            let warnings = Warnings::default();
            let log = Logger::root(warnings.clone(), o!());
            let settings =
                manager_settings(&Arc::new(config.clone()), &program, &Registry::new(), &[]);
            let spawner = Spawner::start().unwrap();
            let manager = ProcManager::new(Arc::new(settings), spawner, &log).start();
            Self {
                _folder: folder,
                program,
                config,
                warnings,
                manager,
            }
        }

        async fn pool(&self, name: &str) -> PoolStatus {
            let pool = Some(name.to_owned());
            let mut status = self
                .manager
                .send(GetStatus { pool })
                .await
                .unwrap()
                .status();
            status.pools.remove(0)
        }

        /// Waits until the layers of a pool are known.
        async fn sandbox(&self, name: &str) -> SandboxStatus {
            eventually("layers", async || {
                let sandbox = self.pool(name).await.sandbox;
                sandbox.is_some_and(|sandbox| !sandbox.layers.is_empty())
            })
            .await;
            self.pool(name).await.sandbox.unwrap()
        }

        fn calls(&self) -> String {
            let path = format!("{}.calls", self.program.display());
            fs::read_to_string(path).unwrap_or_default()
        }

        fn warned(&self, text: &str) -> usize {
            let warnings = self.warnings.0.lock().unwrap();
            warnings.iter().filter(|warning| **warning == text).count()
        }

        async fn stop(self) {
            self.manager.send(Stop { now: true }).await.unwrap();
            eventually("end", async || !self.manager.connected()).await;
        }
    }

    /// JavaScript, and two pools of a command.
    fn config() -> Config {
        let mut config = Config::default();
        let python = LanguageCommand::Command("sh server".into());
        config.languages.insert("python".into(), python);
        let pool = PoolConfig {
            language: Some("python".into()),
            ..PoolConfig::default()
        };
        config.pools.insert("reports".into(), pool);
        config
    }

    #[actix_rt::test]
    async fn each_cell_is_tested_once_and_its_missing_layers_are_shown_and_logged_once() {
        let world = World::start(config());
        let python = world.sandbox("python").await;
        assert_eq!(python.mode, "standard");
        assert_eq!(python.layers, ["files"]);
        assert_eq!(python.missing["cpu"], "no cgroup");
        assert_eq!(world.sandbox("reports").await, python);
        let javascript = world.sandbox("javascript").await;
        assert_eq!(javascript.layers, ["files", "network"]);
        assert!(javascript.missing.is_empty());
        // Mango runs inside the service.
        assert_eq!(world.pool("query").await.sandbox, None);
        let mut calls: Vec<_> = world.calls().lines().map(str::to_owned).collect();
        calls.sort();
        assert_eq!(calls, ["--report", "--report-own"]);
        let missing = "layers of a cell are missing: python, reports";
        assert_eq!(world.warned(missing), 1);
        // A limit set by a request makes another cell, which lacks the same layer.
        let settings = json!({"memory_max": "64MiB"}).as_object().cloned().unwrap();
        let order = PoolOrder {
            name: "reports".into(),
            settings,
            dry_run: false,
        };
        world
            .manager
            .send(ReconfigurePool(order))
            .await
            .unwrap()
            .unwrap();
        world.sandbox("reports").await;
        assert_eq!(world.calls().lines().count(), 3);
        assert_eq!(world.warned("layers of a cell are missing: reports"), 0);
        world.stop().await;
    }

    #[actix_rt::test]
    async fn a_cell_that_no_pool_has_any_more_is_not_reported() {
        let world = World::start(config());
        let cell = TriedCell::new(CellTrial::own(&CellTerms::default(), &world.program));
        cell.set_found(Err("no namespaces".to_owned()));
        world.manager.send(CellTried(cell)).await.unwrap();
        assert_eq!(world.warned("layers of a cell are missing: "), 0);
        world.stop().await;
    }

    #[actix_rt::test]
    async fn pools_without_a_cell_are_named_and_nothing_is_tested_for_them() {
        let mut config = config();
        config.query_server_config.cell.sandbox = Some(SandboxMode::Off);
        let world = World::start(config);
        let sandbox = world.pool("python").await.sandbox.unwrap();
        assert_eq!((sandbox.mode.as_str(), sandbox.layers.len()), ("off", 0));
        let warning = "query servers run without a cell: javascript, python, reports";
        eventually("a warning", async || world.warned(warning) == 1).await;
        assert_eq!(world.calls(), "");
        world.stop().await;
    }

    #[actix_rt::test]
    async fn a_reload_tests_the_cells_of_the_new_configuration() {
        let mut world = World::start(config());
        world.sandbox("python").await;
        world.config.query_server_config.cell.sandbox = Some(SandboxMode::Strict);
        let settings = manager_settings(
            &Arc::new(world.config.clone()),
            &world.program,
            &Registry::new(),
            &[],
        );
        let reload = ReloadConfig(Arc::new(settings));
        world.manager.send(reload).await.unwrap();
        assert_eq!(world.sandbox("python").await.mode, "strict");
        world.stop().await;
    }
}
