//! The id of a replication, and of its checkpoints.
//!
//! SUMMARY   A [`ReplicationId`] is a base, which names the checkpoints, and an extension, which distinguishes jobs
//!           that share them. [`replication_id`] computes it; [`base_ids`] computes the bases of all versions, for
//!           checkpoints written under an older one.
//! SOURCE    couch_replicator_ids.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use json::erlang::{self, List};
use md5::{Digest, Md5};
use serde_json::{Value, json};

use super::filter::{Filter, FilterAt};
use super::spec::{EndpointSpec, Options, Replication};

/// The version of ids used for new checkpoints.
pub(crate) const VERSION: u8 = 4;

/// The id of a replication.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicationId {
    /// 32 hexadecimal digits in lower case; names the checkpoints.
    pub base: String,
    /// Empty, or `+continuous`, `+create_target`, or both in this order.
    pub ext: String,
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.base, self.ext)
    }
}

impl FromStr for ReplicationId {
    type Err = std::convert::Infallible;

    /// Splits a string at its first plus. Blanks count as pluses, since an unencoded plus in a URL's query arrives as
    /// a blank.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.replace(' ', "+");
        let (base, ext) = text.split_at(text.find('+').unwrap_or(text.len()));
        Ok(Self {
            base: base.to_owned(),
            ext: ext.to_owned(),
        })
    }
}

/// The server that computes ids. It is part of each id, so that two servers never share checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The server's own id, for version 3 and later. A new one restarts every replication from the beginning.
    pub uuid: String,
    /// The server's host name, for versions 1 and 2.
    pub host: String,
    /// The server's port, for version 2.
    pub port: u16,
}

/// Computes the id of a replication.
///
/// `filter_code` is the source code of the filter function, if the filter is one ([`super::filter::fetch_code`]).
pub fn replication_id(
    replication: &Replication,
    identity: &Identity,
    filter_code: Option<&str>,
) -> ReplicationId {
    let mut ext = String::new();
    if replication.options.continuous {
        ext.push_str("+continuous");
    }
    if replication.options.create_target {
        ext.push_str("+create_target");
    }
    ReplicationId {
        base: base_id(VERSION, replication, identity, filter_code),
        ext,
    }
}

/// Returns the base ids of all versions, newest first: 4, 3, 2, 1.
pub(crate) fn base_ids(
    replication: &Replication,
    identity: &Identity,
    filter_code: Option<&str>,
) -> [String; VERSION as usize] {
    [4, 3, 2, 1].map(|version| base_id(version, replication, identity, filter_code))
}

fn base_id(
    version: u8,
    replication: &Replication,
    identity: &Identity,
    filter_code: Option<&str>,
) -> String {
    let mut term = vec![erlang::VERSION];
    let mut list = List::begin(&mut term);
    if version >= 3 {
        erlang::binary(&identity.uuid, list.element(&mut term));
    } else {
        erlang::string(&identity.host, list.element(&mut term));
    }
    if version == 2 {
        erlang::integer(identity.port.into(), list.element(&mut term));
    }
    for side in [&replication.source, &replication.target] {
        let endpoint = if version == 4 {
            endpoint
        } else {
            endpoint_of_old
        };
        endpoint(side, list.element(&mut term));
    }
    add_options(&mut list, &replication.options, filter_code, &mut term);
    list.end(&mut term);
    HEXLOWER.encode(&Md5::digest(term))
}

/// Adds the options that are part of an id: filter, `winning_revs_only`, start sequence, and where the filter runs.
fn add_options(list: &mut List, options: &Options, filter_code: Option<&str>, term: &mut Vec<u8>) {
    let mut add = |value: &Value| erlang::json(&value.to_string(), list.element(term));
    match &options.filter {
        Filter::All => {}
        Filter::DocIds(ids) => add(&json!(ids)),
        Filter::Selector(selector) => {
            // Checked when the replication was parsed.
            add(&mango::id_form(selector).unwrap_or_default());
        }
        Filter::BuiltIn { name, query_params } => {
            add(&json!(name));
            add(&json!(query_params));
        }
        Filter::Function { query_params, .. } => {
            add(&json!(filter_code.unwrap_or_default()));
            add(&json!(query_params));
        }
    }
    if options.winning_revs_only {
        erlang::binary("winning_revs_only", list.element(term));
    }
    if let Some(seq) = &options.since_seq {
        erlang::json(seq.as_json(), list.element(term));
    }
    // Two engines may select different documents with the same filter, unless it lists ids.
    let runs_here = options.filter_at == FilterAt::Settee;
    if runs_here && !matches!(options.filter, Filter::DocIds(_)) {
        erlang::binary("filter_at_settee", list.element(term));
    }
}

/// Writes an endpoint as version 4 does: without scheme, password and proxy.
fn endpoint(spec: &EndpointSpec, term: &mut Vec<u8>) {
    let url = UrlParts::of(&spec.url);
    erlang::tuple(7, term);
    erlang::atom("remote", term);
    match &spec.auth {
        Some(auth) => erlang::string(&auth.user, term),
        None => erlang::atom("undefined", term),
    }
    erlang::string(url.host, term);
    match url.port {
        Some(port) => erlang::integer(port.into(), term),
        None => erlang::atom("default", term),
    }
    erlang::string(url.path, term);
    string_pairs(&spec.headers, term);
    // Where OAuth's parameters once were.
    erlang::atom("undefined", term);
}

