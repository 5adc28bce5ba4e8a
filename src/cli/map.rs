//! `settee map`: runs a view over documents, one JSON document a line.
//!
//! SUMMARY   Reads the functions, borrows processes - from its own pool, or from a running service - streams the
//!           documents through them and prints rows, sorted or in any order, or reduced.
//! PROMISES  Reading, mapping and printing run concurrently, with bounded queues in between: a slow reader slows the
//!           mapping down and takes no memory. No process is left running.

mod csv;
mod errors;
mod logs;
pub(super) mod pool;
mod printer;
mod progress;
mod select;
mod sources;

use std::cell::RefCell;
use std::num::NonZero;
use std::path::PathBuf;
use std::rc::Rc;

use clap::builder::NonEmptyStringValueParser;
use slog::{Logger, o};

use crate::actors::language::Registry;
use crate::client::Client;
use crate::config::{Config, LanguageCommand};
use crate::functions::view::{
    self, BadLines, Batches, BuiltinReducer, Counts, Grouping, MapSink, Members, MissingId, Order,
    ProcessError, ProcessErrorKind, Processes, ReducePlan, Rows, Run, Totals, View, ViewError,
};
use crate::query_server::call::{Call, Subject};
use crate::query_server::ddoc::DEFAULT_LANGUAGE;
use crate::query_server::request_id::RequestId;
use crate::query_server::run_time::RunTime;
use crate::query_server::told::Told;
use couchjs::{members, syntax};

use super::config_args::ConfigArgs;
use super::exit::{CliError, CliResult, Exit, IoAt};
use super::service_socket::{SocketArgs, service_error};
use csv::Csv;
use errors::{Errors, Watched};
use logs::{LogLines, tell};
use printer::Printer;
use progress::Progress;
use sources::{Reducer, bad_input};

/// Options of `settee map`.
#[derive(clap::Args)]
#[command(after_long_help = "\
A document for which the map function throws gets no rows, as in CouchDB; standard error gets the
first errors of each kind, with document, line and column, and the first lines that the function
logs. Blank lines are skipped. Without rows, --reduce prints nothing. Built-in reducers keep a total
per key, not the rows. --selector without --map prints the matching documents unchanged, in order.

A map function that uses its document only as doc.NAME is fastest: only these members are parsed.

Exit codes:
  0   done, or the reader of the rows is gone (`| head`)
  64  the command line is wrong
  65  the input, the selector, the map function or the reduce function is wrong, reported with line
      and document; or the map function throws for every document
  69  --socket: no service answers
  74  reading or writing failed
  75  no process was available; or the run was interrupted; the error says how far it got
  77  a file may not be read, or the socket belongs to another user
  78  the configuration is wrong, or has no such language

Example:
  settee map --map examples/orders/by_customer.js --reduce _sum --group \\
    examples/orders/orders.ndjson
  settee map --selector examples/orders/paid.json examples/orders/orders.ndjson")]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The file with the source of the map function.
    #[arg(long, value_name = "FILE", required_unless_present = "selector")]
    map: Option<PathBuf>,
    /// A file with a Mango selector: only documents that match are mapped, or printed.
    #[arg(long, value_name = "FILE")]
    selector: Option<PathBuf>,
    /// Reduce the rows: _sum, _count, _stats, _approx_count_distinct, _top_N, _bottom_N, _first,
    /// _last, or a file with a function's source.
    #[arg(
        long,
        value_name = "NAME|FILE",
        conflicts_with = "unsorted",
        requires = "map"
    )]
    reduce: Option<PathBuf>,
    /// A directory of modules: the map function requires DIR/NAME.js as views/lib/NAME.
    #[arg(long, value_name = "DIR", requires = "map")]
    lib: Option<PathBuf>,
    /// The language of the functions.
    #[arg(long, default_value = DEFAULT_LANGUAGE, value_parser = NonEmptyStringValueParser::new())]
    language: String,
    /// With --reduce: one row per key, not one for all.
    #[arg(long, requires = "reduce", conflicts_with = "group_level")]
    group: bool,
    /// With --reduce: one row for each distinct first N elements of array keys.
    #[arg(long, value_name = "N", requires = "reduce")]
    group_level: Option<usize>,
    /// Print rows as they come, in any order, with little memory for any number.
    #[arg(long, requires = "map")]
    unsorted: bool,
    /// Print rows as JSON objects, or as CSV: a header, then id, key and value; reduced rows have no id. A string
    /// is printed as it is, null as an empty field, everything else as JSON.
    #[arg(long, value_name = "FORMAT", requires = "map")]
    output: Option<Format>,
    /// Borrow processes of the service that listens at PATH, or without PATH at $SETTEE__SERVER__SOCKET or where
    /// `serve` puts its socket. Give PATH if INPUT follows directly.
    #[arg(long, value_name = "PATH", requires = "map", num_args = 0..=1)]
    socket: Option<Option<PathBuf>>,
    /// Skip up to N lines that are not documents; their number and the first three are printed at the end.
    #[arg(long, value_name = "N")]
    skip_bad: Option<u64>,
    /// The documents, one JSON object a line; - is standard input. One without an _id gets the number
    /// of its line.
    #[arg(default_value = "-", value_name = "INPUT")]
    input: PathBuf,
}

