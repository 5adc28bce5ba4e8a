//! The main loop: reads a line, carries it out, writes a line.
//!
//! PROMISES  A `reset` that leaves `console` as it was frees nothing if the server had a moment without input since the
//!           previous `reset`: it puts the views aside, and while there is no input the server frees them and prepares
//!           engines. After `forget` the server is as after its start, or answers an error. If an isolate runs out of
//!           memory, the server reports it and ends.

use std::borrow::Cow;
use std::io;
use std::mem;
use std::rc::Rc;

use super::Options;
use super::command::{Command, TREE_BYTES_MAX, as_text, members, only_document};
use super::failure::{Failure, cut};
use super::isolates::{Isolate, Isolates, Tenancy};
use super::lines::{Lines, Next, Reader, into_text};
use super::memory::{LONG_BYTES, ProcessStatus};
use super::process::Process;
use super::realm::ViewKind;
use super::reduce_limit::{self, ReduceLimit, Verdict};
use super::results::{Answer, Results};
use super::text::{excerpt, kind_of, unquote, utf16_len};
use super::views::{Reduced, Rows, Views, source_text};
use crate::{CONSOLE, REPORT, TEXT_REASONS};
use json::cursor::Elements;
use serde_json::json;

/// The exit status after a fatal answer (SpiderMonkey's `quit(-1)`).
pub(super) const FATAL_STATUS: u8 = 255;

/// From this length up to [`LONG_BYTES`], in bytes, a line needs room for [`LINE_COPIES`] uncounted copies.
const COPIED_BYTES_MIN: usize = 16 << 10;
const LINE_COPIES: usize = 6;

/// Why `forget` fails.
const NOT_FORGOTTEN: &str = "functions have taken most of the memory, or hold some of it: start another process \
                             instead";

/// The query server of one process.
pub(super) struct Server {
    /// The selected isolate; a nameless one before the first `tenant`.
    isolate: Isolate,
    isolates: Option<Isolates>,
    /// Views replaced by the last `reset` or `tenant`; freed when there is time.
    old: Option<Views>,
    /// Whether the first answer is written: before it nothing is prepared.
    started: bool,
    process: Rc<Process>,
}

impl Server {
    pub fn new(
        options: Options,
        tenancy: Option<Tenancy>,
        status: ProcessStatus,
        lines: Lines,
    ) -> Self {
        let process = Process::new(options, status, lines);
        Server {
            isolate: Isolate::new(&process),
            isolates: tenancy.map(|tenancy| Isolates::new(tenancy, &process)),
            old: None,
            started: false,
            process,
        }
    }

    /// Answers lines until the input ends, an empty line arrives, an answer is fatal or a list function reads a line
    /// that is not a row; returns the exit status.
    /// Engines are not freed: the process ends next.
    pub fn serve(mut self) -> io::Result<u8> {
        let status = self.answer_all();
        self.process.lines.borrow_mut().output.flush()?;
        mem::forget(self);
        status
    }

    fn answer_all(&mut self) -> io::Result<u8> {
        let process = Rc::clone(&self.process);
        let mut line = Vec::new();
        loop {
            self.isolate.shared.report.begin();
            let next = process.lines.borrow_mut().next(&mut line, self)?;
            let shared = Rc::clone(&self.isolate.shared);
            let mut held = shared.memory.count(0);
            let result = match next {
                Next::End => return Ok(0),
                Next::Line if line.is_empty() => return Ok(0),
                Next::Line => into_text(mem::take(&mut line)).and_then(|text| {
                    held.set(if text.len() < LONG_BYTES {
                        0
                    } else {
                        text.len()
                    });
                    let answer = check_room(&text).and_then(|()| self.answer(&text));
                    line = text.into_bytes();
                    answer
                }),
                Next::TooLong(bytes) => {
                    Err(Failure::line_too_long(bytes, shared.options().memory_bytes))
                }
            };
            if let Some(status) = process.ended.get() {
                return Ok(status);
            }
            let put = result.and_then(|answer| answer.put(&shared));
            self.started = true;
            if let Err(failure) = put {
                shared.log_failure(&failure, std::str::from_utf8(&line).unwrap_or_default());
                let answer = failure.line(&shared);
                process.lines.borrow_mut().output.put(&[&answer]);
                if failure.is_fatal(&shared) {
                    return Ok(FATAL_STATUS);
                }
            }
        }
    }

