//! The state that daemons share is correct on a real PostgreSQL server.

use std::time::Duration;

use store::suite;

use super::place;
use super::server::{TestDatabase, resume};
use crate::support::daemon::wait_until;

/// Returns a function that ends the lease of the epoch with a given number.
fn end_lease(database: &TestDatabase) -> impl Fn(u64) + '_ {
    |epoch| {
        let sql = "UPDATE settee.instances SET lease_until = clock_timestamp() WHERE epoch = ";
        database.sql(&format!("{sql}{}", epoch.cast_signed()));
    }
}

/// Returns a function that makes the daemons' reports of unreachable servers older by a given time.
fn pass(database: &TestDatabase) -> impl Fn(Duration) + '_ {
    |time| {
        let passed = format!("interval '{} ms'", time.as_millis());
        database.sql(&format!(
            "UPDATE settee.unreached SET avoided_from = avoided_from - {passed}, until = until - {passed}"
        ));
    }
}

/// Makes a test of each case whose only argument is a place.
macro_rules! of_places {
    ($($case:ident)*) => {$(
        #[tokio::test]
        async fn $case() {
            let (place, _database) = place();
            suite::$case(&place).await;
        }
    )*};
}

/// Makes a test of each case in which leases end.
macro_rules! of_leases {
    ($($case:ident)*) => {$(
        #[tokio::test]
        async fn $case() {
            let (place, database) = place();
            suite::$case(&place, end_lease(&database)).await;
        }
    )*};
}

/// Makes a test of each case in which time passes for reports of unreachable servers.
macro_rules! of_servers {
    ($($case:ident)*) => {$(
        #[tokio::test]
        async fn $case() {
            let (place, database) = place();
            suite::$case(&place, pass(&database)).await;
        }
    )*};
}

of_servers! {
    documents_of_a_server_that_one_daemon_does_not_reach_go_to_the_others
    documents_of_a_server_that_no_daemon_reaches_stay_with_their_owners
    a_daemon_avoids_a_server_for_longer_each_time_and_not_in_its_next_epoch
}

of_places! {
    documents_that_request_no_replication_are_not_claimed_and_owners_are_notified
    a_release_ends_the_claim_that_it_names_and_no_later_one
    daemons_that_claim_at_the_same_time_never_get_the_same_document
    each_daemon_claims_in_its_own_order
    a_daemon_that_leaves_does_not_count_as_alive
    one_of_two_documents_with_the_same_replication_gets_it
    ids_of_many_documents_are_set_in_one_request
    only_the_owner_saves_a_past
    a_document_is_changed_for_its_owner_only
    daemons_are_notified_when_there_may_be_something_to_claim
    a_setting_of_one_daemon_is_visible_to_all
    daemons_that_propose_secrets_at_the_same_time_get_the_same_one
    statuses_of_others_are_read_once_and_only_owners_write_them
    a_reader_misses_no_status_while_two_daemons_write
    a_report_lasts_as_long_as_its_daemon
    an_overlong_name_of_a_server_does_not_cost_the_lease
}

of_leases! {
    a_document_has_one_owner_while_the_owners_lease_lasts
    departed_and_succeeded_epochs_and_expired_ones_that_own_nothing_are_removed
    an_order_reaches_the_daemon_that_has_the_job
    a_report_ends_with_its_lease
}

#[tokio::test]
async fn random_requests_about_leases_match_a_model() {
    let (place, database) = place();
    let end_lease = end_lease(&database);
    suite::random_requests_about_leases_match_a_model(&place, 600, end_lease).await;
}

#[tokio::test]
async fn documents_kept_by_a_renewal_in_flight_are_not_claimed() {
    let (place, database) = place();
    let session = std::cell::RefCell::new(database.session());
    let begin = |epoch: u64| {
        session.borrow_mut().run(&format!(
            "BEGIN; UPDATE settee.instances SET lease_until = clock_timestamp() + interval '1 h' WHERE epoch = {epoch}"
        ));
    };
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let commit = || {
        wait_until("claim that waits for the lock", || {
            database.sql(waiting) == "1"
        });
        session.borrow_mut().run("COMMIT");
    };
    let end_lease = end_lease(&database);
    suite::documents_kept_by_a_renewal_in_flight_are_not_claimed(&place, end_lease, begin, commit)
        .await;
}

#[tokio::test]
async fn a_renewal_times_out_and_does_not_delay_the_next_one() {
    let (place, database) = place();
    let stopped = std::cell::RefCell::new(Vec::new());
    suite::a_renewal_times_out_and_does_not_delay_the_next_one(
        &place,
        || stopped.replace(database.pause()).clear(),
        || resume(&stopped.borrow()),
    )
    .await;
}
