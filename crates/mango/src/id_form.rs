//! The form of selectors in replication ids.
//!
//! SUMMARY   [`id_form`]: [`node`] makes operators explicit and pushes field names, joined by dots, to the leaves;
//!           [`push_negations`] pushes negations to the leaves; then names are sorted. Equivalent selectors often get
//!           the same form, and so share checkpoints.
//! PROMISES  The form never changes: a replication whose id changes starts over. `tests/id_forms.tsv` has the
//!           forms of 604 selectors.
//! SOURCE    CouchDB's mango_selector, normalize/1, and couch_replicator_filters, ejsort/1. The result must match byte
//!           for byte, so every step is done as in CouchDB, even where it could be better: negations inside
//!           `$elemMatch` and the like stay in place. `$not` of `$text` is refused.
//! DIFFERS   `$regex` is not compiled here.

use serde_json::{Map, Value};

use super::operator::{Join, Meaning, Negation, Operator};

/// Maximum nesting depth of a selector.
const DEPTH_MAX: usize = 100;

/// Returns a selector's normal form for a replication id; its bytes never change between versions.
///
/// # Errors
/// The mistake, as a message.
pub fn id_form(selector: &Map<String, Value>) -> Result<Value, String> {
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

/// Reads a selector for the field `path`; empty for the whole document.
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
    if selector.len() == 1
        && let Some((name, argument)) = each.next()
    {
        return member(name, argument, path, depth);
    }
    let parts = each.map(|(name, argument)| member(name, argument, path, depth + 1));
    Ok(single("$and", parts.collect::<Result<_, _>>()?))
}

fn member(name: &str, argument: &Value, path: &str, depth: usize) -> Result<Value, String> {
    if !name.starts_with('$') {
        return match path {
            "" => node(argument, name, depth + 1),
            _ => node(argument, &format!("{path}.{name}"), depth + 1),
        };
    }
    let Some(operator) = Operator::named(name) else {
        return Err(format!("there is no operator {name}"));
    };
    let fits = operator.takes.fits_id(argument);
    match operator.meaning {
        // Any other argument is refused, as below a field.
        Meaning::Default if path.is_empty() && fits => Ok(single(name, argument.clone())),
        Meaning::Default => Err(NOT_ON_A_FIELD.into()),
        _ if !fits => Err(format!("the argument of {name} is wrong")),
        Meaning::Join { .. } => {
            let selectors = argument.as_array().into_iter().flatten();
            let parts = selectors.map(|selector| node(selector, path, depth + 1));
            Ok(single(name, parts.collect::<Result<_, _>>()?))
        }
        Meaning::Not => Ok(single(name, node(argument, path, depth + 1)?)),
        Meaning::Parts(_) => Ok(single(path, single(name, node(argument, "", depth + 1)?))),
        Meaning::Value(..) => Ok(single(path, single(name, argument.clone()))),
        Meaning::Text if path.is_empty() => Ok(single("$default", single(name, argument.clone()))),
        Meaning::Text => Err(NOT_ON_A_FIELD.into()),
    }
}

const NOT_ON_A_FIELD: &str = "$text stands for the whole document, not for a field";

/// Pushes negations in the result of [`node`] to the leaves; `negated`: the whole value is negated.
fn push_negations(value: Value, negated: bool) -> Result<Value, String> {
    let Value::Object(members) = value else {
        return Ok(value);
    };
    let Some((name, argument)) = members.into_iter().next() else {
        return Ok(Value::Null);
    };
    match Operator::named(&name).map(|operator| operator.meaning) {
        Some(Meaning::Not) => push_negations(argument, !negated),
        Some(Meaning::Join { join, of_negated }) => {
            let join = if negated { join.negated() } else { join };
            joined(join, argument, of_negated != negated)
        }
        _ if !negated => Ok(single(&name, argument)),
        None => Ok(single(&name, push_negations(argument, true)?)),
        Some(Meaning::Value(_, Negation::As(other))) => Ok(single(other, argument)),
        Some(Meaning::Value(_, Negation::Flipped)) => {
            Ok(single(&name, Value::from(argument == false)))
        }
        Some(Meaning::Value(_, Negation::Wrapped) | Meaning::Parts(_)) => {
            Ok(single("$not", single(&name, argument)))
        }
        Some(Meaning::Text | Meaning::Default) => Err("$text cannot be negated".into()),
    }
}

fn joined(join: Join, parts: Value, negated: bool) -> Result<Value, String> {
    let Value::Array(parts) = parts else {
        return Ok(single(join.id_name(), parts));
    };
    let parts = parts.into_iter().map(|part| push_negations(part, negated));
    Ok(single(join.id_name(), parts.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::operator::OPERATORS;
    use super::*;

    #[track_caller]
    fn check(selector: Value, normal: Value) {
        let result = id_form(selector.as_object().unwrap()).unwrap();
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
    fn an_invalid_selector_is_refused() {
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
                id_form(selector.as_object().unwrap()).is_err(),
                "{selector}"
            );
        }
    }

    #[test]
    fn the_depth_limit_of_selectors_is_frozen_too() {
        let fits = |depth: usize, around: fn(Value) -> Value| {
            let selector = (0..depth).fold(json!({"a": 1}), |inner, _| around(inner));
            id_form(selector.as_object().unwrap()).is_ok()
        };
        for (depth, around) in [
            (99, (|inner| json!({"a": inner})) as fn(Value) -> Value),
            (99, |inner| json!({"$not": inner})),
            (49, |inner| json!({"a": {"$elemMatch": inner}})),
            (49, |inner| json!({"a": 1, "b": inner})),
        ] {
            assert!(
                fits(depth, around) && !fits(depth + 1, around),
                "{}",
                around(json!({}))
            );
        }
    }

    #[test]
    fn no_byte_of_a_form_and_no_refusal_changes() {
        for line in include_str!("tests/id_forms.tsv").lines() {
            let (selector, frozen) = line.split_once('\t').unwrap();
            let selector: Map<String, Value> = serde_json::from_str(selector).unwrap();
            let form = match id_form(&selector) {
                Ok(form) => form.to_string(),
                Err(problem) => format!("refused: {problem}"),
            };
            assert_eq!(form, frozen, "{line}");
        }
    }

    #[test]
    fn the_form_of_each_operator_is_frozen() {
        let frozen = include_str!("tests/id_forms.tsv");
        for operator in OPERATORS {
            let name = format!("\"{}\"", operator.name);
            let with_it = || frozen.lines().filter(|line| line.contains(&name));
            assert!(
                with_it().count() > 5,
                "tests/id_forms.tsv has too few lines with {name}"
            );
            assert!(with_it().any(|line| line.contains("refused")), "{name}");
            assert!(with_it().any(|line| line.contains("$not")), "{name}");
        }
    }
}
