//! Bad input on the client socket: each gets a clear error, nothing is lost, and the service continues.

use std::io::{ErrorKind, Read, Write};

use serde_json::{Value, json};

use crate::support::daemon::{Client, Service};

/// Asserts that the connection, and the service, still work.
fn assert_unharmed(client: &mut Client) {
    let get = json!({"id": 1, "call": "get_proc", "lang": "python", "timeout_ms": 20_000});
    let proc = client.ok(&get)["proc"].as_str().unwrap().to_owned();
    let prompt = json!({"id": 2, "call": "prompt", "proc": proc, "data": ["echo", "fine"],
                        "timeout_ms": 20_000});
    assert_eq!(client.ok(&prompt), "fine");
    assert!(client.ret_proc(&proc));
}

#[test]
fn a_line_that_is_not_a_request_gets_an_error_and_the_connection_survives() {
    let service = Service::start("");
    let mut client = service.connect();
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let lines: Vec<(&[u8], &str)> = vec![
        (b"", "not JSON"),
        (b" \t", "not JSON"),
        (b"\r", "not JSON"),
        (b"hello", "not JSON"),
        (b"{", "not JSON"),
        (b"{\"id\":1,\"call\":\"cancel\"} x", "not JSON"),
        (b"{\"id\":1,\"call\":\"cancel\"}{}", "not JSON"),
        (b"{\"id\":\"\xff\",\"call\":\"cancel\"}", "not UTF-8"),
        (b"\0\0\0", "not JSON"),
        (b"7", "a request is a JSON object"),
        (b"null", "a request is a JSON object"),
        (b"[\"call\",\"cancel\"]", "a request is a JSON object"),
        (b"\"cancel\"", "a request is a JSON object"),
        (deep.as_bytes(), "a request is a JSON object"),
        (
            b"{\"id\":1,\"id\":2,\"call\":\"cancel\"}",
            "duplicate field `id`",
        ),
    ];
    for (line, reason) in lines {
        client.send_raw(line);
        client.send_raw(b"\n");
        let reply = client.reply();
        assert_eq!(reply["id"], json!(null), "{reply}");
        assert_eq!(reply["error"]["name"], "bad_request");
        assert_eq!(reply["error"]["fault"], "client");
        assert_eq!(reply["error"]["retry"], false);
        let said = reply["error"]["reason"].as_str().unwrap();
        assert!(said.contains(reason), "{said}");
    }
    assert_unharmed(&mut client);
    service.stop();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn missing_and_wrong_arguments_are_named() {
    let service = Service::start("");
    let mut client = service.connect();
    let ddoc = json!({"_id": "_design/a", "_rev": "1-x", "language": "python"});
    let deep: Value = json!(["[".repeat(10)]);
    let cases = [
        (json!({}), "'call' is missing"),
        (json!({"call": 7}), "'call' must be a string"),
        (json!({"call": "getproc"}), "no call named 'getproc'"),
        (json!({"call": "x".repeat(1_024)}), "no call named 'xxx"),
        (json!({"call": "x".repeat(1_025)}), "'call' has 1025 bytes"),
        (json!({"call": "get_proc"}), "'lang' or 'ddoc' is missing"),
        (
            json!({"call": "get_proc", "lang": 7}),
            "'lang' must be a string",
        ),
        (
            json!({"call": "get_proc", "lang": ""}),
            "'lang' must be the name",
        ),
        (
            json!({"call": "get_proc", "lang": "python", "ddoc": ddoc}),
            "'lang' must be left out",
        ),
        (json!({"call": "get_proc", "ddoc": ddoc}), "'db' is missing"),
        (
            json!({"call": "get_proc", "ddoc": ddoc, "db": ""}),
            "'db' must be the name",
        ),
        (
            json!({"call": "get_proc", "ddoc": ddoc, "db": ["a"]}),
            "'db' must be a string",
        ),
        (
            json!({"call": "get_proc", "ddoc": [], "db": "a"}),
            "must be a JSON object",
        ),
        (
            json!({"call": "get_proc", "ddoc": {"_rev": "1-x"}, "db": "a"}),
            "'_id'",
        ),
        (
            json!({"call": "get_proc", "ddoc": {"_id": "_design/a", "_rev": 7}, "db": "a"}),
            "'_rev'",
        ),
        (
            json!({"call": "get_proc", "lang": "python", "timeout_ms": 0}),
            "'timeout_ms' must be",
        ),
        (
            json!({"call": "get_proc", "lang": "python", "timeout_ms": -1}),
            "'timeout_ms' must be",
        ),
        (
            json!({"call": "get_proc", "lang": "python", "timeout_ms": 1.5}),
            "'timeout_ms' must be",
        ),
        (
            json!({"call": "get_proc", "lang": "python", "timeout_ms": "5"}),
            "'timeout_ms' must be",
        ),
        (
            json!({"call": "get_proc", "lang": "python", "timeout_ms": u64::MAX}),
            "'timeout_ms'",
        ),
        (json!({"call": "prompt", "data": []}), "'proc' is missing"),
        (
            json!({"call": "prompt", "proc": 7, "data": []}),
            "'proc' must be a string",
        ),
        (
            json!({"call": "prompt", "proc": "0.1.1"}),
            "'data' is missing",
        ),
        (
            json!({"call": "prompt", "proc": "0.1.1", "data": {}}),
            "'data' must be an array",
        ),
        (
            json!({"call": "prompt", "proc": "0.1.1", "data": "x"}),
            "'data' must be an array",
        ),
        (json!({"call": "ret_proc"}), "'proc' is missing"),
        (
            json!({"call": "ret_proc", "proc": "0.1.1", "status": "bad"}),
            "'status' must be",
        ),
        (
            json!({"call": "set_timeout", "proc": "0.1.1"}),
            "'timeout_ms' is missing",
        ),
        (
            json!({"call": "ddoc_prompt", "db": "a", "ddoc": ddoc, "args": []}),
            "'path' is missing",
        ),
        (
            json!({"call": "ddoc_prompt", "db": "a", "ddoc": ddoc, "path": ["a"]}),
            "'args' is",
        ),
        (
            json!({"call": "ddoc_prompt", "db": "a", "ddoc": ddoc, "path": [], "args": []}),
            "'path'",
        ),
        (
            json!({"call": "ddoc_prompt", "db": "a", "ddoc": ddoc, "path": [1], "args": []}),
            "'path'",
        ),
        (
            json!({"call": "ddoc_prompt", "db": "a", "ddoc": ddoc, "path": "a", "args": []}),
            "'path'",
        ),
        (
            json!({"call": "ddoc_prompt", "db": "a", "ddoc": ddoc, "path": ["a"], "args": 1}),
            "'args'",
        ),
        (
            json!({"call": "ddoc_prompt", "db": "a", "path": ["a"], "args": []}),
            "'ddoc' is missing",
        ),
        (
            json!({"call": "attach"}),
            "'lang', 'pool' or 'group' is missing",
        ),
        (
            json!({"call": "attach", "pool": deep}),
            "'pool' must be a string",
        ),
    ];
    for (mut request, reason) in cases {
        request["id"] = json!("mine");
        let reply = client.call(&request);
        assert_eq!(reply["id"], "mine");
        assert_eq!(reply["error"]["name"], "bad_request", "{request}: {reply}");
        let said = reply["error"]["reason"].as_str().unwrap();
        assert!(said.contains(reason), "{request}: {said}");
        assert!(said.len() < 300, "{said}");
    }
    assert_unharmed(&mut client);
    service.stop();
}

#[test]
fn unknown_names_are_not_found() {
    let service = Service::start("");
    let mut client = service.connect();
    let error = client.error(&json!({"id": 1, "call": "get_proc", "lang": "klingon"}));
    assert_eq!(error["name"], "unknown_query_language");
    assert_eq!(
        (&error["phase"], &error["fault"]),
        (&json!("queue"), &json!("client"))
    );
    assert_eq!(error["retry"], false);
    assert!(error["reason"].as_str().unwrap().contains("klingon"));
    for request in [
        json!({"id": 1, "call": "get_proc", "lang": "python", "pool": "klingon"}),
        json!({"id": 1, "call": "get_proc", "lang": "python", "group": "klingon"}),
    ] {
        let error = client.error(&request);
        assert_eq!(error["name"], "not_found", "{request}");
        assert!(error["reason"].as_str().unwrap().contains("klingon"));
    }
    let got = client.ok(&json!({"id": 1, "call": "get_proc", "lang": "python", "pool": "Python"}));
    assert!(
        got["proc"].is_string(),
        "a language's own pool is named after it"
    );
    assert_unharmed(&mut client);
    service.stop();
}

#[test]
fn a_line_over_line_max_gets_an_error_and_ends_only_its_connection() {
    let service = Service::start("[server]\nline_max = 65536");
    let mut other = service.connect();
    let mut client = service.connect();
    let proc = client.get_proc("python");
    let limits = client.ok(&json!({"id": 1, "call": "limits"}));
    assert_eq!(limits["line_max"], 65536);
    let just_right = "x".repeat(65_000);
    assert_eq!(
        client.prompt(&proc, json!(["echo", just_right])),
        just_right.as_str()
    );
    // Far more than the bound, without a newline, written before the client reads.
    client.stream.write_all(&vec![b'x'; 1 << 20]).unwrap();
    let error = client.reply();
    assert_eq!(error["id"], json!(null));
    assert_eq!(error["error"]["name"], "line_too_long");
    assert!(error["error"]["reason"].as_str().unwrap().contains("65536"));
    client.assert_closed();
    other.wait_for_pool("python", &[("used", 0), ("free", 1)]);
    assert_unharmed(&mut other);
    service.stop();
}

#[test]
fn a_client_that_never_ends_its_line_is_disconnected() {
    let service = Service::start("[server]\nline_max = 65536");
    let mut client = service.connect();
    let endless = vec![b'['; 1 << 16];
    let error = loop {
        match client.stream.write_all(&endless) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ));
    assert_unharmed(&mut service.connect());
    service.stop();
}

