//! The metrics that CouchDB has: its names, our words for what they count here.
//!
//! SOURCE    couch_os_process, couch_proc_manager, couch_query_servers and chttpd: what they count.
//! DIFFERS   Native query servers are counted like any other. `vdu_process_time` is the time of one
//!           function and not of all that look at a document, which is the database's to know.

use std::sync::Arc;

use super::super::language::LanguageMetrics;
use super::super::pool::PoolMetrics;
use super::super::snapshot::{Definition, Kind};
use super::super::{CODES, Counter, Inner, METHODS};
use super::{List, answered, merged, sample};
use crate::query_server::prompt::PromptClass;
use crate::query_server::status::DaemonStatus;

/// What CouchDB counts of its query servers as a whole.
pub(super) fn totals(
    list: &mut List,
    pools: &[Arc<PoolMetrics>],
    languages: &[Arc<LanguageMetrics>],
    status: &DaemonStatus,
) {
    let over_pools =
        |count: fn(&PoolMetrics) -> u64| -> u64 { pools.iter().map(|pool| count(pool)).sum() };
    let over_languages = |count: fn(&LanguageMetrics) -> u64| -> u64 {
        languages.iter().map(|language| count(language)).sum()
    };
    for (name, count, help) in [
        (
            "vdu_rejects",
            over_languages(LanguageMetrics::vdu_rejects),
            "Answers of validate_doc_update functions that were not a yes",
        ),
        (
            "acquired_processes",
            over_pools(|pool| pool.wait().count()),
            "Processes lent to clients",
        ),
        (
            "process_starts",
            over_pools(|pool| pool.open().count()),
            "Processes started",
        ),
        (
            "process_exits",
            over_languages(LanguageMetrics::exits),
            "Processes that ended unasked with exit status 0",
        ),
        (
            "process_error_exits",
            over_languages(LanguageMetrics::error_exits),
            "Processes that ended unasked in any other way",
        ),
        (
            "process_errors",
            over_languages(|language| language.failures().map(|(_, count)| count).sum()),
            "Prompts that had no answer or an error for an answer",
        ),
        (
            "process_prompts",
            over_languages(LanguageMetrics::prompts),
            "Prompts sent to processes, our own included",
        ),
    ] {
        list.couchdb(Kind::Counter, &["query_server", name], "", help, count);
    }
    list.couchdb(
        Kind::Gauge,
        &["query_server", "process_count"],
        "",
        "Processes that there are or that are being started",
        u64::from(status.proc_count),
    );
    list.couchdb(
        Kind::Summary,
        &["query_server", "vdu_process_time"],
        "s",
        "Time of validate_doc_update functions",
        answered(languages, PromptClass::DdocVdu),
    );
}

/// Prompts and their times by class.
pub(super) fn classes(
    list: &mut List,
    pools: &[Arc<PoolMetrics>],
    languages: &[Arc<LanguageMetrics>],
) {
    let spawned = merged(pools.iter().map(|pool| pool.open()));
    let classes = PromptClass::ALL.map(|class| (class.name(), answered(languages, class)));
    let classes: Vec<_> = [("spawn_proc", spawned)]
        .into_iter()
        .chain(classes)
        .collect();
    for (name, times) in &classes {
        let help = match *name {
            "spawn_proc" => "Processes started",
            "map" => "Answered map_doc prompts",
            "reduce" => "Answered reduce and rereduce prompts",
            "reset" => "Answered reset prompts, our own included",
            "add_fun" => "Answered add_fun prompts",
            "ddoc_new" => "Answered prompts that teach a design document, our own included",
            "ddoc_vdu" => "Answered prompts of validate_doc_update functions",
            "ddoc_filter" => "Answered prompts of filter functions",
            "ddoc_other" => "Answered prompts of other design-document functions",
            _ => "Answered prompts of any other kind",
        };
        list.couchdb(
            Kind::Counter,
            &["query_server", "calls", name],
            "",
            help,
            times.count(),
        );
    }
    for (name, times) in &classes {
        let help = match *name {
            "spawn_proc" => "Time in which processes were started",
            "map" => "Time of answered map_doc prompts",
            "reduce" => "Time of answered reduce and rereduce prompts",
            "reset" => "Time of answered reset prompts, our own included",
            "add_fun" => "Time of answered add_fun prompts",
            "ddoc_new" => "Time in which design documents were taught",
            "ddoc_vdu" => "Time of answered prompts of validate_doc_update functions",
            "ddoc_filter" => "Time of answered prompts of filter functions",
            "ddoc_other" => "Time of answered prompts of other design-document functions",
            _ => "Time of answered prompts of any other kind",
        };
        let microseconds = u64::try_from(times.sum().as_micros()).unwrap_or(u64::MAX);
        list.couchdb(
            Kind::Counter,
            &["query_server", "time", name],
            "µs",
            help,
            microseconds,
        );
    }
}

/// The HTTP face.
pub(super) fn http(list: &mut List, inner: &Inner) {
    let http = &inner.http;
    let times = http.time.get();
    list.couchdb(
        Kind::Counter,
        &["httpd", "requests"],
        "",
        "HTTP requests answered",
        times.count(),
    );
    list.couchdb(
        Kind::Summary,
        &["request_time"],
        "s",
        "Time from an HTTP request to the head of its answer",
        times,
    );
    list.add(
        Definition {
            stats: Some("couchdb.httpd_request_methods".into()),
            prometheus: "couchdb_httpd_request_methods".into(),
            kind: Kind::Counter,
            unit: "",
            labels: &["method"],
            help: "HTTP requests answered, by method",
        },
        METHODS
            .iter()
            .zip(&http.methods)
            .map(|(name, count)| sample(&[name], count.get())),
    );
    let seen = |(code, count): (u16, &Counter)| {
        let count = count.get();
        (count > 0).then(|| sample(&[&code.to_string()], count))
    };
    list.add(
        Definition {
            stats: Some("couchdb.httpd_status_codes".into()),
            prometheus: "couchdb_httpd_status_codes".into(),
            kind: Kind::Counter,
            unit: "",
            labels: &["code"],
            help: "HTTP requests answered, by status code",
        },
        CODES.zip(http.codes.iter()).filter_map(seen),
    );
}
