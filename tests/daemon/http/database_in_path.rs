//! `/_query/NAME?db=`: the database in the URL, for proxies that choose a daemon by it.

use serde_json::json;

use crate::support::http_client::Web;

#[test]
fn a_database_in_the_url_must_match_the_body() {
    let web = Web::start("");
    let of = |db: &str| {
        json!({"db": db, "lang": "javascript", "funs": ["function(doc) { emit(1); }"],
               "docs": [{"_id": "a"}]})
        .to_string()
    };
    let post = |path: &str, body: &str| web.send("POST", path, body);
    assert_eq!(
        post("/_query/map?db=sh%6Fp%2Fone", &of("shop/one")).ok()["ok"],
        json!([[[[1, null]]]])
    );
    let other = post("/_query/map?db=other", &of("shop"));
    let reason = other.reason(400, "query_parse_error");
    assert!(
        reason.contains(r#""other" in the URL and "shop" in the body"#),
        "{reason}"
    );
    let none = json!({"lang": "javascript", "funs": [], "docs": []}).to_string();
    let reason = post("/_query/map?db=shop", &none).reason(400, "query_parse_error");
    assert!(
        reason.contains(r#""shop" in the URL and missing in the body"#),
        "{reason}"
    );
    web.service.stop();
}

#[test]
fn a_database_in_the_url_must_match_the_first_line_of_a_stream() {
    let web = Web::start("");
    for (path, status) in [("/_query/map?db=shop", 200), ("/_query/map?db=other", 400)] {
        let mut connection = web.connect();
        connection.begin_chunked(path, "application/x-ndjson");
        let start = json!({"db": "shop", "funs": ["function(doc) { emit(1); }"]});
        connection.send_chunk(&format!("{start}\n{{\"_id\":\"a\"}}\n"));
        connection.end_chunks();
        assert_eq!(connection.head().status, status, "{path}");
    }
    web.service.stop();
}
