//! Reduces rows as they arrive, with a built-in reducer.
//!
//! SUMMARY   [`Totals`] takes rows in any order and keeps a total for each group; [`Totals::results`] returns the
//!           results in the order of the keys.
//! PROMISES  No row is kept: memory grows with the number of groups. The same rows in the same order give the same
//!           results, to the last digit of a sum of floats. A group is shown under the key of its first row in view
//!           order.
//! SOURCE    couch_mrview_util and fabric_view: grouping; couch_query_servers: builtin_reduce/5.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use super::ViewError;
use super::answer::Mapped;
use super::grouping::{Grouping, line};
use super::map::MapSink;
use crate::config::ReduceLimit;
use crate::query_server::reduce::{
    Builtin, Fold, InvalidValue, OverflowLog, ReduceContext, ReduceRow, SumLimit,
};
use json::collation::CachedCollation;
use json::string::unescape_bytes;

/// A built-in reducer, with its limit.
#[derive(Debug)]
pub(crate) struct BuiltinReducer {
    pub builtin: Builtin,
    /// The limit on the length of sums.
    pub limit: SumLimit,
    /// The log of sums that are too long.
    pub log: OverflowLog,
}

impl BuiltinReducer {
    fn context(&self) -> ReduceContext<'_> {
        ReduceContext {
            call: None,
            limit: self.limit,
            name: "",
            log: Some(&self.log),
        }
    }
}

/// The total of each group.
pub(crate) struct Totals<'a> {
    reducer: &'a BuiltinReducer,
    grouping: Grouping,
    groups: Vec<Group>,
    /// Text of a key, in each form seen -> index of its group.
    by_text: FxHashMap<Rc<str>, usize>,
    /// Sort key of a key -> index of its group.
    by_sort_key: BTreeMap<Box<[u8]>, usize>,
    collation: CachedCollation,
    scratch: Vec<u8>,
}

struct Group {
    /// The group's key, as written in its first row.
    key: Rc<str>,
    /// The position of that row in a view.
    first: Option<Box<[u8]>>,
    total: Result<Box<dyn Fold>, InvalidValue>,
    /// The size of all rows in bytes, if the length of the result is limited.
    rows_size: u64,
}

impl<'a> Totals<'a> {
    /// Begins without rows.
    pub fn new(reducer: &'a BuiltinReducer, grouping: Grouping) -> Self {
        Self {
            reducer,
            grouping,
            groups: Vec::new(),
            by_text: FxHashMap::default(),
            by_sort_key: BTreeMap::new(),
            collation: CachedCollation::default(),
            scratch: Vec::new(),
        }
    }

    fn take(&mut self, row: &ReduceRow<'_>) {
        let key = self.grouping.key_of(row.key);
        let index = match self.by_text.get(&*key) {
            Some(index) => *index,
            None => self.group_of(&key),
        };
        self.write_place(row);
        let group = &mut self.groups[index];
        let first = group.first.as_ref();
        if first.is_none_or(|first| self.scratch[..] < **first)
            && let Some((key, _)) = self.by_text.get_key_value(&*key)
        {
            group.key = Rc::clone(key);
            group.first = Some(self.scratch.as_slice().into());
        }
        let reducer = &self.reducer;
        if reducer.builtin.is_limited() && reducer.limit.mode != ReduceLimit::False {
            group.rows_size += row.size(&mut self.scratch);
        }
        if let Ok(total) = &mut group.total
            && let Err(error) = total.take(row, &mut self.scratch)
        {
            group.total = Err(error);
        }
    }

    /// Finds or creates the group of a key whose text is new.
    fn group_of(&mut self, key: &str) -> usize {
        let text: Rc<str> = key.into();
        self.scratch.clear();
        self.collation.write_key(key.as_bytes(), &mut self.scratch);
        let next = self.groups.len();
        let sort_key = self.scratch.as_slice().into();
        let index = *self.by_sort_key.entry(sort_key).or_insert(next);
        if index == next {
            self.groups.push(Group {
                key: Rc::clone(&text),
                first: None,
                total: Ok(self.reducer.builtin.begin()),
                rows_size: 0,
            });
        }
        self.by_text.insert(text, index);
        index
    }

