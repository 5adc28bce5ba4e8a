//! Whose a document, or a job, is: what users with the role `replicator` are held to.
//!
//! SUMMARY   Who is no administrator reads, writes and orders what is their own.
//! PROMISES  A document of somebody else's is not changed under any revision, and not read.
//! SOURCE    couch_replicator_docs: before_doc_update/3; the owner stands in `owner`.
//! DIFFERS   In CouchDB whoever may read the database sees every document, without credentials.

use serde_json::Value;

use super::super::Shared;
use super::super::access::Visitor;
use super::super::answer::Refusal;
use super::Call;
use crate::auth::rights::Right;
use crate::replicator::document::members;

/// Lets administrators pass, and others if the document is theirs or is not there.
pub(super) async fn check(call: &Call<'_>, id: &str) -> Result<(), Refusal> {
    if call.person.is_admin {
        return Ok(());
    }
    let found = call.database.store().document(id).await?;
    let there = found.filter(|document| !document.deleted);
    match there.is_none_or(|document| members(&document).text("owner") == call.person.name) {
        true => Ok(()),
        false => Err(Refusal::forbidden("this document belongs to another user")),
    }
}

/// Lets administrators pass, and others if the document does not speak for somebody else.
pub(super) fn check_user(call: &Call<'_>, document: &Value) -> Result<(), Refusal> {
    let user = &document["user_ctx"];
    let is_own = user["name"].as_str() == call.person.name.as_deref();
    let has_roles = user["roles"]
        .as_array()
        .is_some_and(|roles| !roles.is_empty());
    match call.person.is_admin || user.is_null() || is_own && !has_roles {
        true => Ok(()),
        false => Err(Refusal::forbidden(
            "`user_ctx` may only name the user who writes the document, without roles",
        )),
    }
}

/// Returns whether a document, by its id, is the visitor's.
pub(in crate::http) async fn owns_document(
    visitor: &Visitor,
    id: &str,
    shared: &Shared,
) -> Result<bool, Refusal> {
    let found = shared.replications.database().store().document(id).await?;
    let owner = found.and_then(|document| members(&document).text("owner"));
    Ok(owner.is_some() && owner == visitor.name)
}

/// Returns whether a job, as users see it, is the visitor's: by its document, or by who asked for it.
pub(in crate::http) async fn owns_job(
    visitor: &Visitor,
    job: &Value,
    shared: &Shared,
) -> Result<bool, Refusal> {
    match job["doc_id"].as_str() {
        Some(id) => owns_document(visitor, id, shared).await,
        None => Ok(job["user"].is_string() && job["user"].as_str() == visitor.name.as_deref()),
    }
}

/// Lets who has the right pass, and others if the job is theirs; for them any other is not there.
pub(in crate::http) async fn check_job(
    visitor: &Visitor,
    right: Right,
    id: &str,
    shared: &Shared,
) -> Result<(), Refusal> {
    if visitor.may(right) {
        return Ok(());
    }
    visitor.needs(Right::Replicate)?;
    let job = shared.replications.job(id).await?;
    match owns_job(visitor, &job, shared).await? {
        true => Ok(()),
        false => Err(crate::actors::replicator_api::ReplicatorError::Missing.into()),
    }
}
