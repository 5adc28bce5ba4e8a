//! Design documents: `ddoc new` and the calls of their functions. A `reset` does not remove them.
//!
//! A design document is one object, which all its functions get as `this`. It has its own realm, used only for that
//! object; each function also has its own realm.

use std::collections::HashMap;
use std::rc::Rc;

use rquickjs::convert::Coerced;
use rquickjs::{Context, Ctx, Function, Object, Persistent, String as JsString, Value};
use serde_json::Value as Json;

use super::command::{TREE_BYTES_MAX, value_as_text};
use super::engine::{Engine, SavedFunction, SavedObject, in_realm};
use super::failure::{Failure, cut, json};
use super::memory::Held;
use super::realm::{NO_FUNCTION, Realm, Shared, Tree, compilation_error};
use super::report::path_of;
use super::results::Answer;
use super::text::{kind_of, unquote};

/// The kinds of functions, by the first element of their path.
const KINDS: [&str; 7] = [
    "shows",
    "lists",
    "updates",
    "filters",
    "views",
    "validate_doc_update",
    "rewrites",
];

/// Overhead of a design document in the table, in bytes, not counting its id and JSON text.
const ENTRY_BYTES: usize = 1024;

/// The realm of one function, found by its path. The handle is freed before the realm.
struct DdocRealm {
    responders: SavedObject,
    realm: Realm,
}

/// A design document that was called. The handle is freed before the context.
struct Loaded {
    /// Path of a function -> its realm.
    realms: HashMap<Vec<String>, DdocRealm>,
    root: SavedObject,
    context: Context,
}

/// A design document; its object is created at the first call.
struct DesignDoc {
    json: String,
    loaded: Option<Loaded>,
    _held: Held,
}

/// All design documents of an isolate.
pub(super) struct DesignDocs {
    /// Id -> document; a later one with the same id replaces it.
    docs: HashMap<String, DesignDoc>,
    engine: Option<Engine>,
    shared: Rc<Shared>,
}

/// The value at the end of a path.
enum Leaf {
    Missing,
    /// Compiled by an earlier call, or set by user code.
    Function(SavedFunction),
    Source(String),
    /// Anything else, as JSON text.
    Other(String),
}

impl DesignDocs {
    pub fn new(shared: &Rc<Shared>) -> Self {
        DesignDocs {
            docs: HashMap::new(),
            engine: None,
            shared: Rc::clone(shared),
        }
    }

    /// Adds a design document, replacing one with the same id. With tenants, the same text changes nothing: its
    /// functions stay compiled.
    ///
    /// # Errors
    /// The id is not a string, or the document not an object; an earlier document is kept. Memory is exhausted; an
    /// earlier document is gone.
    pub fn teach(
        &mut self,
        id: Option<&str>,
        document: Option<&str>,
        is_tenants: bool,
    ) -> Result<(), Failure> {
        let Some(name) = id.and_then(unquote) else {
            let kind = kind_of(id);
            return Err(Failure::protocol(&format!(
                "ddoc new: the id of a design document must be a string, it is {kind}"
            )));
        };
        let Some(document) = document.filter(|json| json.starts_with('{')) else {
            let kind = kind_of(document);
            return Err(Failure::protocol(&format!(
                "ddoc new: the design document {name} must be an object, it is {kind}"
            )));
        };
        let known = self.docs.get(&*name).filter(|_| is_tenants);
        if known.is_some_and(|known| known.json == document) {
            return Ok(());
        }
        // Frees the memory of the replaced document before more is taken.
        if self.docs.remove(&*name).is_some()
            && let Some(engine) = &self.engine
            && engine.is_large_after_release()
        {
            self.unload();
        }
        self.measure();
        let bytes = name.len() + document.len() + ENTRY_BYTES;
        let inside = |failure: Failure| failure.inside(|| format!("the design document {name}"));
        let held = self.shared.memory.take(bytes).map_err(inside)?;
        self.docs
            .try_reserve(1)
            .map_err(|_| inside(Failure::out_of_memory()))?;
        let doc = DesignDoc {
            _held: held,
            json: document.to_owned(),
            loaded: None,
        };
        self.docs.insert(name.into_owned(), doc);
        Ok(())
    }

