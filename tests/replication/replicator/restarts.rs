//! Restarts of a service with inherited sockets, under the load of clients and replications.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::effort;

use crate::replicator::world::{SETTINGS, World};
use crate::support::activation::pass;
use crate::support::daemon::{
    Client, DEADLINE, Service, SetAtEnd, directory, make_private_folder, socket_of, wait_until,
};
use crate::support::http_client::{Connection, Web};
use crate::support::store::{command, create};

/// The number of clients of each kind.
fn client_counts() -> [(Kind, usize); 3] {
    [
        (Kind::Socket, effort(5, 20)),
        (Kind::Http, effort(5, 20)),
        (Kind::Service, effort(6, 10)),
    ]
}

/// The processes that service clients share; there are fewer than clients, so some wait to be accepted.
const LENT: usize = 4;

/// The calls that a service client makes before it yields its process to another.
const TURN: usize = 5;

/// The interface that a client uses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Socket,
    Http,
    /// Holds a connection of a service over several calls.
    Service,
}

/// The listening sockets, which stay open across restarts.
struct Sockets {
    socket: (UnixListener, PathBuf),
    http: (TcpListener, SocketAddr),
    service: (UnixListener, PathBuf),
}

impl Sockets {
    fn open(directory: &Path) -> Self {
        let path = socket_of(directory);
        make_private_folder(path.parent().unwrap());
        let http = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = http.local_addr().unwrap();
        let own = directory.join("own.sock");
        Self {
            socket: (UnixListener::bind(&path).unwrap(), path),
            http: (http, address),
            service: (UnixListener::bind(&own).unwrap(), own),
        }
    }

    /// Starts a service on these sockets.
    fn serve(&self, directory: TempDir) -> Web {
        let settings = format!(
            "{SETTINGS}[pools.lent]\nlanguage = \"javascript\"\nmax = {LENT}\n\
             [services.own]\npool = \"lent\"\nlisten = \"unix:/configured.sock\"\n"
        );
        let serve = command(directory.path(), &settings);
        let sockets = [
            ("socket", self.socket.0.try_clone().unwrap().into()),
            ("http", self.http.0.try_clone().unwrap().into()),
            ("service-own", self.service.0.try_clone().unwrap().into()),
        ];
        let mut service = Service::start_command(directory, pass(serve, sockets));
        let address = service.next_address("http://");
        assert_eq!(address, self.http.1);
        Web { service, address }
    }

    /// Makes one call, on a kept connection for a service and on a new one otherwise, and checks the answer.
    fn call(&self, kind: Kind, number: usize, lent: &mut Lent) {
        let call = json!({"id": number, "call": "map_docs", "lang": "javascript",
            "docs": [{"_id": "a", "n": number}], "funs": ["function(doc) { emit(doc.n, 1); }"]});
        let mapped = json!([[[[number, 1]]]]);
        match kind {
            Kind::Socket => {
                let mut client = Client::connect(&self.socket.1);
                assert_eq!(client.call(&call), json!({"id": number, "ok": mapped}));
            }
            Kind::Http => {
                let mut connection = Connection::open(self.http.1);
                let headers = [("Content-Type", "application/json")];
                let answer = connection.request("POST", "/_query/map", &headers, &call.to_string());
                assert_eq!(answer.ok(), json!({"ok": mapped}));
            }
            Kind::Service => {
                let doc = json!(["map_doc", {"_id": "a", "n": number}]);
                assert_eq!(lent.ask(&self.service.1, &doc), json!([[[number, 1]]]));
                if number.is_multiple_of(TURN) {
                    lent.connection = None;
                }
            }
        }
    }
}

/// A service client's connection, to a process that has learned its function, and how earlier connections ended.
#[derive(Default)]
struct Lent {
    connection: Option<BufReader<UnixStream>>,
    /// How often the connection was closed cleanly before a command was sent.
    between: usize,
    /// How often a sent command was not read: the service's last line arrived instead of an answer.
    crossed: usize,
    /// How often the connection ended before its first command was read.
    first: usize,
}

impl Lent {
    /// Sends a command until it is answered; a connection that closed cleanly has not read it.
    fn ask(&mut self, service: &Path, command: &Value) -> Value {
        loop {
            if self.connection.is_none() {
                let connection = UnixStream::connect(service).unwrap();
                connection.set_read_timeout(Some(DEADLINE)).unwrap();
                self.connection = Some(BufReader::new(connection));
                let taught = json!(["add_fun", "function(doc) { emit(doc.n, 1); }"]);
                if self.ask_once(&taught).is_none() {
                    self.first += 1;
                    continue;
                }
            }
            if let Some(answer) = self.ask_once(command) {
                return answer;
            }
        }
    }

