//! The query servers of `examples/languages`, the recipe of CONTRIBUTING.md for adding a language by a command, and the
//! example orders. Needs Python 3, Node, Perl, Ruby, and Lua with dkjson.

use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::daemon::{Service, configure, directory, serve_command};
use crate::support::folder::open_folder;
use crate::support::heads::code;
use crate::support::program::{program, project, python3};
use crate::support::work::{lines, stderr};
use futures_util::StreamExt;
use serde_json::{Value, json};
use settee::conform::case::Case;
use settee::conform::report::CaseResult;
use settee::conform::run::Subject;
use settee::conform::suite;
use settee::conform_target::Target;
use settee::messages::proc_manager::GetProcError;
use settee::query_server::cell::Cell;
use settee::query_server::child::{CommandSpec, Spawner};
use settee_testkit::TestPool;

const PYTHON: &str = "examples/languages/python_server.py";
const NODE: &str = "node examples/languages/node_server.js";
const PERL: &str = "perl examples/languages/perl_server.pl";
const RUBY: &str = "ruby examples/languages/ruby_server.rb";
const LUA: &str = "lua5.4 examples/languages/lua_server.lua";

/// Changes to the project's folder, where the examples are. Panics with the name of a program that is not installed.
fn need(command: &str) {
    std::env::set_current_dir(project()).unwrap();
    let program = command.split(' ').next().unwrap();
    let version = if program.starts_with("lua") {
        "-v"
    } else {
        "--version"
    };
    let found = Command::new(program).arg(version).output();
    assert!(
        found.is_ok_and(|output| output.status.success()),
        "these tests run the example query servers: install {program}"
    );
}

/// Runs the wanted cases, and returns those that did not pass.
async fn failed(command: &str, language: &str, wanted: impl Fn(&Case) -> bool) -> Vec<String> {
    let mut words = command.split(' ').map(OsString::from);
    let subject = Subject {
        target: Target::Command(CommandSpec {
            program: words.next().unwrap().into(),
            arguments: words.collect(),
            environment: Vec::new(),
            cell: Cell::None,
        }),
        time: Duration::from_secs(60),
        spawner: Spawner::start().unwrap(),
    };
    assert_eq!(subject.language().await, Some(language));
    let mut cases = suite::cases(language).unwrap();
    cases.retain(wanted);
    let reports: Vec<_> = subject.reports(&cases).collect().await;
    let failed = reports
        .into_iter()
        .filter(|report| report.result != CaseResult::Pass);
    failed.map(|report| report.id).collect()
}

fn is_common(case: &Case) -> bool {
    case.id.starts_with("common/") || case.id.starts_with("basic/")
}

#[actix_rt::test]
async fn the_node_server_passes_all_common_and_basic_cases() {
    need(NODE);
    let failed = failed(NODE, "javascript", is_common).await;
    assert_eq!(failed, Vec::<String>::new());
}

/// In the claimed abilities the Node server matches CouchDB's own in every detail, except in the listed cases.
#[actix_rt::test]
async fn the_node_server_is_a_drop_in_for_couchjs_in_the_abilities_it_claims() {
    need(NODE);
    let claimed = ["reset", "map", "reduce", "ddoc.validate", "ddoc.filters"];
    let claims = |case: &Case| !is_common(case) && claimed.contains(&case.ability.as_str());
    let differences = [
        "map/error-as-value",
        "map/custom-error-as-value",
        "map/doc-missing",
        // All functions of a view share their globals here.
        "reduce/globals-not-shared",
        "own-ddoc-filters/internal-error",
        "own-map/thrown-odd-values",
        "own-reduce/no-index-no-require",
    ];
    assert_eq!(failed(NODE, "javascript", claims).await, differences);
}

/// Runs all cases of the language: those of the missing abilities fail, and no others.
async fn passes_all_but(command: &str, language: &str, missing: &[&str]) {
    need(command);
    let claims = |case: &Case| !missing.contains(&case.ability.as_str());
    assert_eq!(
        failed(command, language, claims).await,
        Vec::<String>::new()
    );
    let others = |case: &Case| !claims(case);
    let all = suite::cases(language).unwrap();
    let count = all.iter().filter(|case| others(case)).count();
    assert!(missing.is_empty() || count > 0);
    assert_eq!(failed(command, language, others).await.len(), count);
}

#[actix_rt::test]
async fn the_perl_server_supports_views_and_libraries() {
    passes_all_but(PERL, "perl", &["ddoc", "index"]).await;
}

#[actix_rt::test]
async fn the_lua_server_supports_views_libraries_and_search_indexes() {
    passes_all_but(LUA, "lua", &["ddoc"]).await;
}

