//! What functions write into the service's log.

use serde_json::json;

use crate::support::http_client::Web;

/// Calls `log()` so often with a line of so many characters.
fn logs(web: &Web, times: usize, length: usize) {
    let fun = format!(
        "function(doc) {{ var line = new Array({length} + 1).join('x'); \
         for (var i = 0; i < {times}; i++) log(line); emit(1, 1); }}"
    );
    let body = json!({"lang": "javascript", "funs": [fun], "docs": [{"_id": "a"}]}).to_string();
    web.send("POST", "/_query/map", &body).ok();
}

#[test]
fn a_function_that_floods_the_log_is_cut_off_and_what_was_left_out_is_counted() {
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
fn a_line_that_a_function_logs_is_cut() {
    let web = Web::start("");
    logs(&web, 1, 1 << 20);
    web.service.wait_for_log("query server log");
    assert!(web.service.log().len() < 100_000);
    web.service.stop();
}

#[test]
fn a_pool_whose_processes_may_log_nothing_logs_nothing() {
    let web = Web::start("[log]\nchild_lines_max = 0\n");
    logs(&web, 3, 10);
    web.service
        .wait_for_log("lines of a query server were left out");
    assert!(!web.service.log().contains("query server log"));
    web.service.stop();
}
