//! `feed = "db_updates"`: one connection to a server wakes all replications from it.

use std::time::Duration;

use actix::{Actor, Addr};
use serde_json::{Value, json};
use settee::actors::replication_job::ReplicationJob;
use settee::app::replication::http_config;
use settee::messages::replication_job::{JobEnd, StopJob};
use settee::replication::endpoint::{Http, HttpConfig};
use settee_testkit::{TestRandom, eventually};
use slog::{Discard, Logger, o};

use crate::support::couch::host::Host;
use crate::support::http_server::{Answer, Server};
use crate::support::job::{Job, body_with};

/// Returns the HTTP client that all replications of a test share, as in a service.
fn shared() -> Http {
    let config = HttpConfig {
        connection_close_interval: Duration::from_millis(500),
        ..http_config(&Default::default())
    };
    Http::new(config, &Logger::root(Discard, o!())).unwrap()
}

fn start(http: &Http, body: &Value) -> Job {
    let (mut start, mut job) = Job::prepare(body);
    start.settings.http = http.clone();
    job.address = Some(ReplicationJob::new(start).start());
    job
}

fn body(source: &Host, target: &Host, name: &str) -> Value {
    let options = json!({"continuous": true, "feed": "db_updates", "checkpoint_interval": 5000});
    body_with(&source.url(name), &target.url(name), options)
}

/// Starts two servers with these databases and a replication of each database, and waits until all are idle.
async fn replicating(names: &[String]) -> (Host, Host, Vec<Job>) {
    let (source, target) = (Host::start().await, Host::start().await);
    let http = shared();
    let mut jobs = Vec::new();
    for name in names {
        source.create(name);
        target.create(name);
        jobs.push(start(&http, &body(&source, &target, name)));
    }
    // One shared feed, and a read of each database.
    eventually("every replication waits", || async {
        source.followers() == 1 && names.iter().all(|name| source.reads(name) >= 1)
    })
    .await;
    (source, target, jobs)
}

async fn equal(source: &Host, target: &Host, name: &str) {
    let same = || async { source.database(name).trees() == target.database(name).trees() };
    eventually("the target has what the source has", same).await;
}

async fn stop(jobs: Vec<Job>) {
    for job in jobs {
        job.stopped().await;
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("db-{n}")).collect()
}

fn connections(host: &Host) -> usize {
    host.server.as_ref().map_or(0, Server::connections)
}

#[actix_rt::test]
async fn two_hundred_idle_replications_from_a_server_use_fewer_than_ten_connections() {
    let names = names(200);
    let (source, target, jobs) = replicating(&names).await;
    let few = || async { connections(&source) < 10 && connections(&target) < 10 };
    eventually("unused connections are closed", few).await;
    for name in [&names[0], &names[199]] {
        source.put(name, "one");
        equal(&source, &target, name).await;
    }
    eventually("unused connections are closed again", few).await;
    assert_eq!(source.followers(), 1);
    stop(jobs).await;
    eventually("the last replication closes the feed", || async {
        source.followers() == 0
    })
    .await;
}

#[actix_rt::test]
async fn a_write_wakes_only_the_replications_from_its_database() {
    let names = names(3);
    let (source, target, jobs) = replicating(&names).await;
    source.put("db-1", "first");
    equal(&source, &target, "db-1").await;
    let before: Vec<_> = ["db-0", "db-2"].map(|name| source.reads(name)).into();
    for n in 0..5 {
        source.put("db-1", &format!("doc-{n}"));
        equal(&source, &target, "db-1").await;
    }
    let after: Vec<_> = ["db-0", "db-2"].map(|name| source.reads(name)).into();
    assert_eq!(before, after);
    let received = source.server.as_ref().unwrap().received();
    let has_own_feed = |path: &str| path.ends_with("/_changes");
    let own = received
        .iter()
        .find(|request| has_own_feed(&request.path) && request.param("feed") == Some("continuous"));
    assert!(own.is_none(), "{own:?}");
    stop(jobs).await;
}

#[actix_rt::test]
async fn writes_while_the_connection_is_lost_are_replicated_after_reconnecting() {
    let names = names(4);
    let (source, target, jobs) = replicating(&names).await;
    source.put("db-0", "before");
    equal(&source, &target, "db-0").await;
    source.refuse_updates(Some(Answer::error(503, "x", "y")));
    source.drop_updates();
    source.put_silently("db-2", "meanwhile");
    source.refuse_updates(None);
    equal(&source, &target, "db-2").await;
    stop(jobs).await;
}

async fn falls_back(answer: Answer, says: &str) {
    let (source, target) = (Host::start().await, Host::start().await);
    source.refuse_updates(Some(answer));
    for host in [&source, &target] {
        host.create("db");
    }
    let mut job = start(&shared(), &body(&source, &target, "db"));
    let own_feed = loop {
        assert!(job.next().await.is_none(), "the job runs");
        if let Some(why) = job.progress.as_ref().and_then(|now| now.own_feed.clone()) {
            break why;
        }
    };
    assert!(own_feed.contains(says), "{own_feed}");
    assert!(
        own_feed.contains("name an administrator of the source"),
        "{own_feed}"
    );
    source.put("db", "one");
    equal(&source, &target, "db").await;
    let asked = source.server.as_ref().unwrap().received();
    let asked = asked.iter().filter(|request| request.path == "_db_updates");
    assert_eq!(asked.count(), 1);
    job.stopped().await;
}

