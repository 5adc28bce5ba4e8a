//! A borrower never sees data of its process's previous holder, whatever either of them sends.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Shutdown;

use serde_json::{Value, json};

use crate::support::daemon::{Client, Service, directory, wait_until};
use crate::support::program::run;

/// A query server that answers with every token since the last `reset` that it accepted, and with those of all design
/// documents, and prints them on standard error too. After `sulk` it refuses every `reset`; after `later` it prints an
/// unrequested line once a file exists. It accepts a `reset` without a configuration, or with an object.
const HOARD: &str = r#"
heard= taught= funs=0 sulks=
while IFS= read -r line; do
  name=${line#'["'} name=${name%%'"'*}
  new= rest=$line
  while case $rest in *tok_*) true ;; *) false ;; esac; do
    rest=${rest#*tok_}
    new="$new tok_${rest%%[!a-z0-9_]*}"
  done
  told=$taught$heard
  case $line in
    '["reset"]' | '["reset",{}]' | '["reset",{"'*'}]')
      [ "$sulks" ] || { heard= funs=0; echo true; continue; } ;;
  esac
  echo "heard$told$new" >&2
  case $line in '["ddoc","new"'*) taught="$taught$new"; echo true; continue ;; esac
  heard="$heard$new"
  case $name in
    add_fun) funs=$((funs + 1)); echo true ;;
    add_lib) echo true ;;
    sulk) sulks=yes; echo true ;;
    map_doc | index_doc)
      lists="[[\"$told\",null]]" left=$funs
      while [ "$left" -gt 1 ]; do lists="$lists,[]" left=$((left - 1)); done
      echo "[$lists]" ;;
    reduce | rereduce) echo "[true,[\"$told\"]]" ;;
    later)
      file=${line#*,'"'} file=${file%'"'*}
      (while [ ! -e "$file" ]; do sleep 0.005; done; echo '["tok_a_1"]') &
      echo true ;;
    exit) exit 1 ;;
    *)
      case $line in
        *'"validate_doc_update"'*) echo "{\"forbidden\":\"$told\"}" ;;
        *'"shows"'*) echo "[\"resp\",{\"body\":\"$told\"}]" ;;
        *'"updates"'*) echo "[\"up\",null,{\"body\":\"$told\"}]" ;;
        *) echo "[\"error\",\"heard\",\"$told\"]" ;;
      esac ;;
  esac
done
"#;

/// Starts a service with the language `hoard` and the built-in JavaScript, each with `max` processes and a service.
fn start(hoard: &str, reuse: &str, max: u64) -> Service {
    let directory = directory();
    let script = directory.path().join("hoard.sh");
    std::fs::write(&script, hoard).unwrap();
    let mut text = format!(
        "[query_server_config]\nreuse = \"{reuse}\"\nisolates_max = 2\n[query_servers]\nhoard = \"sh {}\"\n",
        script.display()
    );
    for language in ["hoard", "javascript"] {
        let socket = directory.path().join(language);
        let _ = write!(
            text,
            "[pools.{language}]\nmax = {max}\n[services.{language}]\nlisten = \"unix:{}\"\npool = \"{language}\"\n",
            socket.display()
        );
    }
    Service::start_in(directory, &text)
}

fn take(client: &mut Client, db: &str) -> String {
    let got = client.ok(&json!({"call": "get_proc", "lang": "hoard", "db": db}));
    got["proc"].as_str().unwrap().to_owned()
}

/// Sends the lines of `first` as the first holder of the only process, and returns the replies to those of `then`, sent
/// by the next holder for another database.
fn after_another(first: &[Value], then: &[Value]) -> Vec<String> {
    let service = start(HOARD, "any", 1);
    let (mut a, mut b) = (service.connect(), service.connect());
    let proc = take(&mut a, "a");
    for line in first {
        a.prompt(&proc, line.clone());
    }
    assert!(a.ret_proc(&proc));
    let proc = take(&mut b, "b");
    let replies = then.iter().map(|line| {
        let prompt = json!({"call": "prompt", "proc": proc, "data": line});
        b.call(&prompt).to_string()
    });
    let replies: Vec<String> = replies.collect();
    assert_eq!(
        b.pool("hoard")["totals"]["started"],
        1,
        "the same process served both"
    );
    service.stop();
    replies
}

