//! Shares the ConfigListener's settings with the other daemons of its database.
//!
//! SUMMARY   Adopts values that others set over HTTP, at the start and on notifications of the database; compares
//!           explicit secrets and adopts generated ones when the database first answers.
//! PROMISES  Values from the database are applied like a reload: whole or not at all, and a mistake leaves the
//!           current configuration in effect.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::timeout;
use slog::{Logger, error, warn};

use super::{ActiveConfig, Applied, Candidate, ConfigListener, read};
use crate::audit::{Done, Sender};
use crate::messages::config_listener::ReloadError;
use store::fleet::{FleetStore, Topic};
use store::shared_settings::{self, SharedSettingsError};

/// How long an unresponsive database is left alone, unless it sends a notification.
const RETRY: Duration = Duration::from_secs(5);

/// The shared store, and the state of sharing.
pub struct SharedSettings {
    /// The shared store.
    pub fleet: Arc<dyn FleetStore>,
    /// Whether explicit secrets were compared, and generated ones adopted.
    pub has_joined: Cell<bool>,
    /// Whether the current explicit secrets were reported.
    pub is_told: Cell<bool>,
}

/// Adopts the database's values. Returns whether the database answered.
#[derive(Clone, Copy, Message)]
#[rtype(result = "bool")]
pub(super) struct Refresh;

/// Refreshes now, and whenever the database notifies of settings, during the actor's lifetime.
pub(super) fn follow(fleet: &dyn FleetStore, ctx: &mut Context<ConfigListener>) {
    let mut told = fleet.told(Topic::Overrides);
    let address = ctx.address();
    let following = async move {
        while let Ok(has_answered) = address.send(Refresh).await {
            let changed = if has_answered {
                told.changed().await
            } else {
                timeout(RETRY, told.changed()).await.unwrap_or(Ok(()))
            };
            if changed.is_err() {
                return;
            }
        }
    };
    ctx.spawn(fut::wrap_future(following));
}

/// Returns the configuration with the database's values; `None` if they are in effect already, or nothing is shared.
async fn refreshed(
    active: Rc<ActiveConfig>,
    log: Logger,
) -> Result<Option<Candidate>, ReloadError> {
    let before = active.sources.borrow().clone();
    let (Some(shared), Some(before)) = (&active.shared, before) else {
        return Ok(None);
    };
    let mut is_changed = false;
    if !shared.has_joined.get() {
        match shared_settings::join(&*shared.fleet, &active.config()).await {
            Ok(are_others) => is_changed = are_others,
            Err(SharedSettingsError::Store(error)) => return Err(error.into()),
            Err(error) => error!(log, "secrets are not those of the other daemons";
                "error" => %error, "remedy" => error.remedy(), "effect" => "sessions of one daemon are invalid on the others"),
        }
        shared.has_joined.set(true);
    } else if !shared.is_told.get() {
        let config = active.config();
        if let Err(SharedSettingsError::Store(error)) =
            shared_settings::tell_explicit(&*shared.fleet, &config).await
        {
            return Err(error.into());
        }
    }
    shared.is_told.set(true);
    let (sources, without_effect) =
        shared_settings::take_overrides(&*shared.fleet, &before).await?;
    if !is_changed && sources.overlay == before.overlay {
        return Ok(None);
    }
    if !without_effect.is_empty() {
        let line = format!(
            "in the database, but cannot be set over HTTP: {}",
            without_effect.join(", ")
        );
        warn!(log, "a setting has no effect"; "line" => line);
    }
    read(Rc::clone(&active), Some(sources)).await.map(Some)
}

impl Handler<Refresh> for ConfigListener {
    type Result = AtomicResponse<Self, bool>;

    fn handle(&mut self, _: Refresh, _: &mut Self::Context) -> Self::Result {
        let refreshing = refreshed(Rc::clone(&self.active), self.log.clone()).into_actor(self);
        AtomicResponse::new(Box::pin(refreshing.map(|refreshed, listener, _| {
            let candidate = match refreshed.transpose() {
                None => return true,
                // The store reports it.
                Some(Err(ReloadError::Store(_))) => return false,
                Some(candidate) => candidate,
            };
            if let Ok(Applied { changes, .. }) = listener.finish(candidate) {
                let order = listener
                    .active
                    .audit
                    .begin(Sender::known(None, "fleet"), "set_config");
                order.did(Done::of_config(&changes));
                order.finish(None);
            }
            true
        })))
    }
}
