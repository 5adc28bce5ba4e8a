//! `docs/ports.md` lists every name of the originals, and each of our names is in the file given for it. The names
//! in the flows of `docs/architecture.md` are checked in the same way.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::docs::{read, tables};

/// Module of an original -> its names: functions, messages of its clauses, tables and settings.
const ORIGINALS: [(&str, &str); 7] = [
    (
        "couch_proc_manager, 2014",
        "state PROCS WAITERS OPENING client proc_int start_link get_proc_count get_stale_proc_count reload \
         terminate_stale_procs init terminate handle_call get_proc ret_proc set_threshold_ts ignored \
         handle_cast os_proc_idle reload_config handle_info shutdown EXIT spawn_ok spawn_error DOWN \
         gen_event_EXIT restart_config_listener code_change handle_config_change find_proc iter_procs \
         iter_procs_int maybe_spawn_proc spawn_proc new_proc new_proc_int get_table bump_threshold_ts \
         proc_with_ddoc teach_any_proc teach_ddoc make_proc assign_proc return_proc remove_proc export_proc \
         flush_waiters add_waiting_client get_waiting_client get_proc_config get_hard_limit get_soft_limit",
    ),
    (
        "couch_proc_manager, 2023",
        "db_tag filter get_validate_doc_fun recover handle_info timeout COUNTERS inc_count dec_count \
         get_count IDLE_BY_DB insert_idle_by_db remove_idle_by_db IDLE_ACCESS insert_idle_access \
         remove_idle_access get_proc get_os_process_timeout ret_proc os_proc_idle get_proc_count SERVERS \
         get_servers_from_env split_string_if_longer get_query_server maybe_configure_erlang_native_servers \
         terminate foreach_proc handle_call set_threshold_ts terminate_stale_procs get_stale_proc_count \
         handle_cast reload_config shutdown EXIT spawn_error restart_config_listener handle_config_change \
         start_link new_proc_int make_proc assign_proc return_proc remove_proc get_waiting_client \
         get_proc_config get_hard_limit get_soft_limit proc_int export_proc iter_procs iter_procs_int \
         can_spawn spawn_ok undefined DOWN find_proc spawn_proc new_proc replenish_untagged_pool reap_idle \
         teach_ddoc flush_waiters timestamp add_waiting_client remove_waiting_client validate_doc_update \
         rewrite json_doc filter_view filter_docs filter_docs_int ddoc_prompt ddoc_proc_prompt with_ddoc_proc \
         db_key proc_prompt get_ddoc_process get_os_process proc_stop ret_os_process db_key_test_ \
         os_proc_pool_test_",
    ),
    (
        "pidq",
        "name max_pids min_free init_size pid_starter pid_starter_args pid_stopper kill pools take_pid \
         return_pid ok fail status add_pool add_type remove_pool remove_type graceful immediate spawn_link \
         normal",
    ),
    (
        "Postfix master_avail",
        "master_avail_event MASTER_SERV MASTER_PROC MASTER_THROTTLED stress_param_val stress_expire_time \
         MASTER_LIMIT_OK avail_proc total_proc max_proc master_restart_service master_avail_listen \
         event_enable_read event_disable_readwrite listen_fd listen_fd_count MASTER_FLAG_LOCAL_ONLY \
         busy_warn_time msg_warn msg_info event_time master_avail_cleanup master_delete_children \
         master_avail_more master_avail_less MASTER_STAT_AVAIL MASTER_STAT_TAKEN msg_panic master_spawn",
    ),
    (
        "couch_replicator_scheduler",
        "start_link init add_job handle_call remove_job reschedule handle_info rep_state jobs job job_summary \
         last_updated job_proxy_url ejson_url health_threshold find_jobs_by_dbname find_jobs_by_doc \
         set_max_jobs set_max_churn set_max_history set_interval set_history handle_cast handle_config_change \
         handle_config_terminate restart_config_listener DOWN normal handle_crashed_job update_state_crashed \
         code_change terminate format_status running_job_count pending_job_count maybe_start_newly_added_job \
         pending_jobs pending_fold pending_maybe_replace start_jobs start_pending_jobs stop_jobs \
         oldest_job_first not_recently_crashed backoff_micros consecutive_crashes latest_crash_timestamp \
         last_started update_history add_job_int job_by_id job_by_pid running_jobs maybe_remove_job_int \
         remove_job_int start_job_int update_state_started stop_job_int update_state_stopped set_job_process \
         reset_job_process stop_excess_jobs rotate_jobs update_running_jobs_stats stats_fold avg job_ejson \
         crash_reason_json is_continuous maybe_optimize_job_for_rate_limiting optimize_int_option \
         backoff_micros_test_ consecutive_crashes_test_ consecutive_crashes_non_default_threshold_test_ \
         latest_crash_timestamp_test_ last_started_test_ oldest_job_first_test scheduler_test_",
    ),
    (
        "couch_replicator_scheduler_job",
        "start_link init handle_info timeout do_init adjust_maxconn shutdown terminate DOWN db_monitor \
         handle_cast db_compacted EXIT max_backoff changes_reader changes_manager changes_queue workers \
         handle_call get_details add_stats report_seq_done report_seq checkpoint do_checkpoint code_change \
         headers_strip_creds httpdb_strip_creds rep_strip_creds state_strip_creds format_status \
         terminate_cleanup doc_update_triggered doc_update_completed do_last_checkpoint start_timer \
         cancel_timer init_state find_replication_logs fold_replication_logs spawn_changes_manager \
         changes_manager_loop_open update_checkpoint commit_to_both compare_replication_logs \
         compare_rep_history has_session_id get_pending_count get_pending_count_int update_task rep_stats \
         replication_start_error",
    ),
    (
        "couch_replicator_scheduler_sup",
        "start_link init start_child terminate_child",
    ),
];

