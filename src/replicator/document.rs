//! What may be written into the replicator database, and what a reader sees.
//!
//! SUMMARY   [`Incoming`] is a document as sent; [`check`] accepts or refuses it; [`shown`] is what a reader sees.
//! PROMISES  Only an admin and the owner can read credentials. Other readers get documents without
//!           credentials, and cannot write them back like that.
//! SOURCE    couch_doc: from_json_obj/1, validate_docid/2; couch_replicator_docs: before_doc_update/3,
//!           after_doc_read/2.
//! DIFFERS   An error's reason is always plain text; CouchDB prints some as Erlang terms.

use std::sync::LazyLock;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::members::DocMembers;
use super::state;
use crate::operations::LONG_NAME_BYTES_MAX;
use replication::spec::{Defaults, DocRef, Replication, UserCtx, strip_url};
use store::{Document, Revision};

/// Members that other databases send with a document, and that have no meaning in a write.
const IGNORED_MEMBERS: &[&str] = &[
    "_revisions",
    "_revs_info",
    "_conflicts",
    "_deleted_conflicts",
    "_local_seq",
];

/// Why a document is refused. The writer is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocumentError {
    /// It is malformed (400 `bad_request`).
    #[error("{0}")]
    BadRequest(String),
    /// Its id is illegal (400 `illegal_docid`).
    #[error("{0}")]
    IllegalId(String),
    /// It has an unknown or invalid reserved member (400 `doc_validation`).
    #[error("{0}")]
    Special(String),
    /// It does not request a replication, or belongs to another user (403 `forbidden`).
    #[error("{0}")]
    Forbidden(String),
    /// Its writer did not name its latest revision (409 `conflict`).
    #[error("Document update conflict.")]
    Conflict,
}

impl DocumentError {
    /// Returns CouchDB's name for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad_request",
            Self::IllegalId(_) => "illegal_docid",
            Self::Special(_) => "doc_validation",
            Self::Forbidden(_) => "forbidden",
            Self::Conflict => "conflict",
        }
    }
}

/// The kind of a document, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocKind {
    /// It requests a replication.
    Replication,
    /// `_design/..`: stored without effect.
    Design,
    /// `_local/..`: stored separately, without a history.
    Local,
}

/// Returns the kind of document for this id.
///
/// # Errors
/// The id is illegal.
pub(crate) fn kind_of(id: &str) -> Result<DocKind, DocumentError> {
    let illegal = |text: &str| Err(DocumentError::IllegalId(text.to_owned()));
    if id.is_empty() {
        return illegal("Document id must not be empty");
    }
    if id.len() > LONG_NAME_BYTES_MAX {
        return illegal("Document id is too long");
    }
    for (prefix, kind) in [("_design/", DocKind::Design), ("_local/", DocKind::Local)] {
        match id.strip_prefix(prefix) {
            Some("") => return illegal(&format!("Illegal document id `{prefix}`")),
            Some(_) => return Ok(kind),
            None => {}
        }
    }
    if id.starts_with('_') {
        illegal("Only reserved document ids may start with underscore.")
    } else {
        Ok(DocKind::Replication)
    }
}

/// A writer or a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Person {
    /// The name, if logged in.
    pub name: Option<String>,
    /// Whether they may do everything.
    pub is_admin: bool,
}

/// A document as sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Incoming {
    /// The id in it, if any.
    pub id: Option<String>,
    /// The revision that its writer knows: as text, because revisions of `_local/` documents have another form.
    pub rev: Option<String>,
    /// Whether it is a deletion.
    pub deleted: bool,
    /// All other members.
    pub members: DocMembers,
}

impl Incoming {
    /// Parses a document.
    ///
    /// # Errors
    /// It is not a JSON object, its id is illegal, or a member with a leading underscore is invalid.
    pub fn of(text: &str) -> Result<Self, DocumentError> {
        let mut members = DocMembers::parse(text)
            .map_err(|_| DocumentError::BadRequest("Document must be a JSON object".to_owned()))?;
        let mut text = |name: &str, wrong: DocumentError| match members.remove(name) {
            None => Ok(None),
            Some(raw) => {
                let text: Result<String, _> = serde_json::from_str(raw.get());
                text.map(Some).map_err(|_| wrong)
            }
        };
        let id = text(
            "_id",
            DocumentError::IllegalId("Document id must be a string".to_owned()),
        )?;
        if let Some(id) = &id {
            kind_of(id)?;
        }
        let rev = text("_rev", invalid_rev())?;
        let deleted: bool = members
            .remove("_deleted")
            .map_or(Ok(false), |raw| raw.get().parse())
            .map_err(|_| DocumentError::Special("`_deleted` must be a boolean".to_owned()))?;
        members.retain(|name, text| match name {
            "_attachments" => text.get() != "{}",
            name => !IGNORED_MEMBERS.contains(&name),
        });
        for name in members.names().filter(|name| name.starts_with('_')) {
            let text = match name {
                "_attachments" => "attachments are not kept in the replicator database".to_owned(),
                name if state::MEMBERS.contains(&name) => continue,
                name => format!("Bad special document member: {name}"),
            };
            return Err(DocumentError::Special(text));
        }
        Ok(Self {
            id,
            rev,
            deleted,
            members,
        })
    }
}

