//! Query servers of others work in a cell as they are, with nothing configured for it.

use serde_json::{Value, json};

use crate::pip::couchpy;
use crate::support::daemon::Service;
use crate::support::program::project;

/// Maps two documents with this function, and returns the rows.
fn maps(command: &str, function: &str) -> Value {
    let extra = format!(
        "[couchdb]\nos_process_timeout = 30000\n\
         [query_server_config]\nsandbox = \"standard\"\nreuse = \"\"\n[query_servers]\nforeign = \"{command}\"\n"
    );
    let service = Service::start(&extra);
    let mut client = service.connect();
    let docs = json!([{"_id": "a", "n": 1}, {"_id": "b", "n": 2}]);
    let call = json!({"call": "map_docs", "lang": "foreign", "funs": [function], "docs": docs});
    let rows = client.ok(&call);
    assert_eq!(client.pool("foreign")["sandbox"]["mode"], "standard");
    drop(client);
    service.stop();
    rows
}

fn example(name: &str) -> String {
    project()
        .join("examples/languages")
        .join(name)
        .display()
        .to_string()
}

#[test]
fn couchpy_works_in_a_cell() {
    let rows = maps(
        &couchpy().display().to_string(),
        "def fun(doc):\n    yield doc['_id'], doc['n']\n",
    );
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
}

#[test]
fn node_works_in_a_cell() {
    let rows = maps(
        &format!("node {}", example("node_server.js")),
        "function(doc) { emit(doc._id, doc.n) }",
    );
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
}

#[test]
fn perl_works_in_a_cell() {
    let rows = maps(
        &format!("perl {}", example("perl_server.pl")),
        "sub { my ($doc) = @_; emit($doc->{_id}, $doc->{n}) }",
    );
    assert_eq!(rows, json!([[[["a", 1]]], [[["b", 2]]]]));
}