#[test]
fn a_refused_reset_does_not_count_as_the_reset_between_two_holders() {
    let map = json!(["map_doc", {"_id": "tok_b_1"}]);
    for refused in [
        json!(["reset", 7]),
        json!(["reset", {}, 1]),
        json!(["forget", {}]),
    ] {
        let left = json!(["add_fun", "tok_a_1"]);
        let answers = after_another(&[left], &[refused, map.clone()]);
        assert!(answers[0].contains("error"), "{answers:?}");
        assert!(answers[1].contains("\"ok\""), "{answers:?}");
        assert!(
            !answers.iter().any(|answer| answer.contains("tok_a_")),
            "{answers:?}"
        );
    }
}

#[test]
fn stderr_of_an_earlier_loan_is_not_quoted() {
    let mapped = json!(["map_doc", {"_id": "tok_a_1"}]);
    let own = json!(["map_doc", {"_id": "tok_b_1"}]);
    let answers = after_another(&[mapped], &[own, json!(["exit"])]);
    assert!(answers[1].contains("exited with status 1"), "{answers:?}");
    assert!(
        answers[1].contains("tok_b_1"),
        "the holder's own output is not quoted: {answers:?}"
    );
    assert!(!answers[1].contains("tok_a_"), "{answers:?}");
}

#[test]
fn output_for_an_earlier_holder_is_not_quoted_to_the_next_one() {
    let service = start(HOARD, "any", 1);
    let (mut a, mut b) = (service.connect(), service.connect());
    let proc = take(&mut a, "a");
    let file = service.path("go");
    a.prompt(&proc, json!(["later", file]));
    assert!(a.ret_proc(&proc));
    let proc = take(&mut b, "b");
    std::fs::write(file, "").unwrap();
    b.wait_for_pool("hoard", &[("used", 0)]);
    let error = b.error(&json!({"call": "prompt", "proc": proc, "data": ["map_doc", {}]}));
    let reason = error["reason"].as_str().unwrap();
    assert!(reason.contains("output that nobody asked for"), "{error}");
    assert!(!error.to_string().contains("tok_a_"), "{error}");
    service.stop();
}

#[test]
fn a_process_that_knows_a_design_document_serves_another_database_only_where_commands_are_shared() {
    for (reuse, started) in [("any", 1), ("database", 3)] {
        let service = start(HOARD, reuse, 1);
        let (mut a, mut b) = (service.connect(), service.connect());
        let ddoc = json!({"_id": "_design/d", "language": "hoard", "shows": {"s": "tok_a_1"}});
        let show =
            json!({"call": "show", "db": "a", "ddoc": ddoc, "name": "s", "doc": {}, "req": {}});
        assert!(a.call(&show).to_string().contains("tok_a_1"));
        let proc = take(&mut b, "b");
        let shown = json!(["ddoc", "_design/d", ["shows", "s"], [null, {}]]);
        let shown = b.prompt(&proc, shown).to_string();
        assert_eq!(shown.contains("tok_a_1"), reuse == "any", "{shown}");
        assert!(b.ret_proc(&proc));
        assert!(a.call(&show).to_string().contains("tok_a_1"));
        assert_eq!(b.pool("hoard")["totals"]["started"], started, "{reuse}");
        service.stop();
    }
}

#[test]
fn a_timeout_set_by_a_holder_ends_with_the_loan() {
    let service = Service::start("[pools.python]\nmax = 1\n");
    let (mut a, mut b) = (service.connect(), service.connect());
    let proc = a.get_proc("python");
    a.ok(&json!({"call": "set_timeout", "proc": proc, "timeout_ms": 1}));
    assert!(a.ret_proc(&proc));
    let proc = b.get_proc("python");
    let file = service.path("go");
    b.send(&json!({"call": "prompt", "proc": proc, "data": ["wait", file]}));
    wait_until("the prompt to reach the process", || {
        service.path("go.here").exists()
    });
    // The first holder's timeout of a millisecond would have passed.
    let started = std::time::Instant::now();
    wait_until("10 ms to pass", || {
        started.elapsed() > std::time::Duration::from_millis(10)
    });
    std::fs::write(file, "").unwrap();
    assert_eq!(b.reply()["ok"], "waited");
    service.stop();
}