fn rows() -> BTreeMap<String, Vec<Vec<String>>> {
    tables(&read("docs/ports.md"))
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// Whether a file defines a name of the page: `Handler<MESSAGE>` as `impl Handler<MESSAGE> for`; `NAME` behind `fn`,
/// `struct`, `enum`, `trait`, `const` or `type`; `TYPE::PART` if the file has the type, or an `impl` of it, and a
/// function, a field or a variant of the part's name.
fn has(code: &str, name: &str) -> bool {
    let found = |text: &str| pattern(text).is_match(code);
    if name.starts_with("Handler<") {
        return code.contains(&format!("impl {name} for "));
    }
    match name.split_once("::") {
        None => found(&format!(r"\b(fn|struct|enum|trait|const|type) {name}\b")),
        Some((owner, part)) => {
            found(&format!(r"\b(struct|enum|trait|impl|for) {owner}\b"))
                && found(&format!(
                    r"\bfn {part}\b|(?m)^ +(pub(\([a-z]+\))? )?{part}\b"
                ))
        }
    }
}

/// Returns the code of a file without its comments; `None` if there is no such file.
fn code(path: &str) -> Option<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(path).ok()?;
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    Some(text.lines().filter(is_code).collect::<Vec<_>>().join("\n"))
}

/// Returns the names in the second column of a row that do not exist.
fn missing(here: &str) -> Vec<String> {
    let (mut missing, mut file) = (Vec::new(), None);
    for name in here.split([' ', ',', ';']).filter(|name| !name.is_empty()) {
        if name.ends_with(".rs") {
            file = code(name);
            missing.extend(file.is_none().then(|| name.to_owned()));
        } else if !file.as_deref().is_some_and(|code| has(code, name)) {
            missing.push(format!("{name} in {here}"));
        }
    }
    missing
}

#[test]
fn the_page_has_every_name_of_the_originals_and_no_other() {
    let name = pattern("[A-Za-z_][A-Za-z0-9_]*");
    let names = |text: &str| -> BTreeSet<String> {
        let found = name.find_iter(text);
        found.map(|found| found.as_str().to_owned()).collect()
    };
    let tables = rows();
    assert_eq!(tables.len(), ORIGINALS.len());
    for (module, expected) in ORIGINALS {
        let documented: Vec<_> = tables[module].iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names(&documented.join(" ")), names(expected), "{module}");
    }
}

#[test]
fn each_name_on_the_page_is_in_the_file_given_for_it() {
    let tables = rows();
    let ported = tables.values().flatten().filter(|row| row[1] != "–");
    let missing: Vec<_> = ported.flat_map(|row| missing(&row[1])).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn each_name_in_a_step_of_a_flow_is_in_the_file_given_for_it() {
    let page = read("docs/architecture.md");
    let step = pattern(r"(?m)^\d+\. ((?:`[^`]+`[,;]? ?)+): ");
    let steps: Vec<_> = step
        .captures_iter(&page)
        .map(|step| step[1].replace('`', ""))
        .collect();
    let numbered = pattern(r"(?m)^\d+\. ").find_iter(&page).count();
    assert_eq!(
        steps.len(),
        numbered,
        "every step begins with a file and names in it"
    );
    assert!(numbered > 0, "there are flows");
    let missing: Vec<_> = steps.iter().flat_map(|step| missing(step)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn unported_names_have_a_reason() {
    for row in rows().values().flatten() {
        let says_why = row.len() == 3 && (row[1] != "–" || !row[2].is_empty());
        assert!(says_why, "{row:?}");
    }
}

#[test]
fn a_wrong_name_is_detected() {
    let code = "pub struct Pool {\n    pub(crate) procs: u32,\n}\nimpl Handler<Stop> for Pool {\n    fn handle(&self) {}\n}";
    for name in [
        "Pool",
        "handle",
        "Pool::procs",
        "Pool::handle",
        "Handler<Stop>",
    ] {
        assert!(has(code, name), "{name}");
    }
    for name in [
        "procs",
        "hand",
        "Pool::proc",
        "Pools::procs",
        "Handler<Exit>",
    ] {
        assert!(!has(code, name), "{name}");
    }
    assert_eq!(missing("src/app.rs start; src/none.rs start").len(), 2);
}
