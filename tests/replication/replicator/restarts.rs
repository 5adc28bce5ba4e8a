//! Restarts of a service whose sockets somebody else keeps open, under clients and replications.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::replicator::world::{SETTINGS, World};
use crate::support::activation::pass;
use crate::support::daemon::{Client, Service, SetAtEnd, directory, socket_of, wait_until};
use crate::support::http_client::{Connection, Web};
use crate::support::store::{command, create};

/// How often the service is stopped and started.
const RESTARTS: usize = 20;

/// How many clients there are of each kind.
const CLIENTS: [(Kind, usize); 2] = [(Kind::Socket, 25), (Kind::Http, 25)];

const REPLICATIONS: usize = 20;

/// What a client speaks.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Socket,
    Http,
}

/// The sockets, which stay open whether a service runs or not.
struct Sockets {
    socket: (UnixListener, PathBuf),
    http: (TcpListener, SocketAddr),
}

impl Sockets {
    fn open(directory: &Path) -> Self {
        let path = socket_of(directory);
        let mut folder = std::fs::DirBuilder::new();
        folder.mode(0o700).create(path.parent().unwrap()).unwrap();
        let http = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = http.local_addr().unwrap();
        Self {
            socket: (UnixListener::bind(&path).unwrap(), path),
            http: (http, address),
        }
    }

    /// Starts a service on them.
    fn serve(&self, directory: TempDir) -> Web {
        let serve = command(directory.path(), SETTINGS);
        let sockets = [
            ("socket", self.socket.0.try_clone().unwrap().into()),
            ("http", self.http.0.try_clone().unwrap().into()),
        ];
        let mut service = Service::start_command(directory, pass(serve, sockets));
        let address = service.next_address("http://");
        assert_eq!(address, self.http.1);
        Web { service, address }
    }

    /// Makes one call on a connection of its own, and asserts that it is answered as it has to be.
    fn call(&self, kind: Kind, number: usize) {
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
        }
    }
}

/// Calls until it is over; each call is asked once and has to be answered. Notes how many calls it made, and returns how
/// long the longest took.
fn call_until(over: &AtomicBool, sockets: &Sockets, kind: Kind, calls: &AtomicUsize) -> Duration {
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::SeqCst) {
        let before = Instant::now();
        sockets.call(kind, calls.load(Ordering::SeqCst));
        longest = longest.max(before.elapsed());
        calls.fetch_add(1, Ordering::SeqCst);
    }
    longest
}

#[test]
fn restarts_on_sockets_that_stay_open_cost_no_client_an_error_and_no_replication_its_place() {
    let kinds: Vec<Kind> = CLIENTS
        .iter()
        .flat_map(|(kind, count)| vec![*kind; *count])
        .collect();
    let calls: Vec<AtomicUsize> = kinds.iter().map(|_| AtomicUsize::new(0)).collect();
    let over = AtomicBool::new(false);
    let place = directory();
    let sockets = Sockets::open(place.path());
    let mut world = World::start_at(|| sockets.serve(place));
    world.fill(10);
    let targets: Vec<_> = (0..REPLICATIONS).map(|_| world.another()).collect();
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
    let (world, longest) = std::thread::scope(|scope| {
        let clients: Vec<_> = kinds
            .iter()
            .zip(&calls)
            .map(|(kind, calls)| {
                let (over, sockets) = (&over, &sockets);
                scope.spawn(move || call_until(over, sockets, *kind, calls))
            })
            .collect();
        let end = SetAtEnd(&over);
        for restart in 0..RESTARTS {
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
        let longest = clients.into_iter().map(|client| client.join().unwrap());
        (world, longest.max())
    });
    all_are_equal(&world);
    let received = world.source.server.received();
    let feeds = received[begun..]
        .iter()
        .filter(|request| request.kind() == "GET _changes");
    let since: Vec<_> = feeds.map(|request| request.param("since")).collect();
    assert!(since.len() >= REPLICATIONS * RESTARTS, "{}", since.len());
    let anew = since.iter().filter(|since| since.as_deref() == Some("0"));
    assert_eq!(anew.count(), 0, "all go on from their checkpoints");
    let made: usize = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).sum();
    println!("{RESTARTS} restarts, {made} calls, the longest took {longest:?}");
    world.stop_and_keep();
}