/// Turns that the tenants take in a history.
const TURNS: usize = 120;

struct Tenant {
    name: char,
    client: Client,
    tokens: u32,
}

struct History {
    service: Service,
    language: &'static str,
    seed: u64,
    random: u64,
    /// The steps so far, for the message of a failure.
    done: Vec<String>,
}

impl History {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Asserts that `text`, which a tenant was sent, has no token of another.
    fn assert_own_tokens_only(&self, tenant: &Tenant, text: &str) {
        for other in ['a', 'b', 'c'].into_iter().filter(|o| *o != tenant.name) {
            let words = format!("tok_{other}_");
            assert!(
                !text.contains(&words),
                "seed {}, {} of {}: {text}\nafter\n{}",
                self.seed,
                tenant.name,
                self.language,
                self.done.join("\n")
            );
        }
    }

    /// Reads the replies to `count` requests, and the notices between them.
    fn replies(&self, tenant: &mut Tenant, count: usize) -> Vec<Value> {
        let mut replies = Vec::new();
        while replies.len() < count {
            let line = tenant
                .client
                .line()
                .expect("a reply before the connection closes");
            self.assert_own_tokens_only(tenant, &line);
            let reply: Value = serde_json::from_str(&line).unwrap();
            if reply.get("down").is_none() {
                replies.push(reply);
            }
        }
        replies
    }

    fn token(&mut self, tenant: &mut Tenant) -> String {
        tenant.tokens += 1;
        format!("tok_{}_{}", tenant.name, tenant.tokens)
    }

    /// A design document; all tenants use the same id.
    fn ddoc(&mut self, tenant: &Tenant) -> Value {
        let word = format!("tok_{}_d{}", tenant.name, self.random(2));
        let remember = remember(&word);
        json!({"_id": "_design/d", "language": self.language,
            "views": {"lib": {"m": format!("exports.m = '{word}';")},
                "v": {"map": format!("function(doc) {{ {remember} emit(seen); }}")}},
            "filters": {"f": format!("function(doc) {{ {remember} throw seen.join(); }}")},
            "shows": {"s": format!("function(doc) {{ {remember} return seen.join(); }}")},
            "updates": {"u": format!("function(doc) {{ {remember} return [null, seen.join()]; }}")},
            "lists": {"l": format!("function() {{ var doc = getRow(); {remember} return seen.join(); }}")},
            "rewrites": format!("function(doc) {{ {remember} return '../' + seen.join(); }}"),
            "validate_doc_update": format!("function(doc) {{ {remember} throw {{forbidden: seen.join()}}; }}")})
    }

    /// Returns a random line of the protocol. Lines that may end the built-in server come last, and are rare.
    fn line(&mut self, tenant: &mut Tenant) -> Value {
        let word = self.token(tenant);
        let (map, reduce) = (map(&word), reduce(&word));
        let kinds = if self.random(6) == 0 { 17 } else { 12 };
        match self.random(kinds) {
            0 => json!(["reset", {}]),
            1 => json!(["reset", 7]),
            2 => json!(["reset", {}, word]),
            3 => json!(["add_lib", {"m": format!("exports.m = '{word}';")}]),
            4 => json!(["add_fun", map]),
            5 | 6 => json!(["map_doc", {"_id": word}]),
            7 => json!(["index_doc", {"_id": word}]),
            8 => json!(["reduce", [reduce], [[["k", word], word]]]),
            9 => json!(["rereduce", [reduce], [word]]),
            10 => json!(["ddoc", "new", "_design/d", self.ddoc(tenant)]),
            11 => json!(["forget", {}]),
            12 => json!(["ddoc", "_design/d", ["shows", "s"], [{"_id": word}, {}]]),
            13 => {
                json!(["ddoc", "_design/d", ["validate_doc_update"], [{"_id": word}, null, {}, {}]])
            }
            14 => json!(["list_row", {"id": word}]),
            15 => json!(["sulk", word]),
            _ => json!(["exit"]),
        }
    }

