//! A third-party query server, unchanged: couchpy through the pool, the socket, `settee map` and
//! `settee conform`. It knows no `ddoc`, no `add_lib`, and runs only the first of several reducers.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use settee::messages::proc_manager::GetProcError;
use settee::query_server::abilities::Ability;
use settee::query_server::language::LanguageName;
use settee_testkit::{TestPool, TestPoolBuilder};

use crate::pip::couchpy;
use crate::support::daemon::Service;
use crate::support::folder::open_folder;
use crate::support::program::program;
use crate::support::work::{lines, stderr};

const MAP: &str = "def fun(doc):\n    yield doc['_id'], doc['n']\n";
const SUM: &str = "def fun(keys, values, rereduce):\n    return sum(values)\n";

fn pool() -> TestPoolBuilder {
    let command = couchpy().display().to_string();
    // Python starts slowly on a busy machine.
    TestPool::builder()
        .command("python", &command)
        .timeout(Duration::from_secs(30))
}

#[actix_rt::test]
async fn maps_reduces_and_rereduces() {
    let pool = pool().start();
    let mut client = pool.client("view");
    client.takes(pool.any()).await;
    for (command, answer) in [
        (json!(["reset", {"reduce_limit": true}]), json!(true)),
        (json!(["add_fun", MAP]), json!(true)),
        (
            json!(["map_doc", {"_id": "ß→😀", "n": 7}]),
            json!([[["ß→😀", 7]]]),
        ),
        (
            json!(["reduce", [SUM], [[["a", "d"], 1], [["b", "e"], 2]], "ctx"]),
            json!([true, [3]]),
        ),
        (json!(["rereduce", [SUM], [3, 4], ""]), json!([true, [7]])),
        (json!(["reset"]), json!(true)),
        (json!(["map_doc", {"_id": "a"}]), json!([])),
    ] {
        let got = client.prompts(&command.to_string()).await.unwrap();
        let got: Value = serde_json::from_str(&got).unwrap();
        assert_eq!(got, answer, "{command}");
    }
    let error = client
        .prompts(r#"["add_fun","def fun(:"]"#)
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("map_compilation_error: "),
        "{error}"
    );
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_design_document_is_refused_without_using_a_process() {
    let pool = pool().hard_limit(1).start();
    let mut client = pool.client("show");
    for _ in 0..3 {
        let error = client.is_refused(pool.ddoc("db", "_design/d")).await;
        let GetProcError::Unable {
            language,
            ability,
            how,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((language.as_str(), *ability), ("python", Ability::Ddoc));
        assert!(
            how.starts_with("when tried, it exited with status 1"),
            "{how}"
        );
        assert!(how.contains("KeyError: 'ddoc'"), "{how}");
        let class = error.class();
        assert_eq!((class.name, class.phase), ("not_implemented", "teach"));
        assert!(!error.retryable());
    }
    // The refusals used no process of the pool, and the language's views still work.
    assert!(pool.started().is_empty());
    client.takes(pool.any()).await;
    assert_eq!(client.prompts("[\"reset\"]").await.as_deref(), Ok("true"));
    client.returns().await;
    let status = pool.status().await;
    assert_eq!(status.abilities["ddoc"], Some(false));
    assert_eq!(status.abilities["add_lib"], None, "not needed yet");
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn abilities_are_probed_when_they_are_needed() {
    let pool = pool().start();
    let caller = pool.caller();
    for (ability, able) in [
        (Ability::Ddoc, false),
        (Ability::AddLib, false),
        (Ability::Reduce, true),
        (Ability::ReduceContext, true),
        (Ability::SeveralReducers, false),
        (Ability::Pipelining, true),
        (Ability::IndexDoc, false),
    ] {
        let required = caller.require(&LanguageName::new("python"), ability).await;
        assert_eq!(required.is_ok(), able, "{ability:?}: {required:?}");
        let known = pool.status().await.abilities[ability.name()];
        assert_eq!(known, Some(able), "{ability:?}");
    }
    drop(caller);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_unknown_command_ends_the_process_and_its_stderr_is_reported() {
    let pool = pool().start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let error = client.prompts(r#"["no_such_command"]"#).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("exited with status 1"), "{error}");
    assert!(error.contains("KeyError: 'no_such_command'"), "{error}");
    client.returns().await;
    // The next loan is of a new process.
    client.takes(pool.any()).await;
    assert_eq!(client.prompts("[\"reset\"]").await.as_deref(), Ok("true"));
    client.returns().await;
    pool.assert_quiet().await;
}

#[test]
fn a_service_refuses_design_documents_and_shows_the_missing_ability() {
    let extra = format!(
        "[couchdb]\nos_process_timeout = 30000\n[query_servers]\ncouchpy = \"{}\"\n",
        couchpy().display()
    );
    let service = Service::start(&extra);
    let mut client = service.connect();
    let ddoc = json!({"_id": "_design/d", "_rev": "1-a", "language": "couchpy"});
    let call = json!({"call": "ddoc_prompt", "db": "shop", "ddoc": ddoc, "path": ["shows", "s"], "args": [null, {}]});
    let error = client.error(&call);
    assert_eq!(error["name"], "not_implemented", "{error}");
    assert_eq!(error["fault"], "query_server");
    assert_eq!(error["retry"], false);
    let reason = error["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the query server for 'couchpy' knows no design documents"),
        "{reason}"
    );
    let pool = client.pool("couchpy");
    assert_eq!(pool["abilities"]["ddoc"], false);
    assert_eq!(
        (&pool["used"], &pool["free"], &pool["opening"]),
        (&json!(0), &json!(0), &json!(0))
    );
    let mut status = program(&["status", "--socket"]);
    let output = status.arg(service.socket()).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let row = table
        .lines()
        .find(|line| line.starts_with("couchpy"))
        .unwrap();
    assert!(row.contains("  ddoc  "), "{table}");
    // Its views still work.
    let proc = client.get_proc("couchpy");
    assert_eq!(client.prompt(&proc, json!(["reset"])), json!(true));
    assert!(client.ret_proc(&proc));
    service.stop();
}

#[test]
fn calls_run_the_functions_that_couchpy_supports_and_refuse_others() {
    let extra = format!(
        "[couchdb]\nos_process_timeout = 30000\n[query_servers]\ncouchpy = \"{}\"\n",
        couchpy().display()
    );
    let service = Service::start(&extra);
    let mut client = service.connect();
    let docs = json!([{"_id": "a", "n": 1}, {"_id": "b", "n": 2}]);
    let map = json!({"call": "map_docs", "lang": "couchpy", "funs": [MAP], "docs": docs});
    assert_eq!(client.ok(&map), json!([[[["a", 1]]], [[["b", 2]]]]));
    let rows = json!([[["a", "a"], 1], [["b", "b"], 2]]);
    let reduce =
        |funs: Value| json!({"call": "reduce", "lang": "couchpy", "funs": funs, "rows": rows});
    assert_eq!(client.ok(&reduce(json!([SUM, "_count"]))), json!([3, 2]));
    let rereduce = json!({"call": "rereduce", "lang": "couchpy", "funs": [SUM, SUM], "values": [[1, 2], [3, 4]]});
    assert_eq!(
        client.ok(&rereduce),
        json!([4, 6]),
        "each function is rereduced by its own command"
    );
    for (call, what) in [
        (
            reduce(json!([SUM, SUM])),
            "runs only one function of a 'reduce'",
        ),
        (
            json!({"call": "map_docs", "lang": "couchpy", "funs": [MAP], "docs": docs, "lib": {"a": "x = 1"}}),
            "knows no libraries",
        ),
        (
            json!({"call": "index_docs", "lang": "couchpy", "fun": MAP, "docs": docs}),
            "knows no search indexes",
        ),
    ] {
        let error = client.error(&call);
        assert_eq!(error["name"], "not_implemented", "{error}");
        assert!(error["reason"].as_str().unwrap().contains(what), "{error}");
    }
    service.stop();
}

#[test]
fn settee_map_runs_functions_in_couchpy() {
    let folder = open_folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let config = format!(
        "[couchdb]\nos_process_timeout = 30000\n[query_servers]\npython = \"{}\"\n",
        couchpy().display()
    );
    fs::write(path("settee.toml"), config).unwrap();
    fs::write(path("map.py"), MAP).unwrap();
    fs::write(path("sum.py"), SUM).unwrap();
    fs::write(path("broken.py"), "def fun(:\n").unwrap();
    let documents: String = (0..100)
        .map(|n| format!("{{\"_id\":\"d{n:03}\",\"n\":{n}}}\n"))
        .collect();
    fs::write(path("docs.ndjson"), documents).unwrap();
    let map = |map: &str, more: &[&str]| {
        let mut command: Command = program(&["map", "--language", "python"]);
        command.args(["-c", &path("settee.toml"), "--map", &path(map)]);
        command.args(more).arg(path("docs.ndjson"));
        command.output().unwrap()
    };
    let rows = lines(&map("map.py", &[]));
    assert_eq!(rows.len(), 100);
    assert_eq!(rows[99], json!({"id": "d099", "key": "d099", "value": 99}));
    let reduced = lines(&map("map.py", &["--reduce", &path("sum.py")]));
    assert_eq!(reduced, [json!({"key": null, "value": 4950})]);
    fs::create_dir(path("lib")).unwrap();
    fs::write(path("lib/money.js"), "exports.rate = 1;").unwrap();
    let with_library = map("map.py", &["--lib", &path("lib")]);
    assert_eq!(with_library.status.code(), Some(78));
    let complaint = stderr(&with_library);
    assert!(
        complaint.contains("knows no libraries (the command 'add_lib')"),
        "{complaint}"
    );
    let broken = map("broken.py", &[]);
    assert_eq!(broken.status.code(), Some(65));
    assert!(
        stderr(&broken).contains("map_compilation_error"),
        "{}",
        stderr(&broken)
    );
}

#[test]
fn conform_reports_the_abilities_of_couchpy() {
    let output = program(&["conform", "--timeout", "60", "--json", "--"])
        .arg(couchpy())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["language"], &report["found"]),
        (&json!("python"), &json!(true))
    );
    assert_eq!(report["not_run"], 0, "it never hangs");
    let verdicts: Vec<(&str, &str)> = report["abilities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ability| {
            (
                ability["name"].as_str().unwrap(),
                ability["verdict"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("reset", "able"),
        ("protocol", "partly"),
        ("pipelining", "able"),
        ("map", "able"),
        ("lib", "not_supported"),
        ("index", "not_supported"),
        ("ddoc", "not_supported"),
        ("errors", "able"),
        ("log", "able"),
        ("unicode", "able"),
        ("reduce", "partly"),
        ("reduce.several", "not_supported"),
        ("reduce.context", "able"),
        ("rereduce", "able"),
        ("ddoc.shows", "not_supported"),
        ("ddoc.updates", "not_supported"),
        ("ddoc.filters", "not_supported"),
        ("ddoc.views", "not_supported"),
        ("ddoc.validate", "not_supported"),
        ("ddoc.lists", "not_supported"),
        ("ddoc.rewrites", "not_supported"),
    ];
    assert_eq!(verdicts, expected);
}
