//! The command line as the body of a `_replicator` document.
//!
//! SOURCE    CouchDB's names with dashes instead of underscores.

use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::exit::{CliError, CliResult, Exit};
use crate::config::Surroundings;

/// The replication to run. Each field is the member of a `_replicator` document of the same name,
/// except those that [`Options::body`] builds explicitly.
#[derive(clap::Args, Serialize)]
pub(super) struct Options {
    /// The URL of the database to read.
    #[arg(value_name = "SOURCE", value_parser = NonEmptyStringValueParser::new())]
    source: String,
    /// The URL of the database to write.
    #[arg(value_name = "TARGET", value_parser = NonEmptyStringValueParser::new())]
    target: String,
    /// Keep running when everything is replicated, and wait for changes.
    #[arg(long)]
    continuous: bool,
    /// Create the target if it does not exist.
    #[arg(long)]
    create_target: bool,
    /// Parameters for its creation, a JSON object: {"q": 4}.
    #[arg(long, value_name = "JSON", requires = "create_target")]
    create_target_params: Option<String>,
    /// Replicate only these documents; separated by commas, or repeated. Ids with commas in a JSON array: '["a,b"]'.
    #[arg(long, value_name = "ID,..")]
    #[serde(skip)]
    doc_ids: Vec<String>,
    /// Replicate documents that this filter function of the source accepts: DDOC/FILTER, or _view.
    #[arg(long, value_name = "DDOC/FILTER")]
    filter: Option<String>,
    /// A parameter of the filter; may be given again. Valid JSON is taken as JSON.
    #[arg(long, value_name = "NAME=VALUE", requires = "filter")]
    #[serde(skip)]
    query_params: Vec<String>,
    /// Replicate documents that match this selector, a JSON object.
    #[arg(long, value_name = "JSON")]
    selector: Option<String>,
    /// Where the filter or selector runs: at the source, or, if it cannot or is slow, in settee, which then reads all
    /// changes and runs its own processes.
    #[arg(long, value_name = "source|settee", value_parser = ["source", "settee"])]
    filter_at: Option<String>,
    /// Start after this sequence if there is no checkpoint.
    #[arg(long, value_name = "SEQ")]
    since_seq: Option<String>,
    /// Replicate only winning revisions, no conflicts.
    #[arg(long)]
    winning_revs_only: bool,
    /// Neither read nor write checkpoints.
    #[arg(long)]
    #[serde(skip)]
    no_checkpoints: bool,
    /// Read documents one at a time.
    #[arg(long)]
    #[serde(skip)]
    no_bulk_get: bool,
    /// A proxy for source and target: http, https or socks5.
    #[arg(long, value_name = "URL", conflicts_with_all = ["source_proxy", "target_proxy"])]
    proxy: Option<String>,
    /// A proxy for the source.
    #[arg(long, value_name = "URL")]
    source_proxy: Option<String>,
    /// A proxy for the target.
    #[arg(long, value_name = "URL")]
    target_proxy: Option<String>,
    /// A header of all requests to the source; may be given again.
    #[arg(long, value_name = "NAME: VALUE")]
    #[serde(skip)]
    source_header: Vec<String>,
    /// A header of all requests to the target; may be given again.
    #[arg(long, value_name = "NAME: VALUE")]
    #[serde(skip)]
    target_header: Vec<String>,
    /// Workers that read and write in parallel.
    #[arg(long, value_name = "N")]
    worker_processes: Option<u32>,
    /// Changes that a worker takes at a time.
    #[arg(long, value_name = "N")]
    worker_batch_size: Option<u32>,
    /// Connections to each side.
    #[arg(long, value_name = "N")]
    http_connections: Option<u32>,
    /// How long a connection may be silent, in ms.
    #[arg(long, value_name = "MS")]
    connection_timeout: Option<u32>,
    /// How often a failed request is retried.
    #[arg(long, value_name = "N")]
    retries_per_request: Option<u32>,
    /// Time between checkpoints, in ms.
    #[arg(long, value_name = "MS")]
    checkpoint_interval: Option<u32>,
    /// How a continuous replication learns of changes: by its own feed, or by _db_updates of the source's server, which
    /// needs an administrator.
    #[arg(long, value_name = "continuous|db_updates", value_parser = ["continuous", "db_updates"])]
    feed: Option<String>,
}

