//! Reducing: sources run in the query server, built-in reducers here; results keep the order of the functions.
//!
//! SOURCE    couch_query_servers: reduce/4, rereduce/4, finalize/2, os_reduce/3, os_rereduce/3.
//! DIFFERS   Results are rereduced in row order for every function; the reference reverses them for the first, third
//!           and so on. An answer with a wrong number of results is an error; the reference passes it on.
//! LIMITS    Each built-in reducer runs on the caller's thread without interruption.

use std::collections::btree_map::{BTreeMap, Entry};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::task::yield_now;

use super::decode::{broken, decode, done_with, element};
use super::{FunctionError, FunctionErrorKind, FunctionResult, QueryServers};
use crate::config::ReduceLimit;
use crate::messages::client_error::Place;
use crate::messages::function::{Finalize, Json, Reduce, ReduceRows, Reducers, Rereduce};
use crate::messages::proc_manager::{CallError, GetProcError};
use crate::messages::process::PromptError;
use crate::query_server::abilities::Ability;
use crate::query_server::prompt;
use crate::query_server::reduce::{Builtin, InvalidValue, ReduceContext, SumLimit, error_of};
use crate::query_server::told::{FunctionName, ReportedError};
use json::JsonList;

/// The name of the error for a result that does not shrink enough, and of the result's member that holds this error.
pub(super) const OVERFLOW: &str = "reduce_overflow_error";

/// Maximum total length of a call's results, in bytes: the result of each function may be as long as all rows.
const RESULTS_BYTES_MAX: usize = 32 << 20;

/// A call's results, in the order of its functions.
struct Results<'a> {
    with: &'a Reducers,
    all: Vec<Json>,
    bytes: usize,
}

impl<'a> Results<'a> {
    fn of(with: &'a Reducers) -> Self {
        Self {
            with,
            all: Vec::with_capacity(with.funs.len()),
            bytes: 0,
        }
    }

    /// Adds the next function's result, finalized if requested.
    fn push(&mut self, function: Function<'_>, result: FunctionResult<Json>) -> FunctionResult<()> {
        let at = |error: FunctionError| error.at(place(self.all.len(), &self.with.funs));
        let mut result = result.map_err(at)?;
        if self.with.finalize {
            result = function.finalize(result).map_err(at)?;
        }
        self.bytes += result.get().len();
        if self.bytes > RESULTS_BYTES_MAX {
            let reason = format!(
                "the results have more than {RESULTS_BYTES_MAX} bytes together; reduce with fewer functions at once, \
                 or to shorter results"
            );
            return Err(at(FunctionError::refused("too_large", reason)));
        }
        self.all.push(result);
        Ok(())
    }
}

/// A reduce function.
#[derive(Clone, Copy)]
enum Function<'a> {
    Builtin(Builtin),
    Source(&'a str),
}

impl Function<'_> {
    fn finalize(self, result: Json) -> FunctionResult<Json> {
        match self {
            Self::Builtin(builtin) => Ok(builtin.finalize(&result)?),
            Self::Source(_) => Ok(result),
        }
    }
}

impl From<InvalidValue> for FunctionError {
    fn from(error: InvalidValue) -> Self {
        Self::refused("invalid_value", error.0)
    }
}

