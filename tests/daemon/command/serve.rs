//! `settee serve` as a daemon: startup, signals, the socket, shutdown.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use serde_json::{Value, json};

use crate::support::daemon::{
    DEADLINE, Order, Service, assert_nothing_runs_for, call_at_once, configure, directory,
    pid_exists, refused, refused_command, serve_command, socket_of, wait_until,
};
use crate::support::program::SETTEE;
use crate::support::refused_calls::without_watches_from;

#[test]
fn the_socket_is_private_to_its_owner_and_removed_at_shutdown() {
    let service = Service::start("");
    let socket = service.socket();
    let file = fs::symlink_metadata(&socket).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.mode() & 0o777, 0o600);
    let directory = fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!(directory.mode() & 0o777, 0o700, "the service created it");
    service.stop();
}

#[test]
fn a_second_service_on_the_same_socket_is_refused_and_the_first_continues() {
    let service = Service::start("");
    let config = service.path("settee.toml");
    let (status, complaint) = refused(&config);
    assert_eq!(status, Some(75), "{complaint}");
    assert!(
        complaint.contains("another settee is running"),
        "{complaint}"
    );
    let socket = service.socket().display().to_string();
    assert!(complaint.contains(&socket), "{complaint}");
    assert_eq!(service.connect().ok(&call_at_once(1)), false);
    service.stop();
}

#[cfg(target_os = "linux")]
#[test]
fn a_service_that_cannot_print_its_addresses_shuts_down_cleanly_with_74() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = serve_command(&config).stdout(full).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(74), "{complaint}");
    assert!(!complaint.contains("panicked"), "{complaint}");
    assert!(
        complaint.contains("settee: standard output: "),
        "{complaint}"
    );
    assert!(!socket_of(directory.path()).exists());
}

#[test]
fn a_program_without_epoll_watches_names_the_limit_and_exits_with_75() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let mut status = std::process::Command::new(SETTEE);
    status.args(["status", "--socket", "/nowhere"]);
    for mut command in [serve_command(&config), status] {
        let (code, complaint) = without_watches_from(0, || refused_command(&mut command));
        assert_eq!(code, Some(75), "{complaint}");
        let limit = format!(
            "user {} are used up (sysctl fs.epoll.max_user_watches): end programs",
            rustix::process::getuid().as_raw()
        );
        assert!(complaint.contains(&limit), "{complaint}");
        assert!(!complaint.contains("panicked"), "{complaint}");
    }
}