    fn lines(&mut self, tenant: &mut Tenant) -> Vec<Value> {
        let count = self.random(5);
        (0..count).map(|_| self.line(tenant)).collect()
    }

    /// The database; if `None`, the connection is the tenant.
    fn db(&mut self, tenant: &Tenant) -> Option<String> {
        (self.random(4) > 0).then(|| format!("db_{}", tenant.name))
    }

    /// Takes a process, sends it lines, and returns it or disconnects.
    fn borrow(&mut self, tenant: &mut Tenant) {
        let mut get = json!({"id": 1, "call": "get_proc", "lang": self.language});
        match (self.db(tenant), self.random(3)) {
            (Some(db), 0) => {
                get = json!({"id": 1, "call": "get_proc", "db": db, "ddoc": self.ddoc(tenant)});
            }
            (Some(db), _) => get["db"] = json!(db),
            (None, _) => {}
        }
        tenant.client.send(&get);
        let got = self.replies(tenant, 1).remove(0);
        let Some(proc) = got["ok"]["proc"].as_str() else {
            return self.done.push(format!("{}: {get}: {got}", tenant.name));
        };
        let lines = self.lines(tenant);
        self.done.push(format!("{}: {get}: {lines:?}", tenant.name));
        let is_pipelined = self.random(2) == 0;
        for data in &lines {
            let prompt = json!({"id": 2, "call": "prompt", "proc": proc, "data": data,
                "report": self.random(2) == 0});
            tenant.client.send(&prompt);
            if !is_pipelined {
                self.replies(tenant, 1);
            }
        }
        let prompts = if is_pipelined { lines.len() } else { 0 };
        match self.random(5) {
            0 => tenant.client = self.service.connect(),
            how => {
                let status = if how == 1 { "fail" } else { "ok" };
                let back = json!({"id": 3, "call": "ret_proc", "proc": proc, "status": status});
                tenant.client.send(&back);
                self.replies(tenant, prompts + 1);
            }
        }
    }

    /// Calls a function of any kind.
    fn call(&mut self, tenant: &mut Tenant) {
        let (word, ddoc) = (self.token(tenant), self.ddoc(tenant));
        let (map, reduce) = (map(&word), reduce(&word));
        let docs = json!([{"_id": word}, {"_id": word, "n": 1}]);
        let mut call = match self.random(13) {
            0 => {
                json!({"call": "map_docs", "funs": [map], "lib": {"m": "exports.m = 1;"}, "docs": docs})
            }
            1 => json!({"call": "reduce", "funs": [reduce], "rows": [[["k", word], word]]}),
            2 => json!({"call": "rereduce", "funs": [reduce], "values": [word]}),
            3 => json!({"call": "index_docs", "fun": map, "docs": docs}),
            4 => json!({"call": "try_compile", "name": "v", "fun": map}),
            5 => {
                json!({"call": "ddoc_prompt", "path": ["shows", "s"], "args": [{"_id": word}, {}]})
            }
            6 => json!({"call": "validate_docs", "docs": [{"newDoc": {"_id": word}}]}),
            7 => json!({"call": "filter_docs", "name": "f", "docs": docs}),
            8 => json!({"call": "filter_view", "name": "v", "docs": docs}),
            9 => json!({"call": "show", "name": "s", "doc": {"_id": word}}),
            10 => json!({"call": "update", "name": "u", "doc": {"_id": word}}),
            11 => json!({"call": "list", "name": "l", "rows": [{"id": word, "key": word}]}),
            _ => json!({"call": "rewrite", "req": {"path": [word]}}),
        };
        call["id"] = json!(4);
        call["report"] = json!(self.random(2) == 0);
        if call.get("funs").is_some() || call.get("fun").is_some() {
            call["lang"] = json!(self.language);
            if let Some(db) = self.db(tenant) {
                call["db"] = json!(db);
            }
        } else {
            call["ddoc"] = ddoc;
            call["db"] = json!(format!("db_{}", tenant.name));
        }
        self.done.push(format!("{}: {call}", tenant.name));
        tenant.client.send(&call);
        self.replies(tenant, 1);
    }