/// The error of an invalid revision.
pub(crate) fn invalid_rev() -> DocumentError {
    DocumentError::BadRequest("Invalid rev format".to_owned())
}

/// Accepts a document, and returns its kind. One that requests a replication and has no owner gets its writer as owner;
/// one marked as failed may request an invalid replication.
///
/// # Errors
/// Its id is illegal; or it does not request a replication, or belongs to another user.
pub fn check(
    id: &str,
    incoming: &mut Incoming,
    writer: &Person,
    defaults: &Defaults,
) -> Result<DocKind, DocumentError> {
    let kind = kind_of(id)?;
    if kind != DocKind::Replication || incoming.deleted {
        return Ok(kind);
    }
    set_owner(&mut incoming.members, writer)?;
    let state = incoming.members.text(state::STATE);
    if state.as_deref() == Some(state::FAILED) {
        return Ok(kind);
    }
    parse(id, &incoming.members, defaults).map_err(DocumentError::Forbidden)?;
    Ok(kind)
}

/// Parses the replication that a document requests.
///
/// # Errors
/// Why it requests no valid replication, in words.
pub fn parse(id: &str, members: &DocMembers, defaults: &Defaults) -> Result<Replication, String> {
    let body = &members.value();
    Replication::parse(body, defaults, UserCtx::of_body(body), Some(doc_ref(id)))
        .map_err(|error| error.to_string())
}

/// Returns the reference to a document of this database.
pub(crate) fn doc_ref(id: &str) -> DocRef {
    DocRef {
        database: super::NAME.to_owned(),
        id: id.to_owned(),
    }
}

/// Returns the replication that a document requests under the default configuration, which allows the most; `None` if
/// it requests none.
pub(crate) fn asked_by(id: &str, members: &DocMembers) -> Option<Replication> {
    static DEFAULTS: LazyLock<Defaults> = LazyLock::new(|| super::defaults(&Default::default()));
    parse(id, members, &DEFAULTS).ok()
}

fn set_owner(members: &mut DocMembers, writer: &Person) -> Result<(), DocumentError> {
    let name: Value = writer.name.clone().into();
    match members.get("owner") {
        None => {}
        Some(owner) if owner == name => return Ok(()),
        Some(Value::Null) if writer.is_admin => {}
        Some(_) if writer.is_admin => return Ok(()),
        Some(_) => {
            return Err(DocumentError::Forbidden(
                "Can't update replication documents from other users.".to_owned(),
            ));
        }
    }
    members.set("owner", name);
    Ok(())
}

/// Returns a document as this reader may see it, with its id and revision. If credentials are removed, the revision
/// gets another hash, always the same for that revision, so that the reader cannot write the document back.
pub fn shown(document: &Document, reader: &Person) -> DocMembers {
    let mut members = members(document);
    let mut revision = document.revision.clone();
    let reads_credentials =
        reader.is_admin || reader.name.is_some() && members.text("owner") == reader.name;
    if !reads_credentials && strip(&mut members) {
        revision.hash = Revision::after(Some(&revision), false, "stripped").hash;
    }
    with_head(
        &document.id,
        &revision.to_string(),
        document.deleted,
        members,
    )
}

/// Removes the credentials. Returns whether there were any.
pub(super) fn strip(members: &mut DocMembers) -> bool {
    let mut is_stripped = false;
    for name in ["source", "target", "proxy", "source_proxy", "target_proxy"] {
        if let Some(stripped) = members.raw(name).and_then(without_credentials) {
            members.set(name, stripped);
            is_stripped = true;
        }
    }
    is_stripped
}

/// Returns an endpoint without the parts that only its owner may read; `None` if it has none.
fn without_credentials(endpoint: &RawValue) -> Option<Box<RawValue>> {
    let stripped = match (
        serde_json::from_str::<String>(endpoint.get()),
        DocMembers::parse(endpoint.get()),
    ) {
        (Ok(url), _) => to_raw_value(&strip_url(&url)),
        (_, Ok(mut members)) => {
            members.retain(|name, _| !matches!(name, "headers" | "auth"));
            if let Some(url) = members.raw("url").and_then(without_credentials) {
                members.set("url", url);
            }
            to_raw_value(&members)
        }
        _ => return None,
    };
    let stripped = stripped.expect("document: strings and objects can always be written");
    (stripped.get() != endpoint.get()).then_some(stripped)
}

/// Returns a document's members other than its id and revision.
pub fn members(document: &Document) -> DocMembers {
    DocMembers::parse(&document.body).unwrap_or_default()
}

/// Prepends `_id`, `_rev` and, for a deletion, `_deleted`.
pub(crate) fn with_head(id: &str, rev: &str, deleted: bool, members: DocMembers) -> DocMembers {
    let mut whole = DocMembers::default().with("_id", id).with("_rev", rev);
    if deleted {
        whole.set("_deleted", true);
    }
    whole.extend(members);
    whole
}

#[cfg(test)]
mod tests;