#[test]
fn exactly_one_of_several_services_started_together_runs() {
    let directory = directory();
    let config = configure(directory.path(), "");
    fs::create_dir(directory.path().join("run")).unwrap();
    fs::set_permissions(directory.path().join("run"), Permissions::from_mode(0o700)).unwrap();
    drop(UnixListener::bind(socket_of(directory.path())).unwrap());
    let start = || {
        let mut command = serve_command(&config);
        command.stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let mut all: Vec<_> = (0..6).map(|_| start()).collect();
    wait_until("five refused services", || {
        let ended = all.iter_mut().filter_map(|child| child.try_wait().unwrap());
        let codes: Vec<_> = ended.map(|status| status.code()).collect();
        assert!(codes.iter().all(|code| *code == Some(75)), "{codes:?}");
        codes.len() == 5
    });
    let mut lasting = all
        .iter_mut()
        .filter_map(|child| match child.try_wait().unwrap() {
            None => Some(child),
            Some(_) => None,
        });
    let left = lasting.next().unwrap();
    drop(UnixStream::connect(socket_of(directory.path())).unwrap());
    crate::support::daemon::signal(left.id(), "TERM");
    assert_eq!(crate::support::daemon::wait_for_exit(left), Some(0));
    assert!(!socket_of(directory.path()).exists());
    assert_nothing_runs_for(directory.path());
}

#[test]
fn a_stale_socket_is_replaced() {
    let directory = directory();
    let socket = socket_of(directory.path());
    fs::create_dir(socket.parent().unwrap()).unwrap();
    fs::set_permissions(socket.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let service = Service::start_in(directory, "");
    assert_eq!(service.connect().ok(&call_at_once(1)), false);
    service.stop();
}

#[test]
fn a_foreign_file_at_the_socket_path_is_left_alone() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let socket = socket_of(directory.path());
    fs::create_dir(socket.parent().unwrap()).unwrap();
    fs::set_permissions(socket.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
    fs::write(&socket, "precious").unwrap();
    let (status, complaint) = refused(&config);
    assert_eq!(status, Some(78), "{complaint}");
    assert!(complaint.contains("is not a socket"), "{complaint}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();
    fs::create_dir(&socket).unwrap();
    assert_eq!(refused(&config).0, Some(78));
    fs::remove_dir(&socket).unwrap();
    std::os::unix::fs::symlink("/dev/null", &socket).unwrap();
    assert_eq!(refused(&config).0, Some(78));
}

#[test]
fn a_directory_that_others_can_enter_is_refused() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let run = directory.path().join("run");
    fs::create_dir(&run).unwrap();
    for mode in [0o755, 0o711, 0o701, 0o710] {
        fs::set_permissions(&run, Permissions::from_mode(mode)).unwrap();
        let (status, complaint) = refused(&config);
        assert_eq!(status, Some(77), "{complaint}");
        assert!(
            complaint.contains("others can enter the directory"),
            "{complaint}"
        );
        assert!(complaint.contains("chmod 0700"), "{complaint}");
    }
    assert!(!socket_of(directory.path()).exists());
}

#[test]
fn a_store_whose_directory_others_can_enter_is_refused_before_any_write() {
    let directory = directory();
    let data = directory.path().join("data");
    let config = configure(directory.path(), "");
    let refused = || {
        let mut command = serve_command(&config);
        command.env("SETTEE__STORE__PATH", data.join("settee.redb"));
        refused_command(&mut command)
    };
    fs::create_dir(&data).unwrap();
    for mode in [0o777, 0o755, 0o710] {
        fs::set_permissions(&data, Permissions::from_mode(mode)).unwrap();
        let (status, complaint) = refused();
        assert_eq!(status, Some(77), "{complaint}");
        for part in ["data: others can enter the directory", "chmod 0700"] {
            assert!(complaint.contains(part), "{complaint}");
        }
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&data, Some(54_321), None).unwrap();
        let (status, complaint) = refused();
        assert_eq!(status, Some(77), "{complaint}");
        assert!(complaint.contains("belongs to another user"), "{complaint}");
    }
}

#[test]
fn an_administrators_password_that_cannot_be_saved_is_a_configuration_error() {
    let directory = directory();
    let config = configure(directory.path(), "[server]\ntcp = \"127.0.0.1:0\"");
    // The password's folder is a file.
    fs::write(directory.path().join("run"), "").unwrap();
    let (status, complaint) = refused(&config);
    assert_eq!(status, Some(78), "{complaint}");
    assert!(complaint.contains("admin-password"), "{complaint}");
    assert!(
        complaint.contains("name an administrator in [admins]"),
        "{complaint}"
    );
}

#[test]
fn a_file_that_has_replaced_the_socket_is_not_removed() {
    let service = Service::start("");
    let socket = service.socket();
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "somebody else's").unwrap();
    service.signal("TERM");
    service.wait_for_log("stopped listening");
    wait_until("the end", || {
        crate::support::daemon::processes_of(service.directory.path()).is_empty()
    });
    assert_eq!(fs::read_to_string(&socket).unwrap(), "somebody else's");
}

