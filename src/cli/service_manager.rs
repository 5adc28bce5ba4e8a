//! Reports the service's state to a service manager, if there is one.
//!
//! SUMMARY   [`notify`] reports a change, [`beat`] that the pool still works, twice in the time that `WATCHDOG_USEC`
//!           allows.
//! SOURCE    `sd_notify(3)`, `sd_watchdog_enabled(3)`.

use actix_rt::time::interval;
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use crate::actors::proc_manager::ProcManager;
use crate::messages::proc_manager::GetProcCount;
use crate::otp::RegisteredName;

/// Sends states to the socket in `NOTIFY_SOCKET`. Notifications may be lost: an unreachable service manager is
/// ignored.
pub(super) fn notify(states: &[NotifyState]) {
    let _ = sd_notify::notify(states);
}

/// Notifies the service manager twice in each watchdog period that the pool works: each beat follows an answer of the
/// pool's manager, so a stuck manager or event loop is silent. Never returns; without a watchdog there are no beats.
pub(super) async fn beat(manager: RegisteredName<ProcManager>) {
    let Some(watchdog) = sd_notify::watchdog_enabled().filter(|time| !time.is_zero()) else {
        return std::future::pending().await;
    };
    let mut ticks = interval(watchdog / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A manager that is restarting does not answer; its supervisor handles that.
        if manager.address().send(GetProcCount).await.is_ok() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}
