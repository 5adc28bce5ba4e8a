//! The arguments of calls of view and index functions.

use serde_json::value::RawValue;

use super::{Finalize, InLanguage, Json, MapStart, Reduce, ReduceRows, Reducers, Rereduce};
use crate::messages::arguments::{Arguments, Parsed, is_object, wrong};
use crate::operations::LONG_NAME_BYTES_MAX;
use crate::query_server::language::LanguageName;
use json::{JsonList, JsonListBuilder};

impl InLanguage {
    pub(super) fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        Self::with(arguments.language_or_pool()?, arguments)
    }

    fn with(language: LanguageName, arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self {
            language,
            db: arguments.optional_database()?,
            from: arguments.take_from()?,
            timeout: arguments.timeout()?,
        })
    }
}

impl MapStart {
    pub(super) fn of(arguments: &Arguments<'_>, language: LanguageName) -> Parsed<Self> {
        let what = "an array of functions: sources, or definitions, which are objects";
        let funs: Vec<&RawValue> = arguments.require("funs", what)?;
        let funs: Option<Vec<Json>> = funs.into_iter().map(function).collect();
        Ok(Self {
            at: InLanguage::with(language, arguments)?,
            lib: match arguments.get("lib") {
                Some(lib) if !is_object(lib) => return Err(wrong("lib", "an object of modules")),
                lib => lib.map(RawValue::to_owned),
            },
            funs: funs.ok_or_else(|| wrong("funs", what))?,
        })
    }
}

impl Reduce {
    pub(super) fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self {
            rows: ReduceRows::of(arguments)?,
            with: Reducers::of(arguments)?,
        })
    }
}

impl Rereduce {
    pub(super) fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        let with = Reducers::of(arguments)?;
        let count = with.funs.len();
        let (mut all, mut are_rows) = (0, 0);
        arguments.each("values", "an array", |row| {
            all += 1;
            are_rows += usize::from(result_row(row, count).is_some());
            true
        })?;
        let values = if are_rows == all {
            columns(arguments, count)?
        } else if count == 1 && are_rows == 0 {
            // None of them can be a row, so all are values.
            vec![arguments.list("values", "an array", |_| true)?]
        } else {
            let what = format!(
                "an array of rows of results, each an array with a value for each of {count} \
                 functions"
            );
            return Err(wrong("values", &what));
        };
        Ok(Self { with, values })
    }
}

impl Finalize {
    pub(super) fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        let funs = sources(arguments)?;
        let what = "an array with a result of each function";
        let values: Vec<&RawValue> = arguments.require("values", what)?;
        if values.len() != funs.len() {
            return Err(wrong("values", what));
        }
        // No process is needed, but clients use the same options for all calls of a view.
        arguments.ignore(&["lang", "pool", "group", "timeout_ms"]);
        Ok(Self {
            funs,
            values: values.into_iter().map(RawValue::to_owned).collect(),
        })
    }
}

impl Reducers {
    fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        Ok(Self {
            at: InLanguage::of(arguments)?,
            funs: sources(arguments)?,
            context: arguments
                .bounded("context", LONG_NAME_BYTES_MAX)?
                .unwrap_or_default(),
            finalize: arguments.flag("finalize")?,
        })
    }
}

fn sources(arguments: &Arguments<'_>) -> Parsed<Vec<String>> {
    arguments.require("funs", "an array of sources, which are strings")
}

pub(super) fn one_function(arguments: &Arguments<'_>) -> Parsed<Json> {
    let what = "a source, or a definition, which is an object";
    function(arguments.required("fun")?).ok_or_else(|| wrong("fun", what))
}

fn function(fun: &RawValue) -> Option<Json> {
    fun.get().starts_with(['"', '{']).then(|| fun.to_owned())
}

/// Returns the results in a row; `None` if it is not an array of `count`.
fn result_row(row: &RawValue, count: usize) -> Option<Vec<&RawValue>> {
    let row = Some(row).filter(|row| row.get().starts_with('['))?;
    let row: Vec<&RawValue> = serde_json::from_str(row.get()).ok()?;
    (row.len() == count).then_some(row)
}

/// The results of each of `count` functions, from rows with one result of each.
fn columns(arguments: &Arguments<'_>, count: usize) -> Parsed<Vec<JsonList>> {
    let mut columns = Vec::new();
    columns.resize_with(count, JsonListBuilder::default);
    arguments.each("values", "an array", |row| {
        let row = result_row(row, count);
        row.iter()
            .flatten()
            .zip(&mut columns)
            .for_each(|(value, column)| column.push(value));
        row.is_some()
    })?;
    Ok(columns.into_iter().map(JsonListBuilder::finish).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{FunctionCall, FunctionRequest};
    use crate::query_server::known_ddocs::KnownDdocs;

    fn parse(name: &str, mut arguments: Value) -> Result<FunctionCall, String> {
        arguments["lang"] = json!("javascript");
        let arguments = arguments.to_string();
        FunctionRequest::parse(name.parse().unwrap(), &arguments, &KnownDdocs::default())
            .map(|request| request.call)
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
            .map(|row| (row.key, row.id, row.value))
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
    fn rereduce_takes_rows_of_results_or_the_plain_results_of_one_function() {
        let two = ["_sum", "_count"];
        // Grouped by function.
        assert_eq!(
            values(&two, &json!([[1, 2], [3, 4]])),
            Ok(json!([[1, 3], [2, 4]]))
        );
        assert_eq!(values(&["_sum"], &json!([[1], [2]])), Ok(json!([[1, 2]])));
        assert_eq!(values(&["_sum"], &json!([1, 2])), Ok(json!([[1, 2]])));
        assert_eq!(
            values(&["_sum"], &json!([[1, 2], [3, 4]])),
            Ok(json!([[[1, 2], [3, 4]]]))
        );
        assert_eq!(values(&["_sum"], &json!([])), Ok(json!([[]])));
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
    fn functions_are_sources_or_definitions_and_a_wrong_argument_is_named() {
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
