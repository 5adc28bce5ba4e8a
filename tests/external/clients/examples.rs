//! The examples of the client pages print what their comments say.

use std::fs;
use std::process::Command;

use super::site::{self, run};
use super::{Site, node, python};
use crate::support::pages::blocks;

/// Replaces the page's addresses with this test's.
fn here(example: &str, site: &Site) -> String {
    let socket = site.service.socket().display().to_string();
    example
        .replace("/run/settee/settee.sock", &socket)
        .replace("http://127.0.0.1:5995/", &format!("http://{}/", site.http))
}

/// The output that the comments in an example promise.
fn expected(example: &str, mark: &str) -> Vec<String> {
    let comments = example
        .lines()
        .filter_map(|line| line.rsplit_once(mark).map(|(_, output)| output.to_owned()));
    comments.collect()
}

fn assert_examples(pages: &[&str], kind: &str, mark: &str, start: impl Fn(&str) -> Command) {
    for page in pages {
        for example in blocks(page, kind) {
            let site = Site::start();
            let printed = run(&mut start(&here(&example, &site)));
            let printed: Vec<_> = printed.lines().map(str::to_owned).collect();
            assert_eq!(printed, expected(&example, mark), "{page}\n{example}");
            site.service.stop();
        }
    }
}

#[test]
fn the_examples_in_python_print_what_their_comments_say() {
    let start = |example: &str| {
        let mut command = python();
        command.args(["-c", example]);
        command
    };
    let pages = ["clients/python/README.md", "docs/clients.md"];
    assert_examples(&pages, "python", "# ", start);
}

#[test]
fn the_examples_in_javascript_print_what_their_comments_say() {
    let start = |extension: &'static str| {
        move |example: &str| {
            let name = format!("example.{extension}");
            fs::write(site::node().folder.join(&name), example).unwrap();
            let mut command = node();
            command.arg(name);
            command
        }
    };
    assert_examples(&["clients/node/README.md"], "js", "// ", start("js"));
    let pages = ["clients/node/README.md", "docs/clients.md"];
    assert_examples(&pages, "mjs", "// ", start("mjs"));
}