    /// Drops compiled functions and their effects; each is recompiled at its next call. Drops the engine too: it never
    /// frees its first realm, because rquickjs keeps the prototype of the first native function.
    pub fn unload(&mut self) {
        for doc in self.docs.values_mut() {
            doc.loaded = None;
        }
        self.engine = None;
    }

    /// Calls a function of a design document and returns its answer.
    pub fn call(
        &mut self,
        id: &str,
        path: Option<&str>,
        arguments: Option<&str>,
    ) -> Result<Answer, Failure> {
        let Some(doc) = self.docs.get_mut(id) else {
            let reason = format!("uncached design doc: {id}");
            return Err(Failure::fatal("query_protocol_error", &reason));
        };
        let path = read_path(path)?;
        self.shared.report.at(|| path_of(&path));
        let kind = path[0].as_str();
        if !KINDS.contains(&kind) {
            let reason = format!("unknown ddoc command '{kind}'");
            return Err(Failure::fatal("unknown_command", &reason));
        }
        let engine: &Engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert(Engine::new(&self.shared)?),
        };
        engine.begin();
        let answer = doc
            .load(engine)
            .and_then(|loaded| loaded.call(engine, id, &path, arguments));
        engine.finish_jobs();
        let place = || format!("{} of {id}", path.join("/"));
        self.shared.warn_of_promise(place);
        answer.map_err(|failure| failure.inside(place))
    }

    /// As [`Engine::measure_at_times`].
    pub fn measure_at_times(&self) {
        if let Some(engine) = &self.engine {
            engine.measure_at_times();
        }
    }

    /// Counts and returns the memory used by the functions, in bytes.
    pub fn measure(&self) -> usize {
        self.engine.as_ref().map_or(0, Engine::measure)
    }

    /// Prepares the realm for the next function; returns whether it did.
    pub fn prepare(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::prepare)
    }
}

/// Reads a function's path: property names.
fn read_path(path: Option<&str>) -> Result<Vec<String>, Failure> {
    if let Some(path) = path.filter(|path| path.len() > TREE_BYTES_MAX) {
        let bytes = path.len();
        return Err(Failure::protocol(&format!(
            "ddoc: the path of a function has {bytes} bytes, at most {TREE_BYTES_MAX} are allowed"
        )));
    }
    match path.map(serde_json::from_str) {
        Some(Ok(Json::Array(names))) if !names.is_empty() => {
            Ok(names.iter().map(value_as_text).collect())
        }
        Some(Ok(Json::Array(_) | Json::Object(_) | Json::Number(_) | Json::Bool(_))) => {
            Ok(vec!["undefined".to_owned()])
        }
        Some(Ok(Json::String(name))) => {
            let first = name.chars().next();
            Ok(vec![first.map_or("undefined".to_owned(), String::from)])
        }
        _ => Err(Failure::type_error(
            "ddoc: a call names its function by a list, like [\"shows\", \"name\"]",
        )),
    }
}

impl DesignDoc {
    fn load(&mut self, engine: &Engine) -> Result<&mut Loaded, Failure> {
        let none = match &mut self.loaded {
            Some(loaded) => return Ok(loaded),
            none => none,
        };
        let context = engine.data_realm()?;
        let json = engine.argument(&context, Some(&self.json))?;
        let root = in_realm(&context, |ctx| {
            let root: Object<'_> = json.value(ctx)?.get()?;
            root.set("_module_cache", Object::new(ctx.clone())?)?;
            Ok(Persistent::save(ctx, root))
        })?;
        Ok(none.insert(Loaded {
            realms: HashMap::new(),
            root,
            context,
        }))
    }
}

