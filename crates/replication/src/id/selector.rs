//! The form of a selector that goes into ids.
//!
//! SUMMARY   [`normal_form`]: [`node`] makes operators explicit and pushes the names of fields, joined by points, to the
//!           leaves; [`push_negations`] pushes negations there; then names are sorted. Selectors that say the same in
//!           other words often get the same form, and so share checkpoints.
//! PROMISES  The form never changes: a replication whose id changes starts over.
//! SOURCE    CouchDB's mango_selector, normalize/1, and couch_replicator_filters, ejsort/1. What counts is
//!           the bytes of the result, so every step is done as there, not as it might be done better:
//!           negations inside `$elemMatch` and the like stay where they are.
//! DIFFERS   `$regex` is not compiled here. `$not` of `$text` is refused as in CouchDB.

use serde_json::{Map, Value};

/// How deep a selector may be nested.
const DEPTH_MAX: usize = 100;

/// Returns the normal form of a selector.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn normal_form(selector: &Map<String, Value>) -> Result<Value, String> {
    if selector.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let mut form = push_negations(members(selector, "", 0)?, false)?;
    if form.get("").is_some() {
        return Err("a field's name is missing".into());
    }
    form.sort_all_objects();
    Ok(form)
}

fn single(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

/// Reads a selector on the field `path`; empty is the whole document.
fn node(value: &Value, path: &str, depth: usize) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err(format!("it is nested more than {DEPTH_MAX} deep"));
    }
    match value {
        Value::Object(selector) if !selector.is_empty() => members(selector, path, depth),
        _ => Ok(single(path, single("$eq", value.clone()))),
    }
}

/// Several members are an `$and`.
fn members(selector: &Map<String, Value>, path: &str, depth: usize) -> Result<Value, String> {
    let mut each = selector.iter();
    if let (Some((name, argument)), None) = (each.next(), each.next()) {
        return member(name, argument, path, depth);
    }
    let each = selector.iter();
    let parts = each.map(|(name, argument)| member(name, argument, path, depth + 1));
    Ok(single("$and", parts.collect::<Result<_, _>>()?))
}

fn member(name: &str, argument: &Value, path: &str, depth: usize) -> Result<Value, String> {
    let integer = |value: &Value| value.is_i64() || value.is_u64();
    let fits = match name {
        "$and" | "$or" | "$nor" => argument.is_array(),
        "$not" | "$elemMatch" | "$allMatch" | "$keyMapMatch" => argument.is_object(),
        "$in" | "$nin" | "$all" => argument.is_array(),
        "$exists" => argument.is_boolean(),
        "$type" | "$regex" | "$beginsWith" => argument.is_string(),
        "$mod" => {
            matches!(argument, Value::Array(both) if both.len() == 2 && both.iter().all(integer))
        }
        "$size" => argument.is_u64(),
        "$text" => argument.is_string() || argument.is_number() || argument.is_boolean(),
        "$lt" | "$lte" | "$eq" | "$ne" | "$gte" | "$gt" | "$default" => true,
        _ if name.starts_with('$') => return Err(format!("there is no operator {name}")),
        _ => true,
    };
    if !fits {
        return Err(format!("the argument of {name} is wrong"));
    }
    match (name, argument) {
        ("$and" | "$or" | "$nor", Value::Array(arguments)) => {
            let each = arguments.iter();
            let each = each.map(|argument| node(argument, path, depth + 1));
            Ok(single(name, each.collect::<Result<_, _>>()?))
        }
        ("$not", _) => Ok(single(name, node(argument, path, depth + 1)?)),
        ("$elemMatch" | "$allMatch" | "$keyMapMatch", _) => {
            Ok(single(path, single(name, node(argument, "", depth + 1)?)))
        }
        ("$text", _) if path.is_empty() => Ok(single("$default", single(name, argument.clone()))),
        ("$default", _) if path.is_empty() && argument.get("$text").is_some() => {
            Ok(single(name, argument.clone()))
        }
        ("$text" | "$default", _) => {
            Err("$text stands for the whole document, not for a field".into())
        }
        _ if name.starts_with('$') => Ok(single(path, single(name, argument.clone()))),
        _ if path.is_empty() => node(argument, name, depth + 1),
        _ => node(argument, &format!("{path}.{name}"), depth + 1),
    }
}

