//! Tests of which conditions are problems, and of their texts.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Parser;
use serde_json::json;
use settee_client::Health;

use super::*;
use crate::cli::Cli;
use crate::health::HealthBoard;
use crate::health::losses::{self, OpenLosses};
use crate::logging::Losses;
use crate::query_server::status::{SandboxStatus, Totals};

/// Checks that the command line parses each command of a remedy, as a shell reads it.
fn check_commands(Problem { kind, remedy, .. }: &Problem) {
    for command in remedy.split('`').skip(1).step_by(2) {
        let script = format!("for word in {command}; do printf '%s\\0' \"$word\"; done");
        let shell = std::process::Command::new("sh")
            .args(["-c", &script])
            .output();
        let words = String::from_utf8(shell.unwrap().stdout).unwrap();
        let words = words.split_terminator('\0');
        let parsed = Cli::try_parse_from(words).map(drop);
        assert!(parsed.is_ok(), "{kind}: {command}: {parsed:?}");
    }
}

fn kinds(found: &[Problem]) -> Vec<(Kind, &str, &str, u64)> {
    found.iter().for_each(check_commands);
    let of = |found: &'_ Problem| found.kind.parse().unwrap();
    let all = found.iter();
    all.map(|one| (of(one), &*one.severity, &*one.subject, one.count))
        .collect()
}

fn pool(name: &str) -> PoolStatus {
    PoolStatus {
        name: name.to_owned(),
        command: "couchjs main.js".to_owned(),
        hard_limit: 4,
        ..PoolStatus::default()
    }
}

#[test]
fn a_pool_that_cannot_start_processes_is_critical_unless_some_still_run() {
    let failure = Some("exited with status 1".to_owned());
    let dead = PoolStatus {
        failure: failure.clone(),
        waiting: 3,
        longest_wait_ms: 9_000,
        ..pool("dead")
    };
    let lame = PoolStatus {
        failure,
        used: 1,
        ..pool("lame")
    };
    let status = DaemonStatus {
        pools: vec![dead, lame, pool("well")],
        ..DaemonStatus::default()
    };
    let found = of_status(&status);
    assert_eq!(
        kinds(&found),
        [
            (Kind::PoolFailing, CRITICAL, "dead", 3),
            (Kind::PoolFailing, WARNING, "lame", 0),
        ]
    );
    assert_eq!(
        found[0].cause,
        "its processes cannot be started: exited with status 1"
    );
    assert!(found[0].remedy.ends_with("`settee pool unthrottle dead`"));
}

#[test]
fn a_daemon_is_unusable_if_no_pool_can_start_a_process() {
    let dead = |name| PoolStatus {
        failure: Some("exited with status 1".to_owned()),
        ..pool(name)
    };
    let found = |pools: Vec<PoolStatus>| {
        let status = DaemonStatus {
            pools,
            ..DaemonStatus::default()
        };
        let found = of_status(&status);
        found.iter().any(|one| one.kind == "no_pool_works")
    };
    assert!(found(vec![dead("a"), dead("b")]));
    let mango = PoolStatus {
        command: NATIVE.to_owned(),
        ..pool("query")
    };
    assert!(
        found(vec![dead("a"), mango.clone()]),
        "Mango starts no process"
    );
    assert!(!found(vec![mango]));
    // An unused pool has not failed.
    assert!(!found(vec![dead("a"), pool("b")]));
    let mut works = dead("b");
    works.free = 1;
    assert!(!found(vec![dead("a"), works]));
    assert!(!found(Vec::new()));
}

#[test]
fn long_waits_for_a_pool_and_incomplete_cells_are_reported() {
    let sandbox = |missing: &[&str], error: Option<&str>| {
        let missing = missing
            .iter()
            .map(|layer| ((*layer).to_owned(), "no".to_owned()));
        Some(SandboxStatus {
            missing: missing.collect(),
            error: error.map(str::to_owned),
            ..SandboxStatus::default()
        })
    };
    let crowded = PoolStatus {
        waiting: 2,
        longest_wait_ms: LONG_WAIT_MS,
        used: 4,
        ..pool("crowded")
    };
    let busy = PoolStatus {
        waiting: 2,
        longest_wait_ms: LONG_WAIT_MS - 1,
        used: 4,
        ..pool("busy")
    };
    let open = PoolStatus {
        sandbox: sandbox(&["cpu", "memory"], None),
        ..pool("open")
    };
    let broken = PoolStatus {
        sandbox: sandbox(&["cpu"], Some("no namespaces")),
        ..pool("broken")
    };
    let whole = PoolStatus {
        sandbox: sandbox(&[], None),
        ..pool("whole")
    };
    let status = DaemonStatus {
        pools: vec![crowded, busy, open, broken, whole],
        ..DaemonStatus::default()
    };
    assert_eq!(
        kinds(&of_status(&status)),
        [
            (Kind::PoolCrowded, WARNING, "crowded", 2),
            (Kind::CellIncomplete, WARNING, "open", 2),
            (Kind::CellBroken, CRITICAL, "broken", 1),
        ]
    );
}

