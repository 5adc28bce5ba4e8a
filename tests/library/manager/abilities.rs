//! How a pool probes what a query server can do: once, in parallel with loans, and without affecting them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use settee::languages::command::CommandLanguage;
use settee::messages::proc_manager::GetProcError;
use settee::query_server::abilities::{Abilities, Ability};
use settee::query_server::language::LanguageName;
use settee_testkit::{TestPool, TestPoolBuilder, eventually};
use tempfile::TempDir;

/// A query server that records its start, and runs `on_ddoc` for each `ddoc` command.
struct Server {
    folder: TempDir,
}

impl Server {
    fn new(on_ddoc: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            r#"echo $$ >>'{started}'
while read -r line; do case "$line" in
*ddoc*) {on_ddoc};;
*) echo true;;
esac; done
"#,
            started = folder.path().join("started").display()
        );
        fs::write(folder.path().join("server.sh"), script).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> String {
        format!("sh {}", self.path("server.sh").display())
    }

    fn pool(&self) -> TestPoolBuilder {
        TestPool::builder().command("mine", &self.command())
    }

    fn started(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn is_alive(pid: &str) -> bool {
    // A zombie has no command line.
    fs::read(Path::new("/proc").join(pid).join("cmdline")).is_ok_and(|line| !line.is_empty())
}

fn is_unable(error: &GetProcError) -> bool {
    matches!(
        error,
        GetProcError::Unable {
            ability: Ability::Ddoc,
            ..
        }
    )
}

#[actix_rt::test]
async fn a_server_that_learns_design_documents_is_probed_once_and_then_taught() {
    let server = Server::new("echo true");
    let pool = server.pool().start();
    for (number, ddoc) in ["_design/a", "_design/b"].into_iter().enumerate() {
        let mut client = pool.client("1");
        client.takes(pool.ddoc("db", ddoc)).await;
        client.returns().await;
        assert_eq!(pool.status().await.abilities["ddoc"], Some(true));
        // The probe's child, and the one process of the pool.
        assert_eq!(server.started().len(), 2, "at document {number}");
    }
    assert_eq!(pool.started().len(), 1);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn concurrent_requests_wait_for_one_probe() {
    let server = Server::new("exit 1");
    let pool = server.pool().start();
    let mut clients = Vec::new();
    for number in 0..20 {
        let mut client = pool.client(&number.to_string());
        client.asks(pool.ddoc("db", "_design/a"));
        clients.push(client);
    }
    for client in &mut clients {
        assert!(is_unable(&client.answer().await.unwrap_err()));
    }
    assert_eq!(server.started().len(), 1);
    assert!(pool.started().is_empty());
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn loans_continue_while_a_probe_hangs() {
    let server = Server::new("sleep 600");
    let pool = server.pool().timeout(Duration::from_secs(3)).start();
    let mut shower = pool.client("show");
    shower.asks(pool.ddoc("db", "_design/a"));
    eventually("the probe's child runs", async || {
        server.started().len() == 1
    })
    .await;
    let mut viewer = pool.client("view");
    viewer.takes(pool.any()).await;
    assert_eq!(viewer.prompts("[\"reset\"]").await.as_deref(), Ok("true"));
    viewer.returns().await;
    // A probe that times out proves nothing: the process is taught, and that fails.
    let error = shower.answer().await.unwrap_err();
    assert!(!is_unable(&error), "{error}");
    assert_eq!(error.class().phase, "teach", "{error}");
    assert_eq!(pool.status().await.abilities["ddoc"], None);
    pool.assert_quiet().await;
    for pid in server.started() {
        eventually("no child is left", async || !is_alive(&pid)).await;
    }
}

#[actix_rt::test]
async fn a_manager_that_stops_kills_the_children_of_its_probes() {
    let server = Server::new("sleep 600");
    let pool = server.pool().timeout(Duration::from_secs(600)).start();
    let mut client = pool.client("show");
    client.asks(pool.ddoc("db", "_design/a"));
    eventually("the probe's child runs", async || {
        server.started().len() == 1
    })
    .await;
    pool.stop_at_once().await;
    // The child has been killed; the system may need time to remove it.
    let child = &server.started()[0];
    eventually("the probe's child is gone", async || !is_alive(child)).await;
    assert_eq!(client.answer().await, Err(GetProcError::ShuttingDown));
}

#[actix_rt::test]
async fn a_client_that_dies_during_its_probe_leaves_no_process_behind() {
    let server = Server::new("echo true");
    let pool = server.pool().start();
    let mut client = pool.client("show");
    client.asks(pool.ddoc("db", "_design/a"));
    client.dies();
    eventually("the probe is done", async || {
        pool.status().await.abilities["ddoc"] == Some(true)
    })
    .await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_reload_probes_again() {
    let without = Server::new("exit 1");
    let with = Server::new("echo true");
    let mut pool = without.pool().start();
    let mut client = pool.client("show");
    assert!(is_unable(
        &client.is_refused(pool.ddoc("db", "_design/a")).await
    ));
    let language = CommandLanguage::new(&with.command());
    pool.reconfigure(|settings| settings.languages.register("mine", language))
        .await;
    assert_eq!(pool.status().await.abilities["ddoc"], None);
    client.takes(pool.ddoc("db", "_design/a")).await;
    client.returns().await;
    assert_eq!(pool.status().await.abilities["ddoc"], Some(true));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_command_that_cannot_be_started_is_reported_as_a_failed_start() {
    let pool = TestPool::builder()
        .command("mine", "/no/such/program")
        .start();
    let mut client = pool.client("show");
    let error = client.is_refused(pool.ddoc("db", "_design/a")).await;
    assert!(matches!(error, GetProcError::SpawnFailed { .. }), "{error}");
    pool.assert_quiet().await;
}

/// Abilities that a language does not declare are refused without a process.
#[actix_rt::test]
async fn declared_abilities_are_trusted() {
    struct Declared(CommandLanguage);

    impl settee::actors::language::Language for Declared {
        fn describe(&self) -> String {
            self.0.describe()
        }
        fn abilities(&self) -> Abilities {
            Abilities::declared(&[Ability::Reduce])
        }
        fn start(
            &self,
            context: settee::actors::language::StartContext,
        ) -> futures_util::future::LocalBoxFuture<
            'static,
            Result<settee::messages::process::ProcessRef, settee::messages::opener::StartError>,
        > {
            self.0.start(context)
        }
    }

    let server = Server::new("echo true");
    let language = Declared(CommandLanguage::new(&server.command()));
    let pool = TestPool::builder().language("mine", language).start();
    let mut client = pool.client("show");
    assert!(is_unable(
        &client.is_refused(pool.ddoc("db", "_design/a")).await
    ));
    let caller = pool.caller();
    let mine = LanguageName::new("Mine");
    assert_eq!(caller.require(&mine, Ability::Reduce).await, Ok(()));
    assert!(caller.require(&mine, Ability::IndexDoc).await.is_err());
    let unknown = caller
        .require(&LanguageName::new("other"), Ability::Reduce)
        .await;
    assert_eq!(
        unknown,
        Err(GetProcError::UnknownQueryLanguage("other".into()))
    );
    drop(caller);
    assert!(server.started().is_empty());
    pool.assert_quiet().await;
}
