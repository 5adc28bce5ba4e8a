//! Services on one PostgreSQL database.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::server::{self, Server, TestDatabase};
use crate::support::daemon::{Service, configure, directory};
use crate::support::http_client::{Web, command as http_command};
use crate::support::program::{program, run};
use crate::support::store::{create, put};

/// Deadline for a change to become visible.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a service on a database.
pub fn start(database: &TestDatabase) -> Web {
    start_with(database, "")
}

fn start_with(database: &TestDatabase, more: &str) -> Web {
    let directory = directory();
    let settings = format!("[replicator]\nmax_jobs = 0\n{more}");
    let config = configure(directory.path(), &settings);
    let mut command: Command = http_command(&config);
    command.env("SETTEE__STORE__URL", database.url());
    let mut service = Service::start_command(directory, command);
    let address = service.next_address("http://");
    Web { service, address }
}

pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Returns whether the service reports that its database does not answer.
fn is_store_away(web: &Web) -> bool {
    let health = web.get("/_health").json();
    let problems = health["problems"].as_array().unwrap();
    let mut kinds = problems.iter().map(|problem| &problem["kind"]);
    kinds.any(|kind| kind == "store_away")
}

pub fn replication() -> Value {
    json!({"source": "http://127.0.0.1:1/a", "target": "http://127.0.0.1:1/b", "continuous": true, "n": 1.0})
}

#[test]
fn the_writes_of_one_service_are_read_and_listed_by_the_other() {
    let database = TestDatabase::new();
    let (first, second) = (start(&database), start(&database));
    create(&first, "rep", &replication());
    let found = second.get("/_replicator/rep");
    assert!(found.body.contains("\"n\":1.0"), "{found:?}");
    let listed = || second.get("/_replicator/_all_docs").json()["total_rows"] == 1;
    wait_for("the other service lists the document", listed);
    assert_eq!(second.get("/_replicator").json()["engine"], "postgresql");
    let uuid = |web: &Web| web.get("/").json()["uuid"].clone();
    assert_eq!(uuid(&first), uuid(&second));
    let config = first.get("/_node/_local/_config/store/url").body;
    assert!(
        config.contains(":***@") && !config.contains("secret"),
        "{config}"
    );
}

#[test]
fn dropped_records_of_a_daemon_are_counted_in_the_database_under_its_name() {
    let database = TestDatabase::new();
    let (first, second) = (
        start_with(&database, "[log]\naudit = \"/dev/full\"\n"),
        start(&database),
    );
    create(&first, "rep", &replication());
    let lost = |web: &Web, of: &Web| {
        let daemon = of.get("/_health").ok()["daemon"].clone();
        let name = format!("settee-losses-{}", daemon.as_str().unwrap());
        let kept = web.get(&format!("/_replicator/_local/{name}")).json();
        kept["records_dropped"]["audit"].as_u64()
    };
    wait_for("the loss is stored", || lost(&second, &first) >= Some(1));
    assert_eq!(lost(&first, &second), None);
}

#[test]
fn a_service_answers_503_while_its_database_is_down_and_then_recovers() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let web = start(&database);
    create(&web, "rep", &replication());
    assert!(!is_store_away(&web));
    server.stop();
    wait_for("the problem is reported", || is_store_away(&web));
    let up = web.get("/_up");
    assert_eq!(up.status, 503, "{}", up.body);
    assert_eq!(up.json()["problems"], json!(["store_away"]));
    assert_eq!(web.get("/_up?ready").status, 200);
    let refused = put(&web, "/_replicator/other", &replication());
    let reason = refused.reason(503, "store_unavailable");
    assert!(
        reason.contains("does not answer") && !reason.contains("secret"),
        "{reason}"
    );
    // Other services start without the database, and connect later.
    let late = start(&database);
    late.get("/_replicator/rep")
        .reason(503, "store_unavailable");
    server.start();
    for web in [&web, &late] {
        wait_for("the document is read again", || {
            web.get("/_replicator/rep").status == 200
        });
    }
    wait_for("documents are written again", || {
        put(&web, "/_replicator/other", &replication()).status == 201
    });
    wait_for("the problem is resolved", || !is_store_away(&web));
}

#[test]
fn refused_writes_are_reported_with_their_cause_and_as_a_health_problem() {
    let database = TestDatabase::new();
    let web = start(&database);
    create(&web, "rep", &replication());
    database.sql("CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = TG_ARGV[0]; END $$ LANGUAGE plpgsql");
    let causes = [
        ("53100", "has no room left (ERROR: no): make room"),
        ("53200", "is at a limit (ERROR: no): raise the limit"),
        (
            "23514",
            "refuses what was written (ERROR: no): undo what was changed",
        ),
        (
            "42501",
            "lacks rights for this service (ERROR: no): make its user",
        ),
        ("25006", "is read-only (ERROR: no): "),
        ("58030", "failed (ERROR: no): look at its disk"),
    ];
    for (code, expected) in causes {
        database.sql(&format!(
            "CREATE TRIGGER t BEFORE INSERT ON settee.docs EXECUTE FUNCTION refuse('{code}')"
        ));
        let refused = put(&web, "/_replicator/other", &replication());
        let reason = refused.reason(503, "store_unavailable");
        assert!(reason.contains(expected), "{reason}");
        database.sql("DROP TRIGGER t ON settee.docs");
    }
    wait_for("the problem is reported", || {
        let health = web.get("/_health").json();
        let mut problems = health["problems"].as_array().unwrap().iter();
        problems.any(|one| one["kind"] == "store_refusing" && one["severity"] == "critical")
    });
    assert!(!is_store_away(&web));
    create(&web, "other", &replication());
}