#[test]
fn running_calls_finish_and_waiters_are_refused_at_shutdown() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1");
    let gate = service.path("gate");
    let mut busy = service.connect();
    let proc = busy.get_proc("python");
    busy.send(&json!({"id": 1, "call": "prompt", "proc": proc, "data": ["wait", gate]}));
    wait_until("the prompt", || service.path("gate.here").exists());
    let mut waiter = service.connect();
    waiter.send(&json!({"id": 1, "call": "get_proc", "lang": "python", "timeout_ms": 60_000}));
    let mut idle = service.connect();
    idle.ok(&call_at_once(1));
    idle.wait_for_pool("python", &[("waiting", 1)]);
    service.signal("TERM");
    idle.assert_closed();
    let refusal = waiter.reply();
    assert_eq!(refusal["error"]["name"], "shutting_down");
    assert_eq!(refusal["error"]["retry"], true);
    waiter.assert_closed();
    assert!(
        UnixStream::connect(service.socket()).is_err(),
        "no client is accepted"
    );
    fs::write(gate, "").unwrap();
    assert_eq!(busy.reply(), json!({"id": 1, "ok": "waited"}));
    assert_eq!(busy.reply()["name"], "shutting_down");
    busy.assert_closed();
    service.exits_cleanly();
}

#[test]
fn a_holder_is_notified_of_each_process_at_shutdown() {
    let service = Service::start("");
    let mut holder = service.connect();
    let mut held = vec![holder.get_proc("python"), holder.get_proc("python")];
    let returned = holder.get_proc("python");
    holder.ok(&json!({"id": 9, "call": "ret_proc", "proc": returned}));
    service.signal("TERM");
    let mut notices = vec![holder.reply(), holder.reply()];
    for notice in &notices {
        assert_eq!(notice["name"], "shutting_down", "{notice}");
        let reason = notice["reason"].as_str().unwrap();
        assert!(reason.contains("shutting down"), "{reason}");
    }
    notices.sort_by_key(|notice| notice["down"].to_string());
    held.sort_by_key(ToString::to_string);
    let downs: Vec<_> = notices
        .iter()
        .map(|notice| notice["down"].clone())
        .collect();
    assert_eq!(json!(downs), json!(held));
    holder.assert_closed();
    service.exits_cleanly();
}

#[test]
fn calls_that_exceed_the_grace_period_are_cut_off() {
    let service = Service::start(
        "[server]\nshutdown_grace = \"300ms\"\n[couchdb]\nos_process_timeout = 60000",
    );
    let mut busy = service.connect();
    let proc = busy.get_proc("python");
    busy.send(&json!({"id": 1, "call": "prompt", "proc": proc, "data": ["never"]}));
    let mut idle = service.connect();
    idle.wait_for_pool("python", &[("used", 1)]);
    service.signal("TERM");
    idle.assert_closed();
    assert_eq!(busy.reply()["down"], proc);
    busy.assert_closed();
    service.exits_cleanly();
}

#[test]
fn a_second_signal_stops_the_service_at_once() {
    let service =
        Service::start("[server]\nshutdown_grace = 3600\n[couchdb]\nos_process_timeout = 3600000");
    let mut busy = service.connect();
    let proc = busy.get_proc("python");
    busy.send(&json!({"id": 1, "call": "prompt", "proc": proc, "data": ["never"]}));
    service.signal("TERM");
    service.wait_for_log("stopped listening");
    service.signal("INT");
    assert_eq!(busy.reply()["down"], proc);
    busy.assert_closed();
    service.exits_cleanly();
}

#[test]
fn children_that_ignore_signals_are_killed() {
    let stubborn = "trap '' TERM INT HUP; read line; echo true; while :; do sleep 600; done";
    let service = Service::start(&format!(
        "[query_servers]\nstubborn = \"sh -c {}\"\n[server]\nstop_grace = \"100ms\"",
        format_args!("\\\"{}\\\" TEST_DIRECTORY", stubborn)
    ));
    let mut client = service.connect();
    let got = client.ok(&json!({"id": 1, "call": "get_proc", "lang": "stubborn"}));
    let pid = got["os_pid"].as_u64().unwrap();
    assert!(client.ret_proc(got["proc"].as_str().unwrap()));
    service.stop();
    assert!(!pid_exists(pid));
}

#[test]
fn a_language_that_does_not_work_never_stops_the_service() {
    let service = Service::start("[query_servers]\njavascript = \"/no/such/couchjs\"");
    let mut client = service.connect();
    let error = client.error(&json!({"id": 1, "call": "get_proc", "lang": "javascript"}));
    assert_eq!(error["name"], "os_process_error");
    let proc = client.get_proc("python");
    assert_eq!(client.prompt(&proc, json!(["echo", 1])), 1);
    service.stop();
}

