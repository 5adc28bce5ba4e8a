//! Calls that run functions, as data: shared by the socket, HTTP and the library.
//!
//! SUMMARY   One type for each call; [`FunctionRequest::parse`] parses it from a JSON object.
//! PROMISES  Owned and `Send`, so that a call can be sent to the pool's arbiter. The text of documents, arguments and
//!           keys is kept. Lists are in a few allocations, which are quick to free.
//! SOURCE    couch_query_servers, with the names of its functions.

mod parse;
mod reduce_rows;
mod request;
mod views;

use std::sync::Arc;
use std::time::Duration;

use json::JsonList;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantArray};

pub use self::reduce_rows::ReduceRows;
pub use self::request::{CallOptions, FunctionRequest};
use crate::messages::proc_manager::TakeFrom;
use crate::query_server::call::Subject;
use crate::query_server::ddoc::Ddoc;
use crate::query_server::language::LanguageName;

/// An owned JSON text.
pub type Json = Box<RawValue>;

/// A call that runs functions.
#[derive(Clone, Debug, EnumDiscriminants)]
#[strum_discriminants(
    name(FunctionName),
    derive(EnumString, IntoStaticStr, VariantArray),
    strum(serialize_all = "snake_case"),
    doc = "The name of such a call on the client socket."
)]
pub enum FunctionCall {
    /// Maps documents.
    MapDocs(MapDocs),
    /// Reduces rows.
    Reduce(Reduce),
    /// Reduces earlier results.
    Rereduce(Rereduce),
    /// Finalizes results for a client of the view.
    Finalize(Finalize),
    /// Makes documents' index entries.
    IndexDocs(IndexDocs),
    /// Checks whether a function compiles.
    TryCompile(TryCompile),
    /// Prompts any function of a design document.
    DdocPrompt(DdocPrompt),
    /// Runs `validate_doc_update` on documents.
    ValidateDocs(ValidateDocs),
    /// Runs a filter function on documents.
    FilterDocs(FilterDocs),
    /// Checks whether a map function emits anything for documents.
    FilterView(FilterView),
    /// Renders a document.
    Show(Render),
    /// Renders rows.
    List(List),
    /// Creates or changes a document.
    Update(Render),
    /// Rewrites a request.
    Rewrite(Rewrite),
}

/// A design document in its database, and its functions' timeout.
#[derive(Clone, Debug)]
pub struct InDdoc {
    /// The database.
    pub db: Arc<str>,
    /// The design document.
    pub ddoc: Arc<Ddoc>,
    /// The pools that may serve it.
    pub from: TakeFrom,
    /// The timeout for a process and for each answer; `None`: as configured.
    pub timeout: Option<Duration>,
}

/// A language, and its functions' timeout.
#[derive(Clone, Debug)]
pub struct InLanguage {
    /// The language; empty until [`perform`](crate::functions::QueryServers::perform) fills in that of `from`.
    pub language: LanguageName,
    /// The database that owns the functions; `None`: the client itself.
    pub db: Option<Arc<str>>,
    /// The pools that may serve it.
    pub from: TakeFrom,
    /// The timeout for a process and for each answer; `None`: as configured.
    pub timeout: Option<Duration>,
}

impl FunctionCall {
    /// Returns the language of functions sent with the call.
    pub(crate) fn in_language(&mut self) -> Option<&mut InLanguage> {
        match self {
            Self::MapDocs(call) => Some(&mut call.start.at),
            Self::Reduce(Reduce { with, .. }) | Self::Rereduce(Rereduce { with, .. }) => {
                Some(&mut with.at)
            }
            Self::IndexDocs(IndexDocs { at, .. }) | Self::TryCompile(TryCompile { at, .. }) => {
                Some(at)
            }
            _ => None,
        }
    }
}

impl InDdoc {
    /// Returns the subject of a call of the function at a path.
    pub(crate) fn subject(&self, path: &[&str]) -> Subject {
        let path = path.join("/");
        Subject::new(Some(&self.db), Some(&self.ddoc.key.id), &path)
    }
}

impl InLanguage {
    /// Returns the subject of a call that sends its functions along; `call` is its name.
    pub(crate) fn subject(&self, call: &str) -> Subject {
        Subject::new(self.db.as_ref(), None, call)
    }
}

/// `map_docs`: functions and documents.
#[derive(Clone, Debug)]
pub struct MapDocs {
    /// The functions.
    pub start: MapStart,
    /// The documents: objects with an `_id` each.
    pub docs: JsonList,
}

/// Map functions; the documents may come later.
#[derive(Clone, Debug)]
pub struct MapStart {
    /// Their language.
    pub at: InLanguage,
    /// Modules that the functions may require, an object; `None`: none.
    pub lib: Option<Json>,
    /// The functions: sources, which are strings, or definitions, which are objects.
    pub funs: Vec<Json>,
}

