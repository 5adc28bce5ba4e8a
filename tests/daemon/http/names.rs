//! Names of a megabyte, in every call of the socket and every path of HTTP: none is kept; and the limit of names.

use std::fs::read_to_string;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use settee::operations::{CallName, NAME_BYTES_MAX, Route};
use strum::VariantArray;

use crate::support::daemon::{Client, configure, directory};
use crate::support::http_client::{Web, command};

/// The length of the names, in bytes.
const LONG: usize = 1 << 20;

/// The maximum growth of the log and of the daemon's memory, in bytes.
const LOG_BYTES_MAX: usize = 2 << 20;
const GROWTH_BYTES_MAX: u64 = 48 << 20;

/// The maximum length of a listing, in bytes.
const PAGE_BYTES_MAX: usize = 512 << 10;

/// The maximum length of a path that the server reads, in bytes.
const PATH_BYTES: usize = 100_000;

/// The places of names, as an outer and an inner member; without an outer one it is a member of the request itself,
/// without an inner one an element of the list.
const PLACES: &[(&str, &str)] = &[
    ("", "id"),
    ("", "call"),
    ("", "unknown"),
    ("", "db"),
    ("", "lang"),
    ("", "pool"),
    ("", "group"),
    ("", "name"),
    ("", "type"),
    ("", "context"),
    ("", "job"),
    ("", "after"),
    ("", "kind"),
    ("", "sort"),
    ("", "period"),
    ("", "proc"),
    ("", "request"),
    ("", "mode"),
    ("", "lane"),
    ("", "status"),
    ("", "language"),
    ("", "password"),
    ("", "source"),
    ("ddoc", "_id"),
    ("ddoc", "_rev"),
    ("ddoc", "language"),
    ("path", ""),
];

/// The number of places that are always tried; the others are tried only where the refusal of a wrong type names them.
const EVERYWHERE: usize = 3;

/// The arguments of all function calls.
fn arguments() -> Value {
    let map = "function(doc) { log('said'); emit(doc._id, 1); }";
    let show = "function(doc, req) { log('said'); return 'x'; }";
    json!({
        "db": "d", "lang": "javascript", "funs": [map], "fun": map, "docs": [{"_id": "a"}],
        "rows": [], "values": [[1]], "name": "f", "path": ["shows", "f"], "args": [null, {}], "timeout_ms": 2000,
        "ddoc": {"_id": "_design/a", "shows": {"f": show}, "lists": {"f": show}, "updates": {"f": show},
                 "filters": {"f": show}, "views": {"f": {"map": map}}, "validate_doc_update": show, "rewrites": show},
        "dry_run": true, "priority": 1, "order": "restart", "select": {},
    })
}

/// Returns the arguments that a request accepts; `ask` returns its answer.
fn accepted(ask: impl Fn(&Value) -> String) -> Value {
    let mut arguments = arguments();
    loop {
        let said = ask(&arguments);
        let unknown = said.split_once("there is no argument '");
        let Some((name, _)) = unknown.and_then(|(_, rest)| rest.split_once('\'')) else {
            return arguments;
        };
        let members = arguments.as_object_mut().unwrap();
        assert!(members.shift_remove(name).is_some(), "{name}: {said}");
    }
}

/// Returns the arguments with a value in a place.
fn with((outer, inner): (&str, &str), value: Value, mut arguments: Value) -> Value {
    match (outer, inner) {
        ("", inner) => arguments[inner] = value,
        (outer, "") => arguments[outer] = json!(["shows", value]),
        (outer, inner) => arguments[outer][inner] = value,
    }
    arguments
}

/// Makes a request with a long name in each place where one is read; `ask` returns its answer.
fn with_names(bytes: usize, ask: impl Fn(&Value) -> String) {
    let (long, arguments) = ("n".repeat(bytes), accepted(&ask));
    for (number, (outer, inner)) in PLACES.iter().enumerate() {
        let place = (*outer, *inner);
        let named = if inner.is_empty() { outer } else { inner };
        let with = |value| with(place, value, arguments.clone());
        let is_read = |said: String| {
            said.contains(&format!("'{named}'")) && !said.contains("there is no argument")
        };
        if number < EVERYWHERE || is_read(ask(&with(json!({})))) {
            ask(&with(json!(long)));
        }
    }
}

/// Sends a request on a new connection; returns its answer, even if the connection was reset.
fn ask(web: &Web, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(web.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    // The server may close before it has read everything.
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body.as_bytes()));
    let mut said = vec![0; 64 << 10];
    let begin = stream.read(&mut said).unwrap_or(0);
    said.truncate(begin);
    // It is answered: the service need not wait for the rest of a refused body.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut said);
    let _ = stream.shutdown(Shutdown::Both);
    String::from_utf8_lossy(&said).into_owned()
}