#[test]
fn an_unresponsive_database_is_a_problem_until_it_answers_again() {
    let database = TestDatabase::new();
    let web = start(&database);
    create(&web, "rep", &replication());
    let stopped = database.pause();
    wait_for("the problem is reported", || is_store_away(&web));
    server::resume(&stopped);
    wait_for("the problem is resolved", || !is_store_away(&web));
}

#[test]
fn after_a_failover_that_lost_updates_the_changes_feed_lists_everything_again() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let (first, second) = (start(&database), start(&database));
    // The targets differ: of two duplicate replications one would be listed again, as failed.
    let to = |name: &str| json!({"source": "http://127.0.0.1:1/a", "target": format!("http://127.0.0.1:1/{name}"), "continuous": true});
    create(&first, "kept", &to("kept"));
    server.back_up();
    for n in 0..3 {
        let name = format!("lost{n}");
        create(&first, &name, &to(&name));
    }
    let total = || second.get("/_replicator/_all_docs").json()["total_rows"].clone();
    wait_for("the other service lists all", || total() == 4);
    let changes = |since: &str| second.get(&format!("/_replicator/_changes?since={since}"));
    let before = changes("0").json()["last_seq"].clone();
    let before = before.as_str().unwrap();
    server.fail_over();
    for n in 0..5 {
        let name = format!("new{n}");
        wait_for("documents are written again", || {
            let put = put(&first, &format!("/_replicator/{name}"), &to(&name));
            [201, 409].contains(&put.status)
        });
    }
    wait_for("lost documents are no longer listed", || total() == 6);
    let listed = changes(before).json();
    let listed: Vec<_> = listed["results"].as_array().unwrap().iter().collect();
    let ids: Vec<_> = listed
        .iter()
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["kept", "new0", "new1", "new2", "new3", "new4"]);
    let after = changes("0").json()["last_seq"].clone();
    let again = changes(after.as_str().unwrap()).json();
    assert_eq!(again["results"], json!([]), "{again}");
}

#[test]
fn a_document_whose_last_edit_was_lost_in_a_failover_has_the_job_of_its_present_version() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let web = start(&database);
    let to = |name: &str| json!({"source": "http://127.0.0.1:1/a", "target": format!("http://127.0.0.1:1/{name}"), "continuous": true});
    let wait_for_target = |name: &str| {
        wait_for(name, || {
            let jobs = web.get("/_scheduler/jobs").json();
            let target = jobs["jobs"][0]["target"].as_str();
            target.is_some_and(|target| target.contains(name))
        });
    };
    let rev = create(&web, "x", &to("before"));
    wait_for_target("before");
    server.back_up();
    let mut edited = to("after");
    edited["_rev"] = rev.into();
    assert_eq!(put(&web, "/_replicator/x", &edited).status, 201);
    wait_for_target("after");
    server.fail_over();
    wait_for_target("before");
}

#[test]
fn pauses_and_priorities_lost_in_a_failover_are_rewritten_and_survive_a_restart() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let web = start(&database);
    for name in ["a", "b", "c", "d", "e"] {
        let target = format!("http://127.0.0.1:1/{name}");
        create(
            &web,
            name,
            &json!({"source": "http://127.0.0.1:1/s", "target": target}),
        );
    }
    let jobs = |web: &Web| web.get("/_scheduler/jobs").json()["jobs"].clone();
    wait_for("the jobs", || {
        jobs(&web).as_array().map(Vec::len) == Some(5)
    });
    let all = jobs(&web);
    let order = |job: &Value, order: &str, body: &str| {
        let path = format!("/_scheduler/jobs/{}/{order}", job["id"].as_str().unwrap());
        web.send("POST", &path, body).ok();
    };
    order(&all[0], "_pause", "");
    server.back_up();
    for job in all.as_array().unwrap() {
        order(job, "_priority", r#"{"priority": 7}"#);
        order(job, "_pause", "");
    }
    order(&all[0], "_resume", "");
    server.fail_over();
    let rewritten = "pauses and priorities that the database has lost are written again";
    web.service.wait_for_log(rewritten);
    web.service.stop();
    let web = start(&database);
    wait_for(
        "all jobs have their priority, and all but one are paused",
        || {
            let jobs = jobs(&web);
            let jobs = jobs.as_array().unwrap();
            let is_kept = |job: &Value| {
                job["paused"].is_object() == (job["id"] != all[0]["id"]) && job["priority"] == 7
            };
            jobs.len() == 5 && jobs.iter().all(is_kept)
        },
    );
}