    /// Sends a command; `None`: the connection has ended, and the command was not read.
    fn ask_once(&mut self, command: &Value) -> Option<Value> {
        let connection = self.connection.as_mut().expect("a connection");
        let has_ended = has_input(connection.get_ref());
        // Fails if the service has closed its end; its last line can still be read.
        let _ = writeln!(connection.get_mut(), "{command}");
        let mut line = String::new();
        connection.read_line(&mut line).expect("a line in time");
        assert!(!line.is_empty(), "the connection ended without a last line");
        let answer: Value = serde_json::from_str(&line).unwrap();
        if answer[0] != "error" {
            return Some(answer);
        }
        assert_eq!(answer[1], "shutting_down", "{answer}");
        *match has_ended {
            true => &mut self.between,
            false => &mut self.crossed,
        } += 1;
        self.connection = None;
        None
    }
}

/// Returns whether something can be read.
fn has_input(stream: &UnixStream) -> bool {
    let mut waits = [PollFd::new(stream, PollFlags::IN)];
    rustix::event::poll(&mut waits, Some(&Timespec::default())).unwrap() > 0
}

/// Makes calls until `over`; each must be answered without an error. Counts them in `calls`, and returns the duration
/// of the longest and how connections of the service ended.
fn call_until(
    over: &AtomicBool,
    sockets: &Sockets,
    kind: Kind,
    calls: &AtomicUsize,
) -> (Duration, Lent) {
    let mut longest = Duration::ZERO;
    let mut lent = Lent::default();
    while !over.load(Ordering::SeqCst) {
        let before = Instant::now();
        sockets.call(kind, calls.load(Ordering::SeqCst), &mut lent);
        longest = longest.max(before.elapsed());
        calls.fetch_add(1, Ordering::SeqCst);
    }
    lent.connection = None;
    (longest, lent)
}

/// Prints the longest call of each kind, and how connections of the service ended.
fn print_waits(kinds: &[Kind], ended: &[(Duration, Lent)]) {
    for (kind, _) in client_counts() {
        let with_kind = kinds.iter().zip(ended);
        let of_kind = with_kind.filter(|(other, _)| **other == kind);
        let longest = of_kind.map(|(_, (longest, _))| *longest).max();
        println!("the longest call of {kind:?} took {longest:?}");
    }
    let sum = |count: fn(&Lent) -> usize| ended.iter().map(|(_, lent)| count(lent)).sum::<usize>();
    let (between, crossed, first) = (sum(|l| l.between), sum(|l| l.crossed), sum(|l| l.first));
    println!(
        "service connections ended: {between} before a command, {crossed} after one, {first} at the first command"
    );
}

#[test]
fn restarts_with_inherited_sockets_cause_no_client_error_and_lose_no_replication_progress() {
    let (restarts, replications) = (effort(4, 20), effort(5, 20));
    let kinds: Vec<Kind> = client_counts()
        .iter()
        .flat_map(|(kind, count)| vec![*kind; *count])
        .collect();
    let calls: Vec<AtomicUsize> = kinds.iter().map(|_| AtomicUsize::new(0)).collect();
    let over = AtomicBool::new(false);
    let place = directory();
    let sockets = Sockets::open(place.path());
    let mut world = World::start_at(|| sockets.serve(place));
    world.fill(10);
    let targets: Vec<_> = (0..replications).map(|_| world.another()).collect();
    for (number, target) in targets.iter().enumerate() {
        let mut body = world.continuous();
        body["target"] = target.url().into();
        create(&world.web, &format!("to-{number}"), &body);
    }
    let all_are_equal = |world: &World| {
        wait_until("equal databases", || {
            let trees = world.source.trees();
            targets.iter().all(|target| target.trees() == trees)
        });
    };
    all_are_equal(&world);
    let begun = world.source.server.received().len();
    let (world, ended) = std::thread::scope(|scope| {
        let clients: Vec<_> = kinds
            .iter()
            .zip(&calls)
            .map(|(kind, calls)| {
                let (over, sockets) = (&over, &sockets);
                scope.spawn(move || call_until(over, sockets, *kind, calls))
            })
            .collect();
        let end = SetAtEnd(&over);
        for restart in 0..restarts {
            let before: Vec<usize> = calls.iter().map(|n| n.load(Ordering::SeqCst)).collect();
            let stopped = world.web.service.stop_and_keep();
            world
                .source
                .put(&format!("restart-{restart}"), None, json!({}));
            let web = sockets.serve(stopped);
            world = World { web, ..world };
            wait_until("two calls of every client", || {
                let mut pairs = calls.iter().zip(&before);
                pairs.all(|(now, before)| now.load(Ordering::SeqCst) > before + 1)
            });
        }
        drop(end);
        let ended: Vec<_> = clients.into_iter().map(|c| c.join().unwrap()).collect();
        (world, ended)
    });
    all_are_equal(&world);
    let received = world.source.server.received();
    let feeds = received[begun..]
        .iter()
        .filter(|request| request.kind() == "GET _changes");
    let since: Vec<_> = feeds.map(|request| request.param("since")).collect();
    assert!(since.len() >= replications * restarts, "{}", since.len());
    let from_zero = since.iter().filter(|since| since.as_deref() == Some("0"));
    assert_eq!(from_zero.count(), 0, "all resume from their checkpoints");
    let made: usize = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).sum();
    println!("{restarts} restarts, {made} calls");
    print_waits(&kinds, &ended);
    world.stop_and_keep();
}