#[test]
fn a_service_that_accepts_no_client_is_reported_unless_it_is_stopping() {
    let closed = [
        "at_limit",
        "throttled",
        "no_pool",
        "accept_failed",
        "stopping",
    ];
    let services = closed.map(|why| ServiceStatus {
        name: why.into(),
        closed: Some(why.into()),
        ..ServiceStatus::default()
    });
    let status = DaemonStatus {
        services: services.into(),
        ..DaemonStatus::default()
    };
    let found = of_status(&status);
    let reported: Vec<_> = found
        .iter()
        .map(|finding| (finding.subject.as_str(), &*finding.severity))
        .collect();
    assert_eq!(
        reported,
        [
            ("at_limit", WARNING),
            ("throttled", CRITICAL),
            ("no_pool", CRITICAL),
            ("accept_failed", CRITICAL),
        ]
    );
}

#[test]
fn failing_replications_are_reported_by_reason_and_critical_from_a_tenth_of_all() {
    let group = |reason: Option<&str>, states: &[(&str, usize)]| JobGroup {
        reason: reason.map(str::to_owned),
        count: states.iter().map(|(_, count)| count).sum(),
        states: states
            .iter()
            .map(|(state, count)| ((*state).to_owned(), *count))
            .collect::<BTreeMap<_, _>>(),
        example: "d1".to_owned(),
    };
    let groups = [
        group(Some("database missing"), &[("crashing", 7), ("failed", 2)]),
        group(None, &[("running", 90)]),
        group(Some("unauthorized"), &[("crashing", 1), ("paused", 3)]),
    ];
    let found = of_jobs(90, &groups);
    assert_eq!(
        kinds(&found),
        [
            (Kind::ReplicationsFailing, CRITICAL, "database missing", 9),
            (Kind::ReplicationsFailing, WARNING, "unauthorized", 1),
        ]
    );
    let remedy = &found[0].remedy;
    assert!(
        remedy.ends_with("`settee jobs restart --reason 'database missing'`"),
        "{remedy}"
    );
    assert_eq!(of_jobs(91, &groups)[0].severity, WARNING);
    assert_eq!(of_jobs(90, &groups[1..2]), []);
}

#[test]
fn a_daemon_with_an_expired_lease_is_gone_unless_it_left_or_restarted() {
    let row = |address: &str, left: u64, leaving: bool| json!({"address": address, "lease_left_s": left, "leaving": leaving, "documents": 5});
    let fleet = json!({"daemons": [row("a", 20, false), row("b", 0, false), row("c", 0, true),
        row("d", 0, false), row("d", 9, false)]});
    assert_eq!(
        kinds(&of_daemons(&fleet)),
        [(Kind::DaemonGone, WARNING, "b", 5)]
    );
    assert_eq!(of_daemons(&Value::Null), []);
}

#[test]
fn a_fleet_whose_daemons_are_all_leaving_or_drained_is_critical() {
    let row = |left: u64, leaving: bool| json!({"address": "a", "lease_left_s": left, "leaving": leaving});
    let fleet = json!({"daemons": [row(20, true), row(9, true), row(0, false)]});
    assert_eq!(
        kinds(&of_daemons(&fleet)),
        [(Kind::Drained, CRITICAL, "fleet", 2)]
    );
    let fleet = json!({"daemons": [row(20, true), row(9, false)]});
    assert_eq!(of_daemons(&fleet), []);
}

