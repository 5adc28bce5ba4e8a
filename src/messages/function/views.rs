//! The arguments of calls that run functions of views and indexes.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::parse::{Members, documents, elements};
use super::{
    Finalize, InLanguage, IndexDocs, Json, MapDocs, MapStart, Reduce, ReduceInput, Reducers,
    Rereduce, TryCompile,
};
use crate::messages::arguments::{
    Parsed, language, missing, required, string, take_from, timeout, wrong,
};

pub(super) fn map_docs(members: &Members<'_>) -> Parsed<MapDocs> {
    Ok(MapDocs {
        start: map_start(members)?,
        docs: documents(members.docs)?,
    })
}

pub(super) fn map_start(members: &Members<'_>) -> Parsed<MapStart> {
    let what = "an array of functions: sources, or definitions, which are objects";
    let funs = elements("funs", members.funs, what)?;
    let funs: Option<Vec<Json>> = funs.into_iter().map(function).collect();
    Ok(MapStart {
        at: in_language(members)?,
        lib: match members.lib {
            Some(lib) if !lib.get().starts_with('{') => {
                return Err(wrong("lib", "an object of modules"));
            }
            lib => lib.map(RawValue::to_owned),
        },
        funs: funs.ok_or_else(|| wrong("funs", what))?,
    })
}

pub(super) fn reduce(members: &Members<'_>) -> Parsed<Reduce> {
    let what = "an array of rows: [[KEY, ID], VALUE], or objects with 'key', 'value' and 'id'";
    let rows = elements("rows", members.rows, what)?;
    let rows: Option<Vec<ReduceInput>> = rows.into_iter().map(row).collect();
    Ok(Reduce {
        with: reducers(members)?,
        rows: rows.ok_or_else(|| wrong("rows", what))?,
    })
}

pub(super) fn rereduce(members: &Members<'_>) -> Parsed<Rereduce> {
    let with = reducers(members)?;
    let count = with.funs.len();
    let values = elements("values", members.values, "an array")?;
    let rows: Vec<Option<Vec<Json>>> = values.iter().map(|row| result_row(row, count)).collect();
    let are_rows = rows.iter().filter(|row| row.is_some()).count();
    let values = if are_rows == rows.len() {
        rows.into_iter().flatten().collect()
    } else if count == 1 && are_rows == 0 {
        // None of them can be meant as a row, so all of them are values.
        values
            .into_iter()
            .map(|value| vec![value.to_owned()])
            .collect()
    } else {
        let what = format!(
            "an array of rows of results, each an array with a value for each of {count} functions"
        );
        return Err(wrong("values", &what));
    };
    Ok(Rereduce { with, values })
}

pub(super) fn finalize(members: &Members<'_>) -> Parsed<Finalize> {
    let funs = sources(members)?;
    let what = "an array with a result of each function";
    let values = elements("values", members.values, what)?;
    if values.len() != funs.len() {
        return Err(wrong("values", what));
    }
    Ok(Finalize {
        funs,
        values: values.into_iter().map(RawValue::to_owned).collect(),
    })
}

pub(super) fn index_docs(members: &Members<'_>) -> Parsed<IndexDocs> {
    Ok(IndexDocs {
        at: in_language(members)?,
        fun: one_function(members)?,
        nouveau: flag("nouveau", members.nouveau)?,
        docs: documents(members.docs)?,
    })
}

pub(super) fn try_compile(members: &Members<'_>) -> Parsed<TryCompile> {
    let kind = members.kind.map(|kind| string("type", kind)).transpose()?;
    Ok(TryCompile {
        at: in_language(members)?,
        kind: kind.unwrap_or_else(|| "map".to_owned()),
        name: string("name", required("name", members.name)?)?,
        fun: one_function(members)?,
    })
}

fn in_language(members: &Members<'_>) -> Parsed<InLanguage> {
    Ok(InLanguage {
        language: language(required("lang", members.lang)?)?,
        from: take_from(members.pool, members.group)?,
        timeout: timeout(members.timeout_ms)?,
    })
}

fn reducers(members: &Members<'_>) -> Parsed<Reducers> {
    let context = members.context.map(|context| string("context", context));
    Ok(Reducers {
        at: in_language(members)?,
        funs: sources(members)?,
        context: context.transpose()?.unwrap_or_default(),
        finalize: flag("finalize", members.finalize)?,
    })
}

fn sources(members: &Members<'_>) -> Parsed<Vec<String>> {
    let json = required("funs", members.funs)?.get();
    serde_json::from_str(json).map_err(|_| wrong("funs", "an array of sources, which are strings"))
}

fn flag(name: &str, value: Option<&RawValue>) -> Parsed<bool> {
    match value.map(RawValue::get) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(wrong(name, "true or false")),
    }
}

fn one_function(members: &Members<'_>) -> Parsed<Json> {
    let fun = members.fun.ok_or_else(|| missing("fun"))?;
    function(fun).ok_or_else(|| wrong("fun", "a source, or a definition, which is an object"))
}

fn function(fun: &RawValue) -> Option<Json> {
    fun.get().starts_with(['"', '{']).then(|| fun.to_owned())
}

