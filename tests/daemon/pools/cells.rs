//! Cells of a running service: no request loosens one, and a change replaces its processes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::support::{add, reconfigure};
use crate::support::daemon::{
    Service, configure, directory, pid_exists, serve_command, wait_until,
};
use crate::support::http_client::Web;

const CLOSED: [(&str, &str); 7] = [
    ("sandbox", "off"),
    ("reuse", "any"),
    ("user", "root"),
    ("read_paths", "/"),
    ("env", "LD_PRELOAD=/tmp/x.so"),
    ("network", "true"),
    ("system_calls_allowed", "ptrace"),
];

#[test]
fn no_request_loosens_a_cell_not_even_an_administrators() {
    let web = Web::start("");
    let mut client = web.service.connect();
    add(&mut client, "reports", &json!({}));
    for (key, value) in CLOSED {
        for section in ["query_server_config", "pools.reports"] {
            let path = format!("/_node/_local/_config/{section}/{key}");
            let refused = web.send("PUT", &path, &json!(value).to_string());
            assert_eq!(refused.status, 403, "{path}: {}", refused.body);
            assert!(
                refused.body.contains("what a query server may do"),
                "{}",
                refused.body
            );
        }
        let refused = web.send("PUT", "/_pools/reports", &json!({key: value}).to_string());
        assert_eq!(refused.status, 400, "{key}: {}", refused.body);
        let error = client
            .operator
            .error(&reconfigure("reports", &json!({key: value})));
        let reason = error["reason"].as_str().unwrap();
        assert!(reason.contains("only in files"), "{error}");
        let more = reconfigure("more", &json!({"language": "python", key: value}));
        assert_eq!(client.operator.error(&more)["name"], "bad_request");
    }
    // An operator may set the limits of a cell.
    client.operator.ok(&reconfigure(
        "reports",
        &json!({"memory_max": "64MiB", "cpu_max": 50}),
    ));
    assert_eq!(client.pool("reports")["settings"]["memory_max"], 64 << 20);
    drop(client);
    web.service.stop();
}

#[test]
fn a_reload_that_changes_a_cell_replaces_existing_processes() {
    let extra = |limit: u32| {
        format!(
            "[pools.javascript]\nsandbox = \"standard\"\ninit_size = 1\nprocesses_max = {limit}\n"
        )
    };
    let service = Service::start(&extra(7));
    let mut client = service.connect();
    client.wait_for_pool("javascript", &[("free", 1)]);
    let pid = |pool: Value| pool["procs"][0]["os_pid"].as_u64();
    let before = pid(client.pool("javascript"));
    // Any other change leaves the processes running.
    configure(
        service.directory.path(),
        &format!("{}max_age = 3600\n", extra(7)),
    );
    client.operator.reload_config();
    assert_eq!(pid(client.pool("javascript")), before);
    configure(service.directory.path(), &extra(8));
    client.operator.reload_config();
    client.wait_for_pool("javascript", &[("free", 1), ("stopping", 0)]);
    assert_ne!(pid(client.pool("javascript")), before);
    drop(client);
    service.stop();
}

#[test]
fn pools_without_a_cell_are_named_in_the_log() {
    let service = Service::start("[pools.python]\nsandbox = \"off\"\n");
    let event = "query servers run without a cell";
    service.wait_for_log(event);
    let log = service.log();
    let warning = log.lines().find(|line| line.contains(event)).unwrap();
    assert!(
        warning.contains("python") && !warning.contains("javascript"),
        "{warning}"
    );
    let status = service.connect().pool("python");
    assert_eq!(status["sandbox"]["mode"], "off");
    service.stop();
}

#[test]
fn a_command_in_a_cell_that_closes_a_pipe_but_keeps_running_is_detected_at_once() {
    for (closes, end) in [
        ("<&-", "closed standard input"),
        (">&-", "closed standard output"),
    ] {
        let directory = directory();
        let script = directory.path().join("closes.sh");
        let text = format!("read line\necho true\nread line\nexec {closes}\nsleep 1000\n");
        fs::write(&script, text).unwrap();
        // With a timeout this long, only the closed pipe can fail the prompt.
        let extra = format!(
            "[couchdb]\nos_process_timeout = 3600000\n[query_servers]\ncloses = \"sh {}\"\n\
             [pools.closes]\nsandbox = \"standard\"\n",
            script.display()
        );
        let service = Service::start_in(directory, &extra);
        let mut client = service.connect();
        let proc = client.get_proc("closes");
        let prompt = json!({"call": "prompt", "proc": proc, "data": ["reset"]});
        let error = client.error(&prompt);
        assert!(error["reason"].as_str().unwrap().contains(end), "{error}");
        drop(client);
        service.stop();
    }
}

/// Answers every prompt with the names of its environment variables.
const NAMES: &str = r#"
while read -r line; do
    case $line in
        *reset*) echo true;;
        *) echo "[$(env | sed 's/=.*//; s/.*/"&"/' | paste -sd, -)]";;
    esac
done
"#;