    fn has_tenant(&self) -> bool {
        self.isolates
            .as_ref()
            .is_some_and(|isolates| isolates.selected.is_some())
    }

    fn answer(&mut self, line: &str) -> Result<Answer, Failure> {
        // Freed at once if they hold much memory.
        drop(self.old.take_if(|old| old.is_large()));
        let views = self.isolate.views.as_ref();
        if let Some(views) = views.filter(|views| views.has_functions())
            && let Some(document) = only_document(line)
        {
            self.isolate.ddocs.measure_at_times();
            let mapped = views.map(Some(document), Rows::Emitted);
            // A line that the engine cannot parse may have another shape, or be invalid JSON.
            if mapped.is_ok() || Command::parse(line)?.argument(0) == Some(document.trim()) {
                return mapped;
            }
        }
        let command = Command::parse(line)?;
        match command.name.as_str() {
            "reset" => {
                // Useless return values of the call that ends here.
                if let Some(views) = &self.isolate.views {
                    views.tell_returned();
                }
                self.reset(&command)
            }
            "forget" => {
                self.forget()?;
                self.reset(&command)
            }
            "add_lib" => {
                self.views()?.add_lib(command.argument(0))?;
                Ok(Answer::True)
            }
            "add_fun" => {
                let kind = match command.argument(1).and_then(unquote).as_deref() {
                    Some("nouveau") => ViewKind::Nouveau,
                    _ => ViewKind::Map,
                };
                self.views()?.add_fun(command.argument(0), kind)?;
                Ok(Answer::True)
            }
            "map_doc" => self.views()?.map(command.argument(0), Rows::Emitted),
            "index_doc" | "nouveau_index_doc" => {
                self.views()?.map(command.argument(0), Rows::Indexed)
            }
            "reduce" | "rereduce" => self.reduce(line, &command),
            "ddoc" => self.ddoc(&command),
            name => {
                let selected = (name == "tenant").then(|| self.tenant(&command)).flatten();
                selected.ok_or_else(|| {
                    let reason = format!("unknown command '{}'", cut(name));
                    Failure::fatal("unknown_command", &reason)
                })
            }
        }
    }

    /// Selects a tenant's isolate; `None` without isolates, or if the line is malformed or lacks the parent's nonce.
    fn tenant(&mut self, command: &Command<'_>) -> Option<Answer> {
        let isolates = self.isolates.as_mut()?;
        let argument = |index| command.argument(index).and_then(unquote);
        let name =
            argument(1).filter(|_| argument(0).is_some_and(|it| it == isolates.tenancy.nonce))?;
        let afresh = match command.argument(2).map(unquote) {
            None => false,
            Some(Some(word)) if word == "new" => true,
            Some(_) => return None,
        };
        let (evicted, views) = isolates.select(&mut self.isolate, name.into_owned(), afresh);
        if let Some(views) = views {
            self.put_aside(views);
        }
        let text = json!({"evicted": evicted}).to_string();
        let held = self.isolate.shared.memory.count(0);
        Some(Answer::Text(["", ""], text, held))
    }

    fn views(&mut self) -> Result<&mut Views, Failure> {
        let isolate = &mut self.isolate;
        isolate.ddocs.measure_at_times();
        match &mut isolate.views {
            Some(views) => Ok(views),
            none => Ok(none.insert(Views::new(&isolate.shared)?)),
        }
    }