#[actix_rt::test]
async fn without_db_updates_a_replication_falls_back_to_its_own_feed_and_says_why() {
    falls_back(Answer::error(401, "unauthorized", "not an admin"), ": 401:").await;
    falls_back(Answer::error(403, "forbidden", "not an admin"), ": 403:").await;
    falls_back(Answer::error(404, "not_found", "missing"), ": 404:").await;
    let page = Answer::bytes(200, "text/html", "<html>a proxy</html>");
    falls_back(page, "_db_updates").await;
}

#[actix_rt::test]
async fn databases_below_a_prefix_and_with_slashes_in_their_names_are_distinguished() {
    let (source, target) = (Host::with_prefix("a/couch/").await, Host::start().await);
    source.create("team/shop");
    target.create("shop");
    let options = json!({"continuous": true, "feed": "db_updates"});
    let body = body_with(&source.url("team%2Fshop"), &target.url("shop"), options);
    let job = start(&shared(), &body);
    eventually("the job follows the feed", || async {
        source.followers() == 1
    })
    .await;
    for n in 0..3 {
        source.put("team/shop", &format!("doc-{n}"));
        let same =
            || async { source.database("team/shop").trees() == target.database("shop").trees() };
        eventually("the document is replicated", same).await;
    }
    job.stopped().await;
}

#[actix_rt::test]
async fn filtered_replications_advance_with_the_source_and_write_matching_documents() {
    let (source, target) = (Host::start().await, Host::start().await);
    for host in [&source, &target] {
        host.create("db");
    }
    let mut body = body(&source, &target, "db");
    body["doc_ids"] = json!(["wanted"]);
    let mut job = start(&shared(), &body);
    eventually("the job follows the feed", || async {
        source.followers() == 1
    })
    .await;
    source.put("db", "other");
    while job
        .progress
        .as_ref()
        .is_none_or(|now| !now.checkpointed_source_seq.as_text().starts_with("1-"))
    {
        assert!(job.next().await.is_none(), "the job runs");
    }
    source.put("db", "wanted");
    eventually("the matching document is replicated", || async {
        target.database("db").trees().contains_key("wanted")
    })
    .await;
    assert_eq!(target.database("db").trees().len(), 1);
    job.stopped().await;
}

#[actix_rt::test]
async fn a_recreated_source_is_replicated_from_its_beginning() {
    let (source, target, mut jobs) = replicating(&["db".to_owned()]).await;
    source.put("db", "of the first");
    equal(&source, &target, "db").await;
    source.delete("db");
    source.create("db");
    source.put("db", "of the second");
    let end = jobs.remove(0).outcome().await.end;
    let JobEnd::Crashed(crash) = end else {
        panic!("the job continued on a recreated source: {end:?}");
    };
    let text = crash.to_string();
    assert!(text.starts_with("db_not_found: could not open "), "{text}");
    let again = start(&shared(), &body(&source, &target, "db"));
    eventually("the new database is replicated", || async {
        target.database("db").trees().contains_key("of the second")
    })
    .await;
    again.stopped().await;
}

#[actix_rt::test]
async fn idle_replications_stop_on_request() {
    let (source, _target, jobs) = replicating(&names(2)).await;
    let addresses: Vec<Addr<ReplicationJob>> =
        jobs.iter().filter_map(|job| job.address.clone()).collect();
    addresses.iter().for_each(|job| job.do_send(StopJob));
    for job in jobs {
        assert!(matches!(job.outcome().await.end, JobEnd::Stopped));
    }
    eventually("no replication follows the feed", || async {
        source.followers() == 0
    })
    .await;
}

/// Writes, lost connections and server restarts: in the end both sides are equal.
#[actix_rt::test]
async fn no_write_is_missed_when_connections_are_lost() {
    let mut random = TestRandom::for_test("no_write_is_missed_when_connections_are_lost");
    let names = names(12);
    let (mut source, target) = (Host::start().await, Host::start().await);
    let http = shared();
    let mut jobs = Vec::new();
    for name in &names {
        source.create(name);
        target.create(name);
        let body = body(&source, &target, name);
        jobs.push((start(&http, &body), body));
    }
    for step in 0..150 {
        match random.below(30) {
            0 => source.restart().await,
            1..4 => source.drop_updates(),
            4 => source.refuse_updates(Some(Answer::error(503, "x", "y"))),
            5 => source.refuse_updates(Some(Answer::reset())),
            6..9 => source.refuse_updates(None),
            _ => {
                let name = random.one_of(&names).clone();
                source.put(&name, &format!("doc-{step}"));
            }
        }
        if random.below(4) == 0 {
            tokio::time::sleep(Duration::from_millis(random.below(60) as u64)).await;
        }
        // Restarts crashed jobs, as the scheduler would.
        for (job, body) in &mut jobs {
            if let Some(address) = &job.address
                && !address.connected()
            {
                *job = start(&http, body);
            }
        }
    }
    source.refuse_updates(None);
    for name in &names {
        let same = || {
            for (job, body) in &mut jobs {
                if let Some(address) = &job.address
                    && !address.connected()
                {
                    *job = start(&http, body);
                }
            }
            let same = source.database(name).trees() == target.database(name).trees();
            async move { same }
        };
        eventually("the target has what the source has", same).await;
    }
    for (job, _) in jobs {
        job.stopped_or_crashed().await;
    }
}
