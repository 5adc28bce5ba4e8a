//! The file of `settee jobs apply`: its content, and its errors.

use super::*;

fn entries(text: &str) -> Result<Vec<Entry>, Vec<Mistake>> {
    read(text, &|reference| match reference {
        Reference::Env("A_PASSWORD") => Ok("s3cret".to_owned()),
        Reference::Env(name) => Err(format!("${name} is not set")),
        Reference::File(path) => Ok(format!("content of {path}")),
    })
}

#[test]
fn an_entry_makes_a_document_for_each_database() {
    let text = r#"
[[replication]]
name = "shop-{db}"
source = { url = "https://a.example/{db}", auth = { basic = { username = "ann", password = { env = "A_PASSWORD" } } } }
target = "http://b.example/x-{db}"
continuous = true
selector = { env = "live" }
databases = ["one", "t/wo+"]

[[replication]]
name = "alone"
source = "http://a.example/x"
target = { url = "http://b.example/x", headers = { X-Key = { file = "key" } } }
"#;
    let entries = entries(text).unwrap();
    let Databases::Listed(names) = &entries[0].databases else {
        panic!("{entries:?}");
    };
    let documents = entries[0].documents(names);
    let ids: Vec<&str> = documents.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["shop-one", "shop-t/wo+"]);
    let expected = json!({
        "source": {"url": "https://a.example/t%2Fwo%2B",
            "auth": {"basic": {"username": "ann", "password": "s3cret"}}},
        "target": "http://b.example/x-t%2Fwo%2B", "continuous": true, "selector": {"env": "live"}});
    assert_eq!(Value::Object(documents[1].1.clone()), expected);
    let alone = entries[1].documents(&[]);
    assert_eq!(alone[0].0, "alone");
    assert_eq!(
        alone[0].1["target"]["headers"],
        json!({"X-Key": "content of key"})
    );
}

#[test]
fn databases_of_a_server_are_chosen_by_patterns() {
    let text = r#"
[[replication]]
name = "{db}"
source = "http://a/{db}"
target = "http://b/{db}"
all_dbs = "http://a/"
match = "customer-*"
except = ["*-test", "customer-0*1"]
"#;
    let databases = &entries(text).unwrap()[0].databases;
    let taken = ["customer-", "customer-7", "customer-01x", "customer-test-1"];
    assert!(taken.iter().all(|name| databases.takes(name)));
    let others = ["a-customer-1", "customer-a-test", "customer-001", "_users"];
    assert!(!others.iter().any(|name| databases.takes(name)));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn every_mistake_is_reported_with_its_line_and_a_remedy() {
    let section = |more: &str| {
        format!(
            "[[replication]]\nname = \"x\"\nsource = \"http://a/x\"\ntarget = \"http://b/x\"\n{more}"
        )
    };
    let plain = |name: &str, source: &str, more: &str| {
        format!(
            "\n[[replication]]\nname = \"{name}\"\nsource = \"{source}\"\ntarget = \"http://b/x\"\n{more}"
        )
    };
    for (text, line, what, remedy) in [
        ("a = \n".to_owned(), 1, "not TOML", "correct the line"),
        (
            "a = 1\n".to_owned(),
            1,
            "\"a\" is not a list",
            "[[replication]]",
        ),
        (String::new(), 1, "no replication", "add a section"),
        (
            section("continous = true"),
            5,
            "\"continous\"",
            "write continuous",
        ),
        (section("xyzzy = 1"), 5, "\"xyzzy\"", "docs/replication.md"),
        (
            section("since_seq = 1979-05-27"),
            5,
            "no dates",
            "as a string",
        ),
        (
            section("databases = [1]"),
            1,
            "not a list of strings",
            "databases = [",
        ),
        (section("match = \"a\""), 1, "which is missing", "all_dbs"),
        (
            section("databases = [\"a\"]\nall_dbs = \"http://a\""),
            1,
            "both",
            "leave one",
        ),
        (
            section("[replication.source_proxy]\nenv = \"NONE\"\n"),
            5,
            "$NONE is not set",
            "set it",
        ),
        (
            "[[replication]]\nsource = \"x\"\n".to_owned(),
            1,
            "no name",
            "name = ",
        ),
        (
            "[[replication]]\nname = \"x\"\nsource = \"x\"\n".to_owned(),
            1,
            "no target",
            "target = ",
        ),
        (
            plain("x-{db}", "http://a/x", ""),
            2,
            "stands for nothing",
            "databases = [",
        ),
        (
            plain("x", "http://a/{db}", "databases = [\"a\"]"),
            2,
            "name is the same",
            "{db}",
        ),
        (
            plain("{db}", "http://a/x", "databases = [\"a\"]"),
            2,
            "source and target",
            "{db}",
        ),
        (
            plain("{name}", "http://a/x", ""),
            2,
            "name has {name}",
            "write {db}",
        ),
        (
            plain("x", "http://a/{db", ""),
            2,
            "source has text in braces,",
            "write {db}",
        ),
    ] {
        let mistakes = entries(&text).unwrap_err();
        let [one] = mistakes.as_slice() else {
            panic!("{text}: {mistakes:?}");
        };
        assert_eq!(one.line, line, "{text}: {one:?}");
        assert!(one.what.contains(what), "{text}: {one:?}");
        assert!(one.remedy.contains(remedy), "{text}: {one:?}");
    }
    let two = "[[replication]]\nfoo = 1\nbar = 2\n";
    assert_eq!(entries(two).unwrap_err().len(), 2);
}

#[test]
fn a_password_with_a_brace_is_not_in_the_error() {
    let text = "[[replication]]\nname = \"x\"\nsource = { file = \"s3c{ret\" }\ntarget = \"y\"\n";
    let mistakes = entries(text).unwrap_err();
    assert!(!mistakes[0].what.contains("ret"), "{mistakes:?}");
}