/// The format of printed rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Json,
    Csv,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub(super) fn run(args: &Args, languages: &Registry) -> CliResult {
    let loaded = args.config.load(languages)?;
    let log_lines = LogLines::default();
    let log = Logger::root(log_lines.clone(), o!());
    let selector = args
        .selector
        .as_deref()
        .map(sources::selector)
        .transpose()?;
    let bad_lines = args.skip_bad.map(BadLines::at_most);
    let Some(map) = &args.map else {
        let selector = selector.expect("map: without a map function there is a selector");
        let input = sources::input(&args.input)?;
        let done = select::run(
            selector,
            input,
            bad_lines.clone(),
            &loaded.config,
            &args.input_name(),
        );
        tell_skipped(bad_lines.as_deref());
        return done;
    };
    let map_file = map.display().to_string();
    let map = sources::map(map, &args.language)?;
    let commands = &loaded.config.languages;
    let command = commands.get(&args.language.to_ascii_lowercase());
    // Whether the built-in engine certainly runs the functions. Then modules are checked beforehand, since a mistake
    // found only by `require` costs every document its rows; and only the members that the map function reads are sent.
    let is_builtin = args.socket.is_none() && command == Some(&LanguageCommand::Builtin);
    let lib = sources::library(args.lib.as_deref(), is_builtin)?;
    let job = Job {
        view: View {
            language: args.language.clone(),
            funs: vec![map],
            lib: Some(lib),
        },
        reducer: args
            .reduce
            .as_deref()
            .map(|name| sources::reducer(name, &loaded.config, &log))
            .transpose()?,
        config: loaded.config,
        languages,
        errors: Errors::new(log_lines.clone()),
        args,
        map_file,
    };
    let input = sources::input(&args.input)?;
    let line_max = job.config.server.line_max;
    let members = if is_builtin && job.config.query_server_config.optimize_functions {
        job.members_read()
    } else {
        Members::All
    };
    let rules = view::DocumentRules {
        members,
        selector,
        missing_id: MissingId::Numbered,
        bad_lines: bad_lines.clone(),
    };
    let input = view::read_in_thread(input, view::DocumentCutter::new(line_max, rules))
        .io_at("a thread for reading")?;
    let done = super::system()?.block_on(job.run(input, &log));
    log_lines.summarise();
    tell_skipped(bad_lines.as_deref());
    done
}

fn tell_skipped(bad_lines: Option<&BadLines>) {
    if let Some(summary) = bad_lines.and_then(BadLines::summary) {
        tell(&summary);
    }
}

impl Args {
    fn grouping(&self) -> Grouping {
        match (self.group, self.group_level) {
            (true, _) => Grouping::Exact,
            (false, None | Some(0)) => Grouping::None,
            (false, Some(level)) => Grouping::Level(level),
        }
    }

    /// Returns the input's name for errors.
    fn input_name(&self) -> String {
        if sources::is_standard_input(&self.input) {
            "standard input".to_owned()
        } else {
            self.input.display().to_string()
        }
    }
}

/// A run of the view.
struct Job<'a> {
    args: &'a Args,
    /// The file of the map function, for errors.
    map_file: String,
    config: Config,
    languages: &'a Registry,
    view: View,
    reducer: Option<Reducer>,
    errors: Errors,
}

/// What a run of the view needs besides the job.
struct Work<'a> {
    processes: &'a Processes,
    input: Batches,
    printer: &'a Printer,
    progress: &'a Progress,
    run: Run<'a>,
}

