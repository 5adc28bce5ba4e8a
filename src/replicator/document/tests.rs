//! Tests of [`super`]: the permissions of writers and readers.

use serde_json::json;

use super::*;

fn incoming(value: Value) -> Incoming {
    Incoming::of(&value.to_string()).unwrap()
}

fn person(name: &str, is_admin: bool) -> Person {
    Person {
        name: Some(name.to_owned()),
        is_admin,
    }
}

fn write(id: &str, value: Value, writer: &Person) -> Result<Value, DocumentError> {
    let mut incoming = incoming(value);
    check(
        id,
        &mut incoming,
        writer,
        &crate::replicator::defaults(&Default::default()),
    )?;
    Ok(incoming.members.value())
}

#[test]
fn invalid_replications_are_refused_and_other_documents_are_accepted() {
    let ann = person("ann", true);
    for body in [
        json!({}),
        json!({"foo": "bar"}),
        json!({"source": "a", "target": "b"}),
    ] {
        let error = write("r", body.clone(), &ann).unwrap_err();
        assert_eq!(error.name(), "forbidden");
        for id in ["_design/x", "_local/x"] {
            assert_eq!(write(id, body.clone(), &ann), Ok(body.clone()));
        }
        let mut deletion = body.clone();
        deletion["_deleted"] = true.into();
        assert!(write("r", deletion, &ann).is_ok());
        let mut failed = body;
        failed["_replication_state"] = "failed".into();
        assert!(write("r", failed, &ann).is_ok());
    }
}

#[test]
fn unknown_members_and_bogus_state_members_are_kept() {
    let body = json!({"source": "http://h/a", "target": "http://h/b", "id": 7, "replication_id": "x",
                      "_replication_state": "triggered", "_replication_id": 1, "owner": "ann"});
    assert_eq!(write("r", body.clone(), &person("ann", true)), Ok(body));
}

#[test]
fn a_document_belongs_to_its_first_writer() {
    let body = json!({"source": "http://h/a", "target": "http://h/b"});
    let owner = |value: Result<Value, DocumentError>| value.map(|value| value["owner"].clone());
    let (ann, bob) = (person("ann", true), person("bob", false));
    assert_eq!(owner(write("r", body.clone(), &bob)), Ok(json!("bob")));
    let mut anns = body.clone();
    anns["owner"] = "ann".into();
    let refused = write("r", anns.clone(), &bob).unwrap_err();
    let text = "Can't update replication documents from other users.";
    assert_eq!(refused, DocumentError::Forbidden(text.to_owned()));
    let mut bobs = body.clone();
    bobs["owner"] = "bob".into();
    assert_eq!(owner(write("r", bobs, &ann)), Ok(json!("bob")));
    let mut nobodys = body;
    nobodys["owner"] = Value::Null;
    assert_eq!(owner(write("r", nobodys, &ann)), Ok(json!("ann")));
}

#[test]
fn ids_and_special_members_follow_couchdbs_rules() {
    for id in ["", "_x", "_design/", "_local/", &"x".repeat(5000)] {
        assert_eq!(kind_of(id).unwrap_err().name(), "illegal_docid", "{id}");
    }
    for (value, name) in [
        (json!([]), "bad_request"),
        (json!({"_id": 1}), "illegal_docid"),
        (json!({"_id": null}), "illegal_docid"),
        (json!({"_id": ""}), "illegal_docid"),
        (json!({"_id": "_x"}), "illegal_docid"),
        (json!({"_id": "_design/"}), "illegal_docid"),
        (json!({"_rev": 1}), "bad_request"),
        (json!({"_deleted": 1}), "doc_validation"),
        (json!({"_foo": 1}), "doc_validation"),
        (json!({"_attachments": {"a": {}}}), "doc_validation"),
    ] {
        assert_eq!(
            Incoming::of(&value.to_string()).unwrap_err().name(),
            name,
            "{value}"
        );
    }
}

#[test]
fn other_readers_see_neither_the_credentials_nor_the_current_revision() {
    let body = json!({"source": "http://u:secret@h/a", "target": "http://h/b", "owner": "bob"});
    let document = Document {
        id: "r".to_owned(),
        revision: Revision::after(None, false, "x"),
        deleted: false,
        seq: 1,
        body: body.to_string(),
    };
    for reader in [person("ann", true), person("bob", false)] {
        let seen = shown(&document, &reader).value();
        assert_eq!(seen["source"], body["source"]);
        assert_eq!(seen["_rev"], document.revision.to_string());
    }
    for reader in [person("eve", false), Person::default()] {
        let seen = shown(&document, &reader).value();
        assert_eq!(seen["source"], "http://h/a");
        let rev: Revision = seen["_rev"].as_str().unwrap().parse().unwrap();
        assert_eq!(rev.number, 1);
        assert_ne!(rev, document.revision);
    }
}

#[test]
fn other_readers_see_endpoints_unchanged_except_for_credentials() {
    let endpoint =
        r#"{"url":"http://u:p@h/b","n":123456789012345678901,"auth":{},"headers":{"a":"b"}}"#;
    let document = Document {
        id: "r".to_owned(),
        revision: Revision::after(None, false, "x"),
        deleted: false,
        seq: 1,
        body: format!(r#"{{"source":"http://u:p@h/a","target":{endpoint},"proxy":7}}"#),
    };
    let seen = shown(&document, &Person::default());
    let raw = |name| seen.raw(name).unwrap().get();
    assert_eq!(raw("source"), r#""http://h/a""#);
    assert_eq!(
        raw("target"),
        r#"{"url":"http://h/b","n":123456789012345678901}"#
    );
    assert_eq!(raw("proxy"), "7");
}