fn changes(value: &Value) -> Vec<(String, Option<String>, Option<String>)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = value.as_array().unwrap().iter();
    list.map(|change| {
        (
            change["key"].as_str().unwrap().into(),
            text(&change["old"]),
            text(&change["new"]),
        )
    })
    .collect()
}

#[test]
fn a_reload_reports_its_changes_and_they_take_effect() {
    let service = Service::start("");
    let mut client = service.connect();
    let changed = client.operator.reload_config();
    assert_eq!(changed, json!([]), "nothing has changed");
    let command = "python = \"sh ";
    let new = "[query_servers]\nadded = \"cat\"\n[query_server_config]\nos_process_limit = 7";
    let file = configure(service.directory.path(), new);
    assert!(fs::read_to_string(file).unwrap().contains(command));
    let answer = client.operator.reload_config();
    let expected = vec![
        (
            "os_process_limit".to_owned(),
            Some("100".to_owned()),
            Some("7".to_owned()),
        ),
        (
            "os_process_soft_limit".to_owned(),
            Some("100".to_owned()),
            Some("7".to_owned()),
        ),
        ("added".to_owned(), None, Some("cat".to_owned())),
    ];
    assert_eq!(changes(&answer), expected);
    assert_eq!(client.pool("python")["hard_limit"], 7);
    let proc = client.get_proc("added");
    assert_eq!(client.prompt(&proc, json!(["hi"])), json!(["hi"]));
    service.stop();
}

#[test]
fn a_reload_with_mistakes_changes_nothing_and_names_them() {
    let service = Service::start("");
    let mut client = service.connect();
    let bad = "[query_server_config]\nos_process_limit = \"many\"\nos_process_idle_limit = 7";
    configure(service.directory.path(), bad);
    let error = client.operator.error(&Order::reload_config());
    assert_eq!(error["name"], "bad_request");
    let reason = error["reason"].as_str().unwrap();
    assert!(
        reason.contains("os_process_limit") && reason.contains("settee.toml:"),
        "{reason}"
    );
    configure(
        service.directory.path(),
        "[query_server_config]\nos_process_limit = 7\n[log]\nformat = \"json\"",
    );
    let error = client.operator.error(&Order::reload_config());
    let reason = error["reason"].as_str().unwrap();
    assert!(reason.contains("[log] format cannot change"), "{reason}");
    assert_eq!(
        client.pool("python")["hard_limit"],
        100,
        "no part of the file was applied"
    );
    service.stop();
}

#[test]
fn hup_reloads_and_a_mistake_leaves_the_old_configuration_in_force() {
    let service = Service::start("");
    let mut client = service.connect();
    configure(service.directory.path(), "[no_such_section]\nx = 1");
    service.signal("HUP");
    service.wait_for_log("configuration was not reloaded, the old one stays in force");
    assert!(
        service.log().contains("no_such_section"),
        "{}",
        service.log()
    );
    configure(
        service.directory.path(),
        "[query_server_config]\nos_process_limit = 9",
    );
    service.signal("HUP");
    service.wait_for_log("configuration changed");
    client.wait_for_pool("python", &[("hard_limit", 9)]);
    service.stop();
}

#[test]
fn a_changed_command_replaces_the_processes() {
    let service = Service::start("[query_servers]\nother = \"cat\"");
    let mut client = service.connect();
    let got = client.ok(&json!({"id": 1, "call": "get_proc", "lang": "other"}));
    assert!(client.ret_proc(got["proc"].as_str().unwrap()));
    configure(
        service.directory.path(),
        "[query_servers]\nother = \"cat -u\"",
    );
    client.operator.reload_config();
    let again = client.ok(&json!({"id": 1, "call": "get_proc", "lang": "other"}));
    assert_ne!(again["os_pid"], got["os_pid"]);
    configure(service.directory.path(), "");
    client.operator.reload_config();
    let error = client.error(&json!({"id": 1, "call": "get_proc", "lang": "other"}));
    assert_eq!(error["name"], "unknown_query_language");
    service.stop();
}

