//! Unknown parameters of a request, and unknown members of an order's body.

use actix_web::http::Method;
use settee::operations::Route;
use strum::VariantArray;

use super::names::path_with;
use crate::support::daemon::Service;
use crate::support::http_client::{Connection, Response};

/// Sends an order on the Unix socket, where every operation is allowed.
fn order(service: &Service, method: &str, path: &str, body: &str) -> Response {
    let mut connection = Connection::local(&service.socket().with_extension("http.sock"));
    let json = [("Content-Type", "application/json")];
    connection.request(method, path, &json, body)
}

#[test]
fn every_request_refuses_unknown_parameters_and_members_except_couchdbs_own() {
    let service = Service::start("");
    for route in Route::VARIANTS {
        let (method, path) = (route.method(), path_with(*route, "f"));
        let parameter = order(&service, method.as_str(), &format!("{path}?unknwn=1"), "");
        let refuses = |answer: &Response| answer.body.contains(" 'unknwn': ");
        let expected = !route.ignores_unknown();
        assert_eq!(refuses(&parameter), expected, "{route:?}: {parameter:?}");
        // Calls of functions report missing members first; their examples are tested with unknown ones.
        if method != Method::GET && !path.starts_with("/_query/") {
            let member = order(&service, method.as_str(), &path, r#"{"unknwn": 1}"#);
            assert_eq!(refuses(&member), expected, "{route:?}: {member:?}");
        }
    }
    assert_eq!(service.connect().operator.get("/_drain")["draining"], false);
    service.stop();
}

#[test]
fn the_refusal_suggests_the_nearest_known_name() {
    let service = Service::start("");
    for (request, body, says) in [
        (
            "PUT /_pools/javascript",
            r#"{"maxx": 3}"#,
            "did you mean 'max'?",
        ),
        (
            "PUT /_pools/javascript?dryrun=true",
            r#"{"max": 3}"#,
            "did you mean 'dry_run'?",
        ),
        (
            "GET /_scheduler/jobs?state=failing",
            "",
            "did you mean 'states'?",
        ),
        (
            "DELETE /_health/documents_refused?subjct=a",
            "",
            "did you mean 'subject'?",
        ),
        (
            "POST /_scheduler/_bulk",
            r#"{"selct": {"all": true}}"#,
            "did you mean 'select'?",
        ),
        (
            "POST /_scheduler/_bulk",
            r#"{"select": {"sourc": "*"}}"#,
            "did you mean 'source'?",
        ),
        (
            "POST /_scheduler/_bulk",
            r#"{"select": 7}"#,
            "the body: invalid type",
        ),
        (
            "POST /_scheduler/jobs/a/_priority",
            r#"{"priority": 300}"#,
            "from -128 to 127",
        ),
        (
            "POST /_scheduler/jobs/a/_priority",
            "",
            "'priority' is missing",
        ),
        (
            "POST /_scheduler/jobs/a/_pause",
            r#"{"all": 3}"#,
            "'all': expected none",
        ),
        (
            "POST /_scheduler/_import",
            r#"{"row": []}"#,
            "did you mean 'rows'?",
        ),
        ("PUT /_drain", "[]", "must be a JSON object"),
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        let answer = order(&service, method, path, body);
        let reason = answer.json()["reason"].as_str().unwrap().to_owned();
        assert_eq!(answer.status, 400, "{request} {body}: {reason}");
        assert!(reason.contains(says), "{request} {body}: {reason}");
    }
    // An empty body and a null member are accepted.
    for body in ["", "null", "{}", r#"{"wait": null}"#] {
        order(&service, "DELETE", "/_drain", body).ok();
    }
    service.stop();
}
