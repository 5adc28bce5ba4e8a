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
    (930_193, "counted on 28 November 2026, when this bound came"),
    (
        1_761,
        "a damaged or full store is told as such, with what to do",
    ),
    (
        2_657,
        "names are bounded at every face, and a probe that a signal ended is made again",
    ),
    (
        1_600,
        "a design document that the target does not take blocks nothing, reasons name it, ids with commas can be said, \
         Retry-After is heeded, groups of cells are their pid namespace's own",
    ),
    (
        600,
        "page tables and sockets count where memory is watched, and a run withdraws that its servers are unreachable",
    ),
    (
        1_770,
        "idle replications check that their databases are there, a drained fleet is told, and at the ceiling a process is \
         exchanged only where that is worth a start",
    ),
    (
        1_067,
        "calls with long arguments have an arbiter of their own, what is sent to query servers is not copied, and open \
         lists outlast the order to stop",
    ),
    (
        1_008,
        "pools take over the waiters of their group in the order of their own queue, and shared commands are chosen as in \
         CouchDB",
    ),
    (
        1_640,
        "pauses and priorities that a failover lost are written again",
    ),
    (
        1_800,
        "what goes on in a cell at rest is stopped again, charged and killed, and a cell may need a second control group",
    ),
    (
        1_815,
        "used-up watches of epoll are named, long answers are checked on another thread, and a claim reads the documents \
         that it claims",
    ),
    (
        -4_349,
        "the socket lends processes and runs functions, and nothing else: the service is managed over HTTP",
    ),
    (
        -4_931,
        "replications are exported into one file; problems, cells, selections of jobs, costs and the rules of pools have \
         one shape each",
    ),
    (
        15,
        "a connection that has said nothing does not hold up a stop",
    ),
    (
        -28_000,
        "not removed, but moved: the cases that every store passes, and fakes, lie with the tests",
    ),
    (-925, "the ProcManager is eight files"),
    (
        5_600,
        "each remedy is a command that works: losses are told until they are acknowledged, records that cannot be written are \
         counted, and orders can depend on the audit",
    ),
    (
        4_720,
        "results of the Python client have types, clients know the longest line, both have the same names, and settee map \
         takes documents without ids, skips bad lines and names what it does not read",
    ),
    (
        800,
        "authors of JavaScript read the place of a mistake and the way out",
    ),
    (
        1_100,
        "check-config opens what serve opens, a failing pool is tried at once, unknown arguments are refused, and clients \
         bound their calls, survive a fork and name what they cannot send",
    ),
    (
        7_800,
        "processes keep an isolate for each of several tenants",
    ),
    (
        3_450,
        "calls name a design document by its digest, on both faces and in three clients",
    ),
    (
        1_500,
        "orders refuse what nobody reads, and settee jobs verify takes several jobs",
    ),
    (
        2_320,
        "losses outlive a restart, calls take the language of their pool, settee map writes CSV",
    ),
    (
        670,
        "used-up watches of epoll and descriptors are named where replications and PostgreSQL connect, and the next waiter \
         of a shorter queue has its own affinity timer",
    ),
    (
        170,
        "others of an HTTP thread are served while all pools are described, and work whose caller has gone keeps its turn",
    ),
    (
        340,
        "cells of commands have a control group under the packaged unit, and the built-in JavaScript starts under Linux 6.1",
    ),
    (
        215,
        "an unknown parameter of GET is refused: a misspelt filter listed everything",
    ),
    (
        218,
        "fractions have the digits of JavaScript, certificates read again do not replace a newer configuration, a log that \
         fails without losses says so, clients leave the language of a call to the pool that it names, and errors name the bound that was exceeded",
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