impl Loaded {
    fn call(
        &mut self,
        engine: &Engine,
        id: &str,
        path: &[String],
        arguments: Option<&str>,
    ) -> Result<Answer, Failure> {
        let leaf = in_realm(&self.context, |ctx| find(ctx, &self.root, path))?;
        let leaf = leaf.ok_or_else(|| {
            let path = path.join("/");
            Failure::type_error(&format!(
                "{id} has nothing at {path}, and nothing that could contain it"
            ))
        })?;
        let (kind, name) = (&path[0], &path[path.len() - 1]);
        let call = match leaf {
            Leaf::Missing => {
                let reason = format!("missing {kind} function {name} on design doc {id}");
                return Err(Failure::error("not_found", &reason));
            }
            Leaf::Other(json) => {
                return Err(compilation_error(NO_FUNCTION, None, &json));
            }
            Leaf::Function(call) => {
                if !self.realms.contains_key(path) {
                    let made = DdocRealm::new(engine, &self.root)?;
                    self.realms.insert(path.to_vec(), made);
                }
                call
            }
            Leaf::Source(source) => {
                let made = DdocRealm::new(engine, &self.root)?;
                let call = engine.compile(&made.realm, &source)?;
                self.keep(path, &call)?;
                self.realms.insert(path.to_vec(), made);
                call
            }
        };
        // The realm of the function was kept above.
        self.realms[path].respond(engine, kind, call, &self.root, arguments)
    }

    /// Replaces a function's source with the compiled function, for later calls.
    fn keep(&self, path: &[String], call: &SavedFunction) -> Result<(), Failure> {
        in_realm(&self.context, |ctx| {
            let mut point = self.root.clone().restore(ctx)?;
            for name in &path[..path.len() - 1] {
                point = point.get(name)?;
            }
            point.set(path[path.len() - 1].as_str(), call.clone().restore(ctx)?)
        })
    }
}

impl DdocRealm {
    fn new(engine: &Engine, root: &SavedObject) -> Result<Self, Failure> {
        let realm = engine.realm()?;
        let responders = realm.add_render()?;
        realm.add_modules(Tree::DesignDoc(root))?;
        Ok(DdocRealm { responders, realm })
    }

    fn respond(
        &self,
        engine: &Engine,
        kind: &str,
        call: SavedFunction,
        root: &SavedObject,
        arguments: Option<&str>,
    ) -> Result<Answer, Failure> {
        if !arguments.is_some_and(|json| json.starts_with('[')) {
            let kind = kind_of(arguments);
            return Err(Failure::protocol(&format!(
                "ddoc: the arguments of a function must be a list, they are {kind}"
            )));
        }
        let arguments = engine.argument(&self.realm.context, arguments)?;
        let answer = self.realm.with(|ctx| {
            let responder: Function<'_> = self.responders.clone().restore(ctx)?.get(kind)?;
            let arguments = arguments.value(ctx)?;
            let answer: JsString<'_> =
                responder.call((call.restore(ctx)?, root.clone().restore(ctx)?, arguments))?;
            Ok(Persistent::save(ctx, answer))
        })?;
        Ok(Answer::Kept(answer, self.realm.context.clone()))
    }
}

/// Follows a path from the root of a design document; `None` if it leads through null or undefined.
fn find<'js>(
    ctx: &Ctx<'js>,
    root: &SavedObject,
    path: &[String],
) -> rquickjs::Result<Option<Leaf>> {
    let mut point = root.clone().restore(ctx)?.into_value();
    for name in path {
        point = match point.as_object() {
            Some(object) => object.get(name)?,
            None if point.is_null() || point.is_undefined() => return Ok(None),
            None => Value::new_undefined(ctx.clone()),
        };
    }
    Ok(Some(if let Some(function) = point.as_function() {
        Leaf::Function(Persistent::save(ctx, function.clone()))
    } else if !point.get::<Coerced<bool>>()?.0 {
        Leaf::Missing
    } else {
        let text = json(point)?;
        match unquote(&text) {
            Some(source) => Leaf::Source(source.into_owned()),
            None => Leaf::Other(cut(&text).into_owned()),
        }
    }))
}
