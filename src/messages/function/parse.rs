//! Function calls from JSON objects.
//!
//! PROMISES  The first mistake is reported, with the name of the argument.

use serde_json::value::{RawValue, to_raw_value};

use super::views::one_function;
use super::{
    CallOptions, DdocPrompt, Edit, FilterDocs, FilterView, Finalize, FunctionCall, FunctionName,
    InDdoc, InLanguage, IndexDocs, Json, List, ListRow, ListStart, MapDocs, MapStart, Reduce,
    Render, Rereduce, Rewrite, TryCompile, ValidateDocs,
};
use crate::messages::arguments::{Arguments, Parsed, is_object, wrong};
use crate::messages::client_error::ErrorReply;
use crate::operations::{LONG_NAME_BYTES_MAX, NAME_BYTES_MAX, check_name};
use crate::query_server::ddoc::DEFAULT_LANGUAGE;
use crate::query_server::known_ddocs::KnownDdocs;
use crate::query_server::language::LanguageName;

impl FunctionCall {
    /// Makes the call `name` from its arguments.
    pub(super) fn of(name: FunctionName, arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(match name {
            FunctionName::DdocPrompt => Self::DdocPrompt(DdocPrompt::of(arguments)?),
            FunctionName::ValidateDocs => Self::ValidateDocs(ValidateDocs::of(arguments)?),
            FunctionName::FilterDocs => Self::FilterDocs(FilterDocs {
                at: InDdoc::of(arguments)?,
                name: function_name(arguments)?,
                docs: arguments.documents()?,
                req: arguments.object("req")?,
            }),
            FunctionName::FilterView => Self::FilterView(FilterView {
                at: InDdoc::of(arguments)?,
                name: function_name(arguments)?,
                docs: arguments.documents()?,
            }),
            FunctionName::Show => Self::Show(Render::of(arguments)?),
            FunctionName::Update => Self::Update(Render::of(arguments)?),
            FunctionName::Rewrite => Self::Rewrite(Rewrite {
                at: InDdoc::of(arguments)?,
                req: arguments.object("req")?,
            }),
            FunctionName::List => {
                let what = "an array of rows, which are objects with any of 'id', 'key', 'value' and 'doc'";
                let is_row = |row: &RawValue| ListRow::parse(row.get()).is_ok();
                Self::List(List {
                    start: ListStart::of(arguments)?,
                    rows: arguments.list("rows", what, is_row)?,
                })
            }
            FunctionName::MapDocs => Self::MapDocs(MapDocs {
                start: MapStart::of(arguments, arguments.language_or_pool()?)?,
                docs: arguments.documents()?,
            }),
            FunctionName::Reduce => Self::Reduce(Reduce::of(arguments)?),
            FunctionName::Rereduce => Self::Rereduce(Rereduce::of(arguments)?),
            FunctionName::Finalize => Self::Finalize(Finalize::of(arguments)?),
            FunctionName::IndexDocs => Self::IndexDocs(IndexDocs {
                at: InLanguage::of(arguments)?,
                fun: one_function(arguments)?,
                nouveau: arguments.flag("nouveau")?,
                docs: arguments.documents()?,
            }),
            FunctionName::TryCompile => Self::TryCompile(TryCompile {
                at: InLanguage::of(arguments)?,
                kind: arguments.text("type")?.unwrap_or_else(|| "map".to_owned()),
                name: arguments.string("name")?,
                fun: one_function(arguments)?,
            }),
        })
    }
}

impl MapStart {
    /// Reads map functions and call options from a JSON object. Without `lang`, `pool` and `group` they are
    /// JavaScript, like a design document without `language`.
    ///
    /// # Errors
    /// `bad_request` with the first mistake; the caller's fault.
    pub fn parse(json: &str) -> Result<(Self, CallOptions), ErrorReply> {
        let arguments = Arguments::parse(json)?;
        let language = match arguments.get("lang") {
            None if !arguments.names_pool() => LanguageName::new(DEFAULT_LANGUAGE),
            _ => arguments.language_or_pool()?,
        };
        let start = Self::of(&arguments, language)?;
        Ok((start, CallOptions::last_of(&arguments)?))
    }
}

