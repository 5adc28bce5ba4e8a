//! The configuration over HTTP: read, set, unset, reload.
//!
//! SUMMARY   Values are strings, as in CouchDB. A value that is set overrides files, environment and options until
//!           the service ends (in a fleet: until it is deleted), even after a reload.
//! PROMISES  A value is validated like one in a file, together with all others. Keys that
//!           [`keys::refused_over_http`] names cannot be set here (CVE-2017-12636). Passwords are not shown.
//! SOURCE    chttpd_node: handle_node_req/1 for `_config`.
//! DIFFERS   CouchDB writes the value into its last file, and accepts any key.

use std::sync::Arc;

use actix_web::web::Path;
use blocking::Turns;
use serde_json::{Map, Value, json};

use super::access::Order;
use super::answer::{self, Answer, HttpResult, Refusal};
use super::body::{AtMost, ORDER_BYTES_MAX, no_thread};
use super::routes::shutting_down;
use super::{HttpContext, Shared};
use crate::audit::{Done, PendingOrder};
use crate::config::{Setting, keys, reload::Change};
use crate::messages::config_listener::{PlanReload, Reload, ReloadError, SetValue};
use store::fleet::Override;

/// Settings are listed for one request at a time.
static LISTS: Turns = Turns::new(1);

/// Returns what `read` takes from all settings. They are listed on another thread: ten thousand tenants take 50 ms.
async fn listed<T, R>(shared: &HttpContext, read: R) -> HttpResult<T>
where
    T: Send + 'static,
    R: FnOnce(Vec<Setting>) -> T + Send + 'static,
{
    let config = Arc::clone(&shared.config.borrow());
    LISTS
        .turn()
        .await
        .run("settings", move || read(config.settings()))
        .await
        .map_err(no_thread)
}

/// `GET /_node/_local/_config`.
pub(super) async fn everything(shared: Shared) -> Answer {
    let sections = listed(&shared, |settings| {
        let mut sections = Map::new();
        for setting in settings {
            let section = sections
                .entry(setting.section.as_str())
                .or_insert_with(|| json!({}));
            // Values are written as in the configuration file, as in CouchDB.
            section[&setting.key] = setting.plain().into();
        }
        sections
    });
    answer::ok(&sections.await?)
}

/// `GET /_node/_local/_config/SECTION`. The answer for an unknown section is an empty object, as in CouchDB.
pub(super) async fn section(name: Path<String>, shared: Shared) -> Answer {
    answer::ok(&values(&shared, keys::section_name(&name)).await?)
}

/// Returns the keys of a section, and their values as texts.
async fn values(shared: &HttpContext, section: String) -> HttpResult<Map<String, Value>> {
    listed(shared, move |settings| {
        settings
            .iter()
            .filter(|setting| setting.section == section)
            .map(|setting| (setting.key.clone(), setting.plain().into()))
            .collect()
    })
    .await
}

/// A section and a key of it.
type SettingPath = Path<(String, String)>;

/// `GET /_node/_local/_config/SECTION/KEY`.
pub(super) async fn value(place: SettingPath, shared: Shared) -> Answer {
    let place = keys::canonical(place.into_inner());
    answer::ok(&known(&shared, &place).await?)
}

/// `PUT /_node/_local/_config/SECTION/KEY`.
pub(super) async fn put(
    place: SettingPath,
    body: AtMost<ORDER_BYTES_MAX>,
    shared: Shared,
    order: Order,
) -> Answer {
    let value: String = serde_json::from_str(body.0.text()?).map_err(|_| {
        Refusal::bad_request("the body must be a JSON string, \"5000\" for example")
    })?;
    let place = keys::canonical(place.into_inner());
    set(place, Some(value), &shared, &order).await
}

/// `DELETE /_node/_local/_config/SECTION/KEY`.
pub(super) async fn delete(place: SettingPath, shared: Shared, order: Order) -> Answer {
    let place = keys::canonical(place.into_inner());
    known(&shared, &place).await?;
    set(place, None, &shared, &order).await
}

/// `POST /_node/_local/_config/_reload`.
pub(super) async fn reload(shared: Shared, order: Order) -> Answer {
    let changes = changed(shared.config_listener.call(Reload).await?)?;
    order.did(Done::of_config(&changes));
    answer::ok(&json!({"ok": true, "changes": changes}))
}

/// `POST /_node/_local/_config/_plan`: the changes that a reload would make.
pub(super) async fn plan(shared: Shared) -> Answer {
    answer::ok(&changed(shared.config_listener.call(PlanReload).await?)?)
}

/// Returns a value that exists.
async fn known(shared: &HttpContext, place: &(String, String)) -> HttpResult<Value> {
    values(shared, place.0.clone())
        .await?
        .remove(&place.1)
        .ok_or_else(|| Refusal::not_found("unknown_config_value"))
}

/// Sets or unsets a value, and answers with the previous one.
async fn set(
    (section, key): (String, String),
    value: Option<String>,
    shared: &HttpContext,
    order: &PendingOrder,
) -> Answer {
    // Only the owner of the configuration files may set these.
    if let Some(why) = keys::refused_over_http(&section, &key) {
        return Err(Refusal::forbidden(format!(
            "[{section}] {key} can be set only in files and the environment, because {why}: set it there, \
             and reload the configuration or restart the service"
        )));
    }
    let before = values(shared, section.clone()).await?.remove(&key);
    // A new pool, or other new section of a family, accepts keys that are fixed once it exists. Unsetting the last key
    // removes the section.
    let may_be_fixed = value.is_none() || keys::family(&section).is_some() && before.is_none();
    if keys::kind(&section, &key).is_some() && !keys::runtime(&section, &key) && !may_be_fixed {
        return Err(Refusal::bad_request(format!(
            "[{section}] {key} cannot change while the service runs: change it in a file and \
             restart the service"
        )));
    }
    let wanted = SetValue(Override {
        section,
        key,
        value,
    });
    let changes = changed(shared.config_listener.call(wanted).await?)?;
    order.did(Done::of_config(&changes));
    answer::ok(&before.unwrap_or_else(|| "".into()))
}

fn changed(result: Result<Vec<Change>, ReloadError>) -> HttpResult<Vec<Change>> {
    result.map_err(|error| match error {
        ReloadError::ShuttingDown => shutting_down(),
        ReloadError::Store(error) => error.into(),
        ReloadError::NotRead(_) => Refusal::unavailable("no_thread", error.to_string()),
        ReloadError::Config(_)
        | ReloadError::Refused(_)
        | ReloadError::Service(_)
        | ReloadError::Certificate(_)
        | ReloadError::Replication(_)
        | ReloadError::NotSet { .. }
        | ReloadError::NoSources => Refusal::bad_request(error),
    })
}