#[test]
fn a_foreign_stale_or_invalid_token_is_refused_and_changes_nothing() {
    let service = Service::start("");
    let mut holder = service.connect();
    let foreign = holder.get_proc("python");
    let mut client = service.connect();
    let stale = client.get_proc("python");
    assert!(client.ret_proc(&stale));
    let again = client.get_proc("python");
    assert_ne!(again, stale);
    let huge = format!("{}.1.1", "9".repeat(1000));
    let spelled = format!("{again} ");
    for token in [
        foreign.as_str(),
        stale.as_str(),
        "",
        "x",
        "1.2",
        "1.2.3.4",
        "-1.1.1",
        "0.0.0",
        &huge,
        &spelled,
    ] {
        for request in [
            json!({"id": 1, "call": "prompt", "proc": token, "data": ["exit", 1]}),
            json!({"id": 1, "call": "set_timeout", "proc": token, "timeout_ms": 1}),
        ] {
            let error = client.error(&request);
            assert_eq!(error["name"], "not_holder", "{request}");
            assert_eq!(
                (&error["fault"], &error["retry"]),
                (&json!("client"), &json!(false))
            );
        }
        for status in ["ok", "fail"] {
            let ret = json!({"id": 1, "call": "ret_proc", "proc": token, "status": status});
            assert_eq!(client.ok(&ret), false, "{token}");
        }
    }
    assert_eq!(client.pool("python")["used"], 2, "nothing changed");
    assert_eq!(holder.prompt(&foreign, json!(["echo", 1])), 1);
    assert!(client.ret_proc(&again));
    assert!(!client.ret_proc(&again), "a second return");
    assert!(holder.ret_proc(&foreign));
    assert_eq!(client.pool("python")["free"], 2);
    service.stop();
}

