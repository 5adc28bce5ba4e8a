use std::time::Duration;

use serde_json::json;

use super::*;
use crate::filter::{Filter, FilterAt};
use crate::seq::Seq;
use crate::spec::endpoint::URL_BYTES_MAX;
use crate::spec::{Feed, Tuning};

fn parse(extra: Value) -> Result<Replication, SpecError> {
    let mut body = json!({"source": "http://s/a", "target": "http://t/b"});
    let members = body.as_object_mut().unwrap();
    for (name, value) in extra.as_object().unwrap().clone() {
        members.insert(name, value);
    }
    members.retain(|_, value| value != "ABSENT");
    Replication::parse(&body, &Defaults::default(), UserCtx::default(), None)
}

#[track_caller]
fn refused(extra: Value) -> String {
    parse(extra).unwrap_err().text
}

#[test]
fn a_body_with_both_sides_gets_the_defaults() {
    let replication = parse(json!({"_id": "x", "whatever": [1]})).unwrap();
    assert_eq!(replication.source.url, "http://s/a/");
    assert_eq!(replication.target.url, "http://t/b/");
    let options = replication.options;
    assert!(!options.continuous && !options.create_target && !options.winning_revs_only);
    let tuning = &options.tuning;
    assert!(tuning.use_checkpoints && tuning.use_bulk_get);
    assert_eq!(
        (
            tuning.worker_processes,
            tuning.worker_batch_size,
            tuning.http_connections,
            tuning.retries_per_request
        ),
        (4, 500, 20, 5)
    );
    assert_eq!(tuning.connection_timeout, Duration::from_secs(30));
    assert_eq!(tuning.checkpoint_interval, Duration::from_secs(30));
    assert_eq!(options.filter, Filter::All);
    assert_eq!(options.since_seq, None);
}

#[test]
fn urls_and_headers_have_a_bound() {
    let long = |bytes| "x".repeat(bytes);
    let header = json!({"url": "http://s/a", "headers": {"X-Long": long(URL_BYTES_MAX)}});
    for extra in [
        json!({"source": format!("http://s/{}", long(URL_BYTES_MAX))}),
        json!({"target": header}),
        json!({"source_proxy": format!("http://p/{}", long(URL_BYTES_MAX))}),
    ] {
        let text = refused(extra);
        assert!(text.ends_with("bytes, at most 16384 are allowed"), "{text}");
    }
    let longest = format!("http://s/{}", long(URL_BYTES_MAX - "http://s/".len()));
    assert!(parse(json!({"source": longest})).is_ok());
}

#[test]
fn invalid_endpoints_are_refused_in_couchdbs_words() {
    for (source, text) in [
        (json!("ABSENT"), "Missing replicator database"),
        (json!("db"), "local_endpoints_not_supported"),
        (json!("ftp://h/db"), "local_endpoints_not_supported"),
        (json!("http://"), "endpoint has an invalid url"),
        (json!("http://h:99999/db"), "endpoint has an invalid url"),
        (json!({"url": "ftp://h/db"}), "endpoint has an invalid url"),
        (json!({"url": 1}), "endpoint has an invalid url"),
        (json!({}), "endpoint has an invalid url"),
        (json!(1), "endpoint has an invalid url"),
        (json!("http://h/../db"), "endpoint has an invalid url"),
        (
            json!("http://h/a/%2E%2e/db/"),
            "endpoint has an invalid url",
        ),
        (json!("http://h/a/./db?q=1"), "endpoint has an invalid url"),
        (json!("http://h/a\\db"), "endpoint has an invalid url"),
        (json!("http://h/a\tdb"), "endpoint has an invalid url"),
        (json!("http://u:p@h/db#x"), "endpoint has an invalid url"),
        (json!("http://h/db?x=1#y"), "endpoint has an invalid url"),
    ] {
        let error = parse(json!({"source": source})).unwrap_err();
        assert_eq!(error.text, text, "{source}");
        assert_eq!(error.kind, SpecErrorKind::InvalidReplication);
    }
    let only_https = Defaults {
        valid_endpoint_protocols: vec!["https".into()],
        ..Defaults::default()
    };
    let body = json!({"source": "http://s/a", "target": "https://t/b"});
    let error = Replication::parse(&body, &only_https, UserCtx::default(), None).unwrap_err();
    assert_eq!(error.text, "endpoint has an invalid url");
    for not_an_object in [json!([]), json!("x"), json!(null)] {
        let user = UserCtx::default();
        assert!(Replication::parse(&not_an_object, &Defaults::default(), user, None).is_err());
    }
}