    /// Talks to a process over a separate connection: to a service, or with `attach`.
    fn talk(&mut self, tenant: &mut Tenant, is_service: bool) {
        let lines = self.lines(tenant);
        let mut client = if is_service {
            Client::connect(&self.service.path(self.language))
        } else {
            let mut client = self.service.connect();
            let db = format!("db_{}", tenant.name);
            client.ok(&json!({"call": "attach", "lang": self.language, "db": db, "end": true}));
            client
        };
        self.done
            .push(format!("{}: talk {is_service}: {lines:?}", tenant.name));
        for line in &lines {
            // An earlier line may have ended the process.
            let _ = client.stream.write_all(format!("{line}\n").as_bytes());
        }
        let _ = client.stream.shutdown(Shutdown::Write);
        while let Some(line) = client.line() {
            self.assert_own_tokens_only(tenant, &line);
        }
    }

    /// Talks to a process through `settee attach`, which hands its pipes to the service.
    fn hand_over(&mut self, tenant: &mut Tenant) {
        let lines = self.lines(tenant);
        let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let db = format!("db_{}", tenant.name);
        let arguments = ["attach", "--language", self.language, "--db", &db];
        self.done
            .push(format!("{}: {arguments:?}: {lines:?}", tenant.name));
        let output = run(&mut self.service.client(&arguments), input.as_bytes());
        self.assert_own_tokens_only(tenant, &String::from_utf8_lossy(&output.stdout));
        self.assert_own_tokens_only(tenant, &String::from_utf8_lossy(&output.stderr));
    }
}

/// Statements that append to `seen`, a global that keeps all words.
fn remember(word: &str) -> String {
    format!(
        "var seen = globalThis.seen = (globalThis.seen || []).concat('{word}', doc ? doc._id || doc.id : 0);"
    )
}

fn map(word: &str) -> String {
    let remember = remember(word);
    format!("function(doc) {{ {remember} log(seen.join()); emit(seen, null); }}")
}

fn reduce(word: &str) -> String {
    let remember = remember(word);
    format!(
        "function(keys, values) {{ var doc = {{id: values[0]}}; {remember} return seen.join(); }}"
    )
}

/// Has three tenants take turns, and asserts that none is sent a token of another.
fn take_turns(language: &'static str, reuse: &str) {
    // The seed is printed when the test fails; put it here to replay.
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    // Shared commands do not keep design documents secret.
    let hoard = match reuse {
        "any" => HOARD.replace("taught=\"$taught$new\"; ", ""),
        _ => HOARD.to_owned(),
    };
    let service = start(&hoard, reuse, 1 + seed % 2);
    let mut tenants = ['a', 'b', 'c'].map(|name| Tenant {
        name,
        client: service.connect(),
        tokens: 0,
    });
    let mut history = History {
        service,
        language,
        seed,
        random: seed | 1,
        done: Vec::new(),
    };
    for _ in 0..TURNS {
        let tenant = &mut tenants[history.random(3) as usize];
        match history.random(16) {
            0..=6 => history.borrow(tenant),
            7..=12 => history.call(tenant),
            13 => history.talk(tenant, true),
            14 => history.talk(tenant, false),
            _ => history.hand_over(tenant),
        }
    }
    let lent = tenants[0].client.pool(language)["totals"]["taken"].clone();
    assert!(lent.as_u64() > Some(TURNS as u64 / 2), "{lent}");
    drop(tenants);
    history.service.stop();
}

#[test]
fn three_tenants_never_see_each_others_data_from_a_shared_command() {
    take_turns("hoard", "any");
}

#[test]
fn three_tenants_never_see_each_others_data_from_a_command_per_database() {
    take_turns("hoard", "database");
}

#[test]
fn three_tenants_never_see_each_others_data_from_javascript_that_forgets() {
    take_turns("javascript", "any");
}

#[test]
fn three_tenants_never_see_each_others_data_from_javascript_in_isolates() {
    take_turns("javascript", "isolates");
}

#[test]
fn three_tenants_never_see_each_others_data_from_a_javascript_process_per_database() {
    take_turns("javascript", "database");
}
