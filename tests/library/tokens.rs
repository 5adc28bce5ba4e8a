//! The ratchet: how much code the product has, counted in tokens, which only falls.
//!
//! SUMMARY   A token is a name, a number, a text or a sign, so that layout cannot pay. Counted are `src` and the crates
//!           without tests and comments, the scripts of the dashboard and of the JavaScript engine, and the clients.
//! PROMISES  A change that adds tokens fails here until it has removed as many. The mend of a defect, or a feature
//!           with an allowance, adds a line to [`BOUND`] instead, with its reason. One that removes tokens lowers
//!           the bound.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The tokens at the start, and each change since with its reason.
const BOUND: &[(isize, &str)] = &[
    (
        930_193,
        "the count on 28 November 2026, when this bound was introduced",
    ),
    (
        1_761,
        "damaged and full stores are reported as such, with the remedy",
    ),
    (
        2_657,
        "names are bounded at every entrance; a probe ended by a signal is retried",
    ),
    (
        1_600,
        "a design document that the target refuses blocks nothing, reasons name it, ids may contain commas, \
         Retry-After is respected, and control groups belong to one pid namespace",
    ),
    (
        600,
        "page tables and sockets count where memory is watched; a successful run clears its servers' unreachable \
         mark",
    ),
    (
        1_770,
        "idle replications check that their databases exist, drained fleets are reported, and at the ceiling a \
         process is exchanged only if that is worth a start",
    ),
    (
        1_067,
        "calls with long arguments have their own arbiter, prompts are not copied, and open lists survive a stop \
         order",
    ),
    (
        1_008,
        "pools take over their group's waiters in their own queue order; shared commands are chosen as in CouchDB",
    ),
    (
        1_640,
        "pauses and priorities lost in a failover are written again",
    ),
    (
        1_800,
        "processes that run in a suspended cell are stopped, charged and killed; a cell may need a second control \
         group",
    ),
    (
        1_815,
        "exhausted epoll watches are named, long answers are checked on another thread, and a claim reads the \
         documents it claims",
    ),
    (
        -4_349,
        "the socket lends processes and runs functions, and nothing else: the service is managed over HTTP",
    ),
    (
        -4_931,
        "replications are exported to one file; problems, cells, job selections, costs and pool rules have one \
         shape each",
    ),
    (15, "a silent connection does not delay a stop"),
    (
        -28_000,
        "moved, not removed: the suite for every store, and fakes, are with the tests",
    ),
    (-925, "ProcManager has eight files"),
    (
        5_600,
        "each remedy is a working command: losses are shown until acknowledged, failed writes are counted, orders \
         can require the audit log",
    ),
    (
        4_720,
        "the Python client's results have types, clients know the longest line and share names, settee map accepts \
         documents without ids, skips bad lines and names what it does not read",
    ),
    (800, "JavaScript errors show the place and the remedy"),
    (
        1_100,
        "check-config opens what serve opens, a failing pool is probed at once, unknown arguments are refused, and \
         clients bound their calls, survive a fork and name values they cannot send",
    ),
    (
        7_800,
        "a process keeps an isolate for each of several tenants",
    ),
    (
        3_450,
        "calls refer to a design document by its digest, over socket, HTTP and in three clients",
    ),
    (
        1_500,
        "orders refuse unread parameters; settee jobs verify takes several jobs",
    ),
    (
        2_320,
        "losses survive a restart, calls use the language of their pool, settee map writes CSV",
    ),
    (
        670,
        "exhausted epoll watches and descriptors are named where replications and PostgreSQL connect; the next \
         waiter of a shorter queue has its own affinity timer",
    ),
    (
        170,
        "an HTTP thread serves others while all pools are described; work whose caller has gone keeps its turn",
    ),
    (
        340,
        "commands' cells have a control group under the packaged unit; the built-in JavaScript starts on Linux 6.1",
    ),
    (
        215,
        "an unknown parameter of GET is refused: a misspelled filter listed everything",
    ),
    (
        218,
        "fractions have JavaScript's digits, re-read certificates do not replace a newer configuration, a log that \
         fails without losses says so, clients leave a call's language to its pool, errors name the bound that was \
         exceeded",
    ),
    (
        1_089,
        "what functions of a replaced design document hold is freed, URLs of replications have a bound, the JavaScript server \
         reads while its answers are not read, and long bodies, prompts, answers, listed settings and trials of cells \
         stall no thread",
    ),
    (
        -58_250,
        "functions used once are where they are used, values that only passed through are read where they are needed, \
         and two actors that only the ProcManager knew are parts of it",
    ),
    (
        2_141,
        "sixty defects found by reading every part: cancelled requests leave their queues, refused uploads and single \
         reads do not stop a replication, long names cost no lease, relative paths are closed to query servers, \
         overdue work has its timer, and nested members, `$in` and repeated reducers take linear time",
    ),
    (
        3_500,
        "forty defects found by following clients, processes, replications, logins, fleets, hostile functions and \
         operators through all parts: lost clients and endless logs are noticed, sessions end, restored databases \
         lose nothing, reloads are whole, and no function reaches the next tenant's call",
    ),
];