#[test]
fn headers_are_checked_and_their_values_never_shown() {
    let source = |headers: Value| json!({"source": {"url": "http://h/d", "headers": headers}});
    assert!(refused(source(json!([]))).contains("must be a JSON object"));
    assert!(refused(source(json!({"a b": "c"}))).contains("`a b` is not a header name"));
    assert!(refused(source(json!({"a": 1}))).contains("must be a string"));
    let text = refused(source(json!({"a": "s3cret\n"})));
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn auth_and_headers_must_be_objects() {
    for side in ["source", "target"] {
        for name in ["auth", "headers"] {
            for value in [
                json!(null),
                json!([]),
                json!("basic"),
                json!(1),
                json!(false),
            ] {
                let body = json!({side: {"url": "http://h/d", name: value}});
                let expected = format!("`{name}` of `{side}`: must be a JSON object");
                assert_eq!(refused(body), expected);
            }
            assert!(parse(json!({side: {"url": "http://h/d", name: {}}})).is_ok());
        }
    }
}

#[test]
fn a_replication_does_not_depend_on_the_configurations_defaults() {
    let of = |body: &Value, defaults: &Defaults| {
        Replication::parse(body, defaults, UserCtx::default(), None).unwrap()
    };
    let others = Defaults {
        tuning: Tuning {
            use_checkpoints: false,
            use_bulk_get: false,
            worker_processes: 9,
            worker_batch_size: 9,
            http_connections: 9,
            connection_timeout: Duration::from_secs(9),
            retries_per_request: 9,
            checkpoint_interval: Duration::from_secs(9),
            feed: Feed::DbUpdates,
        },
        ..Defaults::default()
    };
    let plain = json!({"source": "http://s/a", "target": "http://t/b"});
    let (usual, other) = (of(&plain, &Defaults::default()), of(&plain, &others));
    assert!(usual.same_as(&other));
    assert_eq!(usual.digest(), other.digest());
    let usual = json!({
        "use_checkpoints": true, "use_bulk_get": true, "worker_processes": 4,
        "worker_batch_size": "500", "http_connections": 20, "connection_timeout": 30_000,
        "retries_per_request": 5, "checkpoint_interval": 30_000,
        "feed": "continuous",
    });
    for (name, value) in usual.as_object().unwrap() {
        let mut asked = plain.clone();
        asked[name] = value.clone();
        let asked = of(&asked, &Defaults::default());
        assert!(
            !asked.same_as(&of(&plain, &Defaults::default())),
            "{name} was added"
        );
        assert!(
            !of(&plain, &Defaults::default()).same_as(&asked),
            "{name} was removed"
        );
        let plain = of(&plain, &Defaults::default());
        assert_ne!(asked.digest(), plain.digest(), "{name}");
    }
}

#[test]
fn both_sides_share_a_proxy_or_each_has_its_own() {
    let proxy = "http://u:p@proxy:1";
    let both = parse(json!({"proxy": proxy})).unwrap();
    let masked = Some("http://u:*****@proxy:1".to_owned());
    assert_eq!(both.source.shown_proxy(), masked);
    assert_eq!(both.target.shown_proxy(), masked);
    let one = parse(json!({"target_proxy": "socks5://proxy:1", "proxy": ""})).unwrap();
    assert_eq!(one.source.proxy, None);
    assert_eq!(one.target.shown_proxy().unwrap(), "socks5://proxy:1");
    for side in ["source_proxy", "target_proxy"] {
        assert_eq!(
            refused(json!({"proxy": proxy, side: proxy})),
            format!("`proxy` is mutually exclusive with `{side}`")
        );
    }
    assert_eq!(refused(json!({"proxy": 1})), "proxy has an invalid url");
    assert_eq!(
        refused(json!({"proxy": "ftp://x:1"})),
        "proxy has an invalid url"
    );
    assert_eq!(refused(json!({"proxy": "proxy"})), "Invalid proxy url");
}

#[test]
fn options_of_the_wrong_type_are_refused_in_couchdbs_words() {
    for name in [
        "continuous",
        "create_target",
        "cancel",
        "winning_revs_only",
        "use_bulk_get",
    ] {
        for value in [json!("true"), json!(1), json!(null)] {
            assert_eq!(
                refused(json!({name: value})),
                format!("parameter `{name}` must be a boolean")
            );
        }
    }
    for name in ["create_target_params", "selector"] {
        let text = format!("parameter `{name}` must be a JSON object");
        assert_eq!(refused(json!({name: "x"})), text);
    }
    let text = "parameter `query_params` must be an object";
    assert_eq!(refused(json!({"query_params": []})), text);
    let text = "parameter `doc_ids` must be an array";
    assert_eq!(refused(json!({"doc_ids": "x"})), text);
    for bad in [json!("f"), json!(1)] {
        let text = "Invalid filter. Must match `ddocname/filtername`.";
        assert_eq!(refused(json!({"filter": bad})), text);
    }
    for view in [json!("ABSENT"), json!("v"), json!("d/v/w"), json!(1)] {
        let body = json!({"filter": "_view", "query_params": {"view": view}});
        assert_eq!(refused(body), "Invalid `view` parameter.");
    }
    let text = "`doc_ids`,`filter`,`selector` are mutually exclusive";
    for body in [
        json!({"doc_ids": [], "filter": "a/b"}),
        json!({"doc_ids": [], "selector": {}}),
        json!({"filter": "a/b", "selector": {}}),
    ] {
        assert_eq!(refused(body), text);
    }
}

#[test]
fn numbers_are_integers_or_strings_of_digits_within_bounds() {
    let options = parse(json!({
        "worker_processes": "2", "worker_batch_size": 7, "http_connections": "9",
        "connection_timeout": "100", "checkpoint_interval": 200, "retries_per_request": 0,
    }))
    .unwrap()
    .options
    .tuning;
    assert_eq!(
        (options.worker_processes, options.worker_batch_size),
        (2, 7)
    );
    assert_eq!(
        (options.http_connections, options.retries_per_request),
        (9, 0)
    );
    assert_eq!(options.connection_timeout, Duration::from_millis(100));
    assert_eq!(options.checkpoint_interval, Duration::from_millis(200));
    for name in [
        "worker_processes",
        "worker_batch_size",
        "http_connections",
        "connection_timeout",
        "checkpoint_interval",
    ] {
        for value in [
            json!(0),
            json!("0"),
            json!(-1),
            json!(1.5),
            json!("x"),
            json!([]),
        ] {
            let text = refused(json!({name: value}));
            let start = format!("parameter `{name}` must be an integer from 1 to ");
            assert!(text.starts_with(&start), "{text}");
        }
    }
}

#[test]
fn filters_are_parsed_with_their_parameters_in_order() {
    let filter = |body| parse(body).unwrap().options.filter;
    let ids = json!({"doc_ids": ["b", "_design%2Ffoo", "a", "b", "a+b", "100%"]});
    let sorted = ["100%", "_design/foo", "a", "a+b", "b"].map(String::from);
    assert_eq!(filter(ids), Filter::DocIds(sorted.to_vec()));
    assert_eq!(filter(json!({"doc_ids": null})), Filter::All);
    let body = json!({"filter": "d/f/g", "query_params": {"z": 1, "a": "2"}});
    let Filter::Function {
        ddoc,
        name,
        query_params,
    } = filter(body)
    else {
        panic!("expected a function");
    };
    assert_eq!((&*ddoc, &*name), ("d", "f/g"));
    assert_eq!(query_params.keys().collect::<Vec<_>>(), ["z", "a"]);
    let body = json!({"filter": "_view", "query_params": {"view": "d/v"}});
    assert!(matches!(filter(body), Filter::BuiltIn { name, .. } if name == "_view"));
}

#[test]
fn filter_at_selects_where_a_filter_runs() {
    let at = |body: Value| parse(body).map(|replication| replication.options.filter_at);
    let (source, settee) = (Ok(FilterAt::Source), Ok(FilterAt::Settee));
    let view = json!({"filter": "_view", "query_params": {"view": "d/v"}, "filter_at": "settee"});
    for (body, expected) in [
        (json!({"filter": "d/f"}), source.clone()),
        (json!({"filter": "d/f", "filter_at": null}), source.clone()),
        (
            json!({"filter": "d/f", "filter_at": "settee"}),
            settee.clone(),
        ),
        (
            json!({"selector": {}, "filter_at": "settee"}),
            settee.clone(),
        ),
        (
            json!({"filter": "_design", "filter_at": "settee"}),
            settee.clone(),
        ),
        (view, settee),
        (json!({"filter_at": "settee"}), source.clone()),
        (json!({"filter": "_other", "filter_at": "source"}), source),
    ] {
        assert_eq!(at(body.clone()), expected, "{body}");
    }
    let text = "parameter `filter_at` must be `source` or `settee`";
    for wrong in [json!("target"), json!(true), json!("")] {
        assert_eq!(refused(json!({"filter": "d/f", "filter_at": wrong})), text);
    }
    assert_eq!(
        refused(json!({"filter": "_other", "filter_at": "settee"})),
        "the filter `_other` is the source's own: `filter_at` must be `source`"
    );
}

#[test]
fn since_seq_keeps_its_type() {
    let since = |value: Value| {
        parse(json!({"since_seq": value}))
            .unwrap()
            .options
            .since_seq
    };
    assert_eq!(since(json!(5)), serde_json::from_str::<Seq>("5").ok());
    assert_eq!(since(json!("5")), serde_json::from_str::<Seq>("\"5\"").ok());
    assert_eq!(
        since(json!([1, "x"])),
        serde_json::from_str::<Seq>("[1,\"x\"]").ok()
    );
    assert_eq!(since(json!(null)), None);
}

#[test]
fn replications_are_compared_without_user_and_time() {
    let one = parse(json!({"source": "http://u:p@s/a"})).unwrap();
    let auth = json!({"basic": {"username": "u", "password": "p"}});
    let mut other = parse(json!({"source": {"url": "http://s/a/", "auth": auth}})).unwrap();
    other.user.name = Some("bob".into());
    other.start_time += Duration::from_secs(1);
    assert!(one.same_as(&other));
    assert_eq!(one.digest(), other.digest());
    assert!(!one.same_as(&parse(json!({"source": "http://u:q@s/a"})).unwrap()));
    assert!(!one.same_as(&parse(json!({"source": "http://s/a"})).unwrap()));
    other.doc = Some(DocRef {
        database: "_replicator".into(),
        id: "r".into(),
    });
    assert!(!one.same_as(&other));
    let batch = json!({"source": "http://u:p@s/a", "worker_batch_size": 501});
    assert!(!one.same_as(&parse(batch).unwrap()));
}

#[test]
fn managed_by_is_read_from_documents_and_compared_but_ignored_in_calls() {
    let body = json!({"source": "http://s/a", "target": "http://t/b", "managed_by": "fleet"});
    let of = |doc| Replication::parse(&body, &Defaults::default(), UserCtx::default(), doc);
    assert_eq!(of(None).unwrap().managed_by, None);
    let (database, id) = ("_replicator".into(), "r".into());
    let marked = of(Some(DocRef { database, id })).unwrap();
    assert_eq!(marked.managed_by.as_deref(), Some("fleet"));
    let unmarked = Replication {
        managed_by: None,
        ..marked.clone()
    };
    assert!(!marked.same_as(&unmarked));
    assert_eq!(marked.digest(), unmarked.digest());
}

#[test]
fn endpoints_and_options_are_in_the_digest() {
    let bodies = [
        json!({}),
        json!({"continuous": true}),
        json!({"create_target": true}),
        json!({"create_target": true, "create_target_params": {"q": 1}}),
        json!({"winning_revs_only": true}),
        json!({"since_seq": 5}),
        json!({"doc_ids": ["a"]}),
        json!({"doc_ids": ["b"]}),
        json!({"selector": {"a": 1}}),
        json!({"selector": {"a": 1}, "filter_at": "settee"}),
        json!({"filter": "d/f"}),
        json!({"filter": "d/f", "query_params": {"a": "secret"}}),
        json!({"source": "http://s/other"}),
        json!({"source": "http://u:p@s/a"}),
        json!({"source": "http://u:q@s/a"}),
        json!({"source": {"url": "http://s/a", "headers": {"X-Token": "1"}}}),
        json!({"source": {"url": "http://s/a", "headers": {"X-Token": "2"}}}),
        json!({"target": "http://u:p@t/b"}),
        json!({"source_proxy": "http://u:p@proxy:8080"}),
        json!({"source_proxy": "http://u:q@proxy:8080"}),
        json!({"target_proxy": "http://u:q@proxy:8080"}),
    ];
    let parsed = bodies.map(|body| (parse(body.clone()).expect("valid"), body));
    for (one, body) in &parsed {
        for (other, other_body) in &parsed {
            let is_same = body == other_body;
            assert_eq!(one.same_as(other), is_same, "{body} {other_body}");
            assert_eq!(
                one.digest() == other.digest(),
                is_same,
                "{body} {other_body}"
            );
        }
    }
}

#[test]
fn a_call_starts_or_cancels() {
    let call = |extra: Value| {
        let mut body = json!({"source": "http://s/a", "target": "http://t/b"});
        let members = body.as_object_mut().unwrap();
        members.extend(extra.as_object().unwrap().clone());
        CallBody::parse(&body, &Defaults::default(), UserCtx::default())
    };
    assert!(matches!(call(json!({})), Ok(CallBody::Start(_))));
    assert!(matches!(call(json!({"id": "x"})), Ok(CallBody::Start(_))));
    assert!(matches!(
        call(json!({"cancel": false})),
        Ok(CallBody::Start(_))
    ));
    assert!(matches!(
        call(json!({"cancel": true})),
        Ok(CallBody::Cancel(_))
    ));
    for name in ["id", "_local_id", "replication_id"] {
        let body = json!({"cancel": true, name: "abc+continuous"});
        let Ok(CallBody::CancelId(id)) =
            CallBody::parse(&body, &Defaults::default(), UserCtx::default())
        else {
            panic!("expected a cancellation by id");
        };
        assert_eq!(id.to_string(), "abc+continuous");
    }
    assert!(call(json!({"cancel": "yes"})).is_err());
}

#[test]
fn the_user_of_a_body_is_read() {
    let user = UserCtx::of_body(&json!({"user_ctx": {"name": "bob", "roles": ["a", 1]}}));
    assert_eq!(user.name.as_deref(), Some("bob"));
    assert_eq!(user.roles, ["a"]);
    assert_eq!(
        UserCtx::of_body(&json!({"user_ctx": 1})),
        UserCtx::default()
    );
    assert_eq!(UserCtx::of_body(&json!({})), UserCtx::default());
}

#[test]
fn a_rate_limited_run_lowers_its_tuning_options() {
    let mut options = parse(json!({})).unwrap().options.tuning;
    let lowered = options.lower_for_rate_limit();
    let shown: Vec<_> = lowered
        .iter()
        .map(|one| (one.name, one.from, one.to))
        .collect();
    assert_eq!(
        shown,
        [
            ("worker_processes", 4, 2),
            ("worker_batch_size", 500, 100),
            ("http_connections", 20, 5),
            ("checkpoint_interval", 30_000, 5_000),
        ]
    );
    assert!(options.lower_for_rate_limit().is_empty());
    assert_eq!(options.checkpoint_interval, Duration::from_secs(5));
}

#[test]
fn feed_is_continuous_or_db_updates() {
    let feed = |value: Value| parse(json!({"feed": value})).unwrap().options.tuning.feed;
    assert_eq!(feed(json!("db_updates")), Feed::DbUpdates);
    assert_eq!(feed(json!("continuous")), Feed::Continuous);
    assert_eq!(feed(json!(null)), Feed::Continuous);
    for wrong in [json!("longpoll"), json!(true), json!(1), json!({})] {
        let text = refused(json!({ "feed": wrong }));
        assert_eq!(
            text,
            "parameter `feed` must be `continuous` or `db_updates`"
        );
    }
}

#[test]
fn the_last_part_of_a_url_is_the_database_and_the_rest_the_server() {
    for (url, server, database) in [
        ("http://u:p@h:1/db", "http://h:1/", "db"),
        ("https://h/a/b/team%2Fshop/", "https://h/a/b/", "team/shop"),
        ("http://h/db?key=1", "http://h/?key=1", "db"),
    ] {
        let source = parse(json!({ "source": url })).unwrap().source;
        let (found, name) = source.server_and_database().unwrap();
        assert_eq!((found.url.as_str(), name.as_str()), (server, database));
        assert_eq!(found.auth, source.auth);
    }
    let root = parse(json!({"source": "http://h"})).unwrap().source;
    assert_eq!(root.server_and_database(), None);
}
