//! For every built-in reducer: reducing pieces and then their results equals reducing the whole.
//!
//! SUMMARY   Rows are cut into pieces anywhere; the pieces' results are reduced again, at once or in two steps. If
//!           the order of pieces must not matter, they are also reversed.
//!
//! # Replay
//! A failure prints its shortest rows and adds its seed to
//! `proptest-regressions/query_server/reduce/tests/properties.txt`, which runs first from then on; commit it with the
//! fix. `PROPTEST_RNG_SEED=1 cargo test --lib reduce::tests::properties` repeats a run.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A row's key, id and value, as JSON.
type Texts = (Box<RawValue>, Box<RawValue>, Box<RawValue>);

/// The cuts of rows into pieces, and of pieces into the parts of two steps.
type Cuts = (Vec<usize>, usize);

fn raw_text(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap()
}

/// Small integers, and floats whose sums and squares are exact.
fn number() -> BoxedStrategy<String> {
    prop_oneof![
        4 => (-100..100_i64).prop_map(|number| number.to_string()),
        1 => (-4000..4000_i32).prop_map(|eighths| format!("{:?}", f64::from(eighths) / 8.0)),
    ]
    .boxed()
}

/// Integers of all sizes.
fn integer() -> BoxedStrategy<String> {
    prop_oneof![
        2 => any::<i64>().prop_map(|number| number.to_string()),
        1 => any::<i128>().prop_map(|number| number.to_string()),
        1 => "-?[1-9][0-9]{38,60}",
    ]
    .boxed()
}

fn list(elements: Vec<String>) -> String {
    format!("[{}]", elements.join(","))
}

fn object(members: Vec<(String, String)>) -> String {
    let mut members: Vec<_> = members;
    members.sort();
    members.dedup_by(|one, two| one.0 == two.0);
    // In any order, as JavaScript may write them.
    members.sort_by_key(|(_, value)| value.len());
    let member = |(name, value)| format!("{}:{value}", serde_json::Value::String(name));
    let members: Vec<String> = members.into_iter().map(member).collect();
    format!("{{{}}}", members.join(","))
}

fn any_json() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        number(),
        integer(),
        ".{0,3}".prop_map(|text| serde_json::Value::String(text).to_string()),
    ];
    let value = leaf.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(list),
            vec(("[a-c]{0,2}", inner), 0..4).prop_map(object),
        ]
    });
    value.boxed()
}

/// Objects of one shape: members `a` to `d` are numbers, `l` arrays, `o` objects; each is optional.
fn summable_object() -> BoxedStrategy<String> {
    let numbers = || vec(("[a-d]", number()), 0..4);
    let lists = vec(("l", vec(number(), 0..3).prop_map(list)), 0..2);
    let objects = vec(("o", numbers().prop_map(object)), 0..2);
    (numbers(), lists, objects)
        .prop_map(|(numbers, lists, objects)| object([numbers, lists, objects].concat()))
        .boxed()
}

/// Values that `_sum` can add to each other.
fn summable() -> BoxedStrategy<Vec<String>> {
    let numbers_and_lists = prop_oneof![number(), vec(number(), 0..4).prop_map(list)];
    prop_oneof![
        vec(number(), 1..16),
        vec(integer(), 1..16),
        vec(numbers_and_lists, 1..16),
        vec(summable_object(), 1..16),
    ]
    .boxed()
}

/// Values that `_stats` accepts.
fn measurable() -> BoxedStrategy<Vec<String>> {
    let lists = (0..4_usize)
        .prop_flat_map(|length| vec(vec(number(), length..=length).prop_map(list), 1..16));
    prop_oneof![vec(number(), 1..16), vec(integer(), 1..16), lists].boxed()
}

fn with_keys(values: BoxedStrategy<Vec<String>>) -> BoxedStrategy<Vec<Texts>> {
    let row = |value| (any_json(), "\"[a-cA-C]{1,2}\"", Just(value));
    let rows = values.prop_flat_map(move |values| values.into_iter().map(row).collect::<Vec<_>>());
    let raw = |(key, id, value)| (raw_text(key), raw_text(id), raw_text(value));
    rows.prop_map(move |rows| rows.into_iter().map(raw).collect())
        .boxed()
}

fn cuts() -> impl Strategy<Value = Cuts> {
    (vec(1..6_usize, 16), 0..16_usize)
}

