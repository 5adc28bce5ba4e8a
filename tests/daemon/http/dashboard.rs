//! The dashboard's page and its files.

use crate::support::http_client::Web;

#[test]
fn the_page_may_use_nothing_but_its_own_files() {
    let web = Web::start("");
    for (path, content_type) in [
        ("/_dashboard", "text/html; charset=utf-8"),
        ("/_dashboard/page.css", "text/css; charset=utf-8"),
        ("/_dashboard/page.js", "text/javascript; charset=utf-8"),
    ] {
        let response = web.get(path);
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some(content_type));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        let policy = response.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
    }
    web.get("/_dashboard/other").error(404, "not_found");
    web.send("POST", "/_dashboard", "")
        .error(405, "method_not_allowed");
    let state = web.get("/_dashboard/state").ok();
    assert_eq!(state["jobs"]["total"], 0);
    assert!(state["status"]["pools"].is_array());
    web.service.stop();
}
