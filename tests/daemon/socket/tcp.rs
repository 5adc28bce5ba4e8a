//! Clients on TCP: they log in first, and are then served like all others.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::support::daemon::{DEADLINE, Service, call_at_once, wait_until};

/// The password is `password`.
const ANN: &str = "[admins]\nann = \"-pbkdf2:sha256-c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a,salt,4096\"\n";

fn start(extra: &str) -> (Service, SocketAddr) {
    let mut service = Service::start(&format!("[server]\ntcp = \"127.0.0.1:0\"\n{extra}\n{ANN}"));
    let address = service.next_address("tcp:");
    (service, address)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Returns the next reply, `null` at the end of the connection.
    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        serde_json::from_str(&line).unwrap_or(Value::Null)
    }

    fn call(&mut self, request: &Value) -> Value {
        self.send(&format!("{request}\n"));
        self.reply()
    }

    fn log_in(&mut self, name: &str, password: &str) -> Value {
        self.call(&json!({"id": 1, "call": "auth", "name": name, "password": password}))
    }
}

#[test]
fn a_logged_in_client_is_served_as_on_the_unix_socket() {
    let (service, address) = start("");
    let mut client = Client::connect(address);
    assert_eq!(
        client.log_in("ann", "password"),
        json!({"id": 1, "ok": true})
    );
    let got = client.call(&json!({"id": 2, "call": "get_proc", "lang": "python"}));
    let proc = &got["ok"]["proc"];
    let prompt =
        json!({"id": 3, "call": "prompt", "proc": proc, "data": ["echo", "x".repeat(9000)]});
    assert_eq!(client.call(&prompt)["ok"], "x".repeat(9000));
    // The process of a disconnected client is returned.
    drop(client);
    let mut other = service.connect();
    other.wait_for_pool("python", &[("used", 0), ("free", 1)]);
    service.stop();
}

#[test]
fn requests_may_be_pipelined_behind_a_login() {
    let (service, address) = start("");
    let mut client = Client::connect(address);
    let long = "x".repeat(10_000);
    client.send(&format!(
        "{{\"id\":1,\"call\":\"auth\",\"name\":\"ann\",\"password\":\"password\"}}\n\
         {{\"id\":2,\"call\":\"cancel\",\"request\":\"{long}\"}}\n"
    ));
    assert_eq!(client.reply(), json!({"id": 1, "ok": true}));
    assert_eq!(client.reply(), json!({"id": 2, "ok": false}));
    service.stop();
}

#[test]
fn a_client_whose_login_fails_gets_an_error_and_is_disconnected() {
    let (service, address) = start("");
    let long = format!("{{\"call\":\"auth\",\"name\":\"{}\"}}\n", "x".repeat(5000));
    for (text, name) in [
        (
            "{\"id\":1,\"call\":\"auth\",\"name\":\"ann\",\"password\":\"x\"}\n",
            "unauthorized",
        ),
        (
            "{\"id\":1,\"call\":\"auth\",\"name\":\"eve\",\"password\":\"password\"}\n",
            "unauthorized",
        ),
        (
            "{\"id\":1,\"call\":\"cancel\",\"request\":0}\n",
            "unauthorized",
        ),
        (
            "{\"id\":1,\"call\":\"get_proc\",\"lang\":\"python\"}\n",
            "unauthorized",
        ),
        (&long, "unauthorized"),
        ("{\"id\":1,\"call\":\"auth\"}\n", "bad_request"),
        ("GET / HTTP/1.1\r\n\r\n", "bad_request"),
    ] {
        let mut client = Client::connect(address);
        client.send(text);
        let reply = client.reply();
        assert_eq!(reply["error"]["name"], name, "{text}: {reply}");
        assert_eq!(client.reply(), Value::Null, "{text}");
    }
    let count = &service.status()["proc_count"];
    assert_eq!(*count, 0, "no process was started for them");
    service.stop();
}

#[test]
fn a_client_that_does_not_log_in_is_disconnected() {
    let (service, address) = start("");
    let mut client = Client::connect(address);
    let reply = client.reply();
    assert_eq!(reply["error"]["name"], "unauthorized", "{reply}");
    assert_eq!(client.reply(), Value::Null);
    service.stop();
}

