//! The memory of the built-in JavaScript server: no function and no line makes the process exceed its limit by more
//! than 32 MiB, and a refusal names its cause.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::program::SETTEE;

/// The default limit, and what the process may use beyond it, in KiB.
const LIMIT_KIB: u64 = 64 << 10;
const BEYOND_KIB: u64 = 32 << 10;

/// Maximum size of the program's resident pages in a release build, in KiB. A development build has more; the excess is
/// not counted.
const PROGRAM_KIB: u64 = 10 << 10;

/// The output, the status and the memory of a server.
struct Done {
    lines: Vec<String>,
    status: Option<i32>,
    /// Maximum of the process's sampled memory, in KiB.
    peak_kib: u64,
}

impl Done {
    fn last(&self) -> Value {
        serde_json::from_str(self.lines.last().unwrap()).unwrap()
    }

    /// Checks that the process kept to its limit.
    fn assert_bounded(&self, context: &str) {
        let most = LIMIT_KIB + BEYOND_KIB;
        assert!(
            self.peak_kib <= most,
            "{context}: {} KiB, at most {most}",
            self.peak_kib
        );
    }

    /// Checks that the last answer reports exhausted memory and names the setting.
    fn assert_refused(&self, context: &str) {
        let answer = self.last();
        let expected = (&json!("error"), &json!("out_of_memory"));
        let start: String = answer.to_string().chars().take(300).collect();
        assert_eq!((&answer[0], &answer[1]), expected, "{context}: {start}");
        let reason = answer[2].as_str().unwrap();
        let names_key =
            reason.ends_with("raise [sandbox] javascript_memory_max in the configuration");
        assert!(names_key, "{context}: {reason}");
    }
}

/// Returns the value of a line of `/proc/PID/status`, in KiB.
fn kib(child: &Child, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_matches([':', ' ', '\t'])
        .strip_suffix(" kB")?
        .parse()
        .ok()
}

/// Sends lines to a server, and samples its memory until it exits.
fn serve(lines: impl IntoIterator<Item = impl Into<Vec<u8>>> + Send) -> Done {
    serve_with(&[], lines)
}