#[test]
fn clients_beyond_the_limit_wait_to_be_accepted() {
    let service = Service::start("[server]\nmax_connections = 2");
    let (mut one, _two) = (service.connect(), service.connect());
    one.ok(&call_at_once(1));
    let mut three = service.connect();
    three.send(&call_at_once(3));
    service.wait_for_log("maximum number of clients reached");
    drop(one);
    assert_eq!(three.reply()["id"], 3, "the client was only delayed");
    let mut four = service.connect();
    four.send(&call_at_once(4));
    configure(service.directory.path(), "[server]\nmax_connections = 3");
    three.operator.reload_config();
    assert_eq!(four.reply()["id"], 4, "a raised limit applies at once");
    service.stop();
}

#[cfg(target_os = "linux")]
#[test]
fn a_service_that_is_killed_leaves_no_child_in_an_endless_loop() {
    let loops = "[query_servers]\nshell = \"sh -c 'read line; echo true; while :; do :; done'\"\n\
                 direct = \"sh -c 'read line; echo true; exec sleep 1000'\"\n";
    let service = Service::start(loops);
    let mut client = service.connect();
    let mut pids = Vec::new();
    for (id, lang) in ["shell", "direct", "javascript"].into_iter().enumerate() {
        let got = client.ok(&json!({"id": id, "call": "get_proc", "lang": lang}));
        pids.push(got["os_pid"].as_u64().unwrap());
        if lang == "javascript" {
            let proc = got["proc"].as_str().unwrap();
            client.prompt(proc, json!(["add_fun", "function(d) { while (true); }"]));
            client.send(&json!({"id": 9, "call": "prompt", "proc": proc, "data": ["map_doc", {}]}));
        }
    }
    service.signal("KILL");
    for pid in pids {
        // Its new parent may reap it late.
        wait_until("the child is gone", || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
    }
}

#[test]
fn a_service_with_few_descriptors_reserves_some_and_closes_idle_clients_for_new_ones() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let mut command = std::process::Command::new("sh");
    let limited = "ulimit -n 48; exec \"$0\" serve -c \"$1\"";
    command.args(["-c", limited, SETTEE]).arg(config);
    command.env("SETTEE__SERVER__HTTP", "off");
    let service = Service::start_command(directory, command);
    let crowd: Vec<_> = (0..60).map(|_| service.connect()).collect();
    let mut late = service.connect();
    let proc = late.get_proc("python");
    assert_eq!(late.prompt(&proc, json!(["echo", 1])), 1);
    drop(crowd);
    service.stop();
}

#[test]
fn the_service_manager_is_notified_of_readiness_and_of_the_stop() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let path = directory.path().join("notify");
    let notices = UnixDatagram::bind(&path).unwrap();
    notices.set_read_timeout(Some(DEADLINE)).unwrap();
    let next = || {
        let mut text = [0; 256];
        let length = notices.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length])
            .trim_end()
            .to_owned()
    };
    let mut command = serve_command(&config);
    command.env("NOTIFY_SOCKET", &path);
    let service = Service::start_command(directory, command);
    assert_eq!(next(), "READY=1");
    service.signal("HUP");
    assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next(), "READY=1");
    service.signal("TERM");
    assert_eq!(next(), "STOPPING=1");
    service.exits_cleanly();
}

#[test]
fn the_watchdog_gets_heartbeats_as_long_as_the_service_works() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let path = directory.path().join("notify");
    let notices = UnixDatagram::bind(&path).unwrap();
    notices.set_read_timeout(Some(DEADLINE)).unwrap();
    let next = || {
        let mut text = [0; 256];
        let length = notices.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length])
            .trim_end()
            .to_owned()
    };
    let mut command = serve_command(&config);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000");
    let service = Service::start_command(directory, command);
    assert_eq!(next(), "READY=1");
    for _ in 0..5 {
        assert_eq!(next(), "WATCHDOG=1");
    }
    service.signal("TERM");
    while next() != "STOPPING=1" {}
    service.exits_cleanly();
}