#[test]
fn a_store_that_does_not_answer_is_critical_and_a_slow_or_loading_one_a_warning() {
    let at_once = Duration::ZERO;
    let found = of_store(Some("no answer"), SLOW_ANSWER, true);
    assert_eq!(
        kinds(&found),
        [
            (Kind::StoreAway, CRITICAL, "store", 1),
            (Kind::StillLoading, WARNING, "store", 1),
        ]
    );
    assert_eq!(of_store(None, at_once, false), []);
    let found = of_store(None, SLOW_ANSWER, false);
    let slow = (Kind::StoreSlow, WARNING, "store", 1);
    assert_eq!(kinds(&found), [slow]);
    assert_eq!(found[0].cause, "it took 1.0 s to answer");
}

#[test]
fn a_growing_store_is_a_warning_with_its_sizes() {
    let found = of_growth(90 << 20, 10 << 20);
    let growing = (Kind::StoreGrowing, WARNING, "store", 1);
    assert_eq!(kinds(std::slice::from_ref(&found)), [growing]);
    assert!(found.cause.contains("from 10 to 90 MiB"), "{found:?}");
}

#[test]
fn increases_are_reported_for_a_minute() {
    let status = |totals: &Totals| DaemonStatus {
        pools: vec![PoolStatus {
            totals: totals.clone(),
            ..pool("js")
        }],
        ..DaemonStatus::default()
    };
    let mut totals = Totals {
        died: 100,
        ..Totals::default()
    };
    let mut counted = Counted {
        unwritten: 5,
        unwritten_last: Some(("it has no room left".to_owned(), "make room")),
        restarts: BTreeMap::new(),
        requests: [("read", (100, 500)), ("write", (7, 7))].into(),
    };
    let mut increases = Increases::default();
    let mut look = |second: u64, totals: &Totals, counted: &Counted| {
        let now = Timestamp::ZERO + Duration::from_secs(second);
        of_increases(&mut increases, now, &status(totals), counted.clone())
    };
    assert_eq!(
        look(0, &totals, &counted),
        [],
        "earlier counts are not reported"
    );
    totals.died += DEATHS_MAX - 1;
    (totals.taken, totals.started, totals.replaced) = (100, 100, 100);
    totals.timed_out += UNSERVED_MAX - 1;
    let found = look(2, &totals, &counted);
    let warning = |kind, subject, count| (kind, WARNING, subject, count);
    let exchanging = warning(Kind::PoolExchanging, "js", 100);
    assert_eq!(kinds(&found), [exchanging]);
    totals.died += 1;
    totals.timed_out += 1;
    counted.unwritten += 3;
    // The reads are fast, like those of a cache.
    counted.requests = [("read", (200, 900)), ("write", (9, 2407))].into();
    let found = look(4, &totals, &counted);
    // Calls that time out before `LONG_WAIT_MS` count, too.
    let crowded = warning(Kind::PoolCrowded, "js", UNSERVED_MAX);
    let dying = warning(Kind::PoolDying, "js", DEATHS_MAX);
    let slow = warning(Kind::StoreSlow, "store", 1);
    let unwritten = (Kind::StoreRefusing, CRITICAL, "store", 3);
    assert_eq!(kinds(&found), [crowded, dying, exchanging, slow, unwritten]);
    let slow = "its write requests took 1.2 s on average within 60 s";
    assert_eq!(found[3].cause, slow);
    let cause = "3 writes were refused within 60 s: it has no room left";
    assert_eq!((&*found[4].cause, &*found[4].remedy), (cause, "make room"));
    assert_eq!(look(70, &totals, &counted), []);
}

#[test]
fn counts_of_a_pool_being_removed_are_not_increases_of_its_successor() {
    let removed = PoolStatus {
        removing: Some("graceful".to_owned()),
        totals: Totals {
            died: DEATHS_MAX,
            timed_out: UNSERVED_MAX,
            ..Totals::default()
        },
        ..pool("js")
    };
    let status = DaemonStatus {
        pools: vec![removed, pool("js")],
        ..DaemonStatus::default()
    };
    let mut increases = Increases::default();
    for second in [0, 2, 4] {
        let now = Timestamp::ZERO + Duration::from_secs(second);
        let found = of_increases(&mut increases, now, &status, Counted::default());
        assert_eq!(found, []);
    }
}