    fn reset(&mut self, command: &Command<'_>) -> Result<Answer, Failure> {
        let config = command.argument(0).unwrap_or("null");
        let kind = kind_of(Some(config));
        if !matches!(kind, "null" | "an object") {
            return Err(Failure::protocol(&format!(
                "reset: the configuration must be an object, it is {kind}"
            )));
        }
        let [mode, threshold, ratio] = reduce_limit::KEYS;
        let config = members(
            config,
            &[mode, threshold, ratio, TEXT_REASONS, CONSOLE, REPORT],
        );
        let isolate = &mut self.isolate;
        isolate.limit = ReduceLimit::new(&config);
        let shared = &isolate.shared;
        let text_reasons = config[TEXT_REASONS]
            .as_bool()
            .unwrap_or(shared.options().text_reasons);
        shared.text_reasons.set(text_reasons);
        let console = config[CONSOLE] == true;
        if shared.console.replace(console) != console {
            // Design functions are compiled either with a console or without.
            isolate.ddocs.unload();
        }
        shared.report.wanted.set(config[REPORT] == true);
        if let Some(views) = isolate.views.take_if(|views| !views.is_fresh()) {
            self.put_aside(views);
        }
        Ok(Answer::True)
    }

    /// Keeps views until there is time to free them.
    fn put_aside(&mut self, views: Views) {
        // At most one is kept.
        self.old = None;
        self.old = Some(views);
    }

    /// Ends the selected isolate; without tenants, verifies that nothing remains. Unused prepared engines stay.
    ///
    /// # Errors
    /// Something remains, or an engine may have reached its limit: the process must not serve another client.
    fn forget(&mut self) -> Result<(), Failure> {
        self.old = None;
        let isolate = Isolate::new(&self.process);
        let ended = mem::replace(&mut self.isolate, isolate);
        if self.has_tenant() {
            // A tenant forgets only its own state.
            return Ok(());
        }
        let account = Rc::clone(&ended.shared.memory);
        drop(ended);
        self.process.peak.restart();
        let is_forgotten = self.process.used_runtimes() == 0
            && account.held() == 0
            && !self.process.peak.was_exhausted();
        if is_forgotten {
            Ok(())
        } else {
            Err(Failure::error("not_forgotten", NOT_FORGOTTEN))
        }
    }

    fn reduce(&mut self, line: &str, command: &Command<'_>) -> Result<Answer, Failure> {
        let list = |index, what| {
            let json = command.argument(index);
            json.filter(|json| json.starts_with('[')).ok_or_else(|| {
                let (name, kind) = (&command.name, kind_of(json));
                Failure::type_error(&format!("{name}: the {what} must be a list, it is {kind}"))
            })
        };
        let sources = list(0, "list of functions")?;
        let rows = list(1, "list of rows")?;
        // All are compiled before the first one runs: an invalid source ends the command before anything is logged.
        let (mut reducers, mut sources_units) = (Vec::new(), 0);
        for (index, source) in Elements::of(sources).enumerate() {
            self.isolate.shared.report.at(|| index.into());
            let source = source_text(Some(source))?;
            sources_units += utf16_len(&source);
            reducers.push(self.views()?.reducer(&source)?);
        }
        let shared = Rc::clone(&self.isolate.shared);
        let mut results = Results::new(&shared);
        let reduced = Reduced::of(&command.name, rows, &shared.memory);
        for (index, reducer) in reducers.iter().enumerate() {
            shared.report.at(|| index.into());
            self.views()?.reduce(reducer, &reduced, &mut results)?;
        }
        let (results, held) = results.finish()?;
        let input = utf16_len(line).saturating_sub(sources_units);
        let context: Option<Cow<'_, str>> = command.argument(2).map(|json| {
            if json.len() <= TREE_BYTES_MAX {
                unquote(json).unwrap_or(json.into())
            } else {
                excerpt(json).into()
            }
        });
        match self
            .isolate
            .limit
            .judge(input, utf16_len(&results), context.as_deref())
        {
            Verdict::Passes => {}
            Verdict::Warns(text) => shared.warn(&format!("reduce_overflow_error: {text}")),
            Verdict::Fails(text) => return Err(Failure::error("reduce_overflow_error", &text)),
        }
        Ok(Answer::Text(["[true,", "]"], results, held))
    }

    fn ddoc(&mut self, command: &Command<'_>) -> Result<Answer, Failure> {
        let is_tenants = self.has_tenant();
        let Isolate { views, ddocs, .. } = &mut self.isolate;
        if let Some(views) = views {
            views.engine.measure_at_times();
        }
        let id = command.argument(0);
        let (first, second) = (command.argument(1), command.argument(2));
        match &*id.map_or_else(|| "undefined".to_owned(), as_text) {
            "new" => {
                ddocs.teach(first, second, is_tenants)?;
                Ok(Answer::True)
            }
            id => ddocs.call(id, first, second),
        }
    }
}

