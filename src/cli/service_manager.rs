//! Reports the service's state to a service manager, if there is one.
//!
//! SUMMARY   [`notify`] reports a change, [`beat`] that the pool still works, as often as `WATCHDOG_USEC`
//!           asks for.
//! SOURCE    `sd_notify(3)`, `sd_watchdog_enabled(3)`.

use actix_rt::time::interval;
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use crate::actors::proc_manager::ProcManager;
use crate::messages::proc_manager::GetProcCount;
use crate::otp::registered_name::RegisteredName;

/// Sends states, to the socket that `NOTIFY_SOCKET` names. It is a notice that may be lost: a service manager
/// that cannot be reached is not our business.
pub(super) fn notify(states: &[NotifyState]) {
    let _ = sd_notify::notify(states);
}

/// Says that a reload begins; `Ready` says that it is over.
pub(super) fn notify_reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// Tells the service manager twice in each time of its watchdog that the pool works: each beat is an
/// answer of the pool's manager, so that one that is stuck, or whose event loop is, is silent. Never
/// returns; a watchdog that nobody has asked for has no beats.
pub(super) async fn beat(manager: RegisteredName<ProcManager>) {
    let Some(watchdog) = sd_notify::watchdog_enabled().filter(|time| !time.is_zero()) else {
        return std::future::pending().await;
    };
    let mut ticks = interval(watchdog / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // While it is started again it does not answer; that is its supervisor's business.
        if manager.address().send(GetProcCount).await.is_ok() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}
