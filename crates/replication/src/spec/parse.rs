//! Parses the body of a replicator document or of a `_replicate` call.
//!
//! SOURCE    couch_replicator_parse.

use std::time::SystemTime;

use serde_json::Value;

use super::options::boolean;
use super::{
    Defaults, DocRef, EndpointSpec, Members, Options, Replication, SpecError, SpecErrorKind,
    UserCtx,
};
use crate::id::ReplicationId;

/// The request in the body of a `_replicate` call.
#[derive(Clone, Debug)]
pub enum CallBody {
    /// Start this replication.
    Start(Box<Replication>),
    /// End the replication with this id.
    CancelId(ReplicationId),
    /// End the replication that was started with the same body.
    Cancel(Box<Replication>),
}

impl SpecError {
    fn new(kind: SpecErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            side: None,
        }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(SpecErrorKind::BadRequest, text)
    }

    pub(super) fn invalid(text: impl Into<String>) -> Self {
        Self::new(SpecErrorKind::InvalidReplication, text)
    }
}

impl CallBody {
    /// Parses the body of a user's `_replicate` call.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn parse(body: &Value, defaults: &Defaults, user: UserCtx) -> Result<Self, SpecError> {
        let members = members(body)?;
        let cancel = boolean(members, "cancel", false)?;
        if cancel && let Some(id) = cancel_id(members)? {
            return Ok(Self::CancelId(id));
        }
        let replication = Box::new(Replication::parse(body, defaults, user, None)?);
        Ok(if cancel {
            Self::Cancel(replication)
        } else {
            Self::Start(replication)
        })
    }
}

fn members(body: &Value) -> Result<&Members, SpecError> {
    body.as_object()
        .ok_or_else(|| SpecError::bad("a replication must be a JSON object"))
}

fn cancel_id(members: &Members) -> Result<Option<ReplicationId>, SpecError> {
    let mut names = ["id", "_local_id", "replication_id"].into_iter();
    let Some((name, id)) = names.find_map(|name| Some((name, members.get(name)?))) else {
        return Ok(None);
    };
    let wrong = || SpecError::bad(format!("parameter `{name}` must be a string"));
    let Ok(id) = id.as_str().ok_or_else(wrong)?.parse();
    Ok(Some(id))
}

impl Replication {
    /// Parses the body of a replicator document, or of a `_replicate` call. Unknown members are ignored.
    ///
    /// # Errors
    /// See [`SpecError`]; the messages are CouchDB's.
    pub fn parse(
        body: &Value,
        defaults: &Defaults,
        user: UserCtx,
        doc: Option<DocRef>,
    ) -> Result<Self, SpecError> {
        let members = members(body)?;
        let (source_proxy, target_proxy) = proxies(members)?;
        // CouchDB checks `cancel` in documents too, although it has a meaning only in calls.
        boolean(members, "cancel", false)?;
        let options = Options::parse(members, defaults)?;
        let side = |name: &'static str, proxy| {
            EndpointSpec::parse(name, members.get(name), proxy, defaults).map_err(|error| {
                SpecError {
                    side: Some(name),
                    ..error
                }
            })
        };
        let mark = members.get("managed_by").and_then(Value::as_str);
        Ok(Self {
            source: side("source", source_proxy)?,
            target: side("target", target_proxy)?,
            options,
            user,
            managed_by: doc.as_ref().and(mark).map(Box::from),
            doc,
            start_time: SystemTime::now(),
        })
    }
}

impl UserCtx {
    /// Parses the `user_ctx` of a body; an anonymous user if there is none.
    pub fn of_body(body: &Value) -> Self {
        let user = &body["user_ctx"];
        let roles = user["roles"].as_array().map(Vec::as_slice);
        let texts = roles.unwrap_or_default().iter().filter_map(Value::as_str);
        Self {
            name: user["name"].as_str().map(str::to_owned),
            roles: texts.map(str::to_owned).collect(),
        }
    }
}

/// Returns the proxies of source and target. An empty string means no proxy.
fn proxies(members: &Members) -> Result<(Option<&str>, Option<&str>), SpecError> {
    let proxy = |name| match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(url)) => Ok(Some(&**url).filter(|url| !url.is_empty())),
        Some(_) => Err(SpecError::invalid("proxy has an invalid url")),
    };
    let (both, source, target) = (
        proxy("proxy")?,
        proxy("source_proxy")?,
        proxy("target_proxy")?,
    );
    let exclusive = |other| {
        Err(SpecError::bad(format!(
            "`proxy` is mutually exclusive with `{other}`"
        )))
    };
    match (both, source, target) {
        (Some(_), Some(_), _) => exclusive("source_proxy"),
        (Some(_), None, Some(_)) => exclusive("target_proxy"),
        (Some(both), None, None) => Ok((Some(both), Some(both))),
        (None, source, target) => Ok((source, target)),
    }
}

#[cfg(test)]
mod tests;