impl InDdoc {
    fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        let db = arguments.database()?;
        Ok(Self {
            ddoc: arguments.design_document(&db)?,
            db,
            from: arguments.take_from()?,
            timeout: arguments.timeout()?,
        })
    }
}

fn function_name(arguments: &Arguments<'_>) -> Parsed<String> {
    arguments.name("name", "the name of a function")
}

impl DdocPrompt {
    fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        let at = InDdoc::of(arguments)?;
        let what = "an array of strings, at least one";
        let path: Vec<String> = arguments.require("path", what)?;
        if path.is_empty() {
            return Err(wrong("path", what));
        }
        let bounds = path.iter().map(|step| (&**step, NAME_BYTES_MAX));
        for (text, max) in bounds.chain([(&*path.join("/"), LONG_NAME_BYTES_MAX)]) {
            check_name("path", text, max).map_err(ErrorReply::bad_request)?;
        }
        Ok(Self {
            at,
            path,
            args: arguments.array("args")?.to_owned(),
        })
    }
}

impl ValidateDocs {
    fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        let at = InDdoc::of(arguments)?;
        let what =
            "an array of objects, each with an object 'newDoc' and perhaps an object 'oldDoc'";
        let is_edit = |json: &RawValue| Edit::parse(json.get()).is_some();
        Ok(Self {
            user_ctx: match arguments.get("userCtx") {
                None => nobody(&at.db),
                Some(_) => arguments.object("userCtx")?,
            },
            at,
            docs: arguments.list("docs", what, is_edit)?,
            sec_obj: arguments.object("secObj")?,
        })
    }
}

impl<'a> Edit<'a> {
    pub(crate) fn parse(json: &'a str) -> Option<Self> {
        let json = Some(json).filter(|json| json.starts_with('{'))?;
        let edit: Self = serde_json::from_str(json).ok()?;
        let docs_are_objects = is_object(edit.new_doc) && edit.old_doc.is_none_or(is_object);
        docs_are_objects.then_some(edit)
    }
}

/// Returns the `userCtx` of the anonymous user.
fn nobody(db: &str) -> Json {
    let context = serde_json::json!({"db": db, "name": null, "roles": []});
    to_raw_value(&context).expect("JSON: texts are always JSON")
}

impl Render {
    fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        let at = InDdoc::of(arguments)?;
        let name = function_name(arguments)?;
        let doc = arguments.get("doc").map(|_| arguments.object("doc"));
        Ok(Self {
            at,
            name,
            doc: doc.transpose()?,
            req: arguments.object("req")?,
        })
    }
}

impl ListStart {
    /// Reads the beginning of a list, and the call options, from a JSON object.
    ///
    /// # Errors
    /// `bad_request` with the first mistake; the caller's fault.
    pub fn parse(json: &str, ddocs: &KnownDdocs) -> Result<(Self, CallOptions), ErrorReply> {
        let arguments = Arguments::parse(json)?.with(Some(ddocs));
        let start = Self::of(&arguments)?;
        Ok((start, CallOptions::last_of(&arguments)?))
    }

    fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self {
            at: InDdoc::of(arguments)?,
            name: function_name(arguments)?,
            head: arguments.object("head")?,
            req: arguments.object("req")?,
        })
    }
}

impl ListRow {
    /// Reads a row from a JSON object. A `null` member counts as present; unknown members are ignored.
    ///
    /// # Errors
    /// `bad_request`: not an object; the caller's fault.
    pub fn parse(json: &str) -> Result<Self, ErrorReply> {
        Some(json)
            .filter(|json| json.trim_start().starts_with('{'))
            .and_then(|json| serde_json::from_str(json).ok())
            .ok_or_else(|| wrong("a row", "an object"))
    }
}
