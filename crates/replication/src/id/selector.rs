//! The form of a selector that goes into ids.
//!
//! SUMMARY   [`normal_form`]: operators made explicit, field names joined by points and pushed to the
//!           leaves, negations pushed down, names sorted. Selectors that say the same in other words
//!           often get the same form, and so share checkpoints.
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
    let explicit = explicit(&Value::Object(selector.clone()), 0)?;
    let named = push_fields(explicit, "")?;
    let positive = push_negations(named, false)?;
    if positive.get("").is_some() {
        return Err("a field's name is missing".into());
    }
    Ok(sorted(positive))
}

fn single(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

/// Takes the only member of a value that [`explicit`] has made.
fn member(value: Value) -> Option<(String, Value)> {
    let Value::Object(members) = value else {
        return None;
    };
    members.into_iter().next()
}

fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(elements) => elements,
        _ => Vec::new(),
    }
}

/// Makes every operator explicit: several members are an `$and`, a bare value an `$eq`.
fn explicit(value: &Value, depth: usize) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err(format!("it is nested more than {DEPTH_MAX} deep"));
    }
    let Value::Object(members) = value else {
        return Ok(single("$eq", value.clone()));
    };
    let mut each = members.iter();
    match (each.next(), each.next()) {
        (None, _) => Ok(single("$eq", value.clone())),
        (Some((name, argument)), None) => condition(name, argument, depth),
        _ => {
            let parts = members
                .iter()
                .map(|(name, value)| condition(name, value, depth + 1));
            Ok(single(
                "$and",
                Value::Array(parts.collect::<Result<_, _>>()?),
            ))
        }
    }
}

fn condition(name: &str, argument: &Value, depth: usize) -> Result<Value, String> {
    let wrong = || Err(format!("the argument of {name} is wrong"));
    let integer = |value: &Value| value.is_i64() || value.is_u64();
    let kept = match name {
        "$and" | "$or" | "$nor" => {
            let Value::Array(arguments) = argument else {
                return wrong();
            };
            let each = arguments
                .iter()
                .map(|argument| explicit(argument, depth + 1));
            return Ok(single(name, Value::Array(each.collect::<Result<_, _>>()?)));
        }
        "$not" | "$elemMatch" | "$allMatch" | "$keyMapMatch" => {
            if !argument.is_object() {
                return wrong();
            }
            return Ok(single(name, explicit(argument, depth + 1)?));
        }
        "$in" | "$nin" | "$all" => argument.is_array(),
        "$exists" => argument.is_boolean(),
        "$type" | "$regex" | "$beginsWith" => argument.is_string(),
        "$mod" => {
            matches!(argument, Value::Array(both) if both.len() == 2 && both.iter().all(integer))
        }
        "$size" => argument.is_u64(),
        "$text" => {
            if !(argument.is_string() || argument.is_number() || argument.is_boolean()) {
                return wrong();
            }
            return Ok(single("$default", single(name, argument.clone())));
        }
        "$lt" | "$lte" | "$eq" | "$ne" | "$gte" | "$gt" | "$default" => true,
        _ if name.starts_with('$') => return Err(format!("there is no operator {name}")),
        _ => return Ok(single(name, explicit(argument, depth + 1)?)),
    };
    if kept {
        Ok(single(name, argument.clone()))
    } else {
        wrong()
    }
}

/// Pushes the names of fields to the leaves, joined by points.
fn push_fields(value: Value, path: &str) -> Result<Value, String> {
    let Some((name, argument)) = member(value) else {
        return Err(format!("`{path}` has no condition"));
    };
    match &*name {
        "$and" | "$or" | "$nor" => {
            let each = elements(argument)
                .into_iter()
                .map(|part| push_fields(part, path));
            Ok(single(&name, Value::Array(each.collect::<Result<_, _>>()?)))
        }
        "$not" => Ok(single(&name, push_fields(argument, path)?)),
        "$elemMatch" | "$allMatch" | "$keyMapMatch" => {
            Ok(single(path, single(&name, push_fields(argument, "")?)))
        }
        "$default" => {
            if path.is_empty() && argument.get("$text").is_some() {
                return Ok(single(&name, argument));
            }
            Err("$text stands for the whole document, not for a field".into())
        }
        _ if name.starts_with('$') => Ok(single(path, single(&name, argument))),
        _ if path.is_empty() => push_fields(argument, &name),
        _ => push_fields(argument, &format!("{path}.{name}")),
    }
}

/// Pushes negations to the leaves; all of it is negated if `negated`.
fn push_negations(value: Value, negated: bool) -> Result<Value, String> {
    let Some((name, argument)) = member(value) else {
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
        ("$exists", _) => {
            return Ok(single("$exists", Value::from(argument == false)));
        }
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

fn join(name: &str, arguments: Value, negated: bool) -> Result<Value, String> {
    let parts = elements(arguments).into_iter();
    let parts = parts.map(|part| push_negations(part, negated));
    Ok(single(name, Value::Array(parts.collect::<Result<_, _>>()?)))
}

/// Sorts the members of all objects by name.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let each = members
                .into_iter()
                .map(|(name, value)| (name, sorted(value)));
            let mut members: Vec<_> = each.collect();
            members.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(elements) => elements.into_iter().map(sorted).collect(),
        leaf => leaf,
    }
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
