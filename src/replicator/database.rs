//! The replicator database: the store, with the rules of its documents.

use std::sync::Arc;

use tokio::sync::watch;

use super::document::{
    DocumentError, Incoming, Person, Sort, check, invalid_rev, sort_of, with_head,
};
use super::members::Members;
use super::states::DocStates;
use crate::config::Config;
use crate::store::{Edit, Leaf, Merge, Revision, Store, StoreError};

/// The name of the database.
pub const NAME: &str = "_replicator";

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    store: Store,
    states: Arc<DocStates>,
    config: watch::Receiver<Arc<Config>>,
}

/// A document that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its id.
    pub id: String,
    /// Its new revision.
    pub rev: String,
}

/// A document that was not written: its id, and why.
pub type Refused = (String, DocumentError);

impl Database {
    /// Makes a database of a store, which tells `states` of its documents.
    pub fn new(store: Store, states: Arc<DocStates>, config: watch::Receiver<Arc<Config>>) -> Self {
        Self {
            store,
            states,
            config,
        }
    }

    /// Returns the states of the documents.
    pub fn states(&self) -> &Arc<DocStates> {
        &self.states
    }

    /// Returns where it is kept.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Writes documents that have ids; each has its own result, in the same order.
    ///
    /// # Errors
    /// See [`StoreError`]; then none is written.
    pub async fn write(
        &self,
        documents: Vec<Incoming>,
        writer: &Person,
    ) -> Result<Vec<Result<Written, Refused>>, StoreError> {
        let defaults = super::defaults(&self.config.borrow().replicator);
        let mut results: Vec<Option<Result<Written, Refused>>> = Vec::new();
        let (mut edits, mut places) = (Vec::new(), Vec::new());
        for mut incoming in documents {
            let id = incoming.id.take().unwrap_or_default();
            let checked = check(&id, &mut incoming, writer, &defaults).and_then(|()| sort_of(&id));
            let edit = match checked {
                Ok(Sort::Local) => {
                    let written = self.write_local(&id, incoming).await?;
                    results.push(Some(written.map_err(|error| (id, error))));
                    continue;
                }
                Ok(_) => edit(&id, incoming),
                Err(error) => Err(error),
            };
            match edit {
                Ok(edit) => {
                    places.push(results.len());
                    edits.push(edit);
                    results.push(None);
                }
                Err(error) => results.push(Some(Err((id, error)))),
            }
        }
        let ids: Vec<String> = edits.iter().map(|edit| edit.id.clone()).collect();
        if !edits.is_empty() {
            let written = self.store.edit(edits).await?;
            for ((place, id), result) in places.into_iter().zip(ids).zip(written) {
                results[place] = Some(match result {
                    Ok(revision) => Ok(Written {
                        id,
                        rev: revision.to_string(),
                    }),
                    Err(_) => Err((id, DocumentError::Conflict)),
                });
            }
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// Takes in documents as another database has them, with their revisions (`new_edits=false`).
    /// They are not looked at: what asks for no replication fails when its turn comes. Each has its own
    /// result, in the same order.
    ///
    /// # Errors
    /// See [`StoreError`]; then none is written, but those of `_local/`.
    pub async fn merge(
        &self,
        documents: Vec<Incoming>,
    ) -> Result<Vec<Result<Written, Refused>>, StoreError> {
        let mut results = Vec::with_capacity(documents.len());
        let (mut merges, mut places) = (Vec::new(), Vec::new());
        for mut incoming in documents {
            let id = incoming.id.take().unwrap_or_default();
            let result = match sort_of(&id) {
                Err(error) => Err(error),
                // They have no history, there as here.
                Ok(Sort::Local) => self.write_local(&id, incoming).await?,
                Ok(_) => incoming.history().map(|history| {
                    let rev = history.revision().to_string();
                    let leaf = Leaf {
                        history,
                        deleted: incoming.deleted,
                        body: incoming.members.to_string(),
                    };
                    let id = id.clone();
                    places.push(results.len());
                    merges.push(Merge {
                        id: id.clone(),
                        leaf,
                    });
                    Written { id, rev }
                }),
            };
            results.push(result.map_err(|error| (id, error)));
        }
        if !merges.is_empty() {
            let merged = self.store.merge(merges).await?;
            for (place, merged) in places.into_iter().zip(merged) {
                if let (Err(error), Ok(written)) = (merged, &results[place]) {
                    let refused = DocumentError::Forbidden(error.to_string());
                    results[place] = Err((written.id.clone(), refused));
                }
            }
        }
        Ok(results)
    }

    async fn write_local(
        &self,
        id: &str,
        incoming: Incoming,
    ) -> Result<Result<Written, DocumentError>, StoreError> {
        let expected = match incoming.rev.as_deref().map(local_number).transpose() {
            Ok(expected) => expected,
            Err(error) => return Ok(Err(error)),
        };
        let body = (!incoming.deleted).then(|| incoming.members.to_string());
        let written = self.store.edit_local(local_name(id), expected, body);
        Ok(match written.await? {
            Ok(number) => Ok(Written {
                id: id.to_owned(),
                rev: local_rev(number, incoming.deleted),
            }),
            Err(_) => Err(DocumentError::Conflict),
        })
    }

    /// Returns a `_local/` document with its id and revision.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn local(&self, id: &str) -> Result<Option<Members>, StoreError> {
        let found = self.store.local(local_name(id)).await?;
        Ok(found.map(|found| {
            let members = Members::parse(&found.body).unwrap_or_default();
            with_head(id, &local_rev(found.number, false), false, members)
        }))
    }
}

fn local_name(id: &str) -> &str {
    id.strip_prefix("_local/").unwrap_or(id)
}

/// CouchDB says `0-0` of a `_local/` document that was deleted.
fn local_rev(number: u64, deleted: bool) -> String {
    format!("0-{}", if deleted { 0 } else { number })
}

fn local_number(rev: &str) -> Result<u64, DocumentError> {
    let number = rev.strip_prefix("0-").and_then(|text| text.parse().ok());
    number.ok_or_else(invalid_rev)
}

fn edit(id: &str, incoming: Incoming) -> Result<Edit, DocumentError> {
    let expected = incoming.rev.as_deref().map(str::parse::<Revision>);
    Ok(Edit {
        id: id.to_owned(),
        expected: expected.transpose().map_err(|_| invalid_rev())?,
        deleted: incoming.deleted,
        body: incoming.members.to_string(),
    })
}