/// Checks refused documents and lost log records since the start.
fn look_at_losses(
    board: &HealthBoard,
    logs: &[(&'static str, Arc<Losses>)],
    refused: &[(&str, u64)],
) -> Vec<Problem> {
    let counts = refused.iter().copied();
    let mut refused = counts
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    board.with_earlier(Kind::DocumentsRefused, &mut refused);
    let open = |kind, subject: &str, count| board.open(kind, subject, count);
    let found = of_losses(refused, logs, open);
    let shown = found.iter().map(|one| (one.clone(), Timestamp::ZERO));
    board.show("a:1", Timestamp::ZERO, shown.collect());
    found
}

#[test]
fn losses_are_reported_until_acknowledged_and_later_losses_are_reported_again() {
    let board = HealthBoard::default();
    let losses = Arc::<Losses>::default();
    let logs = [("audit", Arc::clone(&losses))];
    let look = |refused: &[(&str, u64)]| look_at_losses(&board, &logs, refused);
    assert_eq!(look(&[]), []);
    let refused = |subject, count| (Kind::DocumentsRefused, WARNING, subject, count);
    let found = look(&[("it's", 36), ("other", 1)]);
    assert_eq!(kinds(&found), [refused("it's", 36), refused("other", 1)]);
    let acknowledged = board.acknowledge(Kind::DocumentsRefused, Some("it's"));
    assert_eq!(kinds(&acknowledged), [refused("it's", 36)]);
    assert_eq!(
        board.told().problems.len(),
        1,
        "the problem is gone at once"
    );
    assert_eq!(
        kinds(&look(&[("it's", 36), ("other", 1)])),
        [refused("other", 1)]
    );
    let found = look(&[("it's", 38), ("other", 1)]);
    assert_eq!(kinds(&found), [refused("it's", 2), refused("other", 1)]);
    assert_eq!(board.acknowledge(Kind::RecordsDropped, None), []);
    losses.lose();
    let found = look(&[]);
    assert_eq!(
        kinds(&found),
        [(Kind::RecordsDropped, CRITICAL, "audit", 1)]
    );
    assert_eq!(board.acknowledge(Kind::RecordsDropped, None).len(), 1);
    assert_eq!(look(&[]), []);
    losses.fail("no space".to_owned());
    look(&[]);
    board.acknowledge(Kind::RecordsDropped, None);
    let cause = "no record can be written now: no space";
    assert_eq!(look(&[])[0].cause, cause);
}

#[test]
fn losses_of_earlier_runs_are_reported_with_later_ones_until_acknowledged() {
    let board = HealthBoard::default();
    let audit = Arc::<Losses>::default();
    let logs = [("audit", Arc::clone(&audit))];
    let look = |refused: &[(&str, u64)]| look_at_losses(&board, &logs, refused);
    let text = r#"{"documents_refused":{"backup":36},"records_dropped":{"audit":2}}"#;
    let kept: OpenLosses = serde_json::from_str(text).unwrap();
    assert_eq!(look(&[]), []);
    assert_eq!(board.kept(), None);
    board.restore(kept.clone());
    assert_eq!(board.kept(), Some(kept.clone()));
    assert_eq!(losses::of(look(&[])), kept);
    audit.lose();
    let refused = |count| (Kind::DocumentsRefused, WARNING, "backup", count);
    let dropped = (Kind::RecordsDropped, CRITICAL, "audit", 3);
    assert_eq!(kinds(&look(&[("backup", 1)])), [refused(37), dropped]);
    board.acknowledge(Kind::DocumentsRefused, Some("backup"));
    assert_eq!(kinds(&look(&[("backup", 1)])), [dropped]);
    assert_eq!(kinds(&look(&[("backup", 3)])), [refused(2), dropped]);
    board.acknowledge(Kind::RecordsDropped, None);
    assert_eq!(kinds(&look(&[("backup", 3)])), [refused(2)]);
}

#[test]
fn files_that_differ_from_the_running_settings_are_reported_except_http_overrides() {
    let change = |key: &str, effect| Change {
        section: "log".into(),
        key: key.into(),
        old: Some("info".into()),
        new: None,
        effect,
    };
    let overridden = change("level", Effect::Overridden);
    assert_eq!(of_files(&Ok(vec![])), None);
    assert_eq!(of_files(&Ok(vec![overridden.clone()])), None);
    let restart = change("file", Effect::Restart);
    let reload = change("slow", Effect::Reload);
    let found = of_files(&Ok(vec![overridden, restart, reload])).unwrap();
    assert_eq!(found.count, 2);
    assert!(
        found.cause.ends_with("in force: [log] file and 1 more"),
        "{}",
        found.cause
    );
    let broken = of_files(&Err(ReloadError::NoSources)).unwrap();
    assert_eq!(broken.count, 1);
}

#[test]
fn stalled_jobs_are_one_problem_with_an_example() {
    assert_eq!(of_stalled(&Stalled::default()), None);
    let stalled = Stalled {
        count: 3,
        example: "shop-to-backup".into(),
    };
    let found = of_stalled(&stalled).unwrap();
    assert_eq!((&*found.kind, found.count), ("replications_stalled", 3));
    check_commands(&found);
    assert!(
        found
            .remedy
            .contains("`settee jobs restart shop-to-backup`")
    );
}

#[test]
fn a_slow_server_is_reported_with_its_answer_time_and_replication_count() {
    let slow = SlowServer {
        server: "http://db.example:5984".into(),
        average: Duration::from_millis(7250),
    };
    let troubles = RunTroubles {
        stalled: Stalled::default(),
        slow: vec![(slow, 12)],
    };
    let [found] = &of_runs(&troubles)[..] else {
        panic!("expected one slow server");
    };
    assert_eq!(found.kind, "server_slow");
    assert_eq!(
        (&*found.subject, found.count),
        ("http://db.example:5984", 12)
    );
    let cause = "its answers took 7.2 s on average lately; 12 replications use it";
    assert_eq!(found.cause, cause);
}

#[test]
fn an_actor_that_fails_repeatedly_is_a_problem_for_a_minute() {
    let mut increases = Increases::default();
    let mut found = |second, restarts| {
        let counted = Counted {
            restarts: [("http_server", restarts), ("client_listener", 9)].into(),
            ..Counted::default()
        };
        let status = DaemonStatus::default();
        let now = Timestamp::ZERO + Duration::from_secs(second);
        let found = of_increases(&mut increases, now, &status, counted);
        let found = found
            .into_iter()
            .map(|found| (found.kind, found.subject, found.count));
        found.collect::<Vec<_>>()
    };
    assert_eq!(found(0, 0), []);
    assert_eq!(found(2, 2), []);
    let failing = ("actor_failing".to_owned(), "http_server".to_owned(), 3);
    assert_eq!(found(4, 3), [failing]);
    assert_eq!(found(100, 3), []);
}

#[test]
fn daemons_with_another_version_or_other_settings_are_reported_by_name() {
    let report = |daemon: &str, version: &str, settings: &[(&str, &str)]| Report {
        health: Health {
            daemon: daemon.to_owned(),
            version: version.to_owned(),
            ..Health::default()
        },
        settings: settings
            .iter()
            .map(|(section, digest)| ((*section).to_owned(), (*digest).to_owned()))
            .collect(),
    };
    let own = report("a:1", "2.0", &[("couchdb", "1"), ("replicator", "1")]);
    let same = report("b:1", "2.0", &own_settings(&own));
    assert_eq!(of_differences(&own, &[]), []);
    assert_eq!(of_differences(&own, std::slice::from_ref(&same)), []);
    let others = [
        same,
        report("c:1", "2.0", &[("couchdb", "1"), ("replicator", "2")]),
        report(
            "d:1",
            "2.0",
            &[("couchdb", "1"), ("replicator", "1"), ("tenants.*", "1")],
        ),
        report("e:1", "2.0", &[("couchdb", "1"), ("tenants.*", "1")]),
        // Another version may have other keys.
        report("f:1", "1.9", &[("couchdb", "7")]),
        // A report without settings.
        report("g:1", "2.0", &[]),
    ];
    let found = of_differences(&own, &others);
    let warning = |subject, count| (Kind::DaemonsDiffer, WARNING, subject, count);
    assert_eq!(
        kinds(&found),
        [
            warning("versions", 1),
            warning("[replicator]", 2),
            warning("[tenants.*]", 2)
        ]
    );
    assert_eq!(found[0].cause, "this daemon has version 2.0, f:1 has 1.9");
    assert!(
        found[1].cause.contains("at c:1, e:1 differ"),
        "{}",
        found[1].cause
    );
    assert!(
        found[2].cause.contains("at d:1, e:1 differ"),
        "{}",
        found[2].cause
    );
    let many: Vec<Report> = (0..9).map(|n| report(&format!("h{n}"), "1", &[])).collect();
    let cause = &of_differences(&own, &many)[0].cause;
    assert!(cause.ends_with("h4 has 1 and 4 more"), "{cause}");
}

fn own_settings(report: &Report) -> Vec<(&str, &str)> {
    let settings = report.settings.iter();
    settings
        .map(|(section, digest)| (section.as_str(), digest.as_str()))
        .collect()
}