/// Checks that the system has memory for a line's uncounted copies.
fn check_room(line: &str) -> Result<(), Failure> {
    if (COPIED_BYTES_MIN..LONG_BYTES).contains(&line.len()) {
        Vec::<u8>::new()
            .try_reserve_exact(line.len() * LINE_COPIES)
            .map_err(|_| Failure::out_of_memory())?;
    }
    Ok(())
}

impl Reader for Server {
    fn prepare(&mut self) -> bool {
        if !self.started {
            return false;
        }
        // A tenant gets no spare realm: most have one function, which uses the realm created with the engine.
        self.process.prepared() == 0 && self.process.prepare()
            || self.old.take().is_some()
            || self.process.prepare()
            || !self.has_tenant() && self.isolate.ddocs.prepare()
    }

    /// A line exists twice while it is parsed.
    fn line_bytes_max(&mut self) -> usize {
        if let Some(views) = &self.isolate.views {
            views.engine.measure();
        }
        drop(self.old.take_if(|old| old.is_large()));
        self.isolate.ddocs.measure();
        self.isolate.shared.memory.left() / 2
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::lines::Input;
    use crate::on_own_stack;
    use crate::output::{Destination, Output};

    /// More than all tests of the process need together.
    const MEMORY_BYTES: usize = 4 << 30;

    /// The allocator rounds up a little, and not always equally.
    const ROUNDING_BYTES: usize = 256;

    struct Nothing;

    impl Input for Nothing {
        fn readable(&self) -> bool {
            false
        }

        fn read(&mut self, _: &mut Vec<u8>) -> io::Result<usize> {
            Ok(0)
        }
    }

    impl Destination for io::Sink {}

    fn server() -> Server {
        let options = Options {
            memory_bytes: MEMORY_BYTES,
            ..Options::default()
        };
        let (output, _) = Output::new(Box::new(io::sink())).unwrap();
        let lines = Lines::new(Box::new(Nothing), output);
        let mut server = Server::new(options, None, ProcessStatus::open(), lines);
        server.started = true;
        server
    }

    /// Teaches functions of several kinds and runs them; some calls fail.
    fn teach(server: &mut Server) {
        let ddoc = r#"{"shows":{"s":"function() { return 'x'; }"}}"#;
        for line in [
            r#"["add_lib",{"m":"exports.f = 1;"}]"#.to_owned(),
            r#"["add_fun","function(doc) { require('views/lib/m'); emit(doc.a, 1); }"]"#.to_owned(),
            r#"["map_doc",{"a":1}]"#.to_owned(),
            format!(r#"["ddoc","new","_design/d",{ddoc}]"#),
            r#"["ddoc","_design/d",["shows","s"],[null,{}]]"#.to_owned(),
        ] {
            assert!(server.answer(&line).is_ok(), "{line}");
        }
        for line in [
            r#"["add_fun","function(doc) { doc.a.b.c; }"]"#,
            r#"["map_doc",{"_id":"x"}]"#,
            r#"["reduce",["function(keys, values) { return values.length; }"],[[[1,"a"],2]]]"#,
            r#"["rereduce",["function() { throw 'no'; }"],[1]]"#,
            r#"["ddoc","_design/d",["shows","none"],[null,{}]]"#,
        ] {
            drop(server.answer(line));
        }
    }

    /// The memory of a fully prepared server.
    fn prepared_bytes(server: &mut Server) -> usize {
        while server.prepare() {}
        server.line_bytes_max();
        MEMORY_BYTES - server.isolate.shared.memory.left()
    }

    #[test]
    fn a_server_that_forgot_has_the_memory_of_a_new_one() {
        on_own_stack(|| {
            let mut server = server();
            let new = prepared_bytes(&mut server);
            for reset in [r#"["reset",{}]"#, r#"["reset",{"report":true}]"#] {
                for _ in 0..3 {
                    assert!(server.answer(reset).is_ok());
                    teach(&mut server);
                    assert!(prepared_bytes(&mut server) > new);
                    assert!(server.answer(r#"["forget",{}]"#).is_ok(), "{reset}");
                    assert!(prepared_bytes(&mut server).abs_diff(new) <= ROUNDING_BYTES);
                }
            }
        })
        .unwrap();
    }

    #[test]
    fn every_module_that_a_function_makes_up_counts_as_memory() {
        on_own_stack(|| {
            let mut server = server();
            let one = "function() { return 'x'; }";
            let many = "function() { for (var i = 1000; i < 2000; i++) { \
                        var name = 'x'.repeat(196) + i; this[name] = ';'; require(name); \
                        delete this[name]; this._module_cache = {}; } return 'x'; }";
            let ddoc = json!({"shows": {"one": one, "many": many}});
            let taught = format!(r#"["ddoc","new","_design/d",{ddoc}]"#);
            let call =
                |name: &str| format!(r#"["ddoc","_design/d",["shows","{name}"],[null,{{}}]]"#);
            for line in [taught, call("one")] {
                assert!(server.answer(&line).is_ok(), "{line}");
            }
            let before = server.isolate.shared.memory.held();
            assert!(server.answer(&call("many")).is_ok());
            assert!(server.isolate.shared.memory.held() - before >= 1000 * 200);
        })
        .unwrap();
    }

    /// The number of prepared and of used runtimes.
    fn runtimes(server: &Server) -> (usize, usize) {
        (server.process.prepared(), server.process.used_runtimes())
    }

    #[test]
    fn forget_keeps_engines_that_no_function_used() {
        on_own_stack(|| {
            let mut server = server();
            prepared_bytes(&mut server);
            assert_eq!(runtimes(&server), (2, 0));
            let ddoc = r#"["ddoc","new","_design/d",{"shows":{"s":"function() { return 'x'; }"}}]"#;
            for line in [ddoc, r#"["ddoc","_design/d",["shows","s"],[null,{}]]"#] {
                assert!(server.answer(line).is_ok());
            }
            assert_eq!(runtimes(&server), (1, 1));
            assert!(server.answer(r#"["forget",{}]"#).is_ok());
            assert_eq!(runtimes(&server), (1, 0));
            teach(&mut server);
            assert!(server.answer(r#"["forget",{}]"#).is_ok());
            assert_eq!(runtimes(&server), (0, 0));
        })
        .unwrap();
    }

    #[test]
    fn forget_fails_while_a_realm_remains() {
        on_own_stack(|| {
            let mut server = server();
            teach(&mut server);
            let left = server
                .isolate
                .views
                .take()
                .unwrap()
                .engine
                .realm()
                .ok()
                .unwrap();
            let told = server.answer(r#"["forget",{}]"#);
            let failure = Failure::error("not_forgotten", NOT_FORGOTTEN);
            assert_eq!(told.err(), Some(failure));
            drop(left);
            assert!(server.answer(r#"["forget",{}]"#).is_ok());
        })
        .unwrap();
    }
}