/// A row in one of its two forms. `[KEY, VALUE]` is none: a key may be an array of two itself.
fn row(row: &RawValue) -> Option<ReduceInput> {
    if row.get().starts_with('[') {
        let ((key, id), value) = serde_json::from_str(row.get()).ok()?;
        return Some(ReduceInput { key, id, value });
    }
    let mut members: std::collections::BTreeMap<String, Json> =
        serde_json::from_str(row.get()).ok()?;
    Some(ReduceInput {
        key: members.remove("key")?,
        id: match members.remove("id") {
            Some(id) => id,
            None => to_raw_value(&Value::Null).ok()?,
        },
        value: members.remove("value")?,
    })
}

/// A row of results, if it can be one.
fn result_row(row: &RawValue, count: usize) -> Option<Vec<Json>> {
    let row = Some(row).filter(|row| row.get().starts_with('['))?;
    let row: Vec<Json> = serde_json::from_str(row.get()).ok()?;
    (row.len() == count).then_some(row)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::FunctionCall;
    use super::*;

    fn parse(name: &str, mut arguments: Value) -> Result<FunctionCall, String> {
        arguments["lang"] = json!("javascript");
        FunctionCall::parse(name, &arguments.to_string())
            .map_err(|error| error.reason.get().to_owned())
    }

    fn values(funs: &[&str], values: &Value) -> Result<Value, String> {
        match parse("rereduce", json!({"funs": funs, "values": values}))? {
            FunctionCall::Rereduce(call) => Ok(json!(call.values)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rows_of_a_reduce_come_in_two_forms() {
        let rows = json!([[["k", "d"], 1], {"value": [2], "key": null}, {"id": "e", "key": 1, "value": 0}]);
        let call = parse("reduce", json!({"funs": ["_sum"], "rows": rows})).unwrap();
        let FunctionCall::Reduce(call) = call else {
            panic!("{call:?}");
        };
        let rows: Vec<_> = call
            .rows
            .iter()
            .map(|row| (row.key.get(), row.id.get(), row.value.get()))
            .collect();
        assert_eq!(
            rows,
            [
                ("\"k\"", "\"d\"", "1"),
                ("null", "null", "[2]"),
                ("1", "\"e\"", "0")
            ]
        );
        for row in [
            json!(["k", 1]),
            json!([["k", "d"]]),
            json!({"key": 1}),
            json!(1),
        ] {
            let error = parse("reduce", json!({"funs": [], "rows": [row]})).unwrap_err();
            assert!(error.contains("'rows'"), "{error}");
        }
    }

    #[test]
    fn results_to_reduce_again_are_rows_or_for_one_function_plain_values() {
        let two = ["_sum", "_count"];
        assert_eq!(
            values(&two, &json!([[1, 2], [3, 4]])),
            Ok(json!([[1, 2], [3, 4]]))
        );
        assert_eq!(values(&["_sum"], &json!([[1], [2]])), Ok(json!([[1], [2]])));
        assert_eq!(values(&["_sum"], &json!([1, 2])), Ok(json!([[1], [2]])));
        assert_eq!(
            values(&["_sum"], &json!([[1, 2], [3, 4]])),
            Ok(json!([[[1, 2]], [[3, 4]]]))
        );
        assert_eq!(values(&["_sum"], &json!([])), Ok(json!([])));
        for (funs, bad) in [
            (&two[..], json!([1, 2])),
            (&two[..], json!([[1, 2], [3]])),
            (&two[..1], json!([[1], 2])),
            (&[], json!([1])),
        ] {
            let error = values(funs, &bad).unwrap_err();
            assert!(error.contains("'values'"), "{error}");
        }
    }

    #[test]
    fn functions_are_sources_or_definitions() {
        let funs = json!(["function(doc) {}", {"fields": {"a": "asc"}}]);
        assert!(parse("map_docs", json!({"funs": funs, "docs": []})).is_ok());
        for (call, arguments, named) in [
            ("map_docs", json!({"funs": [1], "docs": []}), "'funs'"),
            ("map_docs", json!({"funs": "f", "docs": []}), "'funs'"),
            ("map_docs", json!({"funs": [], "docs": [1]}), "'docs'"),
            (
                "map_docs",
                json!({"funs": [], "docs": [], "lib": "x"}),
                "'lib'",
            ),
            ("reduce", json!({"funs": [{}], "rows": []}), "'funs'"),
            (
                "reduce",
                json!({"funs": [], "rows": [], "context": 1}),
                "'context'",
            ),
            (
                "reduce",
                json!({"funs": [], "rows": [], "finalize": 1}),
                "'finalize'",
            ),
            (
                "finalize",
                json!({"funs": ["_sum"], "values": []}),
                "'values'",
            ),
            ("index_docs", json!({"docs": []}), "'fun'"),
            ("index_docs", json!({"fun": 7, "docs": []}), "'fun'"),
            (
                "index_docs",
                json!({"fun": "f", "docs": [], "nouveau": "yes"}),
                "'nouveau'",
            ),
            ("try_compile", json!({"fun": "f"}), "'name'"),
        ] {
            let error = parse(call, arguments).unwrap_err();
            assert!(error.contains(named), "{call}: {error}");
        }
    }
}