impl Job<'_> {
    async fn run(&self, input: Batches, log: &Logger) -> CliResult {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let subject = Subject {
            function: "map".to_owned(),
            ..Subject::default()
        };
        let call = Call::new(RequestId::made(), None, subject, true, RunTime::Whole, None);
        let Some(socket) = &self.args.socket else {
            let pool = pool::Pool::start(&self.config, self.languages, log)?;
            let limit = self.config.query_server_config.os_process_limit as usize;
            let processes = pool.processes(call);
            let done = self.produce(&processes, cores.min(limit), input).await;
            pool.stop().await;
            return done;
        };
        let socket = SocketArgs {
            socket: socket.clone(),
        }
        .path();
        let client = Client::connect(&socket)
            .await
            .map_err(|error| service_error(&socket, &error))?;
        self.produce(&Processes::Service(client, Some(call)), cores, input)
            .await
    }

    /// Maps, sorts, reduces and prints.
    async fn produce(&self, processes: &Processes, width: usize, input: Batches) -> CliResult {
        let has_ids = self.args.reduce.is_none();
        let is_csv = self.args.output == Some(Format::Csv);
        let printer = Printer::start(is_csv.then_some(Csv { has_ids }))?;
        let counts = Rc::new(Counts::default());
        let progress = Progress::start(Rc::clone(&counts), self.args.unsorted);
        let work = Work {
            processes,
            input,
            printer: &printer,
            progress: &progress,
            run: Run {
                width,
                order: Order::AsAnswered,
                timeout: None,
                counts: &counts,
            },
        };
        let producing = async {
            match &self.reducer {
                _ if self.args.unsorted => self.stream(work).await,
                Some(Reducer::Builtin(reducer)) => self.total(reducer, work).await,
                _ => self.collect(work).await,
            }
        };
        let produced = tokio::select! {
            biased;
            // Where the signal cannot be caught, it ends the program silently.
            Ok(()) = tokio::signal::ctrl_c() => None,
            produced = producing => Some(produced),
        };
        drop(progress);
        let interrupted = || {
            let (documents, rows) = (counts.documents.get(), counts.rows.get());
            CliError::new(
                Exit::TryAgain,
                format!("interrupted after {documents} documents and {rows} rows"),
                "run it again; only with --unsorted are rows printed as they come",
            )
        };
        let printed = tokio::select! {
            biased;
            // A reader that does not read blocks the printing thread, and dropping the runtime waits for that thread.
            Ok(()) = tokio::signal::ctrl_c() => {
                interrupted().report();
                std::process::exit(Exit::TryAgain as i32);
            }
            printed = printer.finish() => printed,
        };
        let produced = produced.ok_or_else(interrupted)?;
        if let Some(call) = processes.call() {
            let hints = call.take_hints();
            self.show_rest(&call.finish(None).told, &produced);
            if produced.is_ok() {
                (hints.iter()).for_each(|hint| tell(&format!("{}: {hint}", self.map_file)));
            }
        }
        match produced {
            Ok(()) | Err(ViewError::Unwanted) => printed.and_then(|()| {
                self.errors
                    .summarise(&self.map_file, counts.documents.get())
            }),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Shows the reports that were not shown with a document.
    fn show_rest(&self, told: &Told, produced: &Result<(), ViewError>) {
        match produced {
            // The error is reported with its position.
            Err(ViewError::Compile { .. }) => {}
            Err(ViewError::Document { .. }) => self.errors.show(told, &self.map_file),
            _ => self.errors.show(told, &self.reduce_file()),
        }
    }

    /// Passes each document on to `sink` after its log lines and errors are shown.
    async fn map(&self, sink: &impl MapSink, work: Work<'_>) -> Result<(), ViewError> {
        let watched = Watched {
            sink,
            errors: &self.errors,
            file: &self.map_file,
        };
        view::map(&self.view, work.processes, work.input, &watched, work.run).await
    }

    async fn stream(&self, work: Work<'_>) -> Result<(), ViewError> {
        let printer = work.printer;
        let mapped = tokio::select! {
            mapped = self.map(printer, work) => mapped,
            never = printer.flush_regularly() => match never {},
        };
        // Rows mapped before an error are printed as well.
        let is_wanted = printer.flush().await;
        mapped?;
        wanted(is_wanted)
    }

    /// Reduces rows as they are mapped, in the order of the input, which affects sums of floats.
    async fn total(&self, reducer: &BuiltinReducer, work: Work<'_>) -> Result<(), ViewError> {
        let (printer, progress) = (work.printer, work.progress);
        let totals = RefCell::new(Totals::new(reducer, self.args.grouping()));
        let run = Run {
            order: Order::AsRead,
            ..work.run
        };
        self.map(&totals, Work { run, ..work }).await?;
        progress.end();
        for line in totals.into_inner().results() {
            wanted(printer.print(&line?).await)?;
        }
        wanted(printer.flush().await)
    }

    async fn collect(&self, work: Work<'_>) -> Result<(), ViewError> {
        let (printer, progress) = (work.printer, work.progress);
        let (processes, width) = (work.processes, work.run.width);
        let rows = RefCell::new(Rows::default());
        self.map(&rows, work).await?;
        progress.end();
        let mut rows = rows.into_inner();
        rows.sort();
        if let Some(Reducer::Source(source)) = &self.reducer {
            let write = async |line: Vec<u8>| printer.print(&line).await;
            let plan = ReducePlan {
                source,
                grouping: self.args.grouping(),
                width,
            };
            view::reduce(&self.view.language, processes, &rows, plan, write).await?;
        } else {
            for index in 0..rows.len() {
                wanted(printer.print(rows.text(index)).await)?;
            }
        }
        wanted(printer.flush().await)
    }

    /// Returns the file of the reduce function, for errors.
    fn reduce_file(&self) -> String {
        let file = self.args.reduce.as_ref();
        file.map_or_else(String::new, |file| file.display().to_string())
    }

    fn map_source(&self) -> String {
        serde_json::from_str(self.view.funs[0].get()).unwrap_or_default()
    }

    /// The members that the map function can read.
    fn members_read(&self) -> Members {
        match members::members_read(&self.map_source()) {
            Some(names) => Members::Named(names.into_iter().collect()),
            None => Members::All,
        }
    }

    /// Returns the error of a function, usually one that does not compile, with its file. If it is a JavaScript syntax
    /// error, adds its position, which query servers do not report.
    fn wrong(&self, file: &str, source: &str, error: &ViewError, hint: &str) -> CliError {
        let is_javascript = (self.view.language).eq_ignore_ascii_case(DEFAULT_LANGUAGE);
        let Some(mistake) = syntax::check_function(source)
            .err()
            .filter(|_| is_javascript)
        else {
            return CliError::at(Exit::Data, file, error, hint);
        };
        let syntax::SyntaxError {
            line,
            column,
            source_line,
            caret,
            ..
        } = &mistake;
        CliError::new(
            Exit::Data,
            format!("{file}:{line}:{column}: {error}\n  {source_line}\n  {caret}"),
            hint,
        )
    }

    /// Converts an error for the user: the file, the line, the remedy.
    fn explain(&self, error: &ViewError) -> CliError {
        let reduce = self.reduce_file();
        let input = self.args.input_name();
        let data = |place: String, hint: &str| CliError::at(Exit::Data, place, error, hint);
        match error {
            ViewError::Input(error) => bad_input(&input, error),
            ViewError::Compile { .. } => self.wrong(
                &self.map_file,
                &self.map_source(),
                error,
                "correct the function, or name its --language",
            ),
            ViewError::Document { .. } => {
                data(input, "correct the map function, or take the document out")
            }
            ViewError::Reduce { .. } => {
                let hint = "correct the reduce function, or what is emitted for it";
                match &self.reducer {
                    Some(Reducer::Source(source)) => self.wrong(&reduce, source, error, hint),
                    _ => data(reduce, hint),
                }
            }
            ViewError::Process(error) => no_process(error, &self.view.language),
            ViewError::Unwanted => {
                CliError::new(Exit::Io, error.to_string(), "read them to the end")
            }
        }
    }
}

fn no_process(error: &ProcessError, language: &str) -> CliError {
    let (code, hint) = match error.kind {
        ProcessErrorKind::Unavailable => {
            (Exit::Unavailable, "start the service, then run this again")
        }
        ProcessErrorKind::NoProcess { retry: false } => (
            Exit::Config,
            "correct its command in [query_servers]; `settee check-config` shows it",
        ),
        // A failing reset of a new process is more likely a wrong command than bad luck.
        ProcessErrorKind::Died | ProcessErrorKind::Shifted | ProcessErrorKind::Timeout => (
            Exit::TryAgain,
            "try again; if it stays like this, correct its command in [query_servers]",
        ),
        _ => (Exit::TryAgain, "try again later"),
    };
    CliError::at(code, format!("no process for '{language}'"), error, hint)
}

/// Returns an error if the reader has closed.
fn wanted(is_wanted: bool) -> Result<(), ViewError> {
    is_wanted.then_some(()).ok_or(ViewError::Unwanted)
}
