//! The dashboard for Grafana, `monitoring/grafana.json`: a real Prometheus that scrapes a busy daemon answers each of
//! its queries.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::postgres::server::TestDatabase;
use crate::support::couch::{Couch, Database};
use crate::support::daemon::{configure, directory, wait_until};
use crate::support::http_client::{Connection, Web, command};
use crate::support::program::project;

/// A pool of one process that databases take from each other, a pool whose program does not exist, and a pool without a
/// cell whose only process is held: one request waits there, and others are refused.
const CONFIG: &str = "\
[query_server_config]
sandbox = \"standard\"
reuse = \"database\"
[query_servers]
missing = \"/nonexistent/server\"
[pools.narrow]
language = \"javascript\"
max = 1
[pools.held]
language = \"python\"
sandbox = \"off\"
max = 1
queue_max = 1
[replicator]
retries_per_request = 1
";

/// A query with one of these parts may stay 0 with this daemon: a value above 0 needs a broken database, machine or
/// program, or a state too short to be scraped. It must be answered all the same.
const MAY_BE_ZERO: [&str; 11] = [
    "settee_store_connections",
    "settee_fleet_unowned_seconds",
    "result=~\"over|failed\"",
    "settee_log_records_dropped_total",
    "settee_replication_documents_refused_total",
    "settee_invariant_violations_total",
    "settee_problems",
    "settee_pool_forgets_total",
    "settee_replication_lag_changes",
    "settee_replication_jobs_paused",
    "couchdb_couch_replicator_jobs_pending",
];

fn dashboard() -> Value {
    let path = project().join("monitoring/grafana.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels.filter(|panel| panel["type"] != "row")
}

fn queries(panel: &Value) -> impl Iterator<Item = &str> {
    let targets = panel["targets"].as_array().unwrap().iter();
    targets.map(|target| target["expr"].as_str().unwrap())
}

/// Returns a metric's name, without the suffix of a histogram's series.
fn base(name: &str) -> &str {
    let ends = ["_bucket", "_count", "_sum"].into_iter();
    let mut histograms = ends.filter_map(|end| name.strip_suffix(end));
    histograms
        .find(|base| base.ends_with("_seconds"))
        .unwrap_or(name)
}

/// Returns the metric names in `text`.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| {
        let begins = ["settee_", "couchdb_", "process_"];
        begins.iter().any(|begin| word.starts_with(begin))
    });
    ours.map(base).collect()
}

#[test]
fn every_panel_has_a_unique_title_and_id_a_description_a_unit_and_a_query() {
    let dashboard = dashboard();
    let rows = dashboard["panels"].as_array().unwrap().iter();
    let rows = rows.filter(|panel| panel["type"] == "row");
    assert_eq!(rows.count(), 5);
    let (mut titles, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(titles.insert(panel["title"].as_str().unwrap()), "{panel}");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
    }
    for panel in panels(&dashboard) {
        let description = panel["description"].as_str().unwrap();
        assert!(description.ends_with('.'), "{panel}");
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{panel}"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(queries(panel).count() > 0, "{panel}");
    }
}

#[test]
fn the_dashboard_shows_only_documented_metrics_and_every_metric_of_an_alert() {
    let dashboard = dashboard();
    let text = dashboard.to_string();
    let shown = panels(&dashboard).flat_map(queries).flat_map(metrics);
    let shown: BTreeSet<_> = shown.collect();
    let read = |path| std::fs::read_to_string(project().join(path)).unwrap();
    let page = read("docs/metrics.md");
    for metric in metrics(&text) {
        assert!(page.contains(&format!("| `{metric}` |")), "{metric}");
    }
    let rules = read("monitoring/alerts.yml");
    for metric in metrics(&rules) {
        assert!(shown.contains(metric), "{metric} has an alert and no panel");
    }
}

