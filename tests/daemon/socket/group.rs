//! The Unix socket for a group: who may connect, and what they may do.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::{fs, io, thread};

use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::Value;
use settee::auth::rights::Right;
use settee::client::operator_socket;
use settee::operations::Route;
use strum::VariantArray;

use crate::support::daemon::{Client, Service, configure, directory, refused, socket_of};
use crate::support::http_client::Connection;

/// A user and a group that no test machine uses.
const STRANGER: u32 = 54_321;
const GROUP: u32 = 54_322;

/// Sends lines as another user, in `group`; returns the reply to each.
fn talk(service: &Service, group: u32, lines: &[&str]) -> io::Result<Vec<Value>> {
    as_member(group, || {
        let mut client = Client::try_connect(&service.socket())?;
        let replies = lines.iter().map(|line| {
            client.send_raw(format!("{line}\n").as_bytes());
            client.reply()
        });
        Ok(replies.collect())
    })
}

/// Does `work` as another user, whose only group is `group`.
fn as_member<T: Send>(group: u32, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let working = || {
        // Credentials are per thread.
        let (user, group) = (Uid::from_raw(STRANGER), Gid::from_raw(group));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        work()
    };
    thread::scope(|scope| scope.spawn(working).join().unwrap())
}

/// Returns a path that matches a pattern, with the first alternative of each expression.
fn example(pattern: &str) -> String {
    let part = |part: &str| match part.strip_prefix('{') {
        None => part.to_owned(),
        Some(named) => {
            let (_, expression) = named.split_once(':').unwrap_or_default();
            let first = expression.split(['|', '}']).next().unwrap_or_default();
            let is_name = !first.is_empty() && !first.contains(['.', '[']);
            if is_name {
                first.to_owned()
            } else {
                "x".to_owned()
            }
        }
    };
    pattern.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn the_socket_is_private_to_its_owner_unless_a_group_is_configured() {
    let service = Service::start("");
    assert_eq!(mode(&service.socket()), 0o600);
    assert_eq!(mode(service.socket().parent().unwrap()), 0o700);
    service.stop();
    let service = Service::start("[server]\nsocket_mode = \"0660\"\n");
    assert_eq!(mode(&service.socket()), 0o660);
    assert_eq!(mode(service.socket().parent().unwrap()), 0o750);
    service.stop();
}

#[test]
fn a_world_readable_directory_is_kept_and_the_sockets_mode_excludes_strangers() {
    let server = match is_root() {
        true => format!("[server]\nsocket_group = {GROUP}\n"),
        false => "[server]\nsocket_mode = \"0660\"\n".to_owned(),
    };
    let directory = directory();
    let run = socket_of(directory.path()).parent().unwrap().to_owned();
    fs::create_dir(&run).unwrap();
    for path in [directory.path(), &run] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let service = Service::start_in(directory, &server);
    assert_eq!((mode(&run), mode(&service.socket())), (0o755, 0o660));
    if is_root() {
        let line = r#"{"id":9,"call":"attach","lang":"javascript"}"#;
        assert_eq!(talk(&service, GROUP, &[line]).unwrap().len(), 1);
        let refused = talk(&service, STRANGER, &[line]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
    let directory = service.stop_and_keep();
    // A user who can write there could replace the socket; a socket without a group needs a private directory.
    for (mode, server) in [(0o777, &*server), (0o775, &server), (0o755, "")] {
        fs::set_permissions(&run, fs::Permissions::from_mode(mode)).unwrap();
        let (status, complaint) = refused(&configure(directory.path(), server));
        assert_eq!(status, Some(77), "{mode:o}: {complaint}");
    }
}

#[test]
fn members_of_the_group_may_call_functions_and_manage_nothing() {
    if !is_root() {
        // Only root can become another user.
        return;
    }
    let directory = directory();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let extra = format!(
        "[server]\nsocket_group = {GROUP}\n[pools.shared]\nlanguage = \"python\"\ncallers = true\n"
    );
    let service = Service::start_in(directory, &extra);
    let socket = fs::metadata(service.socket()).unwrap();
    assert_eq!((socket.mode() & 0o777, socket.gid()), (0o660, GROUP));
    let lines = [
        r#"{"id":1,"call":"map_docs","lang":"javascript","funs":["function(d) { emit(d._id, 1); }"],"docs":[{"_id":"a"}]}"#,
        r#"{"id":2,"call":"get_proc","pool":"shared"}"#,
        r#"{"id":3,"call":"get_proc","lang":"python"}"#,
        r#"{"id":9,"call":"attach","lang":"javascript"}"#,
    ];
    let replies = talk(&service, GROUP, &lines).unwrap();
    assert_eq!(replies.len(), lines.len());
    for reply in replies {
        let may = [1, 2, 9].map(Value::from).contains(&reply["id"]);
        assert_eq!(reply["error"]["name"] != "forbidden", may, "{reply}");
        assert_eq!(reply.get("ok").is_some(), may, "{reply}");
    }
    // Members may not manage the service.
    let local = operator_socket(&service.socket());
    let socket = fs::metadata(&local).unwrap();
    assert_eq!((socket.mode() & 0o777, socket.gid()), (0o660, GROUP));
    let asked = as_member(GROUP, || {
        UnixStream::connect(&local)?;
        let mut connection = Connection::local(&local);
        let mut ask = |route: &&Route| {
            let method = route.method();
            let answer = connection.request(method.as_str(), &example(route.path()), &[], "");
            (**route, answer.status)
        };
        let managing = Route::VARIANTS
            .iter()
            .filter(|route| !matches!(route.who().right(), None | Some(Right::Call)));
        Ok(managing.map(|route| ask(&route)).collect::<Vec<_>>())
    });
    for (route, status) in asked.unwrap() {
        assert_eq!(status, 403, "{route:?}");
    }
    // A user of another group cannot even connect.
    let refused = talk(&service, STRANGER, &lines).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    let refused = as_member(STRANGER, || UnixStream::connect(&local)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    service.status();
    service.stop();
}

#[test]
fn an_unknown_group_or_one_that_could_see_the_store_is_refused() {
    for (extra, code, part) in [
        (
            "socket_group = \"no-such-group-of-anybody\"",
            77,
            "no group",
        ),
        ("socket_group = \"--help\"", 78, "a group of the system"),
        ("socket_mode = \"0666\"", 78, "0600, 0660"),
    ] {
        let directory = directory();
        let config = configure(directory.path(), &format!("[server]\n{extra}\n"));
        let (status, complaint) = refused(&config);
        assert_eq!(status, Some(code), "{complaint}");
        assert!(complaint.contains(part), "{complaint}");
    }
    let directory = directory();
    let config = configure(directory.path(), "[server]\nsocket_mode = \"0660\"\n");
    let mut command = crate::support::daemon::serve_command(&config);
    command.env(
        "SETTEE__STORE__PATH",
        directory.path().join("run/settee.redb"),
    );
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{complaint}");
    assert!(complaint.contains("where the store is too"), "{complaint}");
}