fn result(value: Result<Box<RawValue>, InvalidValue>) -> Result<Box<RawValue>, TestCaseError> {
    value.map_err(|error| TestCaseError::fail(error.0))
}

/// Checks one reducer. `any_order`: the order of pieces must not matter either.
fn pieces_equal_the_whole(
    name: &str,
    rows: &[Texts],
    (lengths, middle): &Cuts,
    any_order: bool,
) -> Result<(), TestCaseError> {
    let (reducer, context) = (Builtin::named(name).unwrap(), &ReduceContext::NONE);
    let reduce = |rows: &[Texts]| {
        let rows = rows.iter().map(|(key, id, value)| ReduceRow {
            key: key.get(),
            id: id.get(),
            value: value.get(),
        });
        result(reducer.reduce(rows, context))
    };
    let rereduce = |values: &[Box<RawValue>]| {
        result(reducer.rereduce(values.iter().map(|value| value.get()), context))
    };
    let mut rest = rows;
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, others) = rest.split_at((*length).min(rest.len()));
        if !piece.is_empty() {
            pieces.push(reduce(piece)?);
        }
        rest = others;
    }
    let whole = reduce(rows)?;
    let finalized = result(reducer.finalize(&whole))?;
    let mut orders = vec![pieces.clone()];
    if any_order {
        orders.push(pieces.into_iter().rev().collect());
    }
    for pieces in orders {
        let at_once = rereduce(&pieces)?;
        prop_assert_eq!(at_once.get(), whole.get());
        let (left, right) = pieces.split_at((*middle).min(pieces.len() - 1));
        let parts: Vec<_> = [left, right]
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(rereduce)
            .collect::<Result<_, _>>()?;
        let in_steps = rereduce(&parts)?;
        prop_assert_eq!(in_steps.get(), whole.get());
        let value = result(reducer.finalize(&in_steps))?;
        prop_assert_eq!(value.get(), finalized.get());
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_sum_of_pieces_equals_the_whole(rows in with_keys(summable()), cuts in cuts()) {
        pieces_equal_the_whole("_sum", &rows, &cuts, false)?;
    }

    #[test]
    fn a_count_of_pieces_equals_the_whole(
        rows in with_keys(vec(any_json(), 1..16).boxed()), cuts in cuts()
    ) {
        pieces_equal_the_whole("_count", &rows, &cuts, true)?;
    }

    #[test]
    fn stats_of_pieces_equal_the_whole(rows in with_keys(measurable()), cuts in cuts()) {
        pieces_equal_the_whole("_stats", &rows, &cuts, false)?;
    }

    #[test]
    fn distinct_keys_of_pieces_equal_the_whole(
        rows in with_keys(vec(any_json(), 1..16).boxed()), cuts in cuts()
    ) {
        pieces_equal_the_whole("_approx_count_distinct", &rows, &cuts, true)?;
    }

    #[test]
    fn ranks_of_pieces_equal_the_whole(
        rows in with_keys(vec(any_json(), 1..16).boxed()), cuts in cuts(), count in 1..6_u8
    ) {
        for name in ["_top", "_bottom"] {
            pieces_equal_the_whole(&format!("{name}_{count}"), &rows, &cuts, true)?;
        }
    }

    #[test]
    fn first_and_last_of_pieces_equal_the_whole(
        rows in with_keys(vec(any_json(), 1..16).boxed()), cuts in cuts()
    ) {
        for name in ["_first", "_last"] {
            pieces_equal_the_whole(name, &rows, &cuts, true)?;
        }
    }

    #[test]
    fn every_reducer_returns_an_error_or_a_result_that_it_can_finalize(
        values in vec(any_json(), 0..6), name in prop::sample::select(Builtin::names())
    ) {
        let reducer = Builtin::named(&name.replace("_N", "_3")).unwrap();
        let values: Vec<_> = values.into_iter().map(raw_text).collect();
        let rows = values.iter().map(|value| {
            let value = value.get();
            ReduceRow { key: value, id: value, value }
        });
        let reduced = reducer.reduce(rows, &ReduceContext::NONE);
        if let Ok(value) = reduced {
            prop_assert!(reducer.finalize(&value).is_ok());
        }
        let again = reducer.rereduce(values.iter().map(|value| value.get()), &ReduceContext::NONE);
        if let Ok(value) = again {
            prop_assert!(reducer.finalize(&value).is_ok());
        }
    }
}
