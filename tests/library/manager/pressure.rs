//! Limits that follow the machine's pressure, with a fake gauge in simulated time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Actor;
use settee::actors::pressure_gauge::{PressureGauge, PressureOptions};
use settee::config::Config;
use settee::otp::pid::PidGuard;
use settee::otp::registered_name::RegisteredName;
use settee::otp::supervisor::Stop;
use settee::policy::pressure::Reading;
use settee_testkit::{FakeLanguage, TestPool};
use slog::{Discard, Logger, o};
use tokio::sync::watch;

const INTERVAL: Duration = Duration::from_millis(100);

fn config(follows: bool) -> Arc<Config> {
    let mut config = Config::default();
    config.query_server_config.limit_follows_pressure = follows;
    config.query_server_config.pressure_interval = INTERVAL;
    Arc::new(config)
}

#[actix_rt::test]
async fn under_pressure_the_limit_falls_to_the_soft_limit_and_no_lease_is_revoked() {
    tokio::time::pause();
    let pool = TestPool::builder()
        .hard_limit(10)
        .soft_limit(2)
        .language("x", FakeLanguage::new())
        .start();
    let (configure, changes) = watch::channel(config(true));
    let cpu = Arc::new(Mutex::new(Some(0.0)));
    let shown = Arc::clone(&cpu);
    let options = PressureOptions {
        gauges: Arc::new(move || Reading {
            cpu: *shown.lock().unwrap(),
            memory: Some(1.0),
        }),
        manager: RegisteredName::new(pool.manager()),
        config: changes,
        log: Logger::root(Discard, o!()),
    };
    let gauge = PressureGauge::new(options, PidGuard::new()).start();
    let mut clients = Vec::new();
    for number in 0..5 {
        let mut client = pool.client(&number.to_string());
        client.takes(pool.any()).await;
        clients.push(client);
    }
    tokio::time::sleep(INTERVAL * 3).await;
    assert_eq!(pool.status().await.hard_limit, 10);
    *cpu.lock().unwrap() = Some(75.0);
    pool.becomes("the soft limit applies", |status| status.hard_limit == 2)
        .await;
    let status = pool.status().await;
    assert_eq!((status.used, status.stopping), (5, 0));
    for client in &mut clients {
        assert!(client.ping().await);
    }
    for client in &mut clients {
        client.returns().await;
    }
    pool.becomes("surplus processes stop on return", |status| {
        (status.used, status.free) == (0, 2)
    })
    .await;
    // Between the thresholds the limit does not change.
    *cpu.lock().unwrap() = Some(30.0);
    tokio::time::sleep(INTERVAL * 50).await;
    assert_eq!(pool.status().await.hard_limit, 2);
    *cpu.lock().unwrap() = None;
    pool.becomes("the hard limit applies", |status| status.hard_limit == 10)
        .await;
    // When `limit_follows_pressure` is switched off, the hard limit applies at once.
    *cpu.lock().unwrap() = Some(75.0);
    pool.becomes("the limit falls", |status| status.hard_limit < 10)
        .await;
    configure.send(config(false)).unwrap();
    pool.becomes("the hard limit applies", |status| status.hard_limit == 10)
        .await;
    tokio::time::sleep(INTERVAL * 20).await;
    assert_eq!(pool.status().await.hard_limit, 10);
    gauge.send(Stop { now: true }).await.unwrap();
    pool.assert_quiet().await;
}
