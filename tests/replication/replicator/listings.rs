//! Pages of documents and jobs are slices of the whole list.

use serde_json::{Value, json};

use crate::support::daemon::wait_until;
use crate::support::http_client::Web;
use crate::support::store::{post, put, start};

const COUNT: usize = 900;

fn rows(web: &Web, path: &str) -> Value {
    web.get(path).ok()
}

fn ids(listing: &Value, of: &str, name: &str) -> Vec<String> {
    let rows = listing[of].as_array().unwrap().iter();
    rows.map(|row| row[name].as_str().unwrap().to_owned())
        .collect()
}

/// Writes documents, of which every third duplicates the one before and fails, and a design document, which has no
/// state.
fn fill(web: &Web) {
    let docs = (0..COUNT).map(|n| {
        let target = format!("http://127.0.0.1:1/b{}", if n % 3 == 2 { n - 1 } else { n });
        json!({"_id": format!("d{n:05}"), "source": "http://127.0.0.1:1/a", "target": target,
               "continuous": true})
    });
    let docs: Vec<Value> = docs.collect();
    assert_eq!(
        post(web, "/_replicator/_bulk_docs", &json!({"docs": docs})).status,
        201
    );
    // A write is visible to its writer at once.
    assert_eq!(rows(web, "/_scheduler/docs?limit=0")["total_rows"], COUNT);
    assert_eq!(put(web, "/_replicator/_design/x", &json!({})).status, 201);
    let path = format!("/_scheduler/docs?states=failed&limit={COUNT}");
    wait_until("states", || {
        let failed = rows(web, &path);
        failed["docs"].as_array().unwrap().len() == COUNT / 3
    });
    let path = format!("/_scheduler/docs?states=pending&limit={COUNT}");
    wait_until("jobs", || {
        let pending = rows(web, &path);
        pending["docs"].as_array().unwrap().len() == COUNT / 3 * 2
    });
}

#[test]
fn pages_by_states_are_slices_of_the_whole_list() {
    let web = start("[replicator]\nmax_jobs = 0\nstartup_jitter = 0\n");
    fill(&web);
    let whole = rows(&web, "/_scheduler/docs?limit=100000");
    assert_eq!(
        whole["total_rows"],
        COUNT + 1,
        "design documents are counted and not listed"
    );
    let docs = whole["docs"].as_array().unwrap().clone();
    assert_eq!(docs.len(), COUNT);
    for (states, skip, limit) in [
        ("", 0, 10),
        ("", 890, 100),
        ("pending", 0, 3),
        ("failed", 250, 100),
        ("failed,pending", 555, 7),
        ("running,crashing,completed,error,initializing", 0, 5),
    ] {
        for descending in [false, true] {
            let mut chosen: Vec<Value> = docs.clone();
            chosen.retain(|doc| {
                states.is_empty() || states.split(',').any(|state| doc["state"] == state)
            });
            if descending {
                chosen.reverse();
            }
            let chosen: Vec<Value> = chosen.into_iter().skip(skip).take(limit).collect();
            let filter = match states {
                "" => String::new(),
                states => format!("&states={states}"),
            };
            let path = format!(
                "/_scheduler/docs?skip={skip}&limit={limit}&descending={descending}{filter}"
            );
            let page = rows(&web, &path);
            assert_eq!(page["docs"], Value::Array(chosen), "{path}");
            assert_eq!(page["total_rows"], COUNT + 1, "{path}");
            assert_eq!(page["offset"], skip, "{path}");
        }
    }
    let beyond = rows(&web, "/_scheduler/docs?skip=100000");
    assert_eq!(
        (&beyond["offset"], &beyond["docs"]),
        (&json!(COUNT + 1), &json!([]))
    );
    let from = rows(
        &web,
        "/_scheduler/docs?start_key=%22d00500%22&limit=2&states=failed",
    );
    let failed = docs.iter().filter(|doc| doc["state"] == "failed");
    let ids_of = failed.map(|doc| doc["doc_id"].as_str().unwrap());
    let expected: Vec<&str> = ids_of.filter(|id| *id >= "d00500").take(2).collect();
    assert_eq!(ids(&from, "docs", "doc_id"), expected);
    // The design document sorts first.
    assert_eq!(from["offset"], 501);
    web.service.stop();
}

#[test]
fn pages_of_all_documents_and_of_jobs_honour_skip() {
    let web = start("[replicator]\nmax_jobs = 0\nstartup_jitter = 0\n");
    fill(&web);
    let page = rows(&web, "/_replicator/_all_docs?skip=700&limit=2");
    assert_eq!(ids(&page, "rows", "id"), ["d00699", "d00700"]);
    assert_eq!(
        (&page["offset"], &page["total_rows"]),
        (&json!(700), &json!(COUNT + 1))
    );
    let page = rows(
        &web,
        "/_replicator/_all_docs?startkey=%22d00500%22&endkey=%22d00498%22&descending=true&skip=1",
    );
    assert_eq!(ids(&page, "rows", "id"), ["d00499", "d00498"]);
    assert_eq!(page["offset"], COUNT - 500);
    let none = rows(&web, "/_replicator/_all_docs?skip=99999");
    assert_eq!(
        (&none["rows"], &none["offset"]),
        (&json!([]), &json!(COUNT + 1))
    );
    let jobs = rows(&web, "/_scheduler/jobs?limit=100000");
    let all = ids(&jobs, "jobs", "id");
    assert_eq!(all.len(), COUNT / 3 * 2, "more jobs than one query returns");
    let page = rows(&web, "/_scheduler/jobs?skip=599&limit=5");
    assert_eq!(ids(&page, "jobs", "id"), all[599..]);
    assert_eq!(
        (&page["total_rows"], &page["offset"]),
        (&json!(all.len()), &json!(599))
    );
    let pending = rows(&web, "/_scheduler/jobs?states=pending&skip=300&limit=250");
    assert_eq!(ids(&pending, "jobs", "id"), all[300..550]);
    assert_eq!(
        rows(&web, "/_scheduler/jobs?states=running")["total_rows"],
        0
    );
    web.service.stop();
}