/// How far below the bound the product may be before the bound has to follow.
const SLACK: usize = 500;

/// Rust: comments, raw texts, texts, characters, names and numbers, signs.
const RUST: &str =
    r##"(?s)//[^\n]*|/\*.*?\*/|r#*"(?:.|\n)*?"#*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'|\w+|[^\s\w]"##;

/// JavaScript, Python, CSS and HTML.
const SCRIPT: &str = r##"(?s)//[^\n]*|#[^\n]*|/\*.*?\*/|"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\w+|[^\s\w]"##;

/// What a token of a comment begins with.
const COMMENTS: [&str; 3] = ["//", "/*", "# "];

/// Returns the files below a folder whose names end with one of these, but for those of tests and of builds.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        let of_tests = ["tests", "test", "tests.rs", "testing.rs"].contains(&name.as_str());
        if of_tests || name.ends_with("_tests.rs") || ["node_modules", "build"].contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if extensions.iter().any(|extension| name.ends_with(extension)) {
            found.push(path);
        }
    }
    found
}

fn count(text: &str, token: &Regex) -> usize {
    let tokens = token.find_iter(text);
    let is_code = |token: &str| !COMMENTS.iter().any(|comment| token.starts_with(comment));
    tokens.filter(|token| is_code(token.as_str())).count()
}

/// Counts the tokens of a checkout.
fn tokens(root: &Path) -> usize {
    let (rust, script) = (Regex::new(RUST).unwrap(), Regex::new(SCRIPT).unwrap());
    let tests = Regex::new(r"\n#\[cfg\(test\)\]\n(#\[.*\n)*mod \w+ \{").unwrap();
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let mut sources: Vec<PathBuf> = crates
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    sources.push(root.join("src"));
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    let mut sum = 0;
    for source in sources {
        for text in files(&source, &[".rs"]).into_iter().map(read) {
            sum += count(tests.split(&text).next().unwrap_or_default(), &rust);
        }
        let scripts = files(&source, &[".js", ".css", ".html"]);
        sum += scripts
            .into_iter()
            .map(|path| count(&read(path), &script))
            .sum::<usize>();
    }
    let clients = files(&root.join("clients"), &[".py", ".js", ".ts"]);
    sum + clients
        .into_iter()
        .map(|path| count(&read(path), &script))
        .sum::<usize>()
}

#[test]
fn the_product_has_no_more_tokens_than_before() {
    let bound: isize = BOUND.iter().map(|(tokens, _)| tokens).sum();
    let bound = usize::try_from(bound).unwrap();
    let counted = tokens(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(
        counted <= bound,
        "{counted} tokens of at most {bound}: remove as many as were added, or say in BOUND what defect they mend"
    );
    assert!(
        counted + SLACK >= bound,
        "{counted} tokens of at most {bound}: lower BOUND to what there is, so that it stays removed"
    );
}

#[test]
fn a_token_is_a_name_a_number_a_text_or_a_sign() {
    let rust = Regex::new(RUST).unwrap();
    let counted = |text| count(text, &rust);
    assert_eq!(counted("let x = 'a'; // no code\n"), 5);
    assert_eq!(counted("say(r#\"one text\"#, \"another \\\" one\")"), 6);
    assert_eq!(counted("let\n    x /* nor this */ = 12_000;"), 5);
}