#[actix_rt::test]
async fn the_ruby_server_supports_everything_but_lists() {
    passes_all_but(RUBY, "ruby", &[]).await;
    let pool = TestPool::builder().command("ruby", RUBY).start();
    let mut client = pool.client("list");
    let lists = r#""language":"ruby","lists":{"l":"->(head, req) { 'x' }"}"#;
    client.takes(pool.ddoc_with("db", "_design/d", lists)).await;
    let list = r#"["ddoc","_design/d",["lists","l"],[{},{}]]"#;
    let error = client.prompts(list).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "not_supported: there are no lists in Ruby"
    );
    client.returns().await;
    pool.assert_quiet().await;
}

/// Returns the command of the Python server.
fn python() -> String {
    format!("{} {PYTHON}", python3())
}

#[actix_rt::test]
async fn the_python_server_supports_everything_but_lists() {
    passes_all_but(&python(), "python", &["ddoc.lists"]).await;
}

#[test]
fn the_python_server_passes_conform_in_its_cell() {
    need(&python());
    let mut conform = program(&["conform", "--timeout", "60", "--json", "--"]);
    let output = conform.args(python().split(' ')).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((count("failed"), count("not_run")), (0, 0), "{report}");
    let abilities = report["abilities"].as_array().unwrap().iter();
    let missing = abilities.filter(|ability| ability["verdict"] != "able");
    let missing: Vec<&str> = missing.map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(missing, ["ddoc.lists"], "{report}");
}

#[test]
fn an_error_of_the_python_server_names_the_function_and_line() {
    need(&python());
    let servers = format!(
        "[query_servers]\nown = \"{} {}\"\n",
        python3(),
        project().join(PYTHON).display()
    );
    let service = Service::start(&servers);
    let mut client = service.connect();
    let good = "def fun(doc):\n    yield doc['_id'], 1\n";
    let bad = "def price(doc):\n    return doc['price']\n\ndef fun(doc):\n    yield doc['_id'], price(doc)\n";
    let wrong = "def fun(doc):\n    yield doc['_id'] 1\n";
    let map = |fun: &str| json!({"call": "map_docs", "lang": "own", "funs": [good, fun], "docs": [{"_id": "a"}], "report": true});
    let report = client.call(&map(bad));
    assert_eq!(report["ok"], json!([[[["a", 1]], []]]), "{report}");
    let logged =
        "function raised exception KeyError: 'price' (function 1, price, line 2) with doc._id a";
    assert_eq!(report["logs"][0]["message"], logged, "{report}");
    let error =
        json!({"function": 1, "doc": "a", "name": "KeyError", "message": "'price'", "line": 2});
    assert_eq!(report["errors"], json!([error]), "{report}");
    let mut of_module = map("def fun(doc):\n    yield require('views/lib/tax')['rate'], 1\n");
    of_module["lib"] = json!({"tax": "rate = 1\nexports['rate'] = rate.percent\n"});
    let report = client.call(&of_module);
    let error = &report["errors"][0];
    assert_eq!(error["module"], "views/lib/tax", "{report}");
    assert_eq!(error["line"], 2, "{report}");
    let reduce = json!({"call": "reduce", "lang": "own", "rows": [[["a", "a"], 1]],
        "funs": ["def fun(keys, values, rereduce):\n    return values[1]\n"]});
    let show = json!({"call": "ddoc_prompt", "db": "shop", "path": ["shows", "s"], "args": [null, {}],
        "ddoc": {"_id": "_design/d", "_rev": "1-a", "language": "own",
            "shows": {"s": "def fun(doc, req):\n    return doc['title']\n"}}});
    for (call, place) in [
        (map(wrong), "(function 1, <module>, line 2)"),
        (
            reduce,
            "IndexError: list index out of range (function 0, fun, line 2)",
        ),
        (show, "(shows/s, fun, line 2)"),
    ] {
        let error = client.error(&call);
        assert!(
            error["reason"].as_str().unwrap().ends_with(place),
            "{error}"
        );
    }
    service.stop();
}

