//! A naive evaluator to compare with: parses everything, normalises nothing.

use std::cmp::Ordering;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::Selector;

/// A field's state.
#[derive(Clone, Copy)]
enum Here<'a> {
    Value(&'a Value),
    Missing,
    BadPath,
}

impl<'a> Here<'a> {
    fn field(self, name: &str) -> Self {
        match self {
            Self::Value(Value::Object(members)) => {
                members.get(name).map_or(Self::Missing, Self::Value)
            }
            Self::Value(_) => Self::BadPath,
            nowhere => nowhere,
        }
    }
}

/// Whether a field matches a selector taken literally.
fn naive(selector: &Value, here: Here<'_>) -> bool {
    match (selector, here) {
        (Value::Object(members), _) if !members.is_empty() => members
            .iter()
            .all(|(name, argument)| naive_member(name, argument, here)),
        (_, Here::Value(value)) => order(value, selector) == Ordering::Equal,
        _ => false,
    }
}

fn naive_member(name: &str, argument: &Value, here: Here<'_>) -> bool {
    let mut all = argument.as_array().into_iter().flatten();
    match (name, here) {
        ("$and", _) => all.all(|selector| naive(selector, here)),
        ("$or", _) => argument == &json!([]) || all.any(|selector| naive(selector, here)),
        ("$exists", Here::Value(_)) => argument == &json!(true),
        ("$exists", Here::Missing) => argument == &json!(false),
        (operator, Here::Value(value)) if operator.starts_with('$') => {
            naive_operator(operator, argument, value)
        }
        (operator, _) if operator.starts_with('$') => false,
        (field, _) => naive(argument, here.field(field)),
    }
}

