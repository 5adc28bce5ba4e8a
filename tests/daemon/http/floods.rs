//! Lines that functions write to the service's log.

use serde_json::json;

use crate::support::http_client::Web;

/// Calls `log()` `times` times with a line of `length` characters.
fn logs(web: &Web, times: usize, length: usize) {
    let fun = format!(
        "function(doc) {{ var line = new Array({length} + 1).join('x'); \
         for (var i = 0; i < {times}; i++) log(line); emit(1, 1); }}"
    );
    let body = json!({"lang": "javascript", "funs": [fun], "docs": [{"_id": "a"}]}).to_string();
    web.send("POST", "/_query/map", &body).ok();
}

#[test]
fn a_flood_of_lines_that_a_function_logs_is_bounded_and_the_omission_is_reported() {
    let web = Web::start("");
    logs(&web, 20_000, 100);
    web.service
        .wait_for_log("lines of a query server were left out");
    let log = web.service.log();
    let lines = log.matches("query server log").count();
    assert!((100..5_000).contains(&lines), "{lines}");
    web.service.stop();
}

#[test]
fn a_long_line_that_a_function_logs_is_truncated() {
    let web = Web::start("");
    logs(&web, 1, 1 << 20);
    web.service.wait_for_log("query server log");
    assert!(web.service.log().len() < 100_000);
    web.service.stop();
}

#[test]
fn a_pool_with_a_limit_of_zero_lines_logs_none() {
    let web = Web::start("[log]\nchild_lines_max = 0\n");
    logs(&web, 3, 10);
    web.service
        .wait_for_log("lines of a query server were left out");
    assert!(!web.service.log().contains("query server log"));
    web.service.stop();
}