#[actix_rt::test]
async fn node_runs_design_document_functions_through_the_pool() {
    need(NODE);
    let pool = TestPool::builder().command("javascript", NODE).start();
    let mut client = pool.client("show");
    let shows = r#""shows":{"s":"function(doc, req) { return 'hello ' + req.query.who; }"}"#;
    client.takes(pool.ddoc_with("db", "_design/d", shows)).await;
    let answer = client
        .prompts(r#"["ddoc","_design/d",["shows","s"],[null,{"query":{"who":"you"}}]]"#)
        .await;
    assert_eq!(answer.as_deref(), Ok(r#"["resp",{"body":"hello you"}]"#));
    client.returns().await;
    assert_eq!(pool.status().await.abilities["ddoc"], Some(true));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn the_pool_refuses_a_design_document_that_perl_cannot_serve() {
    need(PERL);
    let pool = TestPool::builder().command("perl", PERL).start();
    let mut client = pool.client("show");
    let error = client.is_refused(pool.ddoc("db", "_design/d")).await;
    let GetProcError::Unable { how, .. } = &error else {
        panic!("{error}");
    };
    assert!(how.contains("unknown command 'ddoc'"), "{how}");
    assert!(pool.started().is_empty());
    pool.assert_quiet().await;
}

#[test]
fn the_recipe_for_adding_a_language_by_command_works() {
    need(PERL);
    let folder = open_folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(
        path("settee.toml"),
        format!("[query_servers]\nmylang = \"{PERL}\"\n"),
    )
    .unwrap();
    fs::write(
        path("my.function"),
        "sub { my ($doc) = @_; emit($doc->{n}, 1) }",
    )
    .unwrap();
    fs::write(
        path("docs.ndjson"),
        "{\"_id\":\"a\",\"n\":2}\n{\"_id\":\"b\",\"n\":1}\n",
    )
    .unwrap();
    let config = path("settee.toml");
    let tested = program(&["conform", "--"])
        .args(PERL.split(' '))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&tested.stdout).contains("language: perl"));
    let checked = program(&["check-config", "-c", &config]).output().unwrap();
    let checked = String::from_utf8(checked.stdout).unwrap();
    let line = checked
        .lines()
        .find(|line| line.starts_with("mylang = "))
        .unwrap();
    assert!(line.contains(&config), "its origin: {line}");
    let mut map = program(&[
        "map",
        "-c",
        &config,
        "--language",
        "mylang",
        "--map",
        &path("my.function"),
    ]);
    let rows = lines(&map.arg(path("docs.ndjson")).output().unwrap());
    assert_eq!(
        rows,
        [
            json!({"id": "b", "key": 1, "value": 1}),
            json!({"id": "a", "key": 2, "value": 1})
        ]
    );
}

/// Serves with the lines at the head of an example, in the project's folder, and prompts a process.
fn assert_serves(example: &str) {
    assert_serves_with(&code(example).join("\n"));
}

fn assert_serves_with(lines: &str) {
    let language = lines.lines().nth(1).unwrap();
    let language = language.split_once(" = ").unwrap().0;
    let folder = directory();
    let config = configure(folder.path(), lines);
    let mut serve = serve_command(&config);
    serve.current_dir(project());
    serve.env_remove("SETTEE__POOLS__JAVASCRIPT__SANDBOX");
    let service = Service::start_command(folder, serve);
    let mut client = service.connect();
    let proc = client.get_proc(language);
    assert_eq!(client.prompt(&proc, json!(["reset"])), json!(true));
    service.stop();
}

#[test]
fn the_python_server_serves_with_the_configuration_at_its_head() {
    need(&python());
    let lines = code("languages/python_server.py").join("\n");
    // Test services already define `python`.
    let own = format!("own = \"{} ", python3());
    assert_serves_with(&lines.replace("python = \"python3 ", &own));
}

#[test]
fn the_node_server_serves_with_the_configuration_at_its_head() {
    need(NODE);
    assert_serves("languages/node_server.js");
}

#[test]
fn the_perl_server_serves_with_the_configuration_at_its_head() {
    need(PERL);
    assert_serves("languages/perl_server.pl");
}

#[test]
fn the_ruby_server_serves_with_the_configuration_at_its_head() {
    need(RUBY);
    assert_serves("languages/ruby_server.rb");
}

#[test]
fn the_lua_server_serves_with_the_configuration_at_its_head() {
    need(LUA);
    assert_serves("languages/lua_server.lua");
}

#[test]
fn the_documented_command_generates_the_example_orders() {
    let folder = tempfile::tempdir().unwrap();
    let example = project().join("examples/orders");
    fs::copy(
        example.join("generate.py"),
        folder.path().join("generate.py"),
    )
    .unwrap();
    let [command] = &code("orders/generate.py")[..] else {
        panic!("one command")
    };
    let orders = |count: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-ec", &command.replace("[COUNT]", count)]);
        assert!(shell.current_dir(&folder).status().unwrap().success());
        fs::read_to_string(folder.path().join("orders.ndjson")).unwrap()
    };
    assert!(orders("") == fs::read_to_string(example.join("orders.ndjson")).unwrap());
    assert_eq!(orders("3").lines().count(), 3);
}
