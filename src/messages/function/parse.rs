//! Function calls from JSON objects.
//!
//! PROMISES  Whatever is wrong is told by its name. Members that a call does not know are passed
//!           over, and `null` is as good as none.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};

use super::{
    DdocPrompt, Edit, FilterDocs, FilterView, FunctionCall, InDdoc, Json, List, ListRow, ListStart,
    MapStart, Render, Rewrite, ValidateDocs, views,
};
use crate::messages::arguments::{
    Parsed, array, database, design_document, path, required, shorten, string, take_from, timeout,
    wrong,
};
use crate::messages::client_error::ErrorReply;

/// All members that some call has.
#[derive(Deserialize)]
pub(super) struct Members<'a> {
    #[serde(borrow)]
    pub(super) lang: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) lib: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) funs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) fun: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) values: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) context: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) finalize: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) nouveau: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    db: Option<&'a RawValue>,
    #[serde(borrow)]
    ddoc: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) pool: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) group: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) timeout_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    path: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    doc: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) docs: Option<&'a RawValue>,
    #[serde(borrow)]
    req: Option<&'a RawValue>,
    #[serde(borrow)]
    head: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) rows: Option<&'a RawValue>,
    #[serde(borrow, rename = "userCtx")]
    user_ctx: Option<&'a RawValue>,
    #[serde(borrow, rename = "secObj")]
    sec_obj: Option<&'a RawValue>,
}

impl FunctionCall {
    /// The names of all calls.
    pub const NAMES: &'static [&'static str] = &[
        "map_docs",
        "reduce",
        "rereduce",
        "finalize",
        "index_docs",
        "try_compile",
        "ddoc_prompt",
        "validate_docs",
        "filter_docs",
        "filter_view",
        "show",
        "list",
        "update",
        "rewrite",
    ];

    /// Takes the arguments of the call `name` out of a JSON object.
    ///
    /// # Errors
    /// `bad_request` with the first thing that is wrong; the caller's fault.
    pub fn parse(name: &str, json: &str) -> Result<Self, ErrorReply> {
        let members = Members::of(json)?;
        Ok(match name {
            "ddoc_prompt" => Self::DdocPrompt(members.ddoc_prompt()?),
            "validate_docs" => Self::ValidateDocs(members.validate_docs()?),
            "filter_docs" => Self::FilterDocs(FilterDocs {
                at: members.in_ddoc()?,
                name: members.name()?,
                docs: documents(members.docs)?,
                req: object("req", members.req)?,
            }),
            "filter_view" => Self::FilterView(FilterView {
                at: members.in_ddoc()?,
                name: members.name()?,
                docs: documents(members.docs)?,
            }),
            "show" => Self::Show(members.render()?),
            "update" => Self::Update(members.render()?),
            "rewrite" => Self::Rewrite(Rewrite {
                at: members.in_ddoc()?,
                req: object("req", members.req)?,
            }),
            "list" => Self::List(List {
                start: members.list_start()?,
                rows: ListRow::parse_all(required("rows", members.rows)?)?,
            }),
            "map_docs" => Self::MapDocs(views::map_docs(&members)?),
            "reduce" => Self::Reduce(views::reduce(&members)?),
            "rereduce" => Self::Rereduce(views::rereduce(&members)?),
            "finalize" => Self::Finalize(views::finalize(&members)?),
            "index_docs" => Self::IndexDocs(views::index_docs(&members)?),
            "try_compile" => Self::TryCompile(views::try_compile(&members)?),
            unknown => {
                let reason = format!("there is no function call named '{}'", shorten(unknown));
                return Err(ErrorReply::bad_request(reason));
            }
        })
    }
}

impl ListStart {
    /// Takes the beginning of a list out of a JSON object; `rows` are passed over.
    ///
    /// # Errors
    /// `bad_request` with the first thing that is wrong; the caller's fault.
    pub fn parse(json: &str) -> Result<Self, ErrorReply> {
        Members::of(json)?.list_start()
    }
}

