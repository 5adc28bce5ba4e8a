//! The functions of views and searches: `add_lib`, `add_fun`, `map_doc`, `reduce` and the like.
//!
//! A `reset` forgets everything: the state is one value, replaced as a whole.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rquickjs::prelude::Rest;
use rquickjs::{Array, Function, Object, Persistent};

use super::engine::{Engine, SavedFunction, SavedObject};
use super::failure::Failure;
use super::memory::{Account, Held, LONG_BYTES};
use super::pairs::{LISTS, Pairs, ignores_keys};
use super::reading;
use super::realm::{NO_FUNCTION, Realm, Shared, Tree, ViewKind, compilation_error};
use super::report::Returned;
use super::results::{Answer, Results};
use super::text::{excerpt, kind_of, unquote};

/// A function of a view or a search. The handles are freed before the realm.
pub(super) struct ViewFunction {
    call: SavedFunction,
    /// The prelude's functions that call it.
    runners: SavedObject,
    /// The runners that return the rows it emits for a document, and those it indexes.
    map: SavedFunction,
    index: SavedFunction,
    /// Writes the rows that `write_rows` cannot.
    written: SavedFunction,
    kind: ViewKind,
    /// Whether it has emitted a row; recorded only for reports.
    emitted: Cell<bool>,
    /// The first promise that it returned, or else its first value; recorded only for reports.
    returned: RefCell<Option<Returned>>,
    /// The beginning of its source, which names it in errors.
    excerpt: String,
    realm: Realm,
}

/// A reduce function.
pub(super) struct Reducer {
    function: ViewFunction,
    ignores_keys: bool,
}

/// The values to reduce, as JSON text.
pub(super) enum Reduced<'a> {
    Pairs {
        pairs: Pairs,
        /// Counts their memory until they are reduced.
        _held: Held,
    },
    /// Rows that the engine parses: invalid ones, or those too large to split in memory.
    Rows(&'a str),
    /// Results of earlier reductions.
    Results(&'a str),
}

impl<'a> Reduced<'a> {
    /// `rows` are those of the command `reduce` or `rereduce`.
    pub fn of(command: &str, rows: &'a str, memory: &Rc<Account>) -> Self {
        if command == "rereduce" {
            return Self::Results(rows);
        }
        let held = memory.take(LISTS * rows.len()).ok();
        match held.and_then(|held| Some((Pairs::of(rows)?, held))) {
            Some((pairs, _held)) => Self::Pairs { pairs, _held },
            None => Self::Rows(rows),
        }
    }
}

/// Which rows of a function are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// Those that it emits.
    Emitted,
    /// Those that it indexes for a search.
    Indexed,
}

/// The state since the last `reset`.
pub(super) struct Views {
    functions: Vec<ViewFunction>,
    library: Option<(String, Held)>,
    /// Whether user code has run.
    used: bool,
    pub engine: Engine,
    shared: Rc<Shared>,
}

impl Views {
    pub fn new(shared: &Rc<Shared>) -> Result<Self, Failure> {
        let engine = Engine::new(shared)?;
        Ok(Views {
            functions: Vec::new(),
            library: None,
            used: false,
            engine,
            shared: Rc::clone(shared),
        })
    }

    /// Whether nothing has happened since the last `reset`.
    pub fn is_fresh(&self) -> bool {
        !self.used && self.library.is_none()
    }

    pub fn is_large(&self) -> bool {
        self.engine.measure() > LONG_BYTES
    }

    /// Whether `map_doc` has a function to call.
    pub fn has_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Sets the library of functions added from now on.
    ///
    /// # Errors
    /// It is not an object, or there is no memory for it.
    pub fn add_lib(&mut self, library: Option<&str>) -> Result<(), Failure> {
        match library {
            Some(library) if library.starts_with('{') => {
                self.library = None;
                let held = self.shared.memory.take(library.len())?;
                self.library = Some((library.to_owned(), held));
                Ok(())
            }
            other => {
                let kind = kind_of(other);
                Err(Failure::protocol(&format!(
                    "add_lib: the library of a view must be an object of modules, it is {kind}"
                )))
            }
        }
    }

    /// Compiles and adds a map or index function.
    pub fn add_fun(&mut self, source: Option<&str>, kind: ViewKind) -> Result<(), Failure> {
        self.shared.report.at(|| self.functions.len().into());
        let source = source_text(source)?;
        let reading = self.shared.options().optimize_functions && reading::only_reads(&source);
        let function = self.function(&source, kind, reading)?;
        self.functions.push(function);
        Ok(())
    }

    /// Compiles a reduce function for one command.
    pub fn reducer(&mut self, source: &str) -> Result<Reducer, Failure> {
        Ok(Reducer {
            function: self.function(source, ViewKind::Reduce, true)?,
            ignores_keys: self.shared.options().optimize_functions && ignores_keys(source),
        })
    }