#[test]
fn a_command_gets_the_usual_and_the_configured_environment_variables() {
    let directory = directory();
    let script = directory.path().join("names.sh");
    fs::write(&script, NAMES).unwrap();
    let extra = format!(
        "[query_servers]\nnames = \"sh {}\"\n[pools.names]\nsandbox = \"standard\"\nenv = [\"MODE=a,b\", \"PASSED_ON\"]\n",
        script.display()
    );
    let config = configure(directory.path(), &extra);
    let mut command = serve_command(&config);
    command.env("PASSED_ON", "1").env("KEPT_BACK", "1");
    let service = Service::start_command(directory, command);
    let mut client = service.connect();
    let proc = client.get_proc("names");
    let names = client.prompt(&proc, json!(["names"]));
    let names: Vec<&str> = names
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for name in ["PATH", "MODE", "PASSED_ON"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let is_ours = |name: &&str| name.starts_with("SETTEE") || name.starts_with("CARGO");
    assert!(!names.iter().any(is_ours), "{names:?}");
    assert!(
        !names.contains(&"KEPT_BACK") && !names.contains(&"HOME"),
        "{names:?}"
    );
    assert!(client.ret_proc(&proc));
    drop(client);
    service.stop();
}

/// The existing control groups of a cell.
fn groups_of(launcher: u64) -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let folders = own.lines().filter_map(|line| {
        let (controller, path) = line.split_once(':')?.1.split_once(':')?;
        let above = Path::new("/sys/fs/cgroup").join(controller);
        Some(above.join(path.trim_start_matches('/')))
    });
    let all = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let is_its_own = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("settee-cell-") && name.ends_with(&format!("-{launcher}"))
    };
    all.map(|entry| entry.path()).filter(is_its_own).collect()
}

#[test]
fn control_groups_are_removed_at_shutdown_and_after_a_kill_at_the_next_start() {
    let extra = "[pools.python]\nsandbox = \"standard\"\nmemory_max = \"64MiB\"\ninit_size = 1\n";
    let cell_of = |service: &Service| {
        let mut client = service.connect();
        let mut cell = None;
        wait_until("a process in a cell", || {
            cell = client.pool("python")["procs"][0]["os_pid"].as_u64();
            cell.is_some()
        });
        cell.unwrap()
    };
    let service = Service::start(extra);
    let first = cell_of(&service);
    if groups_of(first).is_empty() {
        println!("skipped: control groups cannot be created here");
        return service.stop();
    }
    let directory = service.stop_and_keep();
    assert_eq!(groups_of(first), Vec::<PathBuf>::new());
    let service = Service::start_in(directory, extra);
    let second = cell_of(&service);
    let directory = service.kill_and_keep();
    wait_until("the end of the cell", || !pid_exists(second));
    let service = Service::start_in(directory, extra);
    assert_eq!(groups_of(second), Vec::<PathBuf>::new());
    service.stop();
}

#[test]
fn a_timeout_caused_by_a_throttled_cell_names_cpu_max() {
    let directory = directory();
    let script = directory.path().join("child.sh");
    let text = "while read -r line; do case $line in *map_doc*) while :; do :; done;; esac; echo true; done";
    fs::write(&script, text).unwrap();
    let path = script.display();
    let extra = format!(
        "[query_servers]\nheld = \"sh {path}\"\nfree = \"sh {path}\"\n\
         [pools.held]\nsandbox = \"standard\"\ncpu_max = 10\ninit_size = 1\n\
         [pools.free]\nsandbox = \"standard\"\ncpu_max = 0\ninit_size = 1\n"
    );
    let config = configure(directory.path(), &extra);
    let service = Service::start_command(directory, serve_command(&config));
    let mut client = service.connect();
    let mut first = None;
    wait_until("a process in a cell", || {
        first = client.pool("held")["procs"][0]["os_pid"].as_u64();
        first.is_some()
    });
    let is_held = groups_of(first.unwrap())
        .iter()
        .any(|group| group.join("cpu.stat").exists());
    for (lang, names_key) in [("held", is_held), ("free", false)] {
        let call = json!({"id": 1, "call": "map_docs", "lang": lang, "funs": ["f"],
                          "docs": [{"_id": "a"}], "timeout_ms": 700});
        let error = client.error(&call);
        let reason = error["reason"].as_str().unwrap();
        assert_eq!(error["name"], "timeout", "{error}");
        assert_eq!(
            reason.contains("its pool's cpu_max has throttled"),
            names_key,
            "{error}"
        );
    }
    service.stop();
}

#[test]
fn a_function_that_exceeds_a_limit_of_its_cell_gets_an_error_with_the_key() {
    let directory = directory();
    let script = directory.path().join("child.sh");
    let text = "while read -r line; do case $line in \
        *much*) x=$(head -c 200000000 /dev/zero | tr '\\0' x);; \
        *many*) for n in 1 2 3 4 5 6 7 8; do sleep 60 & done;; *) ;; esac; echo true; done";
    fs::write(&script, text).unwrap();
    let extra = format!(
        "[query_servers]\nshell = \"sh {}\"\n[pools.shell]\nsandbox = \"standard\"\n\
         memory_max = \"64MiB\"\nprocesses_max = 6\ninit_size = 1\n",
        script.display()
    );
    let config = configure(directory.path(), &extra);
    let service = Service::start_command(directory, serve_command(&config));
    let mut client = service.connect();
    let mut first = None;
    wait_until("a process in a cell", || {
        first = client.pool("shell")["procs"][0]["os_pid"].as_u64();
        first.is_some()
    });
    if groups_of(first.unwrap()).is_empty() {
        println!("skipped: control groups cannot be created here");
    } else {
        for (id, name, key) in [
            (
                "much",
                "out_of_memory",
                "its pool's memory_max allows, 67108864 bytes",
            ),
            (
                "many",
                "os_process_error",
                "its pool's processes_max allows, 6",
            ),
        ] {
            let call = json!({"id": 1, "call": "map_docs", "lang": "shell", "funs": ["f"],
                              "docs": [{"_id": id}]});
            let error = client.error(&call);
            let class = (&error["name"], &error["fault"], &error["retry"]);
            assert_eq!(
                class,
                (&json!(name), &json!("client"), &json!(false)),
                "{error}"
            );
            assert!(error["reason"].as_str().unwrap().contains(key), "{error}");
        }
    }
    drop(client);
    service.stop();
}