impl Options {
    /// Returns the body of an equivalent document.
    ///
    /// # Errors
    /// An option that requires JSON has something else, a parameter has no `=`, or a header no colon: exit code 64.
    pub(super) fn body(&self) -> CliResult<Value> {
        let surroundings = Surroundings::of_process();
        let password = |side: &str| {
            Some(
                surroundings
                    .variable(&format!("SETTEE_{side}_PASSWORD"))?
                    .to_str()?
                    .to_owned(),
            )
        };
        let mut body = json!(self);
        // Options missing on the command line are missing in the document.
        if let Value::Object(members) = &mut body {
            members.retain(|_, value| !value.is_null() && *value != json!(false));
        }
        body["source"] = endpoint(&self.source, &self.source_header, password("SOURCE"))?;
        body["target"] = endpoint(&self.target, &self.target_header, password("TARGET"))?;
        for (name, text) in [
            ("create_target_params", &self.create_target_params),
            ("selector", &self.selector),
        ] {
            if let Some(text) = text {
                body[name] = serde_json::from_str(text).map_err(|error| {
                    usage(
                        format!("--{} is not JSON: {error}", name.replace('_', "-")),
                        "write a JSON object",
                    )
                })?;
            }
        }
        if !self.doc_ids.is_empty() {
            body["doc_ids"] = self.doc_ids()?.into();
        }
        if !self.query_params.is_empty() {
            body["query_params"] = self.query_params()?.into();
        }
        if let Some(seq) = &self.since_seq {
            body["since_seq"] = json_or_text(seq);
        }
        for (name, is_off) in [
            ("use_checkpoints", self.no_checkpoints),
            ("use_bulk_get", self.no_bulk_get),
        ] {
            if is_off {
                body[name] = false.into();
            }
        }
        Ok(body)
    }

    fn doc_ids(&self) -> CliResult<Vec<String>> {
        let read: Result<Vec<_>, _> = self.doc_ids.iter().map(|text| ids(text)).collect();
        Ok(read?.concat())
    }

    fn query_params(&self) -> CliResult<Map<String, Value>> {
        let mut params = Map::new();
        for param in &self.query_params {
            let Some((name, value)) = param.split_once('=') else {
                return Err(usage(
                    format!("--query-params '{param}' is not NAME=VALUE"),
                    "write NAME=VALUE",
                ));
            };
            params.insert(name.to_owned(), json_or_text(value));
        }
        Ok(params)
    }
}

/// Parses ids separated by commas, or an array of them.
fn ids(text: &str) -> CliResult<Vec<String>> {
    if !text.starts_with('[') {
        return Ok(text.split(',').map(str::to_owned).collect());
    }
    serde_json::from_str(text).map_err(|error| {
        usage(
            format!("--doc-ids is not a JSON array of strings: {error}"),
            "write '[\"a\",\"b\"]', or a,b",
        )
    })
}

/// JSON, such as a number, is taken as JSON, everything else as text.
fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// A side with its headers, and with a password that is not on the command line.
fn endpoint(url: &str, headers: &[String], password: Option<String>) -> CliResult<Value> {
    let mut endpoint = json!({"url": url});
    for header in headers {
        let Some((name, value)) = header.split_once(':') else {
            return Err(usage("a header has no colon", "write 'NAME: VALUE'"));
        };
        endpoint["headers"][name.trim()] = json!(value.trim());
    }
    if let (Some(password), Some(name)) = (password, user_of(url)) {
        endpoint["auth"] = json!({"basic": {"username": name, "password": password}});
    }
    Ok(endpoint)
}

/// The user name in a URL, with or without a password.
fn user_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (userinfo, _) = rest.split(['/', '?', '#']).next()?.rsplit_once('@')?;
    userinfo.split(':').next()
}