impl MapStart {
    /// Takes map functions out of a JSON object; `docs` are passed over. Without `lang` they are
    /// JavaScript, as those of a design document without `language`.
    ///
    /// # Errors
    /// `bad_request` with the first thing that is wrong; the caller's fault.
    pub fn parse(json: &str) -> Result<Self, ErrorReply> {
        let mut members = Members::of(json)?;
        members.lang = members
            .lang
            .or_else(|| serde_json::from_str(r#""javascript""#).ok());
        views::map_start(&members)
    }
}

impl<'a> Members<'a> {
    fn of(json: &'a str) -> Parsed<Self> {
        if !json.trim_start().starts_with('{') {
            return Err(ErrorReply::bad_request(
                "the arguments must be a JSON object",
            ));
        }
        serde_json::from_str(json)
            .map_err(|error| ErrorReply::bad_request(format!("bad arguments: {error}")))
    }

    fn in_ddoc(&self) -> Parsed<InDdoc> {
        Ok(InDdoc {
            db: Arc::from(database(self.db)?),
            ddoc: design_document(self.ddoc)?,
            from: take_from(self.pool, self.group)?,
            timeout: timeout(self.timeout_ms)?,
        })
    }

    fn name(&self) -> Parsed<String> {
        match string("name", required("name", self.name)?)? {
            name if name.is_empty() => Err(wrong("name", "the name of a function")),
            name => Ok(name),
        }
    }

    fn ddoc_prompt(&self) -> Parsed<DdocPrompt> {
        Ok(DdocPrompt {
            at: self.in_ddoc()?,
            path: path(required("path", self.path)?)?.to_owned(),
            args: array("args", required("args", self.args)?)?.to_owned(),
        })
    }

    fn validate_docs(&self) -> Parsed<ValidateDocs> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow, rename = "newDoc")]
            new_doc: Option<&'a RawValue>,
            #[serde(borrow, rename = "oldDoc")]
            old_doc: Option<&'a RawValue>,
        }
        let at = self.in_ddoc()?;
        let what = "an array of objects, each with 'newDoc' and perhaps 'oldDoc', two objects";
        let edit = |json: &RawValue| -> Option<Edit> {
            let json = Some(json).filter(|json| json.get().starts_with('{'))?;
            let members: Members<'_> = serde_json::from_str(json.get()).ok()?;
            let is_object = |doc: &&RawValue| doc.get().starts_with('{');
            Some(Edit {
                new_doc: members.new_doc.filter(is_object)?.to_owned(),
                old_doc: match members.old_doc {
                    Some(doc) => Some(Some(doc).filter(is_object)?.to_owned()),
                    None => None,
                },
            })
        };
        let docs = elements("docs", self.docs, what)?;
        let docs: Option<Vec<Edit>> = docs.into_iter().map(edit).collect();
        let user_ctx = match self.user_ctx {
            None => nobody(&at.db),
            some => object("userCtx", some)?,
        };
        Ok(ValidateDocs {
            at,
            docs: docs.ok_or_else(|| wrong("docs", what))?,
            user_ctx,
            sec_obj: object("secObj", self.sec_obj)?,
        })
    }

    fn render(&self) -> Parsed<Render> {
        Ok(Render {
            at: self.in_ddoc()?,
            name: self.name()?,
            doc: match self.doc {
                None => None,
                some => Some(object("doc", some)?),
            },
            req: object("req", self.req)?,
        })
    }

    fn list_start(&self) -> Parsed<ListStart> {
        Ok(ListStart {
            at: self.in_ddoc()?,
            name: self.name()?,
            head: object("head", self.head)?,
            req: object("req", self.req)?,
        })
    }
}

/// An object; an empty one when it is left out.
fn object(name: &str, value: Option<&RawValue>) -> Parsed<Json> {
    match value {
        None => Ok(empty_object()),
        Some(value) if value.get().starts_with('{') => Ok(value.to_owned()),
        Some(_) => Err(wrong(name, "an object")),
    }
}

fn empty_object() -> Json {
    RawValue::from_string("{}".to_owned()).expect("config: this is JSON")
}

/// Somebody who has not said who it is.
fn nobody(db: &str) -> Json {
    let context = serde_json::json!({"db": db, "name": null, "roles": []});
    to_raw_value(&context).expect("config: texts are always JSON")
}

/// The elements of an array.
pub(super) fn elements<'a>(
    name: &str,
    value: Option<&'a RawValue>,
    must_be: &str,
) -> Parsed<Vec<&'a RawValue>> {
    let json = required(name, value)?.get();
    serde_json::from_str(json).map_err(|_| wrong(name, must_be))
}

/// `docs`: an array of documents.
pub(super) fn documents(value: Option<&RawValue>) -> Parsed<Vec<Json>> {
    let what = "an array of documents, which are objects";
    let docs = elements("docs", value, what)?;
    if docs.iter().any(|doc| !doc.get().starts_with('{')) {
        return Err(wrong("docs", what));
    }
    Ok(docs.into_iter().map(RawValue::to_owned).collect())
}

impl ListRow {
    fn parse_all(rows: &RawValue) -> Parsed<Vec<Self>> {
        let what = "an array of rows, objects with 'id', 'key', 'value' and 'doc' as far as they \
                    have them";
        let rows = elements("rows", Some(rows), what)?;
        let rows: Option<_> = rows
            .into_iter()
            .map(|row| Self::parse(row.get()).ok())
            .collect();
        rows.ok_or_else(|| wrong("rows", what))
    }

    /// Takes a row out of a JSON object. A member that is `null` is there; others are passed over.
    ///
    /// # Errors
    /// `bad_request`: it is no object; the caller's fault.
    pub fn parse(json: &str) -> Result<Self, ErrorReply> {
        #[derive(Deserialize)]
        struct Members {
            #[serde(default, deserialize_with = "present")]
            id: Option<Json>,
            #[serde(default, deserialize_with = "present")]
            key: Option<Json>,
            #[serde(default, deserialize_with = "present")]
            value: Option<Json>,
            #[serde(default, deserialize_with = "present")]
            doc: Option<Json>,
        }
        let members: Option<Members> = Some(json)
            .filter(|json| json.trim_start().starts_with('{'))
            .and_then(|json| serde_json::from_str(json).ok());
        let Some(Members {
            id,
            key,
            value,
            doc,
        }) = members
        else {
            return Err(wrong("a row", "an object"));
        };
        Ok(Self {
            id,
            key,
            value,
            doc,
        })
    }
}

/// A member that is there, also as `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}
