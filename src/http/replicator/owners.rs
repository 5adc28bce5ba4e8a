//! Owners of documents and jobs: what users with the role `replicator` may do.
//!
//! SUMMARY   A user who is not an administrator reads, writes and controls only their own documents and jobs.
//! PROMISES  No such user reads a document of another user, or changes a revision of it.
//! SOURCE    couch_replicator_docs: before_doc_update/3; the owner is in `owner`.
//! DIFFERS   In CouchDB all users who may read the database see every document, with its credentials removed.

use serde_json::Value;

use super::super::HttpContext;
use super::super::access::Visitor;
use super::super::answer::{HttpResult, Refusal};
use super::Call;
use crate::replicator::document::members;

/// Refuses a document of another user, unless the sender is an administrator.
pub(super) async fn check(call: &Call, id: &str) -> HttpResult<()> {
    if call.person.is_admin {
        return Ok(());
    }
    let there = call
        .database()
        .store
        .document(id)
        .await?
        .filter(|document| !document.deleted);
    if there.is_none_or(|document| members(&document).text("owner") == call.person.name) {
        Ok(())
    } else {
        Err(Refusal::forbidden("this document belongs to another user"))
    }
}

/// Refuses a document that names another user, or roles, in `user_ctx`, unless the sender is an administrator.
pub(super) fn check_user(call: &Call, document: &Value) -> HttpResult<()> {
    let user = &document["user_ctx"];
    let is_own = user["name"].as_str() == call.person.name.as_deref();
    let has_roles = user["roles"]
        .as_array()
        .is_some_and(|roles| !roles.is_empty());
    if call.person.is_admin || user.is_null() || is_own && !has_roles {
        Ok(())
    } else {
        Err(Refusal::forbidden(
            "`user_ctx` may only name the user who writes the document, without roles",
        ))
    }
}

/// Returns whether the visitor owns a document.
pub(crate) async fn owns_document(
    visitor: &Visitor,
    id: &str,
    shared: &HttpContext,
) -> HttpResult<bool> {
    let owner = shared.replications.database().owner(id).await?;
    Ok(owner.is_some() && owner == visitor.name)
}
