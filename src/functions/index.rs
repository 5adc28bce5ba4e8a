//! `index_docs`: makes entries of a text index from documents.
//!
//! SOURCE    dreyfus_index_updater and nouveau_index_updater: their prompts.
//! DIFFERS   Documents are pipelined over one process.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::compile::accepted;
use super::decode::{broken, document_place, element, elements};
use super::{FunctionResult, QueryServers};
use crate::messages::client_error::Place;
use crate::messages::function::IndexDocs;
use crate::query_server::abilities::Ability;
use crate::query_server::prompt;
use json::{JsonList, JsonListBuilder};

impl QueryServers {
    /// Makes index entries from documents (`index_docs`): a list for each document.
    ///
    /// # Errors
    /// See [`FunctionError`](super::FunctionError).
    pub async fn index_docs(&self, call: &IndexDocs) -> FunctionResult<JsonList> {
        self.index_with(call).await.map_err(|error| {
            error.at(Place {
                function: Some("index".to_owned()),
                index: Some(0),
                ..Place::default()
            })
        })
    }

    async fn index_with(&self, call: &IndexDocs) -> FunctionResult<JsonList> {
        self.require(&call.at.language, Ability::IndexDoc).await?;
        let (add_fun, command) = if call.nouveau {
            (
                prompt::line(&("add_fun", &call.fun, "nouveau")),
                "nouveau_index_doc",
            )
        } else {
            (prompt::line(&("add_fun", &call.fun)), "index_doc")
        };
        let docs = call.docs.iter();
        let commands = docs.map(|doc| prompt::line(&(command, element(doc))));
        let commands = std::iter::once(add_fun).chain(commands);
        let mut entries = JsonListBuilder::default();
        let take = |number, answer: Bytes| {
            if number == 0 {
                return accepted(&answer);
            }
            entries.push(first_list(&answer)?);
            Ok(())
        };
        let place = |number: usize| {
            number
                .checked_sub(1)
                .and_then(|index| call.docs.get(index))
                .map(document_place)
                .unwrap_or_default()
        };
        self.prompt_all(call.at.want(), commands, take, place)
            .await?;
        Ok(entries.finish())
    }
}

/// Reads `[ENTRIES]`: there is one function, and its list is the first.
fn first_list(answer: &Bytes) -> FunctionResult<&RawValue> {
    let lists = elements(answer).unwrap_or_default();
    match lists.first() {
        Some(list) if list.get().starts_with('[') => Ok(list),
        _ => Err(broken(answer, "a list of entries for its function")),
    }
}
