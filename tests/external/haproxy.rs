//! Two daemons behind HAProxy, with the configuration of docs/fleet.md: each database is routed to one daemon, and
//! fails over to the other.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::support::daemon::wait_until;
use crate::support::http_client::{Connection, Web};
use crate::support::pages::blocks;

const DATABASES: usize = 40;

/// HAProxy, stopped when dropped.
struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    /// Starts HAProxy with the page's configuration, for these daemons.
    fn start(daemons: &[&Web; 2]) -> Self {
        // If another program takes the free port first, HAProxy exits.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let page = blocks("docs/fleet.md", "haproxy");
        let text = page[0]
            .replace("127.0.0.1:5990", &address.to_string())
            .replace("127.0.0.1:5995", &daemons[0].address.to_string())
            .replace("127.0.0.2:5995", &daemons[1].address.to_string());
        let file = daemons[0].service.path("haproxy.cfg");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("haproxy is installed");
        wait_until("listening HAProxy", || {
            assert_eq!(
                child.try_wait().unwrap(),
                None,
                "HAProxy refused its configuration"
            );
            TcpStream::connect(address).is_ok()
        });
        Self { child, address }
    }

    /// Calls a function of each database; returns the statuses.
    fn call_all(&self) -> BTreeSet<u16> {
        let status = |number: usize| {
            let db = format!("shop/{number}");
            let body = json!({"db": db, "lang": "javascript", "docs": [{"_id": "a"}],
                              "funs": ["function(doc) { emit(1); }"]});
            let path = format!("/_query/map?db=shop%2F{number}");
            let json = [("Content-Type", "application/json")];
            let mut connection = Connection::open(self.address);
            connection
                .request("POST", &path, &json, &body.to_string())
                .status
        };
        (0..DATABASES).map(status).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Returns the databases for which a daemon has run functions.
fn databases_of(web: &Web) -> BTreeSet<String> {
    let costs = web.get("/_functions?limit=1000").ok();
    let rows = costs["functions"].as_array().unwrap().iter();
    rows.map(|row| row["db"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn each_database_is_routed_to_one_daemon_and_fails_over_to_the_other() {
    let (mut one, two) = (Web::start(""), Web::start(""));
    let proxy = Proxy::start(&[&one, &two]);
    for _ in 0..3 {
        assert_eq!(proxy.call_all(), BTreeSet::from([200]));
    }
    let (of_one, of_two) = (databases_of(&one), databases_of(&two));
    assert_eq!(
        of_one.len() + of_two.len(),
        DATABASES,
        "no database is on both daemons"
    );
    assert!(!of_one.is_empty() && !of_two.is_empty(), "{of_one:?}");

    one.service.kill();
    let only_200 = BTreeSet::from([200]);
    wait_until("daemon that serves every database", || {
        proxy.call_all() == only_200
    });
    assert_eq!(databases_of(&two).len(), DATABASES);
    drop(proxy);
    two.service.stop();
}