/// `reduce`: functions and rows.
#[derive(Clone, Debug)]
pub struct Reduce {
    /// The functions.
    pub with: Reducers,
    /// The rows, in the order of the view.
    pub rows: ReduceRows,
}

/// `rereduce`: functions and earlier results.
#[derive(Clone, Debug)]
pub struct Rereduce {
    /// The functions.
    pub with: Reducers,
    /// The results of each function, in the order of the view.
    pub values: Vec<JsonList>,
}

/// Reduce functions.
#[derive(Clone, Debug)]
pub struct Reducers {
    /// Their language.
    pub at: InLanguage,
    /// Sources, and names of built-in reducers, which begin with `_`.
    pub funs: Vec<String>,
    /// The view, `DB/DDOC/_view/NAME`, for errors; empty while an index is built.
    pub context: String,
    /// Whether the results are finalized, which rules out reducing them again.
    pub finalize: bool,
}

/// `finalize`: functions and a result of each.
#[derive(Clone, Debug)]
pub struct Finalize {
    /// Sources, and names of built-in reducers.
    pub funs: Vec<String>,
    /// One result for each function.
    pub values: Vec<Json>,
}

/// `index_docs`: an index function and documents.
#[derive(Clone, Debug)]
pub struct IndexDocs {
    /// Its language.
    pub at: InLanguage,
    /// The function: a source, or a definition.
    pub fun: Json,
    /// Whether it is for Nouveau.
    pub nouveau: bool,
    /// The documents.
    pub docs: JsonList,
}

/// `try_compile`: a function of a view.
#[derive(Clone, Debug)]
pub struct TryCompile {
    /// Its language.
    pub at: InLanguage,
    /// Its kind: `map`, `reduce`, ..
    pub kind: String,
    /// The view's name.
    pub name: String,
    /// The function.
    pub fun: Json,
}

/// `ddoc_prompt`: a function by its path, with its arguments.
#[derive(Clone, Debug)]
pub struct DdocPrompt {
    /// The location of the function.
    pub at: InDdoc,
    /// The path to the function in the design document.
    pub path: Vec<String>,
    /// Its arguments: a JSON array.
    pub args: Json,
}

/// `validate_docs`: one `validate_doc_update` function and many documents.
#[derive(Clone, Debug)]
pub struct ValidateDocs {
    /// The location of the function.
    pub at: InDdoc,
    /// The documents, each an [`Edit`].
    pub docs: JsonList,
    /// The writing user: a JSON object.
    pub user_ctx: Json,
    /// The database's security object.
    pub sec_obj: Json,
}

/// A document to write.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edit<'a> {
    /// The new text of the document.
    #[serde(borrow)]
    pub new_doc: &'a RawValue,
    /// Its current text, if it exists.
    pub old_doc: Option<&'a RawValue>,
}

/// `filter_docs`: one function of `filters` and many documents.
#[derive(Clone, Debug)]
pub struct FilterDocs {
    /// The location of the function.
    pub at: InDdoc,
    /// The function's name.
    pub name: String,
    /// The documents.
    pub docs: JsonList,
    /// The request.
    pub req: Json,
}

/// `filter_view`: one map function as a filter, and many documents.
#[derive(Clone, Debug)]
pub struct FilterView {
    /// The location of the function.
    pub at: InDdoc,
    /// The view's name.
    pub name: String,
    /// The documents.
    pub docs: JsonList,
}

/// `show` and `update`: a function, a document or none, and a request.
#[derive(Clone, Debug)]
pub struct Render {
    /// The location of the function.
    pub at: InDdoc,
    /// The function's name.
    pub name: String,
    /// The document.
    pub doc: Option<Json>,
    /// The request.
    pub req: Json,
}

/// `rewrite`: the function `rewrites` and a request.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// The location of the function.
    pub at: InDdoc,
    /// The request.
    pub req: Json,
}

/// `list`: a function of `lists` and its rows.
#[derive(Clone, Debug)]
pub struct List {
    /// The function and its arguments.
    pub start: ListStart,
    /// The rows in their order, each a [`ListRow`].
    pub rows: JsonList,
}

/// The beginning of a list; the rows may come later.
#[derive(Clone, Debug)]
pub struct ListStart {
    /// The location of the function.
    pub at: InDdoc,
    /// The function's name.
    pub name: String,
    /// What precedes the rows of a view: `total_rows`, `offset`, ..
    pub head: Json,
    /// The request.
    pub req: Json,
}

/// A row of a view for a list function. A member that is `None` is absent.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ListRow {
    /// The document's id.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub id: Option<Json>,
    /// The key.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub key: Option<Json>,
    /// The value.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// The document itself.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub doc: Option<Json>,
}

/// Keeps a member that is present, even as `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}