    fn function(
        &mut self,
        source: &str,
        kind: ViewKind,
        reading: bool,
    ) -> Result<ViewFunction, Failure> {
        self.used = true;
        self.engine.begin();
        let realm = self.engine.realm()?;
        let runners = realm.add_views(kind, reading)?;
        if kind != ViewKind::Reduce {
            let library = self.library.as_ref().map_or("null", |(json, _)| json);
            realm.add_modules(Tree::Library(library))?;
        }
        let call = self.engine.compile(&realm, source)?;
        let (map, index, written) = realm.with(|ctx| {
            let runners = runners.clone().restore(ctx)?;
            let runner = |name| {
                let runner = runners.get::<_, Function<'_>>(name)?;
                Ok::<_, rquickjs::Error>(Persistent::save(ctx, runner))
            };
            Ok((runner("map")?, runner("index")?, runner("written")?))
        })?;
        Ok(ViewFunction {
            call,
            runners,
            map,
            index,
            written,
            kind,
            emitted: Cell::new(false),
            returned: RefCell::default(),
            excerpt: excerpt(source),
            realm,
        })
    }

    /// Runs every function on a document. The answer has a list of rows for each function.
    pub fn map(&self, document: Option<&str>, rows: Rows) -> Result<Answer, Failure> {
        let mut results = Results::new(&self.shared);
        self.engine.begin();
        for (index, function) in self.functions.iter().enumerate() {
            self.shared.report.at(|| index.into());
            function
                .map(&self.engine, document, rows, &mut results)
                .map_err(|failure| {
                    failure.inside(|| {
                        let (this, all) = (index + 1, self.functions.len());
                        format!("map function {this} of {all} ({})", function.excerpt)
                    })
                })?;
            if results.are_long() {
                self.engine.begin();
            }
        }
        self.engine.finish_jobs();
        let (text, held) = results.finish()?;
        Ok(Answer::Text(["", ""], text, held))
    }

    /// Reports useless return values: a promise, or any value of a function that emitted nothing.
    pub fn tell_returned(&self) {
        for (index, function) in self.functions.iter().enumerate() {
            if let Some(returned) = function.returned.take()
                && (returned.is_promise() || !function.emitted.get())
            {
                self.shared.tell_returned(index, &returned);
            }
        }
    }

    /// Reduces with one function.
    pub fn reduce(
        &self,
        reducer: &Reducer,
        reduced: &Reduced<'_>,
        results: &mut Results<'_>,
    ) -> Result<(), Failure> {
        let function = &reducer.function;
        let (runner, texts) = match reduced {
            Reduced::Pairs { pairs, .. } => {
                let keys = if reducer.ignores_keys {
                    "[]"
                } else {
                    &pairs.keys
                };
                ("lists", vec![keys, &pairs.values])
            }
            Reduced::Rows(rows) => ("reduce", vec![*rows]),
            Reduced::Results(results) => ("rereduce", vec![*results]),
        };
        self.engine.begin();
        let arguments: Result<Vec<_>, _> = texts
            .into_iter()
            .map(|text| self.engine.argument(&function.realm.context, Some(text)))
            .collect();
        let done = arguments.and_then(|arguments| {
            function.realm.with(|ctx| {
                let values = arguments.into_iter().map(|argument| argument.value(ctx));
                let values = Rest(values.collect::<rquickjs::Result<Vec<_>>>()?);
                let runner: Function<'_> = function.runners.clone().restore(ctx)?.get(runner)?;
                let answer = runner.call((function.call.clone().restore(ctx)?, values))?;
                // The answer is a list with the result.
                results.add(&answer)
            })
        });
        self.engine.finish_jobs();
        let place = || format!("reduce function {}", function.excerpt);
        self.shared.warn_of_promise(place);
        done.map_err(|failure| failure.inside(place))
    }
}

impl ViewFunction {
    fn map(
        &self,
        engine: &Engine,
        document: Option<&str>,
        rows: Rows,
        results: &mut Results<'_>,
    ) -> Result<(), Failure> {
        let (runner, columns) = match (rows, self.kind) {
            (Rows::Emitted, _) => (&self.map, 2),
            (Rows::Indexed, ViewKind::Nouveau) => (&self.index, 1),
            (Rows::Indexed, _) => (&self.index, 3),
        };
        let argument = engine.argument(&self.realm.context, document)?;
        self.realm.with(|ctx| {
            let argument = argument.value(ctx)?;
            let call = self.call.clone().restore(ctx)?;
            let list: Object<'_> = runner.clone().restore(ctx)?.call((call, argument))?;
            if self.realm.shared.report.is_wanted() && rows == Rows::Emitted {
                self.note(&list, document);
            }
            results.add_rows(&list, columns, &self.written)
        })
    }

    /// Records for a report whether it emitted a row, and its return value; `document` is JSON text.
    fn note(&self, rows: &Object<'_>, document: Option<&str>) {
        let is_empty = rows.as_array().is_some_and(Array::is_empty);
        self.emitted.set(self.emitted.get() || !is_empty);
        let mut kept = self.returned.borrow_mut();
        if let Some(returned) = self.realm.shared.report.take_returned(document)
            && kept
                .as_ref()
                .is_none_or(|kept| returned.is_promise() && !kept.is_promise())
        {
            *kept = Some(returned);
        }
    }
}

/// Returns the source given as JSON.
pub(super) fn source_text(json: Option<&str>) -> Result<String, Failure> {
    let missing = || Failure::error("not_found", "missing function");
    let json = json.ok_or_else(missing)?;
    match unquote(json) {
        Some(source) if source.is_empty() => Err(missing()),
        Some(source) => Ok(source.into_owned()),
        None if matches!(json, "null" | "false" | "0") => Err(missing()),
        None => Err(compilation_error(NO_FUNCTION, None, json)),
    }
}