impl QueryServers {
    /// Reduces rows (`reduce`): one result for each function.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn reduce(&self, call: &Reduce) -> FunctionResult<Vec<Json>> {
        let functions = functions(&call.with.funs)?;
        let sources = call
            .with
            .funs
            .iter()
            .map(String::as_str)
            .enumerate()
            .filter(|(_, fun)| !fun.starts_with('_'));
        let (places, sources): (Vec<usize>, Vec<&str>) = sources.unzip();
        self.run_functions(places);
        let mut of_sources = self
            .reduce_sources(&call.with, &sources, &call.rows)
            .await?
            .into_iter();
        let context = self.context(&functions, &call.with).await?;
        let mut results = Results::of(&call.with);
        let mut of_builtins: BTreeMap<_, Json> = BTreeMap::new();
        for function in functions {
            let result = match function {
                Function::Builtin(builtin) => {
                    // A call may name the same reducer millions of times, for millions of rows.
                    let result = match of_builtins.entry(builtin.key()) {
                        Entry::Occupied(known) => Ok(known.get().clone()),
                        Entry::Vacant(unknown) => {
                            yield_now().await;
                            let result = builtin.reduce(call.rows.iter(), &context);
                            result.map(|result| unknown.insert(result).clone())
                        }
                    };
                    self.told(results.all.len(), result)
                }
                Function::Source(_) => Ok(of_sources
                    .next()
                    .expect("CL-2: there is a result for each source")),
            };
            results.push(function, result)?;
        }
        Ok(results.all)
    }

    /// Reduces earlier results (`rereduce`): one result for each function.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub async fn rereduce(&self, call: &Rereduce) -> FunctionResult<Vec<Json>> {
        let functions = functions(&call.with.funs)?;
        let context = self.context(&functions, &call.with).await?;
        let mut results = Results::of(&call.with);
        for (index, function) in functions.into_iter().enumerate() {
            let values = call.values.get(index).ok_or_else(|| {
                let reason = "'values' must have a value for each function in each row";
                FunctionErrorKind::BadCall(reason.into())
            })?;
            let result = match function {
                Function::Builtin(builtin) => {
                    let result = builtin.rereduce(values.iter(), &context);
                    self.told(index, result)
                }
                Function::Source(source) => {
                    self.run_functions(vec![index]);
                    self.rereduce_source(&call.with, source, values).await
                }
            };
            results.push(function, result)?;
        }
        Ok(results.all)
    }

    /// Records which of the call's functions are about to run in processes.
    fn run_functions(&self, places: Vec<usize>) {
        if let Some(call) = self.caller.call() {
            call.run_functions(places);
        }
    }

    /// Reports a built-in reducer's result if it is an error.
    fn told(&self, index: usize, result: Result<Json, InvalidValue>) -> FunctionResult<Json> {
        if let (Ok(result), Some(call)) = (&result, self.caller.call())
            && call.reports
            && let Some((name, message)) = error_of(result)
        {
            call.error(ReportedError {
                function: Some(FunctionName::Index(index)),
                name,
                message,
                ..ReportedError::default()
            });
        }
        Ok(result?)
    }

    /// Reduces with all sources in one prompt.
    async fn reduce_sources(
        &self,
        with: &Reducers,
        sources: &[&str],
        rows: &ReduceRows,
    ) -> FunctionResult<Vec<Json>> {
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        self.require(&with.at.language, Ability::Reduce).await?;
        if sources.len() > 1 {
            let several = Ability::SeveralReducers;
            self.require(&with.at.language, several).await?;
        }
        let line = self.command(with, ("reduce", sources, rows)).await?;
        self.prompt_reducer(with, line, sources.len())
            .await
            .map_err(|error| match with.funs.as_slice() {
                [_] => error.at(place(0, &with.funs)),
                // The query server does not say which of them failed.
                _ => error,
            })
    }

    /// Rereduces the values of one source. An overflow error among them becomes the result.
    async fn rereduce_source(
        &self,
        with: &Reducers,
        source: &str,
        values: &JsonList,
    ) -> FunctionResult<Json> {
        if let Some(overflow) = values.iter().find(|value| is_overflow(value)) {
            return Ok(element(overflow).to_owned());
        }
        self.require(&with.at.language, Ability::Reduce).await?;
        let line = self.command(with, ("rereduce", [source], values)).await?;
        let mut results = self.prompt_reducer(with, line, 1).await?;
        Ok(results
            .pop()
            .expect("CL-2: there is a result for each source"))
    }

    /// Writes a command, with its context if the query server supports one.
    async fn command(
        &self,
        with: &Reducers,
        (name, sources, input): (&str, impl Serialize, impl Serialize),
    ) -> FunctionResult<Bytes> {
        let able = self
            .require(&with.at.language, Ability::ReduceContext)
            .await;
        match able {
            Ok(()) => Ok(prompt::line(&(name, sources, input, &with.context))),
            Err(FunctionError {
                kind: FunctionErrorKind::Call(CallError::GetProc(GetProcError::Unable { .. })),
                ..
            }) => Ok(prompt::line(&(name, sources, input))),
            Err(error) => Err(error),
        }
    }

    async fn prompt_reducer(
        &self,
        with: &Reducers,
        line: Bytes,
        count: usize,
    ) -> FunctionResult<Vec<Json>> {
        let read = |answer: Bytes| read_results(&answer, count);
        self.prompt_once(with.at.want(), line, read)
            .await
            .or_else(|error| match overflow_of(&error) {
                Some(overflow) => Ok(vec![overflow; count]),
                None => Err(error),
            })
    }

    /// Returns the context of built-in reducers. If one of them is limited, the limit on sums is read from the current
    /// configuration.
    async fn context<'a>(
        &'a self,
        functions: &[Function<'_>],
        with: &'a Reducers,
    ) -> FunctionResult<ReduceContext<'a>> {
        let is_limited = |function: &Function<'_>| matches!(function, Function::Builtin(builtin) if builtin.is_limited());
        let limit = if functions.iter().any(is_limited) {
            let config = self.caller.reset_config().await;
            sum_limit_of(&config.map_err(CallError::GetProc)?)
        } else {
            SumLimit::NONE
        };
        Ok(ReduceContext {
            limit,
            name: &with.context,
            log: self.sums.as_deref(),
            call: self.caller.call(),
        })
    }
}

/// Converts results to what a view's client gets (`finalize`), without a process.
///
/// # Errors
/// [`FunctionErrorKind::Answer`] for an invalid result, or an unknown built-in reducer.
pub fn finalize(call: &Finalize) -> FunctionResult<Vec<Json>> {
    functions(&call.funs)?
        .into_iter()
        .zip(&call.values)
        .enumerate()
        .map(|(index, (function, value))| {
            function
                .finalize(value.clone())
                .map_err(|error| error.at(place(index, &call.funs)))
        })
        .collect()
}

