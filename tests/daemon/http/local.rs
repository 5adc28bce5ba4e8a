//! HTTP on the Unix socket: the kernel identifies the peer, and some operations are answered only there.

use settee::operations::{Route, Who};
use strum::VariantArray;

use crate::http::admins::{ask, basic};
use crate::support::daemon::{Order, Service};
use crate::support::http_client::{Connection, Web};

#[test]
fn a_service_without_an_http_address_is_managed_by_its_own_user_without_a_login() {
    let service = Service::start("");
    let operator = service.connect().operator;
    assert_eq!(operator.get("/_health")["status"], "ok");
    let session = operator.get("/_session");
    let roles = &session["userCtx"]["roles"];
    assert_eq!(*roles, serde_json::json!(["_admin"]), "{session}");
    service.stop();
}

#[test]
fn proxied_requests_are_refused_on_the_unix_socket() {
    let service = Service::start("");
    let socket = service.socket().with_extension("http.sock");
    for name in ["Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"] {
        let mut connection = Connection::local(&socket);
        let answer = connection.request("GET", "/_health", &[(name, "x")], "");
        let reason = answer.reason(403, "forbidden");
        assert!(reason.contains("came through a proxy"), "{reason}");
    }
    service.stop();
}

#[test]
fn local_operations_are_answered_on_the_unix_socket_only() {
    let web = Web::start("[users.root]\npassword = \"secret\"\nroles = [\"admin\"]\n");
    let credentials = basic("root", "secret");
    let is_local = |route: &&Route| matches!(route.who(), Who::Local(_));
    let local: Vec<&Route> = Route::VARIANTS.iter().filter(is_local).collect();
    assert!(local.len() >= 4, "{local:?}");
    for route in local {
        let method = route.method();
        let headers = [("Authorization", &*credentials)];
        let answer = ask(&web, method.as_str(), route.path(), &headers, "");
        let reason = answer.reason(403, "forbidden");
        assert!(reason.contains("Unix socket only"), "{route:?}: {reason}");
        let mut connection = Connection::local(&web.service.socket().with_extension("http.sock"));
        let answer = connection.request(method.as_str(), route.path(), &[], "");
        assert_ne!(answer.status, 403, "{route:?}: {answer:?}");
    }
    web.service.stop();
}

#[test]
fn a_name_and_a_password_are_checked_on_the_unix_socket_too() {
    let service = Service::start("[users.vera]\npassword = \"secret\"\nroles = [\"viewer\"]\n");
    let socket = service.socket().with_extension("http.sock");
    let as_vera = |path, password| {
        let headers = [("Authorization", &*basic("vera", password))];
        Connection::local(&socket).request("GET", path, &headers, "")
    };
    as_vera("/_status", "secret").ok();
    as_vera("/_audit", "secret").error(403, "forbidden");
    as_vera("/_status", "wrong").error(401, "unauthorized");
    // The audit record names the peer's user and process.
    let operator = service.connect().operator;
    operator.ok(&Order::new("PUT", "/_drain", serde_json::json!({})));
    let record = &operator.get("/_audit")["records"][0];
    let from = format!(
        "http uid {} pid {}",
        rustix::process::getuid().as_raw(),
        std::process::id()
    );
    assert_eq!(record["from"], from, "{record}");
    service.stop();
}
