//! Tests of parts of the comparison; tests/replication tests whole comparisons.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::testing::{Answer, Server, endpoint, logger, replication};

fn wanted(id: &str, revs: &[&str]) -> Wanted {
    Wanted {
        id: id.to_owned(),
        revs: revs.iter().map(|rev| (*rev).to_owned()).collect(),
        ancestors: Vec::new(),
    }
}

#[test]
fn present_revisions_are_the_requested_minus_the_missing_ones() {
    let asked = vec![
        wanted("a", &["1-a"]),
        wanted("b", &["1-b", "2-b"]),
        wanted("c", &["1-c"]),
    ];
    let missing = [wanted("b", &["2-b"]), wanted("c", &["1-c"])];
    let present = without(asked, &missing);
    assert_eq!(present, [wanted("a", &["1-a"]), wanted("b", &["1-b"])]);
}

#[test]
fn a_document_with_very_many_leaves_is_read_in_parts() {
    let revs: Vec<String> = (0..450).map(|number| format!("1-{number}")).collect();
    let revs: Vec<&str> = revs.iter().map(String::as_str).collect();
    let parts = chunks(vec![wanted("a", &revs), wanted("b", &["1-b"])]);
    let counts: Vec<usize> = parts.iter().map(|part| revisions(part)).collect();
    assert_eq!(counts, [200, 200, 51]);
    assert_eq!(parts[2][1], wanted("b", &["1-b"]));
}

#[test]
fn a_difference_prints_as_one_line_and_survives_serialization() {
    let leaf = Leaf {
        id: "a\nb".to_owned(),
        rev: "1-x".to_owned(),
    };
    let name = "photo.png".to_owned();
    let cases = [
        (Difference::Missing(leaf.clone()), "missing a b 1-x"),
        (
            Difference::AttachmentMissing {
                leaf: leaf.clone(),
                name: name.clone(),
            },
            "attachment missing a b 1-x photo.png",
        ),
        (
            Difference::AttachmentDiffers {
                leaf,
                name,
                how: "3 bytes at the source, 4 at the target".to_owned(),
            },
            "attachment differs a b 1-x photo.png (3 bytes at the source, 4 at the target)",
        ),
        (
            Difference::Refused(RefusedDoc {
                id: "d".to_owned(),
                rev: None,
                error: "forbidden".to_owned(),
                reason: "no".to_owned(),
            }),
            "refused d - (forbidden: no)",
        ),
    ];
    for (difference, line) in cases {
        assert_eq!(difference.to_string(), line);
        let text = serde_json::to_string(&difference).unwrap();
        let read: Difference = serde_json::from_str(&text).unwrap();
        assert_eq!(read, difference, "{text}");
    }
}

#[tokio::test]
async fn a_recheck_gets_a_connection_though_further_steps_have_begun() {
    let row = |id: &str| json!({"seq": id, "id": id, "changes": [{"rev": "1-x"}]});
    let rows = ["a", "b", "c"].map(row);
    let feed = json!({"results": rows, "last_seq": "c"}).to_string();
    let source = Server::start(move |_| Answer::new(200, &feed)).await;
    let missing = json!({"missing": ["1-x"]});
    let missing = json!({"a": missing, "b": missing, "c": missing}).to_string();
    let target = Server::start(move |request| {
        let is_of_step = request.nth < 3;
        Answer::new(200, if is_of_step { &missing } else { "{}" })
    });
    let target = target.await;
    let suspect = |n: usize| Leaf {
        id: n.to_string(),
        rev: "1-x".to_owned(),
    };
    let body = json!({"source": source.url(""), "target": target.url(""), "worker_batch_size": 1});
    let verifier = Verifier {
        source: source.endpoint(),
        target: endpoint(&target.url(""), |_, settings| settings.http_connections = 1),
        options: replication(&body).options,
        filter: None,
        id_max: None,
        deep: false,
        since: Seq::zero(),
        suspects: (1..SUSPECTS_MAX).map(suspect).collect(),
        refused: Vec::new(),
        log: logger(),
    };
    let run = verifier.run(|_| ControlFlow::Continue(()));
    let ended = timeout(Duration::from_secs(60), run).await;
    ended.expect("the comparison ends").unwrap();
}