#[test]
fn a_broken_command_fails_only_its_own_clients() {
    let service = Service::start(
        r#"
[query_servers]
missing = "/no/such/program --flag"
missing_in_shell = "no-such-program-at-all 'x'"
exits = "sh -c 'echo cannot start >&2; exit 3'"
usage = "sh -c 'echo usage: server [-h]; exit 64'"
silent = "sh -c 'exec sleep 600'"
deaf = "sh -c 'exec 0<&-; exec sleep 600'"
not_a_program = "/etc/passwd"
[pools.silent]
start_timeout = "1s"
[pools.deaf]
start_timeout = "1s"
[couchdb]
os_process_timeout = 5000
"#,
    );
    let mut client = service.connect();
    let missing = client.error(&json!({"id": 1, "call": "get_proc", "lang": "missing"}));
    assert_eq!(missing["name"], "os_process_error");
    assert_eq!(
        (&missing["phase"], &missing["fault"]),
        (&json!("open"), &json!("query_server"))
    );
    assert!(
        missing["reason"]
            .as_str()
            .unwrap()
            .contains("/no/such/program")
    );
    let not_a_program =
        client.error(&json!({"id": 1, "call": "get_proc", "lang": "not_a_program"}));
    assert!(
        not_a_program["reason"]
            .as_str()
            .unwrap()
            .contains("cannot be executed"),
        "{not_a_program}"
    );
    // The others run, but fail at their first reset.
    let expected = [
        ("missing_in_shell", "os_process_error", "status 127"),
        ("exits", "os_process_error", "cannot start"),
        ("usage", "os_process_error", "usage: server [-h]"),
        ("silent", "os_process_error", "did not start within 1000 ms"),
        ("deaf", "os_process_error", "a closed standard input"),
    ];
    for (lang, name, said) in expected {
        let error = error_of_first_use(&mut client, lang);
        assert_eq!(error["name"], name, "{lang}: {error}");
        assert_eq!(error["fault"], "query_server", "{lang}");
        assert!(error.to_string().contains(said), "{lang}: {error}");
        client.wait_for_pool(lang, &[("used", 0), ("opening", 0), ("stopping", 0)]);
        // The same in a compound call, which retries and teaches.
        let ddoc = json!({"_id": "_design/a", "_rev": "1-x", "language": lang});
        let error = client.error(
            &json!({"id": 1, "call": "ddoc_prompt", "db": "a", "ddoc": ddoc,
                                         "path": ["shows", "s"], "args": []}),
        );
        assert!(
            error["name"] == "os_process_error" || error["name"] == "timeout",
            "{error}"
        );
        client.wait_for_pool(
            lang,
            &[("used", 0), ("opening", 0), ("stopping", 0), ("waiting", 0)],
        );
    }
    assert_unharmed(&mut client);
    service.stop();
}