#[test]
fn a_service_lists_replications_from_memory_with_their_age_while_its_database_is_down() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let web = start(&database);
    create(&web, "rep", &replication());
    let job = || web.get("/_scheduler/jobs").json()["jobs"][0].clone();
    wait_for("the job", || job()["document"] == "rep");
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = format!("{}:{}", machine.trim(), web.address.port());
    assert_eq!(
        job()["daemon"],
        name,
        "a daemon on a loopback address is named after its host"
    );
    wait_for("a snapshot", || web.get("/_fleet").json()["age_s"].is_u64());
    server.stop();
    wait_for("an old snapshot", || {
        web.get("/_scheduler/jobs").json()["age_s"].as_u64() > Some(2)
    });
    assert_eq!(job()["document"], "rep");
    let docs = web.get("/_scheduler/docs").json();
    assert_eq!(
        (&docs["total_rows"], &docs["docs"][0]["doc_id"]),
        (&1.into(), &"rep".into())
    );
    assert!(docs["docs"][0]["source"].is_string(), "{docs}");
    server.start();
    wait_for("a fresh snapshot", || {
        web.get("/_scheduler/docs").json()["age_s"].as_u64() <= Some(2)
    });
}

/// Returns the value of a series.
fn metric(web: &Web, series: &str) -> u64 {
    let text = web.get("/metrics").body;
    let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
    let value = values.find_map(|rest| rest.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("{series}: {text}"))
        .parse()
        .unwrap()
}

#[test]
fn metrics_count_database_requests_and_connections() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let web = start(&database);
    let connections = || metric(&web, "settee_store_connections");
    let requests = |kind: &str| {
        let series = format!("settee_store_request_seconds_count{{request=\"{kind}\"}}");
        metric(&web, &series)
    };
    let writes = requests("write");
    create(&web, "rep", &replication());
    assert!(requests("write") > writes);
    wait_for("four connections", || connections() == 4);
    let made = metric(&web, "settee_store_connects_total");
    let reads = requests("read");
    assert_eq!(web.get("/_replicator/rep").status, 200);
    assert!(requests("read") > reads);
    server.stop();
    wait_for("no connection", || connections() == 0);
    server.start();
    wait_for("four connections again", || {
        let id = format!("/_replicator/{}", connections());
        put(&web, &id, &replication());
        web.get(&id);
        connections() == 4
    });
    assert!(metric(&web, "settee_store_connects_total") >= made + 4);
}

#[test]
fn the_replicate_command_uses_the_uuid_of_the_services() {
    let database = TestDatabase::new();
    let web = start(&database);
    let uuid = web.get("/").json()["uuid"].clone();
    let folder = directory();
    let mut command = program(&["replicate", "http://127.0.0.1:1/a", "http://127.0.0.1:1/b"]);
    command.env("SETTEE__STORE__URL", database.url());
    command.env("SETTEE__STORE__PATH", folder.path().join("store.redb"));
    let output = run(&mut command, b"");
    assert!(!output.status.success(), "no server answers");
    let kept = fs::read_to_string(folder.path().join("replicate.uuid")).unwrap();
    assert_eq!(kept.trim(), uuid.as_str().unwrap());
}

#[test]
fn a_daemon_ignores_tables_and_columns_of_a_newer_program_and_refuses_to_start_on_its_format() {
    let database = TestDatabase::new();
    let web = start(&database);
    create(&web, "first", &replication());
    let tables = "SELECT string_agg(format('ALTER TABLE settee.%I ADD COLUMN of_newer text;', tablename), ' ') \
                  FROM pg_tables WHERE schemaname = 'settee'";
    let alter = database.sql(tables);
    assert!(alter.matches("ALTER").count() > 5, "{alter}");
    database.sql(&format!("{alter} CREATE TABLE settee.of_newer (id text)"));
    let late = start(&database);
    for (web, id) in [(&web, "second"), (&late, "third")] {
        let mut body = replication();
        body["target"] = json!(format!("http://127.0.0.1:1/{id}"));
        create(web, id, &body);
    }
    for web in [&web, &late] {
        let total = || web.get("/_replicator/_all_docs").json()["total_rows"] == 3;
        wait_for("all documents", total);
        let daemons = || {
            web.get("/_fleet").json()["daemons"]
                .as_array()
                .map(Vec::len)
        };
        wait_for("both daemons", || daemons() == Some(2));
    }
    database.sql("UPDATE settee.meta SET format = 3");
    let rev = web.get("/_replicator/first").json()["_rev"].clone();
    let mut body = replication();
    body["_rev"] = rev;
    assert_eq!(put(&web, "/_replicator/first", &body).status, 201);
    let folder = directory();
    let config = configure(folder.path(), "");
    let mut serve = program(&["serve", "-c", config.to_str().unwrap()]);
    let refused = run(serve.env("SETTEE__STORE__URL", database.url()), b"");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(74), "{stderr}");
    assert!(
        stderr.contains("(format 3, this program knows 2): start the program that wrote it"),
        "{stderr}"
    );
}