/// Prometheus, stopped when dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts Prometheus, which scrapes this daemon every second.
    fn start(daemon: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "scrape_configs: [{{job_name: settee, scrape_interval: 1s, scrape_timeout: 1s, \
             static_configs: [{{targets: ['{daemon}']}}]}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        // If another program takes the free port first, Prometheus exits.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().display()));
        command.arg(format!("--web.listen-address={address}"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("prometheus is installed");
        let mut it = Self {
            child,
            address,
            _folder: folder,
        };
        wait_until("answer of Prometheus", || {
            let ended = it.child.try_wait().unwrap();
            assert_eq!(ended, None, "Prometheus refused its configuration");
            std::net::TcpStream::connect(address).is_ok()
        });
        wait_until("scrape of the daemon", || {
            let up = it.ask("query", "query", "up");
            up["result"][0]["value"][1] == "1"
        });
        it
    }

    /// Queries its API, and returns the data; null while Prometheus starts.
    fn ask(&self, path: &str, parameter: &str, value: &str) -> Value {
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        let path = format!("/api/v1/{path}?{parameter}={value}");
        let answer = Connection::open(self.address).request("GET", &path, &[], "");
        // Prometheus answers 503 while it starts.
        if answer.status == 503 {
            return Value::Null;
        }
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["status"], "success", "{path}: {body}");
        body["data"].clone()
    }

    /// Returns the largest number that a query finds.
    fn largest(&self, query: &str) -> Option<f64> {
        let data = self.ask("query", "query", query);
        let found = data["result"].as_array().unwrap().iter();
        let numbers = found.map(|sample| sample["value"][1].as_str().unwrap().parse().unwrap());
        numbers
            .filter(|number: &f64| !number.is_nan())
            .reduce(f64::max)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The dashboard's variables, each with its values.
struct Variables(Vec<(String, String)>);

impl Variables {
    /// Queries them as Grafana does: all values of each, which may depend on earlier variables.
    fn ask(prometheus: &Prometheus, dashboard: &Value) -> Self {
        let mut found = Self(Vec::new());
        for (name, span) in [("__rate_interval", "1m"), ("__range", "5m")] {
            found.0.push((format!("${name}"), span.to_owned()));
        }
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        for variable in variables.iter().filter(|one| one["type"] == "query") {
            let query = found.fill(variable["query"]["query"].as_str().unwrap());
            let inside = query.strip_prefix("label_values(").unwrap();
            let (of, label) = inside.strip_suffix(')').unwrap().rsplit_once(", ").unwrap();
            let data = prometheus.ask(&format!("label/{label}/values"), "match[]", of);
            let values = data.as_array().unwrap().iter();
            let values: Vec<_> = values.map(|value| value.as_str().unwrap()).collect();
            assert!(!values.is_empty(), "{query}");
            let name = variable["name"].as_str().unwrap();
            found.0.push((format!("${name}"), values.join("|")));
        }
        found
    }

    fn fill(&self, query: &str) -> String {
        let fill = |query: String, (name, value): &(String, String)| query.replace(name, value);
        self.0.iter().fold(query.to_owned(), fill)
    }
}

/// Gives the daemon one round of work.
fn work(web: &Web, source: &Database, round: usize) {
    let send = |path: &str, body: Value| web.send("POST", path, &body.to_string()).status;
    let db = format!("db{}", round % 2);
    let map = |lang: &str, pool: &str, source: &str| json!({"db": db, "lang": lang, "pool": pool, "funs": [source], "docs": [{"_id": "a"}]});
    let good = map(
        "javascript",
        "narrow",
        "function(doc) { emit(doc._id, 1); }",
    );
    assert_eq!(send("/_query/map", good), 200);
    let mistaken = map("javascript", "narrow", "function(doc) {");
    assert_eq!(send("/_query/map", mistaken), 400);
    let reduce = json!({"db": db, "lang": "javascript", "funs": ["function(keys, values) { return 1; }"],
        "rows": [[["a", "id"], 1]]});
    assert_eq!(send("/_query/reduce", reduce), 200);
    let ddoc = json!({"_id": "_design/d", "shows": {"s": "function() { return 'x'; }"},
        "filters": {"f": "function() { return true; }"}, "validate_doc_update": "function() {}"});
    for (path, args) in [
        (json!(["shows", "s"]), json!([null, {}])),
        (json!(["filters", "f"]), json!([[{"_id": "a"}], {}])),
        (
            json!(["validate_doc_update"]),
            json!([{"_id": "a"}, null, {}, {}]),
        ),
    ] {
        let call = json!({"db": db, "ddoc": ddoc, "path": path, "args": args});
        assert_eq!(send("/_query/ddoc", call), 200, "{path}");
    }
    let missing = map("missing", "missing", "f");
    assert_ne!(send("/_query/map", missing), 200);
    let refused = map("python", "held", "f");
    assert_ne!(send("/_query/map", refused), 200);
    if round < 3 {
        let mut endless = map(
            "javascript",
            "javascript",
            "function(doc) { while (true) {} }",
        );
        endless["timeout_ms"] = json!(500);
        assert_eq!(send("/_query/map", endless), 500);
    }
    source.put(&format!("doc{round}"), None, json!({"n": round}));
}

/// Starts a continuous replication from the source to the target, and one from an unreachable source.
fn replicate(web: &Web, from: &str, to: &str) {
    let nowhere = "http://127.0.0.1:1/a";
    let docs = json!({"docs": [
        {"_id": "good", "source": from, "target": to, "continuous": true},
        {"_id": "bad", "source": nowhere, "target": to, "continuous": true},
    ]});
    let made = web.send("POST", "/_replicator/_bulk_docs", &docs.to_string());
    assert_eq!(made.status, 201, "{made:?}");
}

/// Runs every query, while the daemon works, until each has found a number: above 0, unless it may stay 0.
fn ask_all(web: &Web, source: &Database, prometheus: &Prometheus) {
    let dashboard = dashboard();
    let variables = Variables::ask(prometheus, &dashboard);
    let mut open: Vec<_> = panels(&dashboard).flat_map(queries).collect();
    for part in MAY_BE_ZERO {
        assert!(open.iter().any(|query| query.contains(part)), "{part}");
    }
    let is_answered = |query: &str| {
        let may_be_zero = MAY_BE_ZERO.iter().any(|part| query.contains(part));
        let largest = prometheus.largest(&variables.fill(query));
        largest.is_some_and(|number| number > 0.0 || may_be_zero)
    };
    let mut round = 0;
    let begun = std::time::Instant::now();
    wait_until("answer to each query", || {
        work(web, source, round);
        round += 1;
        open.retain(|query| !is_answered(query));
        let patience = crate::support::daemon::DEADLINE * 9 / 10;
        assert!(open.is_empty() || begun.elapsed() < patience, "{open:#?}");
        open.is_empty()
    });
}

#[actix_rt::test]
async fn prometheus_answers_every_dashboard_query_about_a_busy_daemon() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let (from, to, database) = (source.url(), target.url(), Database::clone(&source));
    let test = tokio::task::spawn_blocking(move || {
        let store = TestDatabase::new();
        let directory = directory();
        let mut command = command(&configure(directory.path(), CONFIG));
        command.env("SETTEE__STORE__URL", store.url());
        let web = Web::start_command(directory, command);
        let prometheus = Prometheus::start(web.address);
        replicate(&web, &from, &to);
        let (mut holder, mut waiter) = (web.service.connect(), web.service.connect());
        let get = json!({"id": 1, "call": "get_proc", "pool": "held"});
        let held = holder.ok(&get);
        waiter.send(&get);
        holder.wait_for_pool("held", &[("used", 1), ("waiting", 1)]);
        ask_all(&web, &database, &prometheus);
        drop(prometheus);
        assert!(holder.ret_proc(held["proc"].as_str().unwrap()));
        let next = waiter.reply();
        assert!(
            waiter.ret_proc(next["ok"]["proc"].as_str().unwrap()),
            "{next}"
        );
        web.service.stop();
    });
    test.await.unwrap();
}