/// As [`serve`], with environment variables.
fn serve_with(
    variables: &[(&str, &str)],
    lines: impl IntoIterator<Item = impl Into<Vec<u8>>> + Send,
) -> Done {
    let mut child = Command::new(SETTEE)
        .args(["couchjs", "--text-reasons"])
        .env("RUST_BACKTRACE", "0")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let has_ended = AtomicBool::new(false);
    let (lines, peak_kib) = thread::scope(|scope| {
        scope.spawn(move || {
            for line in lines {
                let mut line = line.into();
                line.push(b'\n');
                // A server that exits on a line does not read the others.
                if stdin.write_all(&line).is_err() {
                    return;
                }
            }
        });
        let watched = scope.spawn(|| {
            let mut peak = 0;
            while !has_ended.load(Ordering::Relaxed) {
                let program = kib(&child, "RssFile").unwrap_or(0);
                if let Some(most) = kib(&child, "VmHWM") {
                    peak = peak.max(most - program.saturating_sub(PROGRAM_KIB));
                }
                thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let lines = stdout.lines().map(|line| line.unwrap()).collect();
        has_ended.store(true, Ordering::Relaxed);
        (lines, watched.join().unwrap())
    });
    let status = child.wait().unwrap().code();
    Done {
        lines,
        status,
        peak_kib,
    }
}

/// Returns the lines that teach a design document with a show function, and call the function.
fn show(body: &str) -> (String, String) {
    let source = format!("function(doc, req) {{ {body} }}");
    let taught = json!(["ddoc", "new", "d", {"shows": {"s": source}}]);
    let call = json!(["ddoc", "d", ["shows", "s"], [null, {}]]);
    (taught.to_string(), call.to_string())
}

/// Returns lines that map a document with `count` functions of the same source.
fn map(body: &str, count: usize) -> Vec<String> {
    let source = format!("function(doc) {{ {body} }}");
    let mut lines = vec![json!(["add_fun", source]).to_string(); count];
    lines.push(json!(["map_doc", {"_id": "a"}]).to_string());
    lines
}

#[test]
fn the_content_types_that_functions_register_are_bounded() {
    for (types, count) in [
        ("'x'.repeat(12e6) + Math.random()", 1),
        ("'x/' + Math.random() + 'y'.repeat(100)", 2000),
        ("'' + Math.random()", 20_000),
    ] {
        let body = format!(
            "for (var i = 0; i < 50; i++) {{
               var types = ['k' + Math.random()];
               for (var j = 0; j < {count}; j++) types.push({types});
               registerType.apply(null, types);
             }}
             return 'registered'"
        );
        let (taught, call) = show(&body);
        let done = serve([vec![taught], vec![call; 5]].concat());
        done.assert_bounded(types);
        done.assert_refused(types);
        assert_eq!(done.status, Some(255));
    }
}

#[test]
fn a_function_can_register_the_same_content_types_in_every_call() {
    let (taught, call) = show(
        "for (var i = 0; i < 1000; i++) registerType('mine', 'text/mine' + i % 10, 'mine');
         provides('mine', function() { return 'as mine' })",
    );
    let done = serve([vec![taught], vec![call; 100]].concat());
    let response = json!(["resp", {"body": "as mine", "headers": {"Content-Type": "text/mine9"}}]);
    assert_eq!((done.lines.len(), done.last()), (101, response));
}

#[test]
fn an_accept_header_of_millions_of_ranges_takes_bounded_memory() {
    for accept in ["','.repeat(12e6)", "'a/b;' + ';'.repeat(9e6)"] {
        let body = format!(
            "req.headers = {{Accept: {accept}}}; provides('html', function() {{ return 'x' }})"
        );
        let (taught, call) = show(&body);
        let done = serve([taught, call]);
        done.assert_bounded(accept);
        assert_eq!(done.last()[1], "not_acceptable");
    }
}

#[test]
fn the_results_of_all_functions_of_a_command_share_the_limit() {
    let rows = [
        ("emit(1, 'x'.repeat(12e6));", 60),
        ("emit(1, '\\u00e9'.repeat(6e6));", 60),
        ("emit(1, 'x'.repeat(8e5));", 200),
        ("for (var i = 0; i < 4e5; i++) emit(i, null);", 30),
        (
            "for (var i = 0; i < 3; i++) emit(i, {a: 'x'.repeat(9e6)});",
            6,
        ),
        ("this.kept = 'y'.repeat(3e7); emit(1, 'x'.repeat(12e6));", 6),
    ];
    for (body, count) in rows {
        let done = serve(map(body, count));
        done.assert_bounded(body);
        done.assert_refused(body);
    }
    for result in ["'x'.repeat(14e6)", "'x'.repeat(7e5)"] {
        let reducers = vec![format!("function() {{ return {result} }}"); 100];
        let done = serve([json!(["reduce", reducers, [[["k", "a"], 1]]]).to_string()]);
        done.assert_bounded(result);
        done.assert_refused(result);
    }
}

#[test]
fn large_answers_and_log_lines_of_one_function_are_bounded() {
    let logs = map(
        "for (var i = 0; i < 20; i++) log('x'.repeat(2e7)); emit(1, 1);",
        1,
    );
    let done = serve(logs);
    done.assert_bounded("logs");
    assert_eq!((done.lines.len(), done.last()), (22, json!([[[1, 1]]])));
    for (body, is_answered) in [
        ("return 'x'.repeat(15e6)", true),
        ("return '\\u4e2d'.repeat(6e6)", true),
        ("return 'x'.repeat(4e7)", false),
        ("for (;;) send('x'.repeat(5e6))", false),
        (
            "throw {error: 'x'.repeat(8e6), reason: 'y'.repeat(8e6)}",
            true,
        ),
    ] {
        let (taught, call) = show(body);
        let done = serve([taught, call.clone(), call]);
        done.assert_bounded(body);
        if is_answered {
            assert_eq!((done.lines.len(), done.status), (3, Some(0)), "{body}");
        } else {
            done.assert_refused(body);
        }
    }
}

#[test]
fn engines_share_the_limit() {
    let keeps =
        "globalThis.kept = []; for (var i = 0; i < 45; i++) kept.push('y'.repeat(1e6) + i);";
    let (taught, call) = show(&format!("{keeps} return 'kept'"));
    let views = map(&format!("{keeps} emit(1, 'kept');"), 1);
    let shows = vec![taught, call];
    for (context, lines) in [
        ("show, map", [shows.clone(), views.clone()]),
        ("map, show", [views.clone(), shows]),
    ] {
        let done = serve(lines.concat());
        done.assert_bounded(context);
        done.assert_refused(context);
    }
    // A reset frees the memory.
    let again = [views, vec![json!(["reset"]).to_string()]].concat();
    let done = serve([again.clone(), again.clone(), again].concat());
    done.assert_bounded("map, reset, map");
    assert_eq!((done.lines.len(), done.last()), (9, json!(true)));
}

#[test]
fn a_line_that_exceeds_the_memory_is_refused_and_the_next_one_answered() {
    let long = "z".repeat(60_000_000);
    let list = format!("[{}1]", "1,".repeat(30_000_000));
    for line in [
        format!("[\"map_doc\",{{\"x\":\"{long}\"}}]"),
        format!("[\"ddoc\",\"new\",\"d\",{{\"x\":\"{long}\"}}]"),
        list,
        long,
    ] {
        let start: String = line.chars().take(20).collect();
        let done = serve([line, json!(["reset"]).to_string()]);
        done.assert_bounded(&start);
        assert_eq!(
            (done.last(), done.status),
            (json!(true), Some(0)),
            "{start}"
        );
        let done = Done {
            lines: done.lines[..1].to_vec(),
            ..done
        };
        done.assert_refused(&start);
    }
}

#[test]
fn a_document_of_a_third_of_the_limit_is_mapped() {
    let text = "z".repeat(20_000_000);
    let mut lines = map("emit(1, doc.x.length);", 3);
    *lines.last_mut().unwrap() = format!("[\"map_doc\",{{\"x\":\"{text}\"}}]");
    lines.push(lines.last().unwrap().clone());
    let done = serve(lines);
    done.assert_bounded("documents");
    let row = json!([[1, 20_000_000]]);
    assert_eq!(done.last(), json!([row, row, row]));
}

#[test]
fn design_documents_and_libraries_share_the_limit() {
    let text = "z".repeat(6_000_000);
    let taught = |n| format!("[\"ddoc\",\"new\",\"d{n}\",{{\"x\":\"{text}\"}}]");
    let done = serve((0..20).map(taught));
    done.assert_bounded("large design documents");
    done.assert_refused("large design documents");
    // A replaced design document is freed.
    let done = serve((0..20).map(|_| taught(1)));
    done.assert_bounded("a design document");
    assert_eq!((done.lines.len(), done.last()), (20, json!(true)));

    let done = serve((0..300_000).map(|n| format!("[\"ddoc\",\"new\",\"d{n}\",{{}}]")));
    done.assert_bounded("many design documents");
    done.assert_refused("many design documents");

    let source = format!(
        "function(doc) {{ /* {} */ emit(1, 1); }}",
        "z".repeat(200_000)
    );
    let done = serve((0..1000).map(|_| json!(["add_fun", source]).to_string()));
    done.assert_bounded("sources");
    done.assert_refused("sources");

    let library = format!(
        "[\"add_lib\",{{\"m\":\"exports.x = '{}'\"}}]",
        "z".repeat(12_000_000)
    );
    let body = "emit(1, require('views/lib/m').x.length);";
    let done = serve([vec![library.clone(), library], map(body, 5)].concat());
    done.assert_bounded("libraries");
    done.assert_refused("libraries");
}

#[test]
fn long_lists_in_a_line_take_bounded_memory() {
    let lists = "[1],".repeat(5_000_000);
    let names = r#""a","#.repeat(5_000_000);
    for line in [
        format!("[[{lists}1]]"),
        format!("[\"ddoc\",[{lists}1],[\"shows\",\"s\"],[]]"),
        format!("[\"ddoc\",\"d\",[{names}\"a\"],[]]"),
        format!("[\"reset\",{{\"a\":[{lists}1],\"reduce_limit\":[{lists}1]}}]"),
        format!("[\"reduce\",[{lists}1],[]]"),
        format!("[\"reset\",{names}1]"),
    ] {
        let start: String = line.chars().take(20).collect();
        let taught = json!(["ddoc", "new", "d", {}]).to_string();
        let done = serve([taught, line]);
        done.assert_bounded(&start);
        assert_eq!(done.lines.len(), 2, "{start}");
    }
}

#[test]
fn invalid_utf_8_takes_bounded_memory() {
    let line = [
        b"[\"map_doc\",\"",
        vec![0xff; 30_000_000].as_slice(),
        b"\"]",
    ]
    .concat();
    let done = serve([line]);
    done.assert_bounded("bytes");
    done.assert_refused("bytes");
}

#[test]
fn memory_that_a_tenant_has_freed_does_not_evict_the_isolates_of_others() {
    let tenant = |name| json!(["tenant", "n", name]).to_string();
    let (taught, call) = show("return 'x'");
    let evicted = |function: &[String]| {
        let taught = ["a", "b", "c"].map(|name| vec![tenant(name), taught.clone(), call.clone()]);
        let turns = ["d", "a", "b", "a", "b"].map(tenant).to_vec();
        let lines = [taught.concat(), function.to_vec(), turns].concat();
        let variables = [("SETTEE_ISOLATES_MAX", "8"), ("SETTEE_TENANT_NONCE", "n")];
        serve_with(&variables, lines).lines.split_off(11)
    };
    let none = json!({"evicted": []}).to_string();
    let large = "globalThis.kept = []; for (var i = 0; i < 20; i++) kept.push('y'.repeat(2e6) + i)";
    assert_eq!(evicted(&map(large, 1)), vec![none.clone(); 5]);
    // The memory of a large document stays with the process.
    let elements: Vec<_> = (0..150_000).map(|i| json!({"x": i, "y": "abc"})).collect();
    let document = json!(["map_doc", {"_id": "a", "a": elements}]).to_string();
    let function = json!(["add_fun", "function(doc) { emit(doc.a.length, 1) }"]).to_string();
    assert_eq!(evicted(&[function, document])[1..], vec![none; 4]);
}

#[test]
fn fragmented_memory_is_bounded() {
    // One block per page stays: the engine counts little, the system counts all pages.
    let body = "var kept = [];
        for (var size = 8; size < 480; size += 16) {
          var all = [], step = Math.floor(4000 / (size + 24));
          for (var i = 0; i < 25e6 / (size + 40); i++) all.push('z'.repeat(size) + i);
          for (i = 0; i < all.length; i += step) kept.push(all[i]);
        }
        emit(1, kept.length);";
    let done = serve(map(body, 1));
    done.assert_bounded("scattered blocks");
    done.assert_refused("scattered blocks");
}