/// Pushes the negations of what [`node`] returns to the leaves; all of it is negated if `negated`.
fn push_negations(value: Value, negated: bool) -> Result<Value, String> {
    let Value::Object(members) = value else {
        return Ok(value);
    };
    let Some((name, argument)) = members.into_iter().next() else {
        return Ok(Value::Null);
    };
    let other = match (&*name, negated) {
        ("$not", _) => return push_negations(argument, !negated),
        ("$nor", true) => return join("$or", argument, false),
        ("$nor", false) => return join("$and", argument, true),
        ("$and", true) => return join("$or", argument, true),
        ("$or", true) => return join("$and", argument, true),
        ("$and" | "$or", false) => return join(&name, argument, false),
        (_, false) => return Ok(single(&name, argument)),
        ("$default", _) => return Err("$text cannot be negated".into()),
        ("$exists", _) => return Ok(single("$exists", Value::from(argument == false))),
        ("$lt", _) => "$gte",
        ("$lte", _) => "$gt",
        ("$eq", _) => "$ne",
        ("$ne", _) => "$eq",
        ("$gte", _) => "$lt",
        ("$gt", _) => "$lte",
        ("$in", _) => "$nin",
        ("$nin", _) => "$in",
        _ if name.starts_with('$') => return Ok(single("$not", single(&name, argument))),
        _ => return Ok(single(&name, push_negations(argument, true)?)),
    };
    Ok(single(other, argument))
}

fn join(name: &str, parts: Value, negated: bool) -> Result<Value, String> {
    let Value::Array(parts) = parts else {
        return Ok(single(name, parts));
    };
    let parts = parts.into_iter();
    let parts = parts.map(|part| push_negations(part, negated));
    Ok(single(name, parts.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(selector: Value, normal: Value) {
        let result = normal_form(selector.as_object().unwrap()).unwrap();
        assert_eq!(result.to_string(), normal.to_string());
    }

    #[test]
    fn operators_become_explicit_and_fields_move_to_the_leaves() {
        check(json!({}), json!({}));
        check(json!({"a": 1}), json!({"a": {"$eq": 1}}));
        check(json!({"a": {}}), json!({"a": {"$eq": {}}}));
        check(json!({"a": {"b": {"$gt": 1}}}), json!({"a.b": {"$gt": 1}}));
        check(
            json!({"b": 1, "a": {"y": 2, "x": [3]}}),
            json!({"$and": [{"b": {"$eq": 1}}, {"$and": [{"a.y": {"$eq": 2}}, {"a.x": {"$eq": [3]}}]}]}),
        );
        check(
            json!({"a": {"$and": [{"$gt": 5}, {"b": 1}]}}),
            json!({"$and": [{"a": {"$gt": 5}}, {"a.b": {"$eq": 1}}]}),
        );
        check(
            json!({"a": {"$elemMatch": {"$gte": 80, "$lt": 85}}}),
            json!({"a": {"$elemMatch": {"$and": [{"": {"$gte": 80}}, {"": {"$lt": 85}}]}}}),
        );
        check(
            json!({"a": {"$eq": {"z": 1, "b": 2}}}),
            json!({"a": {"$eq": {"b": 2, "z": 1}}}),
        );
        check(json!({"$text": "x"}), json!({"$default": {"$text": "x"}}));
    }

    #[test]
    fn negations_move_to_the_leaves() {
        check(
            json!({"$not": {"a": {"$gt": 1}}}),
            json!({"a": {"$lte": 1}}),
        );
        check(
            json!({"a": {"$not": {"$in": [1]}}}),
            json!({"a": {"$nin": [1]}}),
        );
        check(
            json!({"$not": {"$and": [{"a": 1}, {"$not": {"b": {"$ne": 2}}}]}}),
            json!({"$or": [{"a": {"$ne": 1}}, {"b": {"$ne": 2}}]}),
        );
        check(
            json!({"$nor": [{"a": 1}, {"$or": [{"b": {"$exists": true}}]}]}),
            json!({"$and": [{"a": {"$ne": 1}}, {"$and": [{"b": {"$exists": false}}]}]}),
        );
        check(
            json!({"$not": {"a": {"$size": 1}}}),
            json!({"a": {"$not": {"$size": 1}}}),
        );
        check(
            json!({"a": {"$elemMatch": {"$not": {"$gt": 1}}}}),
            json!({"a": {"$elemMatch": {"$not": {"": {"$gt": 1}}}}}),
        );
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for selector in [
            json!({"$and": 1}),
            json!({"$not": []}),
            json!({"a": {"$in": 1}}),
            json!({"a": {"$exists": 1}}),
            json!({"a": {"$mod": [1]}}),
            json!({"a": {"$size": -1}}),
            json!({"a": {"$nope": 1}}),
            json!({"a": {"$text": "x"}}),
            json!({"$not": {"$text": "x"}}),
            json!({"$gt": 1}),
        ] {
            assert!(
                normal_form(selector.as_object().unwrap()).is_err(),
                "{selector}"
            );
        }
        let deep = (0..200).fold(json!(1), |inner, _| json!({"a": inner}));
        assert!(normal_form(deep.as_object().unwrap()).is_err());
    }
}
