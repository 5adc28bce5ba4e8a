//! `index_docs`: documents become entries of a text index.
//!
//! SOURCE    dreyfus_index_updater and nouveau_index_updater: their prompts.
//! DIFFERS   Documents are pipelined over one process.

use bytes::Bytes;

use super::acquire::give_back;
use super::compile::accepted;
use super::decode::{broken, document_id, elements};
use super::pipeline::pipeline;
use super::{FunctionError, QueryServers};
use crate::messages::client_error::Place;
use crate::messages::function::{IndexDocs, Json};
use crate::query_server::abilities::Ability;
use crate::query_server::prompt;

impl QueryServers {
    /// Makes index entries of documents (`index_docs`): a list of entries for each document.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn index_docs(&self, call: &IndexDocs) -> Result<Vec<Json>, FunctionError> {
        let timeout = call.at.timeout;
        let place = |doc: Option<&Json>| Place {
            function: Some("index".to_owned()),
            doc: doc.and_then(|doc| document_id(doc)),
            ..Place::default()
        };
        let (add_fun, command) = if call.nouveau {
            (
                prompt::line(&("add_fun", &call.fun, "nouveau")),
                "nouveau_index_doc",
            )
        } else {
            (prompt::line(&("add_fun", &call.fun)), "index_doc")
        };
        let want = call.at.want();
        let able = self.require(&call.at.language, Ability::IndexDoc).await;
        able.map_err(|error| error.at(place(None)))?;
        let begun = self.prompt_clean(&want, add_fun, timeout).await;
        let (lease, answer) = begun.map_err(|error| error.at(place(None)))?;
        let mut result = answer
            .map_err(FunctionError::from)
            .and_then(|answer| accepted(&answer))
            .map_err(|error| error.at(place(None)));
        let mut entries = Vec::with_capacity(call.docs.len());
        if result.is_ok() {
            let commands = call.docs.iter().map(|doc| prompt::line(&(command, doc)));
            let take = |_, answer: Bytes| {
                entries.push(first_list(&answer)?);
                Ok(())
            };
            let indexed = pipeline(&lease, commands, timeout, take).await;
            result = indexed.map_err(|(index, error)| error.at(place(call.docs.get(index))));
        }
        give_back(lease, &result).await;
        result.map(|()| entries)
    }
}

/// Reads `[ENTRIES]`: there is one function, and its list is the first.
fn first_list(answer: &Bytes) -> Result<Json, FunctionError> {
    let lists = elements(answer).unwrap_or_default();
    match lists.first() {
        Some(list) if list.get().starts_with('[') => Ok((*list).to_owned()),
        _ => Err(broken(answer, "a list of entries for its function")),
    }
}