/// Writes an endpoint as versions 1 to 3 do.
fn endpoint_of_old(spec: &EndpointSpec, term: &mut Vec<u8>) {
    erlang::tuple(3, term);
    erlang::atom("remote", term);
    erlang::string(&spec.url, term);
    string_pairs(&spec.headers, term);
}

fn string_pairs(pairs: &[(String, String)], term: &mut Vec<u8>) {
    let mut list = List::begin(term);
    for (name, value) in pairs {
        erlang::tuple(2, list.element(term));
        erlang::string(name, term);
        erlang::string(value, term);
    }
    list.end(term);
}

/// The parts of a URL as written. Nothing is normalised: ids depend on the exact text.
#[derive(Debug, PartialEq, Eq)]
struct UrlParts<'u> {
    /// Without the brackets of an IPv6 address.
    host: &'u str,
    /// `None` for the default port of the scheme, and for 5984 with `http`.
    port: Option<u16>,
    /// With the query.
    path: &'u str,
}

impl<'u> UrlParts<'u> {
    fn of(url: &'u str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = match authority
            .strip_prefix('[')
            .and_then(|ip| ip.split_once(']'))
        {
            Some((address, port)) => (address, port.strip_prefix(':').unwrap_or_default()),
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        let port: Option<u16> = port.parse().ok();
        let default: &[u16] = if scheme == "https" {
            &[443]
        } else {
            &[80, 5984]
        };
        Self {
            host,
            port: port.filter(|port| !default.contains(port)),
            path: if path.is_empty() { "/" } else { path },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::{Map, Value};

    use super::super::spec::{Defaults, UserCtx};

    fn identity() -> Identity {
        Identity {
            uuid: "0123456789abcdef0123456789abcdef".into(),
            host: "h".into(),
            port: 5984,
        }
    }

    /// Parses a replication between the two databases of the test vectors, with these members.
    fn replication(extra: Value) -> Replication {
        let mut body =
            json!({"source": "http://srchost.local/src", "target": "http://tgthost.local/tgt"});
        let members = body.as_object_mut().unwrap();
        members.extend(extra.as_object().unwrap().clone());
        Replication::parse(&body, &Defaults::default(), UserCtx::default(), None).unwrap()
    }

    fn base(extra: Value, code: Option<&str>) -> String {
        replication_id(&replication(extra), &identity(), code).base
    }

    #[test]
    fn an_endpoint_is_hashed_as_in_couchdbs_own_test() {
        let replication = replication(json!({}));
        let mut term = vec![erlang::VERSION];
        let mut list = List::begin(&mut term);
        erlang::atom("this_is_snek", list.element(&mut term));
        endpoint(&replication.source, list.element(&mut term));
        endpoint(&replication.target, list.element(&mut term));
        list.end(&mut term);
        let hash = HEXLOWER.encode(&Md5::digest(term));
        assert_eq!(hash, "ad08e05057046eabe898a2572bbfb573");
    }

    #[test]
    fn the_hashed_bytes_are_those_of_erlang() {
        let replication = replication(json!({}));
        let mut term = vec![erlang::VERSION];
        let mut list = List::begin(&mut term);
        erlang::binary(identity().uuid, list.element(&mut term));
        endpoint(&replication.source, list.element(&mut term));
        list.end(&mut term);
        let bytes = HEXLOWER.encode(&term);
        let uuid = HEXLOWER.encode(identity().uuid.as_bytes());
        let (host, path) = (HEXLOWER.encode(b"srchost.local"), HEXLOWER.encode(b"/src/"));
        let expected = format!(
            "836c000000026d00000020{uuid}680764000672656d6f7465640009756e646566696e65646b000d{host}\
             64000764656661756c746b0005{path}6a640009756e646566696e65646a"
        );
        assert_eq!(bytes, expected);
    }

    #[test]
    fn ids_are_those_of_couchdb() {
        let user = json!({"url": "http://bob:x@h.example:3/db/", "headers": {"X-A": "1"}});
        let code = Some("function(doc, req) { return true; }");
        let params = json!({"filter": "d/f", "query_params": {"k": "v"}});
        let view = json!({"filter": "_view", "query_params": {"view": "d/v"}});
        for (body, code, id) in [
            (json!({}), None, "4ef747bd8669718dd8ec7c7dc2184c6f"),
            (
                json!({"source": user}),
                None,
                "89b4d7d9d74868483697e8d4865d3528",
            ),
            (
                json!({"doc_ids": ["b", "a", "b"]}),
                None,
                "50a789805b4e283318c67c2f73985f40",
            ),
            (
                json!({"winning_revs_only": true}),
                None,
                "c6077dafc42ea63bbec89e7bec3587f4",
            ),
            (
                json!({"since_seq": 5}),
                None,
                "7e32c864f2d71f5d1c5e93415ef63fd6",
            ),
            (
                json!({"since_seq": "5-abc"}),
                None,
                "31b6777ba86aa2184ac16a7f9735b1f3",
            ),
            (params, code, "e8240ce2eecb09b9bf3380c390d0043b"),
            (
                json!({"filter": "d/f"}),
                code,
                "d34503e9f4640f9a9c0e65fc7927a2d6",
            ),
            (view, None, "35d5024ad29c1dc7334e4c775eaef2cb"),
            (
                json!({"selector": {"name": {"$eq": "x"}}}),
                None,
                "b23a81ab77a32559a55b5dc5968f5eca",
            ),
            (
                json!({"selector": {"name": "x"}}),
                None,
                "b23a81ab77a32559a55b5dc5968f5eca",
            ),
        ] {
            assert_eq!(base(body.clone(), code), id, "{body}");
        }
    }

    #[test]
    fn a_filter_that_settee_runs_makes_a_different_id() {
        for (body, code, differs) in [
            (json!({"selector": {"a": 1}}), None, true),
            (json!({"filter": "d/f"}), Some("f"), true),
            (json!({"filter": "_design"}), None, true),
            (json!({"doc_ids": ["a"]}), None, false),
            (json!({}), None, false),
        ] {
            let mut here = body.clone();
            here["filter_at"] = json!("settee");
            let is_another = base(here, code) != base(body.clone(), code);
            assert_eq!(is_another, differs, "{body}");
        }
    }

    #[test]
    fn ids_of_older_versions_are_those_of_couchdb() {
        let ids = base_ids(&replication(json!({})), &identity(), None);
        assert_eq!(
            ids,
            [
                "4ef747bd8669718dd8ec7c7dc2184c6f",
                "8214b49fcd808377b33fa4f1d4eeb77d",
                "b4763dd4f5a459a429253ace81d630b2",
                "d6489eb0a76bc191344af2041b5c9298",
            ]
        );
    }

    #[test]
    fn equal_replications_have_equal_ids() {
        let plain = base(json!({}), None);
        for same in [
            json!({"winning_revs_only": false}),
            json!({"continuous": true, "create_target": true}),
            json!({"source": "https://srchost.local/src"}),
            json!({"source": "http://srchost.local:5984/src/"}),
            json!({"source_proxy": "http://proxy:1"}),
            json!({"worker_processes": 1, "use_checkpoints": false}),
        ] {
            assert_eq!(base(same.clone(), None), plain, "{same}");
        }
        let with =
            |password: &str| json!({"source": format!("http://bob:{password}@srchost.local/src")});
        assert_eq!(base(with("one"), None), base(with("two"), None));
        assert_ne!(base(with("one"), None), plain);
        assert_ne!(
            base(json!({"source": "https://srchost.local:5984/src"}), None),
            plain
        );
        let params = |text: &str| {
            let query_params: Map<String, Value> = serde_json::from_str(text).unwrap();
            json!({"filter": "d/f", "query_params": query_params})
        };
        let (one, other) = (params(r#"{"a":1,"b":2}"#), params(r#"{"b":2,"a":1}"#));
        assert_ne!(base(one, Some("f")), base(other, Some("f")));
        assert_ne!(
            base(json!({"since_seq": "5"}), None),
            base(json!({"since_seq": 5}), None)
        );
    }

    #[test]
    fn default_ports_are_not_part_of_an_id() {
        let port = |url| UrlParts::of(url).port;
        assert_eq!(UrlParts::of("http://host").path, "/");
        assert_eq!(port("http://host/"), None);
        assert_eq!(port("http://host:80/"), None);
        assert_eq!(port("http://host:5984/"), None);
        assert_eq!(port("http://host:1/"), Some(1));
        assert_eq!(port("https://host/"), None);
        assert_eq!(port("https://host:443/"), None);
        assert_eq!(port("https://host:2/"), Some(2));
        assert_eq!(port("https://host:5984/"), Some(5984));
        let parts = UrlParts::of("http://[::1]:42/db?q=2");
        assert_eq!(
            (parts.host, parts.port, parts.path),
            ("::1", Some(42), "/db?q=2")
        );
    }

    #[test]
    fn the_extension_distinguishes_jobs_that_share_checkpoints() {
        let ext = |body| replication_id(&replication(body), &identity(), None).ext;
        assert_eq!(ext(json!({})), "");
        assert_eq!(ext(json!({"continuous": true})), "+continuous");
        assert_eq!(ext(json!({"create_target": true})), "+create_target");
        assert_eq!(
            ext(json!({"create_target": true, "continuous": true})),
            "+continuous+create_target"
        );
    }

    #[test]
    fn ids_are_read_with_pluses_and_with_blanks() {
        let parse = |text: &str| text.parse::<ReplicationId>().unwrap();
        assert_eq!(
            parse("abc"),
            ReplicationId {
                base: "abc".into(),
                ext: String::new()
            }
        );
        for text in ["abc+x+y", "abc x y"] {
            assert_eq!(parse(text).base, "abc");
            assert_eq!(parse(text).ext, "+x+y");
            assert_eq!(parse(text).to_string(), "abc+x+y");
        }
    }
}
