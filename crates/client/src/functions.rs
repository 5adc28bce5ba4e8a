//! Calls that run functions: the service takes, uses and returns a process.
//!
//! They fail like [`Client::get_proc_for`] and [`Client::prompt`]; errors name the function, and the document if
//! known ([`ServiceError`](super::ServiceError)).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{Client, ClientError, DdocIn, wire};

/// Documents for the map functions of a language.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Mapping<'a, D> {
    /// The language.
    pub lang: &'a str,
    /// The database that the functions belong to; `None`: they belong to this client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db: Option<&'a str>,
    /// Modules by name that the functions may require; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lib: Option<&'a RawValue>,
    /// The functions' sources.
    pub funs: &'a [&'a str],
    /// The documents: an array of objects with an `_id` each.
    pub docs: &'a D,
}

/// Reduce functions of a language.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Reducing<'a> {
    /// The language.
    pub lang: &'a str,
    /// The database that the functions belong to; `None`: they belong to this client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db: Option<&'a str>,
    /// Sources, and names of built-in reducers.
    pub funs: &'a [&'a str],
    /// Whether the results are finalized instead of being rereduced later.
    pub finalize: bool,
}

/// An index function of a language.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Indexing<'a, D> {
    /// The language.
    pub lang: &'a str,
    /// The database that the function belongs to; `None`: it belongs to this client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db: Option<&'a str>,
    /// The function's source.
    pub fun: &'a str,
    /// Whether it is a Nouveau index function.
    pub nouveau: bool,
    /// The documents.
    pub docs: &'a D,
}

/// A function of a view.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compiling<'a> {
    /// The language.
    pub lang: &'a str,
    /// The database that the function belongs to; `None`: it belongs to this client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db: Option<&'a str>,
    /// The view's name, for the error.
    pub name: &'a str,
    /// Its kind, for the error: `map`, `reduce`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The function's source.
    pub fun: &'a str,
}

type Value = Box<RawValue>;

/// The members of `first`, and more arguments after them.
#[derive(Serialize)]
pub(super) struct With<'a, A> {
    #[serde(flatten)]
    pub(super) first: A,
    #[serde(flatten)]
    pub(super) more: &'a BTreeMap<&'static str, Value>,
}

/// Returns an argument as JSON text.
pub(super) fn raw(argument: &impl Serialize) -> Result<Value, ClientError> {
    to_raw_value(argument).map_err(wire::no_json)
}

