//! Filters run by Settee, compared with the same filters run by the source.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::pouch::Pouch;
use crate::support::filters::{EVEN, KIND, run};
use crate::support::job::body_with;

#[actix_rt::test]
async fn filters_accept_the_same_documents_in_settee_and_at_the_source() {
    let pouch = Pouch::start();
    for database in ["a", "there", "here"] {
        pouch.create(database).await;
    }
    let mut docs: Vec<Value> = (0..300)
        .map(|n| json!({"_id": format!("{n:03}"), "n": n, "kind": (["x", "y", "z"][n % 3])}))
        .collect();
    let filters = json!({"kind": KIND});
    docs.push(json!({"_id": "_design/f", "filters": filters, "views": {"even": {"map": EVEN}}}));
    let answers = pouch.write("a", docs).await;
    let rev = answers[7]["rev"].as_str().unwrap();
    let bytes = Bytes::from(vec![1; 70_000]);
    pouch.attach("a", "007", rev, "one.png", bytes).await;
    let view = json!({"filter": "_view", "query_params": {"view": "f/even"}});
    let function = json!({"filter": "f/kind", "query_params": {"kind": "y"}, "filter_code": KIND});
    for more in [view, function] {
        for (target, at) in [("there", "source"), ("here", "settee")] {
            let mut more = more.clone();
            more["filter_at"] = json!(at);
            let body = body_with(&pouch.url("a"), &pouch.url(target), more);
            run(&body).await.normal();
        }
        pouch.assert_equal("here", "there").await;
    }
    assert_eq!(pouch.count("here").await, 200);
}
