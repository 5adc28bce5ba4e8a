//! Filters: which documents pass.
//!
//! SOURCE    couch_query_servers: filter_docs/5, filter_view/3.
//! DIFFERS   An answer whose length differs from the number of documents is an error here.

use bytes::Bytes;

use super::decode::{broken, document_place, done_with, element};
use super::scrub::scrub;
use super::{FunctionError, FunctionErrorKind, FunctionResult, QueryServers};
use crate::messages::function::{FilterDocs, FilterView};
use crate::messages::proc_manager::CallError;
use crate::messages::process::PromptError;
use json::JsonList;

/// The exit status of a query server that ran out of memory.
const OUT_OF_MEMORY_STATUS: i32 = 1;

impl QueryServers {
    /// Runs a filter function on documents (`filter_docs`). Returns for each document whether it passes.
    ///
    /// If the query server ends with exit status 1, each document is retried individually.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn filter_docs(&self, call: &FilterDocs) -> FunctionResult<Vec<bool>> {
        let req = scrub(&call.req);
        let path = ["filters", &*call.name];
        let ask = async |docs: &JsonList| {
            let read = |answer| read_passed(&answer, docs.len());
            self.call_ddoc(&call.at, &path, (docs, &*req), read).await
        };
        match ask(&call.docs).await {
            Err(error) if is_out_of_memory(&error) && call.docs.len() > 1 => {
                let mut passed = Vec::with_capacity(call.docs.len());
                for doc in call.docs.iter() {
                    let alone = ask(&std::iter::once(element(doc)).collect()).await;
                    passed.extend(alone.map_err(|error| error.at(document_place(doc)))?);
                }
                Ok(passed)
            }
            result => result,
        }
    }

    /// Returns for each document whether a view's map function emits anything for it (`filter_view`).
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn filter_view(&self, call: &FilterView) -> FunctionResult<Vec<bool>> {
        let path = ["views", &*call.name, "map"];
        let read = |answer| read_passed(&answer, call.docs.len());
        self.call_ddoc(&call.at, &path, [&call.docs], read).await
    }
}

fn is_out_of_memory(error: &FunctionError) -> bool {
    matches!(&error.kind, FunctionErrorKind::Call(CallError::Prompt(PromptError::Exited(exit_report)))
        if exit_report.status == Some(OUT_OF_MEMORY_STATUS))
}

/// Reads `[true, [BOOL, ..]]`.
fn read_passed(answer: &Bytes, documents: usize) -> FunctionResult<Vec<bool>> {
    done_with(answer, documents).ok_or_else(|| {
        let expected = format!("[true, [..]] with true or false for each of {documents} documents");
        broken(answer, &expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_one_boolean_for_each_document() {
        let read = |answer: &'static str, documents| {
            read_passed(&Bytes::from_static(answer.as_bytes()), documents)
        };
        assert_eq!(read("[true, [true,false]]", 2).unwrap(), [true, false]);
        assert_eq!(read("[true,[]]", 0).unwrap(), [false; 0]);
        for wrong in [
            "[true,[true]]",
            "[true,[true,false,true]]",
            "[true,[1,0]]",
            "[false,[true,true]]",
            "[true,true,true]",
            "true",
            "{}",
        ] {
            let error = read(wrong, 2).unwrap_err().to_string();
            assert!(
                error.contains(wrong) && error.contains("2 documents"),
                "{error}"
            );
        }
    }
}