/// Takes a process of a broken language, and returns the error of that call or of its first prompt.
fn error_of_first_use(client: &mut Client, lang: &str) -> Value {
    let reply = client.call(&json!({"id": 1, "call": "get_proc", "lang": lang}));
    if let Some(error) = reply.get("error") {
        return error.clone();
    }
    let proc = reply["ok"]["proc"].as_str().unwrap().to_owned();
    let error = client.error(&json!({"id": 2, "call": "prompt", "proc": proc, "data": ["reset"]}));
    assert!(client.ret_proc(&proc));
    error
}

#[test]
fn a_query_server_that_breaks_the_protocol_never_answers_another_prompt() {
    let service = Service::start("");
    let mut client = service.connect();
    for garbage in [
        "hello\n",
        "\n",
        "{\n",
        "[\"error\",1]\n",
        "true junk\n",
        "1\n2\n",
    ] {
        let proc = client.get_proc("python");
        let first = client
            .call(&json!({"id": 1, "call": "prompt", "proc": proc, "data": ["raw", garbage]}));
        if first.get("error").is_some() {
            assert_eq!(first["error"]["name"], "os_process_error", "{garbage:?}");
            assert_eq!(first["error"]["fault"], "query_server");
        } else {
            assert_eq!((garbage, &first["ok"]), ("1\n2\n", &json!(1)));
        }
        let next =
            client.error(&json!({"id": 1, "call": "prompt", "proc": proc, "data": ["echo", 3]}));
        assert_eq!(next["name"], "os_process_error", "{garbage:?}");
        client.ret_proc(&proc);
    }
    assert_unharmed(&mut client);
    service.stop();
}

#[test]
fn noise_from_many_clients_harms_no_other() {
    let service = Service::start("");
    // The seed is printed when the test fails; put it here to replay.
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut steady = service.connect();
    for _ in 0..60 {
        let mut noisy = service.connect();
        let valid = [
            "{\"id\":1,\"call\":\"get_proc\",\"lang\":\"python\"}\n",
            "{\"id\":2,\"call\":\"prompt\",\"proc\":\"1.1.1\",\"data\":[\"pid\"]}\n",
            "{\"id\":3,\"call\":\"attach\",\"lang\":\"python\"}\n[\"pid\"]\n",
        ];
        for _ in 0..20 {
            let mut bytes = valid[(random() % 3) as usize].as_bytes().to_vec();
            if random() % 2 == 0 {
                let at = (random() as usize) % bytes.len();
                bytes[at] = random() as u8;
            }
            if noisy.stream.write_all(&bytes).is_err() {
                break;
            }
        }
        if random() % 2 == 0 {
            let mut some = [0; 512];
            let _ = noisy.stream.read(&mut some);
        }
    }
    steady.wait_for_pool("python", &[("used", 0), ("waiting", 0), ("opening", 0)]);
    assert_unharmed(&mut steady);
    service.stop();
}
