//! Requests for the changes feed.
//!
//! SUMMARY   [`FeedQuery`] makes the requests of one replication's feed, each starting after a sequence.
//! SOURCE    `couch_replicator_api_wrap:changes_since`: names, their order, the time-out. If a source does not support
//!           POST (405), the feed is read unfiltered, and document ids are filtered here.
//! DIFFERS   A filter that Settee runs is not part of the request.

use std::time::Duration;

use serde_json::{Value, json};

use crate::endpoint::{Request, encode};
use crate::filter::{Filter, FilterAt, param_text};
use crate::seq::Seq;
use crate::spec::{Members, Options};

/// Parameters of the feed that a filter's parameters cannot override.
const RESERVED: [&str; 5] = ["feed", "style", "since", "timeout", "filter"];
/// View parameters whose values are JSON.
const VIEW_KEYS: [&str; 6] = ["key", "keys", "startkey", "start_key", "endkey", "end_key"];
/// Minimum time after which a source ends an idle feed.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The parameters of the requests.
#[derive(Clone, Debug)]
pub struct FeedQuery {
    pub(super) options: Options,
}

impl FeedQuery {
    /// Takes the parameters from the options of a replication.
    pub fn new(options: &Options) -> Self {
        Self {
            options: options.clone(),
        }
    }

    /// Whether the source gets no filter.
    fn filters_here(&self) -> bool {
        self.options.filter_at == FilterAt::Settee
    }

    /// Filters document ids here from now on, because the source does not support POST. Returns `false` if no ids are
    /// requested, or they are filtered here already.
    pub(crate) fn filter_here(&mut self) -> bool {
        let can = matches!(self.options.filter, Filter::DocIds(_)) && !self.filters_here();
        if can {
            self.options.filter_at = FilterAt::Settee;
        }
        can
    }

    /// Returns whether the source applies a selector.
    pub(crate) fn selects(&self) -> bool {
        matches!(self.options.filter, Filter::Selector(_)) && !self.filters_here()
    }

    /// Returns whether a document of the feed is replicated.
    pub(crate) fn takes(&self, id: &str) -> bool {
        match &self.options.filter {
            Filter::DocIds(ids) if self.filters_here() => {
                ids.binary_search_by(|known| known.as_str().cmp(id)).is_ok()
            }
            _ => true,
        }
    }

    /// Makes the request for the changes after a sequence.
    pub fn request(&self, since: &Seq) -> Request {
        let feed = if self.options.continuous {
            "continuous"
        } else {
            "normal"
        };
        let style = if self.options.winning_revs_only {
            "main_only"
        } else {
            "all_docs"
        };
        let timeout = TIMEOUT_MIN.max(self.options.tuning.connection_timeout / 3);
        let common = |request: Request| {
            request
                .query("feed", feed)
                .query("style", style)
                .query("since", since.as_text())
                .query("timeout", timeout.as_millis().to_string())
                .retries(0)
                .endless()
        };
        let get = Request::get("_changes");
        let post = |filter: &str, body: Value| {
            let request = Request::post("_changes").query("filter", filter);
            common(request).json(body.to_string())
        };
        match &self.options.filter {
            Filter::All => common(get),
            _ if self.filters_here() => common(get),
            Filter::DocIds(ids) => post("_doc_ids", json!({ "doc_ids": ids })),
            Filter::Selector(selector) => post("_selector", json!({ "selector": selector })),
            Filter::BuiltIn { name, query_params } => {
                let json_keys: &[&str] = match name.as_str() {
                    "_view" => &VIEW_KEYS,
                    _ => &[],
                };
                with_params(common(get).query("filter", name), query_params, json_keys)
            }
            Filter::Function {
                ddoc,
                name,
                query_params,
            } => {
                let filter = format!("{ddoc}/{name}");
                with_params(common(get).query("filter", filter), query_params, &[])
            }
        }
    }
}

fn with_params(mut request: Request, params: &Members, json_keys: &[&str]) -> Request {
    for (name, value) in params {
        if RESERVED.contains(&name.as_str()) {
            continue;
        }
        let text = if json_keys.contains(&name.as_str()) {
            value.to_string()
        } else {
            param_text(value)
        };
        // The name is encoded here: sending a request encodes only values.
        request = request.secret_query(encode(name), text);
    }
    request
}
