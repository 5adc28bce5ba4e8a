//! Settings of a pool that are others under stress, in simulated time.

use std::time::Duration;

use settee::config::{PoolConfig, Stressed};
use settee::policy::admission::STRESS_DURATION;
use settee_testkit::{FakeLanguage, TestPool};

#[actix_rt::test]
async fn settings_take_their_stressed_value_with_stress_and_the_other_after_it() {
    tokio::time::pause();
    let mut pool = TestPool::builder()
        .language("x", FakeLanguage::new())
        .start();
    let section = PoolConfig {
        max: Some(2),
        stress: true,
        max_uses: Stressed {
            normal: 0,
            stressed: 1,
        },
        cull_after: Stressed {
            normal: Duration::from_secs(3600),
            stressed: Duration::from_secs(60),
        },
        ..PoolConfig::default()
    };
    pool.reconfigure(|settings| {
        settings.pools.insert("x".into(), section.into());
    })
    .await;
    let (mut first, mut second) = (pool.client("1"), pool.client("2"));
    first.takes(pool.any()).await;
    assert_eq!(pool.status().await.stressed_ms, None);
    second.takes(pool.any()).await;
    assert!(pool.status().await.stressed_ms.is_some());
    first.returns().await;
    pool.becomes("the process is recycled", |status| {
        status.totals.recycled["uses"] == 1 && status.used == 1 && status.free == 0
    })
    .await;
    // Nobody presses any more.
    tokio::time::sleep(STRESS_DURATION).await;
    assert_eq!(pool.status().await.stressed_ms, None);
    second.returns().await;
    let status = pool.status().await;
    assert_eq!((status.free, status.totals.recycled["uses"]), (1, 1));
    // Idle ones may be so for longer again.
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(pool.status().await.free, 1);
    pool.assert_quiet().await;
}
