//! A reload of many pools does not block other requests.

use std::pin::pin;
use std::sync::Arc;

use actix_rt::task::yield_now;
use futures_util::FutureExt;
use settee::actors::proc_manager::{GetStatus, ManagerSettings, ReloadConfig};
use settee::config::PoolConfig;
use settee::messages::proc_manager::GetProcCount;
use settee_testkit::{Script, ScriptedChild, TestPool};

#[actix_rt::test]
async fn a_reload_of_many_pools_yields_to_other_requests_and_is_answered_at_the_end() {
    let child = ScriptedChild::new(Script::echo());
    let builder = TestPool::builder().script("x", &child);
    let pool = builder
        .settings(|settings| {
            settings.pools_max = 2000;
            settings.pools = (0..1000).map(|n| (format!("p{n}"), section(1))).collect();
        })
        .start();
    let mut settings = ManagerSettings::clone(&pool.settings());
    let pools = settings.pools.values_mut();
    pools.for_each(|pool| *pool = section(2));
    let mut reload = pin!(pool.manager().send(ReloadConfig(Arc::new(settings))));
    // Other requests are served meanwhile.
    let count = pool.manager().send(GetProcCount).await;
    yield_now().await;
    assert_eq!(count.unwrap(), 0);
    assert!(
        reload.as_mut().now_or_never().is_none(),
        "the reload is in progress"
    );
    reload.await.unwrap();
    let status = pool.manager().send(GetStatus::default()).await.unwrap();
    let pools = status.summary().pools;
    let follow = pools.iter().filter(|pool| pool.hard_limit == 2).count();
    assert_eq!(follow, 1000);
    pool.assert_quiet().await;
}

fn section(max: u32) -> Arc<PoolConfig> {
    Arc::new(PoolConfig {
        language: Some("x".to_owned()),
        max: Some(max),
        ..PoolConfig::default()
    })
}
