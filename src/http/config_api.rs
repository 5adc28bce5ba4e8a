//! The configuration over HTTP: read, set, unset, reload.
//!
//! SUMMARY   Values are strings, as in CouchDB. A value that is set overrides files, environment and options until
//!           the service ends (in a fleet: until it is deleted), even after a reload.
//! PROMISES  A value is validated like one in a file, together with all others. Keys that
//!           [`keys::refused_over_http`] names cannot be set here (CVE-2017-12636). Passwords are not shown.
//! SOURCE    chttpd_node: handle_node_req/1 for `_config`.
//! DIFFERS   CouchDB writes the value into its last file, and accepts any key.

use actix_web::web::{Data, Path};
use serde_json::{Map, Value, json};

use super::HttpContext;
use super::access::Order;
use super::answer::{self, Answer, Refusal};
use super::body::{AtMost, ORDER_BYTES_MAX};
use super::routes::shutting_down;
use crate::audit::{Done, PendingOrder};
use crate::config::keys;
use crate::config::{Config, Setting, reload::Change};
use crate::messages::config_listener::{PlanReload, Reload, ReloadError, SetValue};

/// `GET /_node/_local/_config`.
pub(super) async fn everything(shared: Data<HttpContext>) -> Answer {
    let mut sections = Map::new();
    for setting in shared.config().settings() {
        let name = setting.section.as_str();
        let section = sections.entry(name).or_insert_with(|| json!({}));
        // Values are written as in the configuration file, as in CouchDB.
        section[&setting.key] = setting.plain().into();
    }
    Ok(answer::ok(&sections))
}

/// `GET /_node/_local/_config/SECTION`. The answer for an unknown section is an empty object, as in CouchDB.
pub(super) async fn section(name: Path<String>, shared: Data<HttpContext>) -> Answer {
    let all = shared.config().settings();
    let ours = all.iter().filter(|setting| setting.section == *name);
    let texts = ours.map(|setting| (setting.key.clone(), setting.plain().into()));
    Ok(answer::ok(&texts.collect::<Map<String, Value>>()))
}

/// A section and a key of it.
type SettingPath = Path<(String, String)>;

/// `GET /_node/_local/_config/SECTION/KEY`.
pub(super) async fn value(place: SettingPath, shared: Data<HttpContext>) -> Answer {
    Ok(answer::ok(&known(&shared.config(), &place.0, &place.1)?))
}

/// `PUT /_node/_local/_config/SECTION/KEY`.
pub(super) async fn put(
    place: SettingPath,
    body: AtMost<ORDER_BYTES_MAX>,
    shared: Data<HttpContext>,
    order: Order,
) -> Answer {
    let value: String = serde_json::from_str(body.0.text()?).map_err(|_| {
        Refusal::bad_request("the body must be a JSON string, \"5000\" for example")
    })?;
    set(place, Some(value), &shared, &order).await
}

/// `DELETE /_node/_local/_config/SECTION/KEY`.
pub(super) async fn delete(place: SettingPath, shared: Data<HttpContext>, order: Order) -> Answer {
    known(&shared.config(), &place.0, &place.1)?;
    set(place, None, &shared, &order).await
}

/// `POST /_node/_local/_config/_reload`.
pub(super) async fn reload(shared: Data<HttpContext>, order: Order) -> Answer {
    let changes = changed(shared.config_listener.call(Reload).await?)?;
    order.did(Done::of_config(&changes));
    Ok(answer::ok(&json!({"ok": true, "changes": changes})))
}

/// `POST /_node/_local/_config/_plan`: the changes that a reload would make.
pub(super) async fn plan(shared: Data<HttpContext>) -> Answer {
    let changes = changed(shared.config_listener.call(PlanReload).await?)?;
    Ok(answer::ok(&changes))
}

fn find(config: &Config, section: &str, key: &str) -> Option<String> {
    let all = config.settings();
    let is_it = |setting: &&Setting| setting.section == section && setting.key == key;
    all.iter().find(is_it).map(Setting::plain)
}

fn known(config: &Config, section: &str, key: &str) -> Result<String, Refusal> {
    find(config, section, key).ok_or_else(|| Refusal::not_found("unknown_config_value"))
}

/// Refuses keys that only the owner of the configuration files may set.
fn check_settable(section: &str, key: &str) -> Result<(), Refusal> {
    match keys::refused_over_http(section, key) {
        Some(why) => Err(Refusal::forbidden(format!(
            "[{section}] {key} can be set only in files and the environment, because {why}: set it there, \
             and reload the configuration or restart the service"
        ))),
        None => Ok(()),
    }
}

/// Sets or unsets a value, and answers with the previous one.
async fn set(
    place: SettingPath,
    value: Option<String>,
    shared: &HttpContext,
    order: &PendingOrder,
) -> Answer {
    let (section, key) = place.into_inner();
    check_settable(&section, &key)?;
    let before = find(&shared.config(), &section, &key);
    // A new pool, or other new section of a family, accepts keys that are fixed once it exists.
    let is_new = keys::family(&section).is_some() && before.is_none();
    if keys::kind(&section, &key).is_some() && !keys::runtime(&section, &key) && !is_new {
        return Err(Refusal::bad_request(format!(
            "[{section}] {key} cannot change while the service runs: change it in a file and \
             restart the service"
        )));
    }
    let wanted = SetValue {
        section,
        key,
        value,
    };
    let changes = changed(shared.config_listener.call(wanted).await?)?;
    order.did(Done::of_config(&changes));
    Ok(answer::ok(&before.unwrap_or_default()))
}

fn changed(result: Result<Vec<Change>, ReloadError>) -> Result<Vec<Change>, Refusal> {
    result.map_err(|error| match error {
        ReloadError::ShuttingDown => shutting_down(),
        ReloadError::Store(error) => error.into(),
        ReloadError::NotRead(_) => Refusal::unavailable("no_thread", error.to_string()),
        ReloadError::Config(_)
        | ReloadError::Refused(_)
        | ReloadError::Service(_)
        | ReloadError::Certificate(_)
        | ReloadError::NotSet { .. }
        | ReloadError::NoSources => Refusal::bad_request(error),
    })
}
