//! Pool processes in cells: they start, end and report errors like those without.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use settee::config::SandboxMode;
use settee::languages::command::CommandLanguage;
use settee::messages::proc_manager::GetProcError;
use settee::messages::process::{ExitReport, Fault, PromptError};
use settee::query_server::cell::user::DEFAULT_RANGE;
use settee::query_server::cell::{Cell, CellSpec};
use settee::query_server::child::CommandSpec;
use settee_testkit::{PATIENCE, TestPool, TestPoolBuilder, eventually};

use crate::support::folder::open_folder;
use crate::support::metrics::number;
use crate::support::program::SETTEE;

/// Grace for a child to exit.
const GRACE: Duration = Duration::from_secs(20);

/// Returns a script that answers `true` to every line that `case` does not handle.
fn server(case: &str) -> String {
    format!("while read -r line; do case $line in {case} *) echo true;; esac; done")
}

fn in_cell(words: &[&str]) -> CommandSpec {
    CommandSpec {
        program: words[0].into(),
        arguments: words[1..].iter().map(Into::into).collect(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cell: Cell::Launched {
            launcher: SETTEE.into(),
            spec: CellSpec {
                mode: SandboxMode::Standard,
                user: None,
                user_range: Some(DEFAULT_RANGE),
                read_paths: Vec::new(),
                hidden_paths: Vec::new(),
                network: false,
                refused_ports: Vec::new(),
                system_calls: Vec::new(),
                memory_max: 512 << 20,
                processes_max: 64,
                cpu_max: 0,
            },
        },
    }
}

fn pool(words: &[&str]) -> TestPoolBuilder {
    TestPool::builder()
        .hard_limit(1)
        .settings(|settings| settings.stop_grace = GRACE)
        .language("celled", CommandLanguage::from_spec(in_cell(words)))
}

fn scripted(case: &str) -> TestPoolBuilder {
    pool(&["/bin/sh", "-c", &server(case)])
}

#[actix_rt::test]
async fn an_exit_during_a_prompt_is_reported_as_without_a_cell() {
    let exited = |exit: &str, status, stderr: &[&str]| {
        PromptError::Exited(ExitReport {
            exit: Some(exit.into()),
            status: Some(status),
            stderr: stderr.iter().map(|line| (*line).to_owned()).collect(),
            ..ExitReport::default()
        })
    };
    for (case, expected) in [
        (
            "*x*) echo why >&2; exit 3;;",
            exited("exited with status 3", 3, &["why"]),
        ),
        ("*x*) exit 0;;", exited("exited with status 0", 0, &[])),
        (
            "*x*) kill -TERM $$;;",
            exited("was killed by SIGTERM", 143, &[]),
        ),
        (
            "*x*) kill -KILL $$;;",
            exited("was killed by SIGKILL", 137, &[]),
        ),
        (
            "*x*) kill -SEGV $$;;",
            exited("was killed by SIGSEGV (it crashed)", 139, &[]),
        ),
    ] {
        let pool = scripted(case).start();
        let mut client = pool.client("1");
        client.takes(pool.any()).await;
        assert_eq!(client.prompts("[\"x\"]").await, Err(expected), "{case}");
        client.lets_go();
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn a_child_in_a_cell_can_exit_by_itself_at_end_of_input_and_on_sigterm() {
    let stays = format!("trap 'exit 0' TERM; {}; while :; do :; done", server(""));
    for (script, grace) in [(server(""), PATIENCE * 4), (stays, GRACE)] {
        let pool = pool(&["/bin/sh", "-c", &script])
            .settings(|settings| settings.stop_grace = grace)
            .start();
        let mut client = pool.client("1");
        client.takes(pool.any()).await;
        client.returns().await;
        let begun = Instant::now();
        pool.reload().await;
        pool.becomes("the child has exited", |pool| pool.stopping == 0)
            .await;
        // SIGTERM is sent after half of the grace, SIGKILL after all of it.
        assert!(begun.elapsed() < grace);
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn a_prompt_timeout_kills_the_whole_cell() {
    let script = "setsid sleep 987654 & while read -r line; do case $line in *x*) sleep 987654;; *) echo true;; esac; done";
    let pool = pool(&["/bin/sh", "-c", script])
        .timeout(Duration::from_secs(5))
        .start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let error = client.prompts("[\"x\"]").await.unwrap_err();
    assert!(matches!(error, PromptError::Timeout { .. }), "{error}");
    client.lets_go();
    let sleeps = || {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.filter(|line| line == b"sleep\x00987654\x00").count()
    };
    eventually("no process of the cell is left", async || sleeps() == 0).await;
    pool.assert_quiet().await;
}

async fn failing_start(words: &[&str]) -> String {
    let pool = pool(words).start();
    let error = pool.client("1").is_refused(pool.any()).await;
    let GetProcError::SpawnFailed { reason, .. } = error else {
        panic!("not a failed start: {error}");
    };
    pool.assert_quiet().await;
    reason
}

#[actix_rt::test]
async fn a_failed_start_in_a_cell_names_the_settings_that_may_help() {
    let reason = failing_start(&["/bin/sh", "-c", "echo no module >&2; exit 3"]).await;
    assert!(
        reason.contains(
            "exited with status 3 before its first answer, in a cell (sandbox = \"standard\""
        ),
        "{reason}"
    );
    for part in ["read_paths", "network", "env", "no module"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
}

#[actix_rt::test]
async fn a_missing_or_non_executable_program_is_reported_without_mention_of_the_cell() {
    let reason = failing_start(&["/no/such/program"]).await;
    assert_eq!(
        reason,
        "the program '/no/such/program' was not found; correct the command or install it"
    );
    let reason = failing_start(&["/etc/passwd"]).await;
    assert!(
        reason.contains("'/etc/passwd' cannot be executed"),
        "{reason}"
    );
}

#[actix_rt::test]
async fn a_failed_start_has_the_launchers_error_as_its_reason() {
    let folder = open_folder();
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let reason = failing_start(&[script.to_str().unwrap()]).await;
    let expected = format!(
        "was not started: the program '{}' cannot be executed in its cell: No such file",
        script.display()
    );
    assert!(reason.contains(&expected), "{reason}");
}

#[actix_rt::test]
async fn a_start_that_fails_because_of_the_machine_is_the_hosts_fault() {
    let folder = open_folder();
    let launcher = folder.path().join("launcher");
    let script = "#!/usr/bin/python3\nimport os, sys\n\
        to = int(sys.argv[sys.argv.index('--report-to') + 1])\n\
        os.write(to, b'{\"host_error\":\"it lacks a group\"}\\n')\nsys.exit(125)\n";
    fs::write(&launcher, script).unwrap();
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = in_cell(&["/bin/sh"]);
    if let Cell::Launched { launcher: used, .. } = &mut command.cell {
        *used = launcher;
    }
    let pool = TestPool::builder()
        .language("celled", CommandLanguage::from_spec(command))
        .start();
    let error = pool.client("1").is_refused(pool.any()).await;
    let GetProcError::SpawnFailed { reason, fault, .. } = error else {
        panic!("not a failed start: {error}");
    };
    assert_eq!(fault, Fault::Host, "{reason}");
    assert!(
        reason.contains("was not started: it lacks a group"),
        "{reason}"
    );
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn refused_system_calls_are_counted_by_pool_and_name() {
    let pool = scripted("*x*) unshare -U true 2>/dev/null; echo true;;").start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    assert!(client.prompts("[\"x\"]").await.is_ok());
    let name = "settee_sandbox_refusals_total";
    eventually("the refusal is counted", async || {
        number(&pool.metrics().await, name, &["celled", "unshare"]) == Some(1.0)
    })
    .await;
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn suspending_a_child_suspends_its_cell_and_both_resume_together() {
    use crate::support::program::descendants;
    use rustix::process::{Pid, Signal, kill_process};
    let pool = scripted("").start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let launcher = pool.started()[0].shared.os_pid.unwrap();
    let command = descendants(launcher)[1];
    let is_stopped = || {
        fs::read_to_string(format!("/proc/{command}/stat"))
            .unwrap()
            .contains(") T ")
    };
    let send =
        |signal| kill_process(Pid::from_raw(launcher.cast_signed()).unwrap(), signal).unwrap();
    send(Signal::STOP);
    eventually("the command is stopped", async || is_stopped()).await;
    let sent = client.sends("[1]");
    send(Signal::CONT);
    assert_eq!(sent.answer().await.as_deref(), Ok("true"));
    assert!(!is_stopped());
    client.returns().await;
    pool.assert_quiet().await;
}
