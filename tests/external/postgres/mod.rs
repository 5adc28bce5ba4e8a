//! The store in PostgreSQL passes the same suite as the store in a file.

mod daemon;
mod fleet;
mod fleet_health;
mod fleet_view;
mod migrate;
pub mod server;
mod shared_settings;
mod tls;

use std::sync::Arc;

use server::{Server, TestDatabase};
use store::suite::{self, TestPlace};

fn place() -> (TestPlace, TestDatabase) {
    let database = TestDatabase::new();
    (TestPlace::postgres(&database.url()).unwrap(), database)
}

mod in_postgres {
    store::store_suite!(super::place());
}

#[tokio::test]
async fn acknowledged_writes_survive_lost_connections() {
    let (place, database) = place();
    let cut = || database.cut();
    suite::acknowledged_writes_survive_lost_connections(&place, cut).await;
}

#[tokio::test]
async fn while_the_database_is_down_requests_fail_and_afterwards_they_succeed() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let place = TestPlace::postgres(&database.url()).unwrap();
    suite::while_the_database_is_down_requests_fail_and_afterwards_they_succeed(
        &place,
        || server.stop(),
        || server.start(),
    )
    .await;
}

#[tokio::test]
async fn acknowledged_orders_for_jobs_survive_a_failover_that_lost_them() {
    let server = Arc::new(Server::new(&[], |_| {}));
    let database = TestDatabase::on(Arc::clone(&server));
    let place = TestPlace::postgres(&database.url()).unwrap();
    suite::acknowledged_orders_for_jobs_survive_a_failover_that_lost_them(
        &place,
        || server.back_up(),
        || server.fail_over(),
    )
    .await;
}

#[tokio::test]
async fn requests_to_a_silent_database_time_out() {
    let (place, database) = place();
    let stopped = std::cell::RefCell::new(Vec::new());
    suite::requests_to_a_silent_database_time_out(
        &place,
        || stopped.replace(database.pause()).clear(),
        || server::resume(&stopped.borrow()),
    )
    .await;
}

#[tokio::test]
async fn services_that_start_at_the_same_time_create_one_store() {
    let (place, database) = place();
    suite::services_that_start_at_the_same_time_create_one_store(&place).await;
    assert_eq!(database.sql("SELECT count(*) FROM settee.meta"), "1");
}

#[tokio::test]
async fn an_id_that_cannot_be_stored_fails_only_its_own_write() {
    let (place, _database) = place();
    suite::an_id_that_cannot_be_stored_fails_only_its_own_write(&place).await;
}

#[tokio::test]
async fn tables_of_another_format_are_refused_and_left_unchanged() {
    let (place, database) = place();
    suite::opens(&place).await;
    for format in ["1", "99"] {
        database.sql(&format!("UPDATE settee.meta SET format = {format}"));
        let error = suite::refusal(&place).await;
        let expected =
            format!("(format {format}, this program knows 2): start the program that wrote it");
        assert!(error.contains(&expected), "{error}");
        assert_eq!(database.sql("SELECT format FROM settee.meta"), format);
    }
}

#[tokio::test]
async fn tables_columns_and_indexes_missing_in_an_older_store_are_added() {
    let (place, database) = place();
    suite::opens(&place).await;
    database.sql(
        "DROP TABLE settee.reports, settee.unreached; ALTER TABLE settee.jobs DROP COLUMN servers",
    );
    suite::opens(&place).await;
    for lost in [
        "DROP TABLE settee.reports",
        "DROP INDEX settee.jobs_claims",
        "ALTER TABLE settee.jobs DROP COLUMN kept_at",
    ] {
        database.sql(lost);
        suite::opens(&place).await;
    }
    let index = "SELECT to_regclass('settee.jobs_claims') IS NOT NULL";
    assert_eq!(database.sql(index), "t");
    assert_eq!(database.sql("SELECT count(kept_at) FROM settee.jobs"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM settee.unreached"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM settee.reports"), "0");
    assert_eq!(database.sql("SELECT count(servers) FROM settee.jobs"), "0");
}

#[tokio::test]
async fn a_claim_reads_only_the_free_documents_that_it_claims() {
    let (place, database) = place();
    let read = "SELECT coalesce(max(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_claims'";
    suite::a_claim_reads_only_the_free_documents_that_it_claims(&place, || {
        database.sql(read).parse().unwrap()
    })
    .await;
}

#[tokio::test]
async fn a_missing_database_is_refused_by_name_and_without_the_password() {
    let (_, database) = place();
    let url = database.url().replace("test", "other_test");
    let place = TestPlace::postgres(&url).unwrap();
    let error = suite::refusal(&place).await;
    assert!(
        error.contains("does not exist") && error.contains("other_test"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_database_with_another_encoding_is_refused() {
    let (_, database) = place();
    let sql = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    database.sql(sql);
    let at = database.url().find("/test").unwrap();
    let rest = database.url()[at..].split_once('?').unwrap().1.to_owned();
    let url = format!("{}/latin?{rest}", &database.url()[..at]);
    let error = suite::refusal(&TestPlace::postgres(&url).unwrap()).await;
    assert!(
        error.contains("its encoding is LATIN1, and UTF8 is needed"),
        "{error}"
    );
}
