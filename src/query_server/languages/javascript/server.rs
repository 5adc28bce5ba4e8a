//! The main loop: a line in, what it asks for, a line out.
//!
//! PROMISES  `reset` costs the caller nothing but an exchange of two values as long as the server
//!           had a moment without input since the last one: the next view state is prepared and the
//!           old one freed while nothing can be read.

use std::io;
use std::io::Write;
use std::rc::Rc;

use serde_json::Value;

use super::Options;
use super::command::{Command, as_text, only_document};
use super::ddocs::DesignDocs;
use super::failure::Failure;
use super::lines::{Input, Lines};
use super::realm::{Shared, ViewKind};
use super::reduce_limit::{ReduceLimit, Sizes, Verdict};
use super::results::Results;
use super::text::{kind_of, unquote, utf16_len};
use super::views::{Reduction, Rows, Views, source_text};
use crate::query_server::prompt;

/// The exit status after a fatal answer (SpiderMonkey's `quit(-1)`).
pub(super) const FATAL_STATUS: u8 = 255;

/// The query server of one process.
pub(super) struct Server {
    /// The functions added since the last `reset`; made when they are needed.
    views: Option<Views>,
    /// What the next `reset` puts in the place of `views`.
    spare: Option<Views>,
    /// What the last `reset` replaced; freed when there is time.
    old: Option<Views>,
    ddocs: DesignDocs,
    limit: ReduceLimit,
    /// Whether the first answer is out: until then nothing is prepared.
    started: bool,
    shared: Rc<Shared>,
}

impl Server {
    pub(super) fn new(
        options: Options,
        input: Box<dyn Input>,
        output: Box<dyn Write + Send>,
    ) -> Self {
        let shared = Shared::new(options, Lines::new(input, output));
        Server {
            views: None,
            spare: None,
            old: None,
            ddocs: DesignDocs::new(&shared),
            limit: ReduceLimit::default(),
            started: false,
            shared,
        }
    }

    /// Answers lines until the input ends, an empty line comes or an answer is fatal; the exit
    /// status. Whoever ends the process next need not wait for the engines to be taken apart.
    pub(super) fn serve(mut self) -> io::Result<u8> {
        let status = self.answer_all();
        self.shared.lines.borrow_mut().flush()?;
        std::mem::forget(self);
        status
    }

    fn answer_all(&mut self) -> io::Result<u8> {
        let shared = Rc::clone(&self.shared);
        let mut line = Vec::new();
        loop {
            let more = shared.lines.borrow_mut().next(&mut line, || self.prepare());
            if !more? || line.is_empty() {
                return Ok(0);
            }
            // Checking first is many times faster than from_utf8_lossy, which looks at every byte.
            let result = match std::str::from_utf8(&line) {
                Ok(text) => self.answer(text),
                Err(_) => self.answer(&String::from_utf8_lossy(&line)),
            };
            if let Some(status) = shared.ended.get() {
                return Ok(status);
            }
            let result = result.and_then(|answer| shared.check_length(&answer).map(|()| answer));
            let (answer, fatal) = match result {
                Ok(answer) => (answer, false),
                Err(failure) => (failure.line(&shared), failure.is_fatal(&shared)),
            };
            shared.lines.borrow_mut().put(&answer);
            self.started = true;
            if fatal {
                return Ok(FATAL_STATUS);
            }
        }
    }

    /// Does one piece of work that a later line will be glad of; whether there was any.
    fn prepare(&mut self) -> bool {
        if !self.started {
            return false;
        }
        match &self.views {
            None => {
                self.views = Views::new(&self.shared).ok();
                return self.views.is_some();
            }
            Some(views) if views.is_fresh() && views.prepare() => return true,
            Some(_) => {}
        }
        if self.old.take().is_some() {
            return true;
        }
        match &self.spare {
            None => {
                self.spare = Views::new(&self.shared).ok();
                self.spare.is_some()
            }
            Some(spare) => spare.prepare() || self.ddocs.prepare(),
        }
    }