/// Returns the path of a route with `name` for its variables.
pub(super) fn path_with(route: Route, name: &str) -> String {
    let mut parts = route.path().split(['{', '}']);
    let mut path = parts.next().unwrap().to_owned();
    while let (Some(variable), Some(rest)) = (parts.next(), parts.next()) {
        // A variable with fixed words takes the first of them.
        let words = variable.split_once(':').map(|(_, words)| words);
        let word = words.filter(|words| words.starts_with('_'));
        path += word.map_or(name, |words| words.split('|').next().unwrap());
        path += rest;
    }
    path
}

fn memory(web: &Web) -> u64 {
    let status = read_to_string(format!("/proc/{}/status", web.service.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn call_everything(web: &Web, bytes: usize) {
    for name in CallName::VARIANTS {
        let name: &str = name.into();
        with_names(bytes, |arguments| {
            let mut request = json!({"id": 1, "call": name});
            let members = request.as_object_mut().unwrap();
            members.extend(arguments.as_object().unwrap().clone());
            let mut client = Client::connect(&web.service.socket());
            client.send(&request);
            client.line().unwrap_or_default()
        });
    }
}

fn ask_everything(web: &Web, bytes: usize) {
    let name = "n".repeat(bytes.min(PATH_BYTES));
    for route in Route::VARIANTS {
        let method = route.method();
        let method = method.as_str();
        ask(web, method, &path_with(*route, &name), "");
        let path = path_with(*route, "f");
        ask(web, method, &format!("{path}?db={name}"), "");
        ask(web, method, &format!("{path}?{name}=1"), "");
        if matches!(method, "POST" | "PUT") {
            with_names(bytes, |body| ask(web, method, &path, &body.to_string()));
        }
    }
}

#[test]
fn names_of_a_megabyte_are_kept_neither_in_memory_nor_in_the_log() {
    let directory = directory();
    let mut serve = command(&configure(directory.path(), ""));
    // The C library returns large blocks to the system, as in the package's unit.
    serve.env("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072");
    let web = Web::start_command(directory, serve);
    // One-time allocations happen before the measurement.
    call_everything(&web, 10);
    let (memory_before, log_before) = (memory(&web), web.service.log().len());
    call_everything(&web, LONG);
    ask_everything(&web, LONG);
    let grown = memory(&web).saturating_sub(memory_before);
    let logged = web.service.log().len() - log_before;
    println!("{grown} bytes more, {logged} bytes of the log");
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes more");
    assert!(logged < LOG_BYTES_MAX, "{logged} bytes of the log");
    for path in [
        "/_functions?limit=10000",
        "/_tenants",
        "/_dashboard/state",
        "/_audit",
        "/_pools",
        "/metrics",
    ] {
        let length = ask(&web, "GET", path, "").len();
        assert!(length < PAGE_BYTES_MAX, "{path} has {length} bytes");
    }
    web.service.stop();
}

#[test]
fn the_refusal_of_a_name_that_is_too_long_has_the_limit() {
    let web = Web::start("");
    let mut client = web.service.connect();
    for (bytes, is_taken) in [(NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)] {
        let long = "n".repeat(bytes);
        let mut show = json!({"db": long, "ddoc": arguments()["ddoc"], "name": "f"});
        show["ddoc"]["_id"] = json!(long);
        let mut call = show.clone();
        (call["id"], call["call"]) = (json!(1), json!("show"));
        let reply = client.call(&call);
        assert_eq!(reply.get("ok").is_some(), is_taken, "{reply}");
        let answer = ask(&web, "POST", "/_query/show", &show.to_string());
        assert_eq!(answer.starts_with("HTTP/1.1 200"), is_taken, "{answer}");
        let answer = ask(&web, "GET", &format!("/_pools/{long}"), "");
        assert!(
            answer.starts_with(if is_taken {
                "HTTP/1.1 404"
            } else {
                "HTTP/1.1 400"
            }),
            "{answer}"
        );
        if !is_taken {
            let reason = reply["error"]["reason"].as_str().unwrap();
            assert_eq!(
                reason,
                "'db' has 1025 bytes, the limit is 1024: use a shorter one"
            );
        }
    }
    // Only the beginning of a long name is shown.
    let functions = web.get("/_functions").ok();
    let db = functions["functions"][0]["db"].as_str().unwrap().to_owned();
    assert!(
        db.starts_with("nnn") && db.ends_with('…') && db.len() < 300,
        "{db}"
    );
    let tenants = web.get("/_tenants").ok();
    assert_eq!(tenants["tenants"][0]["db"], "_other");
    web.service.stop();
}