fn naive_operator(name: &str, argument: &Value, value: &Value) -> bool {
    let all = || argument.as_array().unwrap().iter();
    let compared = || order(value, argument);
    match name {
        "$eq" => compared() == Ordering::Equal,
        "$ne" => compared() != Ordering::Equal,
        "$lt" => compared() == Ordering::Less,
        "$lte" => compared() != Ordering::Greater,
        "$gt" => compared() == Ordering::Greater,
        "$gte" => compared() != Ordering::Less,
        "$in" | "$nin" => {
            let is_one = |value: &Value| all().any(|other| order(value, other).is_eq());
            let found = value
                .as_array()
                .map_or_else(|| is_one(value), |a| a.iter().any(is_one));
            found == (name == "$in")
        }
        "$all" => value.as_array().is_some_and(|elements| {
            all().len() > 0 && all().all(|wanted| elements.iter().any(|value| value == wanted))
        }),
        "$size" => value
            .as_array()
            .is_some_and(|elements| Some(elements.len() as u64) == argument.as_u64()),
        "$type" => type_of(value) == argument,
        "$elemMatch" => value
            .as_array()
            .is_some_and(|all| all.iter().any(|v| naive(argument, Here::Value(v)))),
        "$allMatch" => value.as_array().is_some_and(|all| {
            !all.is_empty() && all.iter().all(|v| naive(argument, Here::Value(v)))
        }),
        "$keyMapMatch" => value.as_object().is_some_and(|members| {
            members
                .keys()
                .any(|key| naive(argument, Here::Value(&json!(key))))
        }),
        _ => unreachable!("{name} is not generated"),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The collation of the few strings and small numbers generated below.
fn order(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(false) => 1,
        Value::Bool(true) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one
            .as_f64()
            .unwrap()
            .partial_cmp(&other.as_f64().unwrap())
            .unwrap(),
        (Value::String(one), Value::String(other)) => {
            // a < A < b < B
            let weigh = |text: &str| {
                (
                    text.to_lowercase(),
                    text.chars().map(|c| c.is_uppercase()).collect::<Vec<_>>(),
                )
            };
            weigh(one).cmp(&weigh(other))
        }
        (Value::Array(one), Value::Array(other)) => {
            let pairs = one.iter().zip(other).map(|(one, other)| order(one, other));
            pairs
                .fold(Ordering::Equal, Ordering::then)
                .then(one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let pairs = one.iter().zip(other).map(|(one, other)| {
                order(&json!(one.0), &json!(other.0)).then_with(|| order(one.1, other.1))
            });
            pairs
                .fold(Ordering::Equal, Ordering::then)
                .then(one.len().cmp(&other.len()))
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

fn name() -> impl Strategy<Value = String> {
    "[abc]"
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-2..3_i64).prop_map(|number| json!(number)),
        (-2..3_i64).prop_map(|number| json!(number as f64)),
        (-3..3_i64).prop_map(|number| json!(number as f64 / 2.0)),
        "[abAB]{0,2}".prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// An operator and its argument.
fn operator(inner: BoxedStrategy<Value>) -> BoxedStrategy<(String, Value)> {
    let compared = prop_oneof!["\\$eq", "\\$ne", "\\$lt", "\\$lte", "\\$gt", "\\$gte"];
    let some = prop_oneof!["\\$elemMatch", "\\$allMatch", "\\$keyMapMatch"];
    let types = prop_oneof![
        "null", "boolean", "number", "string", "array", "object", "odd"
    ];
    prop_oneof![
        4 => (compared, value()),
        2 => ("\\$n?in", prop::collection::vec(value(), 0..3).prop_map(Value::Array)),
        1 => (Just("$all".into()), prop::collection::vec(scalar_or_object(), 0..3).prop_map(Value::Array)),
        1 => (Just("$size".into()), (0..4_u8).prop_map(|size| json!(size))),
        1 => (Just("$type".into()), types.prop_map(Value::String)),
        1 => (Just("$exists".into()), any::<bool>().prop_map(Value::Bool)),
        2 => (some, inner.prop_map(|condition| match condition {
            Value::Object(_) => condition,
            value => json!({"$eq": value}),
        })),
    ]
    .boxed()
}

/// A value that is not an array: `$all` treats arrays specially.
fn scalar_or_object() -> impl Strategy<Value = Value> {
    value().prop_filter("no array", |value| !value.is_array())
}

fn object(members: Vec<(String, Value)>) -> Value {
    Value::Object(members.into_iter().collect::<Map<_, _>>())
}

fn condition() -> BoxedStrategy<Value> {
    value()
        .prop_filter("objects are conditions themselves", |value| {
            !value.is_object()
        })
        .boxed()
        .prop_recursive(4, 32, 3, |inner| {
            let many = || prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array);
            prop_oneof![
                2 => operator(inner.clone()).prop_map(|member| object(vec![member])),
                2 => prop::collection::vec(operator(inner.clone()), 1..3).prop_map(object),
                2 => (name(), inner.clone()).prop_map(|member| object(vec![member])),
                1 => many().prop_map(|many| json!({"$and": many})),
                1 => many().prop_map(|many| json!({"$or": many})),
                1 => name().prop_map(|name| json!({name: {"$exists": false}})),
            ]
        })
        .boxed()
}

/// A selector with fields at its root.
fn selector() -> impl Strategy<Value = Value> {
    prop::collection::vec((name(), condition()), 1..4).prop_map(object)
}

fn document() -> impl Strategy<Value = Value> {
    prop::collection::vec((name(), value()), 0..4).prop_map(object)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn matches_agree_with_a_naive_evaluator(selector in selector(), document in document()) {
        let parsed = Selector::parse(&selector.to_string()).unwrap();
        prop_assert_eq!(parsed.matches(&document.to_string()), Ok(naive(&selector, Here::Value(&document))));
    }

    #[test]
    fn nested_fields_and_dotted_names_mean_the_same(
        names in prop::collection::vec(name(), 1..4),
        condition in condition(),
        document in document(),
    ) {
        let nested = names.iter().rev().fold(condition.clone(), |inner, name| json!({name: inner}));
        let joined = json!({names.join("."): condition});
        let says = |selector: &Value| {
            Selector::parse(&selector.to_string()).unwrap().matches(&document.to_string())
        };
        prop_assert_eq!(says(&nested), says(&joined));
    }

    #[test]
    fn no_selector_document_or_pattern_causes_a_panic(selector in ".{0,60}", document in ".{0,60}") {
        if let Ok(selector) = Selector::parse(&selector) {
            drop(selector.matches(&document));
        }
        drop(super::super::pattern::Pattern::new(&selector).map(|p| p.is_match(document.as_bytes())));
    }

    #[test]
    fn no_regular_expression_causes_a_panic(pattern in "[ab(){}\\[\\]|*+?^$.\\\\Qk<>=!:P12dwZ,\\-é\n]{0,16}", text in "[ab1\n é]{0,12}") {
        drop(super::super::pattern::Pattern::new(&pattern).map(|p| p.is_match(text.as_bytes())));
    }
}