impl Client {
    /// Makes a call that runs functions, by its name, with any arguments, including `timeout_ms`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn function(
        &self,
        call: &'static str,
        arguments: &impl Serialize,
    ) -> Result<Value, ClientError> {
        self.connection.call(call, arguments).await
    }

    /// Maps documents (`map_docs`): returns for each document, for each function, a list of `[key, value]`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn map_docs(
        &self,
        mapping: Mapping<'_, impl Serialize>,
    ) -> Result<Value, ClientError> {
        self.function("map_docs", &mapping).await
    }

    /// Reduces rows, each `[[key, id], value]` or an object with these three members (`reduce`): returns a result for
    /// each function.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reduce(
        &self,
        with: Reducing<'_>,
        rows: &impl Serialize,
    ) -> Result<Vec<Value>, ClientError> {
        self.with("reduce", &with, [("rows", raw(rows)?)]).await
    }

    /// Rereduces results, given as rows with a value for each function (`rereduce`): returns a result for each
    /// function.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn rereduce(
        &self,
        with: Reducing<'_>,
        values: &impl Serialize,
    ) -> Result<Vec<Value>, ClientError> {
        self.with("rereduce", &with, [("values", raw(values)?)])
            .await
    }

    /// Finalizes one result of each function (`finalize`): returns the final results.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn finalize(
        &self,
        funs: &[&str],
        values: &impl Serialize,
    ) -> Result<Vec<Value>, ClientError> {
        self.with(
            "finalize",
            &(),
            [("funs", raw(&funs)?), ("values", raw(values)?)],
        )
        .await
    }

    /// Makes index entries (`index_docs`): returns a list for each document.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn index_docs(
        &self,
        indexing: Indexing<'_, impl Serialize>,
    ) -> Result<Vec<Value>, ClientError> {
        self.typed("index_docs", &indexing).await
    }

    /// Checks whether a function compiles (`try_compile`).
    ///
    /// # Errors
    /// [`ClientError::Service`] with `compilation_error` if it does not; otherwise see [`ClientError`].
    pub async fn try_compile(&self, function: Compiling<'_>) -> Result<(), ClientError> {
        self.function("try_compile", &function).await.map(drop)
    }

    /// Calls a function of a design document (`ddoc_prompt`). `path` names the function, for example `["shows",
    /// "s"]`.
    ///
    /// # Errors
    /// As [`Self::get_proc_for`] and [`Self::prompt`].
    pub async fn ddoc_prompt(
        &self,
        ddoc: DdocIn<'_>,
        path: &[&str],
        args: &impl Serialize,
    ) -> Result<Value, ClientError> {
        let more = [("path", raw(&path)?), ("args", raw(args)?)];
        self.for_ddoc("ddoc_prompt", ddoc, more).await
    }

    /// Runs `validate_doc_update` on documents (`validate_docs`): returns, for each, `true` or the thrown value.
    /// `edits` is an array of objects with `newDoc` and optionally `oldDoc`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn validate_docs(
        &self,
        ddoc: DdocIn<'_>,
        edits: &impl Serialize,
        user_ctx: &impl Serialize,
        sec_obj: &impl Serialize,
    ) -> Result<Vec<Value>, ClientError> {
        let more = [
            ("docs", raw(edits)?),
            ("userCtx", raw(user_ctx)?),
            ("secObj", raw(sec_obj)?),
        ];
        let verdicts = self.for_ddoc("validate_docs", ddoc, more).await?;
        wire::typed("validate_docs", &verdicts)
    }

    /// Runs a filter function on documents (`filter_docs`): returns, for each, whether it passes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn filter_docs(
        &self,
        ddoc: DdocIn<'_>,
        name: &str,
        docs: &impl Serialize,
        req: &impl Serialize,
    ) -> Result<Vec<bool>, ClientError> {
        let more = [
            ("name", raw(&name)?),
            ("docs", raw(docs)?),
            ("req", raw(req)?),
        ];
        let passes = self.for_ddoc("filter_docs", ddoc, more).await?;
        wire::typed("filter_docs", &passes)
    }

    /// Runs a view's map function on documents (`filter_view`): returns, for each, whether it emits anything.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn filter_view(
        &self,
        ddoc: DdocIn<'_>,
        name: &str,
        docs: &impl Serialize,
    ) -> Result<Vec<bool>, ClientError> {
        let more = [("name", raw(&name)?), ("docs", raw(docs)?)];
        let passes = self.for_ddoc("filter_view", ddoc, more).await?;
        wire::typed("filter_view", &passes)
    }

    /// Renders a document, or none, and returns the response object (`show`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn show(
        &self,
        ddoc: DdocIn<'_>,
        name: &str,
        doc: Option<&RawValue>,
        req: &impl Serialize,
    ) -> Result<Value, ClientError> {
        let more = [
            ("name", raw(&name)?),
            ("doc", raw(&doc)?),
            ("req", raw(req)?),
        ];
        self.for_ddoc("show", ddoc, more).await
    }

    /// Runs an update function (`update`): returns `[DOC or null, RESPONSE]`. Writing the document is up to the caller.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn update(
        &self,
        ddoc: DdocIn<'_>,
        name: &str,
        doc: Option<&RawValue>,
        req: &impl Serialize,
    ) -> Result<Value, ClientError> {
        let more = [
            ("name", raw(&name)?),
            ("doc", raw(&doc)?),
            ("req", raw(req)?),
        ];
        self.for_ddoc("update", ddoc, more).await
    }

    /// Renders rows (`list`): returns an object with the response and its chunks. `rows` is an array of objects with
    /// `id`, `key`, `value`, `doc`; `head` is an object.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list(
        &self,
        ddoc: DdocIn<'_>,
        name: &str,
        (head, rows): (&impl Serialize, &impl Serialize),
        req: &impl Serialize,
    ) -> Result<Value, ClientError> {
        let more = [
            ("name", raw(&name)?),
            ("head", raw(head)?),
            ("rows", raw(rows)?),
            ("req", raw(req)?),
        ];
        self.for_ddoc("list", ddoc, more).await
    }

    /// Returns the rewritten request; `null` if no rule matches (`rewrite`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn rewrite(
        &self,
        ddoc: DdocIn<'_>,
        req: &impl Serialize,
    ) -> Result<Value, ClientError> {
        let more = [("req", raw(req)?)];
        self.for_ddoc("rewrite", ddoc, more).await
    }

    /// Makes a call with the members of `first` and more arguments; returns a result for each function.
    async fn with<const N: usize>(
        &self,
        call: &'static str,
        first: &impl Serialize,
        more: [(&'static str, Value); N],
    ) -> Result<Vec<Value>, ClientError> {
        let more = &BTreeMap::from(more);
        self.typed(call, &With { first, more }).await
    }
}