    /// Writes a row's position in its group to `scratch`: its whole key, if keys in the group may differ, and its
    /// document's id.
    fn write_place(&mut self, row: &ReduceRow<'_>) {
        self.scratch.clear();
        if let Grouping::Level(_) = self.grouping {
            self.collation
                .write_key(row.key.as_bytes(), &mut self.scratch);
        }
        if self.grouping != Grouping::None {
            self.scratch
                .extend_from_slice(&unescape_bytes(row.id.as_bytes()));
        }
    }

    /// Returns the results as printed, in the order of the keys. Without rows there are none, as in CouchDB.
    ///
    /// # Errors
    /// [`ViewError::Reduce`] for each group that has no result.
    pub fn results(&self) -> impl Iterator<Item = Result<Vec<u8>, ViewError>> {
        self.by_sort_key.values().map(|index| {
            let group = &self.groups[*index];
            let value = self.result(group).map_err(|error| ViewError::Reduce {
                key: self.grouping.named(&group.key),
                reason: error.to_string(),
            })?;
            Ok(line(&group.key, value.get()))
        })
    }

    fn result(&self, group: &Group) -> Result<Box<RawValue>, InvalidValue> {
        let builtin = self.reducer.builtin;
        let result = group.total.as_ref().map_err(Clone::clone)?.finish();
        builtin.finalize(&builtin.checked(result, &self.reducer.context(), || group.rows_size))
    }
}

