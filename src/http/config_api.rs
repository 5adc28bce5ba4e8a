//! The configuration over HTTP: read, set, take back, read again from its files.
//!
//! SUMMARY   Values are texts, as in CouchDB. What is set stands on top of files, environment and
//!           options until the service ends, also after a reload.
//! PROMISES  A value is held to the same rules as one in a file, together with all others. What
//!           [`refused_over_http`] names cannot be set here (CVE-2017-12636). Passwords are not
//!           shown.
//! SOURCE    chttpd_node: handle_node_req/1 for `_config`.
//! DIFFERS   CouchDB writes what is set into its last file, and takes any key.

use actix_web::http::Method;
use actix_web::{HttpRequest, web};
use serde_json::{Map, Value, json};

use super::answer::{self, Answer, Refusal};
use super::request::allow;
use super::{Shared, body};
use crate::config::keys;
use crate::config::{Config, Setting, refused_over_http, reload::Change};
use crate::messages::config_listener::{Reload, ReloadError, SetValue};

pub(super) async fn answer(
    place: &[&str],
    request: &HttpRequest,
    payload: web::Payload,
    shared: &Shared,
) -> Answer {
    const GET: &[Method] = &[Method::GET];
    match place {
        [] => {
            allow(request, GET)?;
            Ok(answer::ok(&everything(&shared.config())))
        }
        ["_reload"] => {
            allow(request, &[Method::POST])?;
            reload(shared).await
        }
        [section] => {
            allow(request, GET)?;
            // CouchDB has an empty object for a section that it does not know.
            Ok(answer::ok(&self::section(&shared.config(), section)))
        }
        [section, key] => {
            allow(request, &[Method::GET, Method::PUT, Method::DELETE])?;
            match *request.method() {
                Method::PUT => {
                    let body =
                        body::read_at_most(body::ORDER_BYTES_MAX, request, payload, shared).await?;
                    let value: String = serde_json::from_str(body.text()?).map_err(|_| {
                        Refusal::bad_request("the body must be a JSON string, \"5000\" for example")
                    })?;
                    set(section, key, Some(value), shared).await
                }
                Method::DELETE => {
                    known(&shared.config(), section, key)?;
                    set(section, key, None, shared).await
                }
                _ => Ok(answer::ok(&known(&shared.config(), section, key)?)),
            }
        }
        _ => Err(Refusal::not_found("missing: there is nothing at this path")),
    }
}

/// Returns a value as CouchDB writes it: the text in a file.
fn text(setting: &Setting) -> String {
    setting.plain()
}

fn everything(config: &Config) -> Value {
    let mut sections = Map::new();
    for setting in config.settings() {
        let name = setting.section.as_ref();
        let section = sections.entry(name).or_insert_with(|| json!({}));
        section[&setting.key] = text(&setting).into();
    }
    sections.into()
}

fn section(config: &Config, name: &str) -> Value {
    let all = config.settings();
    let ours = all.iter().filter(|setting| setting.section == name);
    let texts: Map<String, Value> = ours
        .map(|setting| (setting.key.clone(), text(setting).into()))
        .collect();
    texts.into()
}

fn find(config: &Config, section: &str, key: &str) -> Option<String> {
    let all = config.settings();
    let found = all
        .iter()
        .find(|setting| setting.section == section && setting.key == key);
    found.map(text)
}

fn known(config: &Config, section: &str, key: &str) -> Result<String, Refusal> {
    find(config, section, key).ok_or_else(|| Refusal::not_found("unknown_config_value"))
}

/// Refuses what nobody may set who does not own the files.
fn check_settable(section: &str, key: &str) -> Result<(), Refusal> {
    match refused_over_http(section, key) {
        Some(why) => Err(Refusal::forbidden(format!(
            "[{section}] {key} comes from files and the environment only, for {why}: set it there, \
             and reload the configuration or restart the service"
        ))),
        None => Ok(()),
    }
}

/// Sets a value or takes it back, and answers with the one before.
async fn set(section: &str, key: &str, value: Option<String>, shared: &Shared) -> Answer {
    check_settable(section, key)?;
    // A pool that is new may be given what it then keeps.
    let is_new = keys::family(section).is_some() && find(&shared.config(), section, key).is_none();
    if keys::kind(section, key).is_some() && !keys::runtime(section, key) && !is_new {
        return Err(Refusal::bad_request(format!(
            "[{section}] {key} cannot change while the service runs: change it in a file and \
             restart the service"
        )));
    }
    let before = find(&shared.config(), section, key).unwrap_or_default();
    let order = SetValue {
        section: section.to_owned(),
        key: key.to_owned(),
        value,
    };
    let set = shared
        .gateway
        .run(|inside| async move { inside.config.address().send(order).await });
    changed(set.await?)?;
    Ok(answer::ok(&before))
}

async fn reload(shared: &Shared) -> Answer {
    let reloaded = shared
        .gateway
        .run(|inside| async move { inside.config.address().send(Reload).await });
    let changes = changed(reloaded.await?)?;
    Ok(answer::ok(&json!({"ok": true, "changes": changes})))
}

type Changed = Result<Result<Vec<Change>, ReloadError>, actix::MailboxError>;

fn changed(result: Changed) -> Result<Vec<Change>, Refusal> {
    match result.unwrap_or(Err(ReloadError::ShuttingDown)) {
        Ok(changes) => Ok(changes),
        Err(ReloadError::ShuttingDown) => Err(super::routes::shutting_down()),
        Err(error @ ReloadError::NotRead(_)) => {
            Err(Refusal::unavailable("no_thread", error.to_string()))
        }
        Err(error) => Err(Refusal::bad_request(error)),
    }
}