    fn answer(&mut self, line: &str) -> Result<String, Failure> {
        if let Some(views) = self.views.as_ref().filter(|views| views.has_functions())
            && let Some(document) = only_document(line)
        {
            let mapped = views.map(Some(document), Rows::Emitted);
            // A line the engine cannot parse may be one of another shape, or no JSON at all.
            if mapped.is_ok() || Command::parse(line)?.argument(0) == Some(document.trim()) {
                return mapped;
            }
        }
        let command = Command::parse(line)?;
        match command.name.as_str() {
            "reset" => self.reset(&command),
            "add_lib" => {
                self.views()?.add_lib(command.argument(0))?;
                Ok("true".to_owned())
            }
            "add_fun" => {
                let nouveau = command
                    .argument(1)
                    .and_then(unquote)
                    .is_some_and(|v| v == "nouveau");
                let kind = if nouveau {
                    ViewKind::Nouveau
                } else {
                    ViewKind::Map
                };
                self.views()?.add_fun(command.argument(0), kind)?;
                Ok("true".to_owned())
            }
            "map_doc" => self.views()?.map(command.argument(0), Rows::Emitted),
            "index_doc" | "nouveau_index_doc" => {
                self.views()?.map(command.argument(0), Rows::Indexed)
            }
            "reduce" => self.reduce(line, &command, Reduction::Pairs),
            "rereduce" => self.reduce(line, &command, Reduction::Again),
            "ddoc" => self.ddoc(&command),
            name => {
                let reason = format!("unknown command '{name}'");
                Err(Failure::fatal("unknown_command", &reason))
            }
        }
    }

    fn views(&mut self) -> Result<&mut Views, Failure> {
        if self.views.is_none() {
            self.views = Some(Views::new(&self.shared)?);
        }
        Ok(self.views.as_mut().expect("server: made above"))
    }

    fn reset(&mut self, command: &Command<'_>) -> Result<String, Failure> {
        let config = command.argument(0).unwrap_or("null");
        if !matches!(kind_of(Some(config)), "null" | "an object") {
            let kind = kind_of(Some(config));
            let reason = format!("reset: the configuration must be an object, it is {kind}");
            return Err(Failure::protocol(&reason));
        }
        let config = serde_json::from_str(config).unwrap_or(Value::Null);
        self.limit = ReduceLimit::new(&config);
        let asked = config[prompt::TEXT_REASONS].as_bool();
        let text_reasons = asked.unwrap_or(self.shared.options.text_reasons);
        self.shared.text_reasons.set(text_reasons);
        if self.views.as_ref().is_some_and(|views| !views.is_fresh()) {
            // A predecessor that is still here would cost memory for a third state.
            self.old = None;
            self.old = std::mem::replace(&mut self.views, self.spare.take());
        }
        Ok("true".to_owned())
    }

    fn reduce<'a>(
        &mut self,
        line: &str,
        command: &Command<'a>,
        reduction: fn(&'a str) -> Reduction<'a>,
    ) -> Result<String, Failure> {
        let list = |index, what| {
            let json = command.argument(index);
            json.filter(|json| json.starts_with('[')).ok_or_else(|| {
                let (name, kind) = (&command.name, kind_of(json));
                Failure::type_error(&format!("{name}: the {what} must be a list, it is {kind}"))
            })
        };
        let sources: Vec<&serde_json::value::RawValue> =
            serde_json::from_str(list(0, "list of functions")?)
                .map_err(|error| Failure::type_error(&error.to_string()))?;
        let rows = reduction(list(1, "list of rows")?);
        // All are compiled before the first one runs: a source that is none ends the command before
        // anything is logged.
        let (mut reducers, mut sources_units) = (Vec::new(), 0);
        for source in sources {
            let source = source_text(Some(source.get()))?;
            reducers.push(self.views()?.reducer(&source)?);
            sources_units += utf16_len(&source);
        }
        let shared = Rc::clone(&self.shared);
        let mut results = Results::new(&shared);
        for reducer in &reducers {
            self.views()?.reduce(reducer, rows, &mut results)?;
        }
        let results = results.finish()?;
        let sizes = Sizes {
            input: utf16_len(line).saturating_sub(sources_units),
            output: utf16_len(&results),
        };
        let context = command
            .argument(2)
            .map_or("".into(), |json| unquote(json).unwrap_or(json.into()));
        match self.limit.judge(&sizes, &context) {
            Verdict::Passes => {}
            Verdict::Warns(text) => self.shared.log(&format!("reduce_overflow_error: {text}")),
            Verdict::Fails(text) => return Err(Failure::error("reduce_overflow_error", &text)),
        }
        Ok(format!("[true,{results}]"))
    }

    fn ddoc(&mut self, command: &Command<'_>) -> Result<String, Failure> {
        let id = command.argument(0).map(as_text);
        match id.as_deref() {
            Some("new") => {
                self.ddocs.teach(command.argument(1), command.argument(2))?;
                Ok("true".to_owned())
            }
            id => self.ddocs.call(
                id.unwrap_or("undefined"),
                command.argument(1),
                command.argument(2),
            ),
        }
    }
}