impl MapSink for RefCell<Totals<'_>> {
    fn mapped(&self, mapped: &Mapped<'_>) {
        let mut totals = self.borrow_mut();
        mapped.rows().for_each(|row| totals.take(&row.texts()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use slog::{Discard, Logger, o};

    use super::super::group::Groups;
    use super::super::rows::{Row, Rows};
    use super::*;

    /// A row as JSON texts: key, id, value.
    type Texts = (String, String, String);

    /// A few keys, some of which collate as equal.
    fn key() -> BoxedStrategy<String> {
        let part = prop::sample::select(vec![
            "null",
            "1",
            "1.0",
            "10e-1",
            "2",
            "\"a\"",
            "\"a\\u00ad\"",
            "\"B\"",
            "[]",
            "{\"a\":[1]}",
            "{ \"a\" : [1.0] }",
        ]);
        let list = vec(part.clone(), 0..4).prop_map(|parts| format!("[{}]", parts.join(" ,")));
        prop_oneof![part.prop_map(str::to_owned), list].boxed()
    }

    /// Values: many can be added, some cannot.
    fn value() -> BoxedStrategy<String> {
        let float = any::<f64>().prop_map(|float| format!("{float:?}"));
        let decimal =
            (-1000..1000_i32).prop_map(|tenths| format!("{:?}", f64::from(tenths) / 10.0));
        let number = prop_oneof![
            8 => decimal,
            4 => any::<i64>().prop_map(|number| number.to_string()),
            1 => any::<i128>().prop_map(|number| number.to_string()),
            1 => float,
        ];
        let number = number.prop_filter("a JSON text", |number| {
            serde_json::from_str::<serde_json::Value>(number).is_ok()
        });
        let list = vec(number.clone(), 0..3).prop_map(|parts| format!("[{}]", parts.join(",")));
        let object = number
            .clone()
            .prop_map(|number| format!("{{\"b\":{number},\"a\":1}}"));
        let other = prop::sample::select(vec!["null", "\"text\"", "[[1]]", "{\"error\":\"x\"}"]);
        prop_oneof![
            40 => number,
            8 => list,
            4 => object,
            1 => other.prop_map(str::to_owned),
        ]
        .boxed()
    }

    fn rows() -> BoxedStrategy<Vec<Texts>> {
        let id = prop::sample::select(vec!["\"a\"", "\"B\"", "\"\\u0061\"", "\"c\""]);
        vec((key(), id.prop_map(str::to_owned), value()), 0..60).boxed()
    }

    fn grouping() -> impl Strategy<Value = Grouping> {
        prop_oneof![
            Just(Grouping::None),
            Just(Grouping::Exact),
            (1..4_usize).prop_map(Grouping::Level)
        ]
    }

    fn reducer() -> impl Strategy<Value = BuiltinReducer> {
        let name = prop::sample::select(Builtin::names());
        (name, any::<bool>(), 10..100_u64).prop_map(|(name, is_limited, threshold)| {
            let mode = match is_limited {
                true => ReduceLimit::True,
                false => ReduceLimit::False,
            };
            BuiltinReducer {
                builtin: Builtin::named(&name.replace("_N", "_2")).unwrap(),
                limit: SumLimit {
                    mode,
                    threshold,
                    ratio: 2.0,
                },
                log: OverflowLog::new(Logger::root(Discard, o!())),
            }
        })
    }

    /// Reduces all rows of a group at once, and finds groups of adjacent rows.
    fn collected(
        reducer: &BuiltinReducer,
        grouping: Grouping,
        texts: &[Texts],
    ) -> Vec<Result<String, String>> {
        let mut rows = Rows::default();
        for (line, (key, id, value)) in (1..).zip(texts) {
            rows.push(&Row {
                line,
                function: 0,
                id,
                key,
                value,
            });
        }
        rows.sort();
        let groups = Groups::of(&rows, grouping);
        let result = |group: std::ops::Range<usize>| {
            let mut members: Vec<_> = group.map(|row| rows.get(row)).collect();
            let key = grouping.key_of(members[0].key);
            // The rows' order in memory is that of their arrival.
            members.sort_by_key(|row| row.id.as_ptr());
            let builtin = reducer.builtin;
            let value = builtin.reduce(members.into_iter(), &reducer.context());
            let value = value.and_then(|value| builtin.finalize(&value));
            let value = value.map_err(|error| error.to_string())?;
            Ok(String::from_utf8(line(&key, value.get())).unwrap())
        };
        groups.map(result).collect()
    }

    fn totalled(
        reducer: &BuiltinReducer,
        grouping: Grouping,
        texts: &[Texts],
    ) -> Vec<Result<String, String>> {
        let mut totals = Totals::new(reducer, grouping);
        for (key, id, value) in texts {
            totals.take(&ReduceRow { id, key, value });
        }
        let text = |result| match result {
            Ok(line) => Ok(String::from_utf8(line).unwrap()),
            Err(ViewError::Reduce { reason, .. }) => Err(reason),
            Err(other) => panic!("{other}"),
        };
        totals.results().map(text).collect()
    }

    proptest! {
        #[test]
        fn reducing_rows_as_they_arrive_gives_the_results_of_reducing_them_all_at_once(
            reducer in reducer(), grouping in grouping(), rows in rows()
        ) {
            let collected = collected(&reducer, grouping, &rows);
            prop_assert_eq!(totalled(&reducer, grouping, &rows), collected);
        }
    }

    #[test]
    fn a_group_that_cannot_be_reduced_is_an_error_between_the_other_results() {
        let reducer = BuiltinReducer {
            builtin: Builtin::named("_stats").unwrap(),
            limit: SumLimit::NONE,
            log: OverflowLog::new(Logger::root(Discard, o!())),
        };
        let mut totals = Totals::new(&reducer, Grouping::Exact);
        for (key, value) in [("2", "\"x\""), ("3", "1"), ("1", "1"), ("2", "\"y\"")] {
            totals.take(&ReduceRow {
                id: "\"d\"",
                key,
                value,
            });
        }
        let results: Vec<_> = totals.results().collect();
        assert!(results[0].is_ok() && results[2].is_ok());
        let error = results[1].as_ref().unwrap_err().to_string();
        assert_eq!(error, "reduce of key 2: non-numeric _stats input: \"x\"");
    }
}