/// Finds the functions: names starting with `_` are built in.
fn functions(funs: &[String]) -> FunctionResult<Vec<Function<'_>>> {
    let function = |(index, fun)| -> FunctionResult<Function<'_>> {
        let fun: &String = fun;
        if !fun.starts_with('_') {
            return Ok(Function::Source(fun));
        }
        Builtin::named(fun).map(Function::Builtin).map_err(|error| {
            FunctionError::refused("compilation_error", error.to_string()).at(place(index, funs))
        })
    };
    funs.iter().enumerate().map(function).collect()
}

/// Names a reduce function in errors.
fn place(index: usize, funs: &[String]) -> Place {
    let function = match funs.get(index) {
        Some(name) if name.starts_with('_') => name.clone(),
        _ if funs.len() == 1 => "reduce".to_owned(),
        _ => format!("reduce {}", index + 1),
    };
    Place {
        function: Some(function),
        index: Some(index),
        ..Place::default()
    }
}

/// Reads `[true, [RESULT, ..]]`.
fn read_results(answer: &Bytes, count: usize) -> FunctionResult<Vec<Json>> {
    done_with(answer, count).ok_or_else(|| {
        let expected = match count {
            1 => "[true, [RESULT]]".to_owned(),
            _ => format!("[true, [RESULT, ..]] with a result for each of {count} functions"),
        };
        broken(answer, &expected)
    })
}

/// Converts an overflow error to a result; returns `None` for any other error.
fn overflow_of(error: &FunctionError) -> Option<Json> {
    match &error.kind {
        FunctionErrorKind::Call(CallError::Prompt(PromptError::Function {
            name,
            raw_reason,
            ..
        })) if name == OVERFLOW => {
            let reason: &RawValue = serde_json::from_str(raw_reason).ok()?;
            to_raw_value(&serde_json::json!({ OVERFLOW: reason })).ok()
        }
        _ => None,
    }
}

/// Returns whether a result is an object with the overflow error.
pub(super) fn is_overflow(value: &str) -> bool {
    #[derive(Deserialize)]
    struct Overflow {
        #[expect(dead_code, reason = "it only has to be there")]
        reduce_overflow_error: serde::de::IgnoredAny,
    }
    value.starts_with('{') && decode::<Overflow>(value).is_some()
}

/// Reads the limit from the arguments of `reset`; without threshold and ratio, sums are not limited.
fn sum_limit_of(reset_config: &str) -> SumLimit {
    #[derive(Deserialize)]
    struct Config {
        reduce_limit: serde_json::Value,
        reduce_limit_threshold: u64,
        reduce_limit_ratio: f64,
    }
    let Ok(config) = serde_json::from_str::<Config>(reset_config) else {
        return SumLimit::NONE;
    };
    SumLimit {
        mode: match config.reduce_limit {
            serde_json::Value::Bool(true) => ReduceLimit::True,
            serde_json::Value::String(mode) if mode == "log" => ReduceLimit::Log,
            _ => ReduceLimit::False,
        },
        threshold: config.reduce_limit_threshold,
        ratio: config.reduce_limit_ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_result_for_each_function() {
        let read = |answer: &'static str, count| {
            let results = read_results(&Bytes::from_static(answer.as_bytes()), count)?;
            Ok(results
                .iter()
                .map(|result| result.get().to_owned())
                .collect())
        };
        let wrong = |answer, count| {
            let results: Result<Vec<String>, FunctionError> = read(answer, count);
            results.unwrap_err().to_string()
        };
        let results: Result<Vec<String>, FunctionError> = read("[true, [ 1.0 ,null]]", 2);
        assert_eq!(results.unwrap(), ["1.0", "null"]);
        // couchpy's answer to two functions.
        assert!(wrong("[true, [6]]", 2).contains("each of 2 functions"));
        assert!(wrong("[false,[1]]", 1).contains("instead of [true, [RESULT]]"));
        assert!(wrong("{}", 1).contains("answered {}"));
    }

    #[test]
    fn only_an_object_with_the_overflow_error_is_an_overflow() {
        let is = |json: &str| is_overflow(json);
        assert!(is(r#"{"reduce_overflow_error":"too long"}"#));
        assert!(!is(r#"{"error":"x"}"#) && !is("\"reduce_overflow_error\"") && !is("[1]"));
    }

    #[test]
    fn the_sum_limit_is_read_from_the_arguments_of_reset() {
        let limit = sum_limit_of(
            r#"{"reduce_limit":"log","reduce_limit_threshold":5000,"reduce_limit_ratio":2.0}"#,
        );
        assert_eq!((limit.mode, limit.threshold), (ReduceLimit::Log, 5000));
        assert_eq!(sum_limit_of("{}"), SumLimit::NONE);
    }
}