fn usage(message: impl Into<String>, hint: &str) -> CliError {
    CliError::new(Exit::Usage, message, hint)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};
    use replication::spec::members;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn body(arguments: &[&str]) -> CliResult<Value> {
        let line = ["replicate", "http://a/x", "http://b/y"]
            .iter()
            .chain(arguments);
        Line::try_parse_from(line)
            .expect("the command line is right")
            .options
            .body()
    }

    #[test]
    fn flags_are_the_options_of_a_document() {
        let all = body(&[
            "--continuous",
            "--create-target",
            "--filter",
            "d/f",
            "--query-params",
            "k=v",
            "--query-params",
            "n=[1]",
            "--filter-at",
            "settee",
            "--feed",
            "db_updates",
            "--since-seq",
            "5-abc",
            "--winning-revs-only",
            "--source-proxy",
            "http://p:8080",
            "--no-bulk-get",
            "--no-checkpoints",
            "--worker-processes",
            "2",
            "--source-header",
            "X-A: b: c",
        ]);
        assert_eq!(
            all,
            Ok(json!({
            "source": {"url": "http://a/x", "headers": {"X-A": "b: c"}}, "target": {"url": "http://b/y"},
            "continuous": true, "create_target": true, "filter": "d/f", "query_params": {"k": "v", "n": [1]},
            "filter_at": "settee", "feed": "db_updates",
            "since_seq": "5-abc", "winning_revs_only": true, "use_checkpoints": false, "use_bulk_get": false,
            "source_proxy": "http://p:8080", "worker_processes": 2}))
        );
        assert_eq!(
            body(&["--doc-ids", "a,b", "--doc-ids", "c"]).unwrap()["doc_ids"],
            json!(["a", "b", "c"])
        );
        assert_eq!(
            body(&["--doc-ids", "[\"a,b\", \"d\"]", "--doc-ids", "c"]).unwrap()["doc_ids"],
            json!(["a,b", "d", "c"])
        );
        for wrong in ["[a]", "[1]", "[\"a\""] {
            let error = body(&["--doc-ids", wrong]).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("--doc-ids is not a JSON array of strings"),
                "{error}"
            );
        }
        assert_eq!(
            body(&["--selector", "{\"a\": 1}"]).unwrap()["selector"],
            json!({"a": 1})
        );
        assert_eq!(body(&["--since-seq", "5"]).unwrap()["since_seq"], json!(5));
    }

    #[test]
    fn every_member_of_a_document_is_an_option_and_every_option_a_member() {
        let of_option = |id: &str| match id {
            "no_checkpoints" => "use_checkpoints".to_owned(),
            "no_bulk_get" => "use_bulk_get".to_owned(),
            "source_header" | "target_header" => id.replace("_header", ""),
            id => id.to_owned(),
        };
        let command = Line::command();
        let options = command.get_arguments();
        let options: BTreeSet<String> = options.map(|o| of_option(o.get_id().as_str())).collect();
        // There is no option user_ctx: the replication belongs to the user of the command.
        let members = members().filter(|name| *name != "user_ctx");
        assert_eq!(options, members.map(str::to_owned).collect());
    }

    #[test]
    fn malformed_json_and_a_header_without_a_colon_are_usage_errors() {
        for wrong in [["--selector", "{"], ["--source-header", "x"]] {
            assert_eq!(body(&wrong).expect_err("it is wrong").code, Exit::Usage);
        }
    }

    #[test]
    fn a_json_option_is_in_the_document_even_if_it_is_empty_or_no_object() {
        for text in ["null", "false", "[]"] {
            let body = body(&["--selector", text]).unwrap();
            let selector = body.get("selector").map(Value::to_string);
            assert_eq!(selector.as_deref(), Some(text));
        }
        assert_eq!(body(&["--doc-ids", "[]"]).unwrap()["doc_ids"], json!([]));
    }

    #[test]
    fn the_user_name_for_a_password_is_that_of_the_url() {
        assert_eq!(user_of("http://ann:x@host/db"), Some("ann"));
        assert_eq!(user_of("http://ann@host/db"), Some("ann"));
        assert_eq!(user_of("http://host/db@x"), None);
        let side = endpoint("http://ann@host/db", &[], Some("p@ss".into())).unwrap();
        assert_eq!(
            side["auth"]["basic"],
            json!({"username": "ann", "password": "p@ss"})
        );
    }
}