#[test]
fn a_stop_loses_no_answer_of_a_client_that_sends_more() {
    let (service, address) = start("[log]\nlevel = \"debug\"");
    let mut client = Client::connect(address);
    client.log_in("ann", "password");
    let got = client.call(&json!({"id": 2, "call": "get_proc", "lang": "python"}));
    let (proc, gate) = (&got["ok"]["proc"], service.path("gate"));
    // More than the client's system takes unread, less than that and the service's together.
    let text = "x".repeat(400_000);
    for request in [
        json!({"id": 3, "call": "prompt", "proc": proc, "data": ["echo", text]}),
        json!({"id": 4, "call": "prompt", "proc": proc, "data": ["wait", gate]}),
        json!({"id": 5, "call": "ret_proc", "proc": proc}),
    ] {
        client.send(&format!("{request}\n"));
    }
    wait_until("the prompt", || service.path("gate.here").exists());
    service.signal("TERM");
    service.wait_for_log("stopped listening");
    // This is not read as a request.
    client.send("{");
    std::fs::write(gate, "").unwrap();
    service.wait_for_log("client disconnected");
    assert!(client.reply()["ok"] == text);
    assert_eq!(client.reply(), json!({"id": 4, "ok": "waited"}));
    assert_eq!(client.reply(), json!({"id": 5, "ok": true}));
    assert_eq!(client.reply(), Value::Null);
    drop(client);
    service.exits_cleanly();
}

#[test]
fn a_login_on_the_unix_socket_is_checked_and_changes_nothing() {
    let (service, _) = start("");
    let mut client = service.connect();
    let auth = |password| json!({"id": 1, "call": "auth", "name": "ann", "password": password});
    assert_eq!(client.ok(&auth("password")), true);
    assert_eq!(client.error(&auth("x"))["name"], "unauthorized");
    assert_eq!(client.ok(&call_at_once(2)), false);
    service.stop();
}

#[test]
fn the_generated_administrator_can_log_in() {
    let mut service = Service::start("[server]\ntcp = \"127.0.0.1:0\"\n");
    let address = service.next_address("tcp:");
    let password = std::fs::read_to_string(service.path("run/admin-password")).unwrap();
    let mut client = Client::connect(address);
    let reply = client.log_in("admin", password.trim_end());
    assert_eq!(reply["ok"], true, "{reply}");
    service.stop();
}

#[test]
fn each_role_has_exactly_its_rights() {
    let user = |name: &str, roles: &str| {
        format!("[users.{name}]\npassword = \"secret\"\nroles = \"{roles}\"\n")
    };
    let pools = "[pools.shared]\nlanguage = \"python\"\ncallers = true\n\
                 [pools.own]\nlanguage = \"python\"\n\
                 [users.paul]\npassword = \"secret\"\nroles = \"caller\"\npools = \"shared\"\n";
    let users = user("olga", "operator") + &user("vera", "viewer") + &user("carol", "caller");
    let (service, address) = start(&(users + &user("rita", "replicator") + pools));
    let names = ["ann", "olga", "vera", "carol", "rita", "paul"];
    let mut clients = names.map(|name| {
        let mut client = Client::connect(address);
        let password = if name == "ann" { "password" } else { "secret" };
        assert_eq!(client.log_in(name, password)["ok"], true);
        client
    });
    let cases: [(Value, &[&str]); 5] = [
        (
            json!({"call": "get_proc", "lang": "javascript"}),
            &["ann", "carol"],
        ),
        (
            json!({"call": "get_proc", "pool": "shared"}),
            &["ann", "carol", "paul"],
        ),
        (json!({"call": "get_proc", "pool": "own"}), &["ann"]),
        (json!({"call": "attach", "lang": "python"}), &["ann"]),
        (
            json!({"call": "map_docs", "lang": "python", "funs": ["x"], "docs": []}),
            &["ann"],
        ),
    ];
    for (request, may) in cases {
        for (name, client) in names.iter().zip(&mut clients) {
            // A successful attach would turn the connection into a tunnel.
            if request["call"] == "attach" && may.contains(name) {
                continue;
            }
            let reply = client.call(&request);
            let refused = reply["error"]["name"] == "forbidden";
            assert_eq!(!refused, may.contains(name), "{name} {request}: {reply}");
        }
    }
    drop(clients);
    service.stop();
}

#[test]
fn a_removed_user_loses_all_rights() {
    let carol = "[users.carol]\npassword = \"secret\"\nroles = \"caller\"\n";
    let (service, address) = start(carol);
    let mut client = Client::connect(address);
    client.log_in("carol", "secret");
    let map = json!({"call": "map_docs", "lang": "javascript", "funs": [], "docs": []});
    assert_eq!(client.call(&map)["ok"], json!([]));
    let file = service.path("settee.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(carol, "")).unwrap();
    service.signal("HUP");
    service.wait_for_log("configuration changed");
    assert_eq!(client.call(&map)["error"]["name"], "forbidden");
    drop(client);
    service.stop();
}
