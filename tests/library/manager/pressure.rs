//! Limits that follow the machine, with a gauge of the test's own in simulated time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Actor;
use settee::actors::pressure_gauge::{PressureGauge, PressureOptions};
use settee::config::Config;
use settee::otp::registered_name::RegisteredName;
use settee::otp::supervisor::Stop;
use settee::policy::pressure::Reading;
use settee_testkit::{FakeLanguage, TestPool};
use slog::{Discard, Logger, o};
use tokio::sync::watch;

const LOOK: Duration = Duration::from_millis(100);

fn config(follows: bool) -> Arc<Config> {
    let mut config = Config::default();
    config.query_server_config.limit_follows_pressure = follows;
    config.query_server_config.pressure_interval = LOOK;
    Arc::new(config)
}

#[actix_rt::test]
async fn the_limit_moves_to_the_soft_one_under_pressure_and_back_and_no_loan_is_revoked() {
    tokio::time::pause();
    let pool = TestPool::builder()
        .hard_limit(10)
        .soft_limit(2)
        .language("x", FakeLanguage::new())
        .start();
    let (configure, changes) = watch::channel(config(true));
    let cpu = Arc::new(Mutex::new(Some(0.0)));
    let shown = Arc::clone(&cpu);
    let gauge = PressureGauge::new(PressureOptions {
        gauges: Arc::new(move || Reading {
            cpu: *shown.lock().unwrap(),
            memory: Some(1.0),
        }),
        manager: RegisteredName::new(pool.manager()),
        config: changes,
        log: Logger::root(Discard, o!()),
    });
    let gauge = gauge.start();
    let mut clients = Vec::new();
    for number in 0..5 {
        let mut client = pool.client(&number.to_string());
        client.takes(pool.any()).await;
        clients.push(client);
    }
    tokio::time::sleep(LOOK * 3).await;
    assert_eq!(pool.status().await.hard_limit, 10);
    *cpu.lock().unwrap() = Some(75.0);
    pool.becomes("the limit is the soft one", |status| status.hard_limit == 2)
        .await;
    let status = pool.status().await;
    assert_eq!((status.used, status.stopping), (5, 0));
    for client in &mut clients {
        assert!(client.ping().await);
    }
    for client in &mut clients {
        client.returns().await;
    }
    pool.becomes("what is too much went when it came back", |status| {
        (status.used, status.free) == (0, 2)
    })
    .await;
    // Between the marks nothing moves.
    *cpu.lock().unwrap() = Some(30.0);
    tokio::time::sleep(LOOK * 50).await;
    assert_eq!(pool.status().await.hard_limit, 2);
    *cpu.lock().unwrap() = None;
    pool.becomes("the limit is the hard one", |status| {
        status.hard_limit == 10
    })
    .await;
    // Switched off it is the hard one at once.
    *cpu.lock().unwrap() = Some(75.0);
    pool.becomes("the limit goes down", |status| status.hard_limit < 10)
        .await;
    configure.send(config(false)).unwrap();
    pool.becomes("the limit is the hard one", |status| {
        status.hard_limit == 10
    })
    .await;
    tokio::time::sleep(LOOK * 20).await;
    assert_eq!(pool.status().await.hard_limit, 10);
    gauge.send(Stop { now: true }).await.unwrap();
    pool.assert_quiet().await;
}
