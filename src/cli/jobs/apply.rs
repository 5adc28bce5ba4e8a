//! `settee jobs apply`: makes the service's documents match a file.
//!
//! SUMMARY   Reads the file, queries servers for their databases if required, compares with the service's documents,
//!           shows the plan, prompts for confirmation, and writes. A second run finds nothing to do; an interrupted
//!           one can be continued.
//! PROMISES  Nothing is written unless the whole file is valid and every server has answered. Credentials are read
//!           from the environment or files, and not printed.
//! LIMITS    Writes [`DOCUMENTS_MAX`] documents at a time.

mod file;
mod plan;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use slog::{Discard, Logger, o};

use self::file::{Databases, Entry, Mistake, Reference};
use self::plan::{Documents, MARK, Plan};
use super::order::is_confirmed;
use crate::actors::language::Registry;
use crate::cli::config_args::ConfigArgs;
use crate::cli::exit::{CliError, CliResult, Exit, IoAt};
use crate::cli::output::{self, json_or};
use crate::cli::replicate::http_client;
use crate::cli::service_socket::Service;
use crate::cli::table::count;
use crate::client::with_query;
use crate::config::{Replicator, Surroundings};
use crate::replicator;
use crate::replicator::document::{DocKind, kind_of};
use replication::endpoint::HttpSettings;
use replication::open::all_dbs;
use replication::spec::{Defaults, Replication, UserCtx};

/// Documents read at a time.
const READ_MAX: usize = 500;

/// Documents written at a time.
const DOCUMENTS_MAX: usize = 200;

#[derive(clap::Args)]
pub(super) struct ApplyArgs {
    /// The file, in TOML. Its name without the extension marks its documents.
    file: PathBuf,
    /// Do not ask before changing anything.
    #[arg(long, short)]
    yes: bool,
    /// Print what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Remove documents that an earlier apply of this file name created and the file no longer has.
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes of `settee jobs`.
pub(super) async fn apply(
    service: &Service,
    args: &ApplyArgs,
    json: bool,
    languages: &Registry,
) -> CliResult {
    let config = args.config.load(languages)?.config.replicator;
    let mark = args
        .file
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let wanted = wanted(&args.file, &config).await?;
    let there = there(service, &wanted, &mark).await?;
    let plan = Plan::new(wanted, &there, &mark, args.prune);
    if !plan.foreign.is_empty() {
        return Err(foreign(&plan.foreign, &mark));
    }
    let Plan {
        added,
        changed,
        removed,
        unchanged,
        ..
    } = plan;
    let mut text: String = plan
        .changes
        .iter()
        .map(|change| json_or(json, change, || format!("{change}\n")))
        .collect();
    if !json {
        text += &format!(
            "{added} to add, {changed} to change, {removed} to remove, {unchanged} unchanged\n"
        );
    }
    output::print(&text)?;
    if plan.writes.is_empty() || args.dry_run {
        return Ok(());
    }
    let proof = (removed > 0).then(|| removed.to_string());
    let question = match removed {
        0 => "Apply this?".to_owned(),
        _ => format!("Apply this? It removes {removed}."),
    };
    if !args.yes && !is_confirmed(&question, proof)? {
        let hint = match removed {
            0 => "answer y, or give --yes".to_owned(),
            _ => format!("answer {removed}, the number of documents to remove, or give --yes"),
        };
        return Err(CliError::new(Exit::Usage, "nothing was changed", hint));
    }
    write(service, &plan.writes).await
}

/// Returns the documents described by the file.
async fn wanted(path: &Path, config: &Replicator) -> CliResult<Documents> {
    let text = fs::read_to_string(path).io_at(path.display())?;
    let surroundings = Surroundings::of_process();
    let lookup = |reference: Reference<'_>| match reference {
        Reference::Env(name) => surroundings
            .variable(name)
            .and_then(|value| value.to_str())
            .map(str::to_owned)
            .ok_or_else(|| format!("${name} is not set")),
        Reference::File(name) => {
            let path = path.parent().unwrap_or(Path::new("")).join(name);
            Ok(fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?
                .trim_end_matches(['\r', '\n'])
                .to_owned())
        }
    };
    let entries = file::read(&text, &lookup).map_err(|mistakes| wrong(path, &mistakes))?;
    let defaults = replicator::defaults(config);
    let (mut documents, mut lines) = (Documents::new(), BTreeMap::new());
    let mut mistakes = Vec::new();
    for entry in &entries {
        let names = databases(entry, path, config, &defaults).await?;
        for (id, members) in entry.documents(&names) {
            let mistake = |what: String, remedy: &str| Mistake {
                line: entry.line,
                what,
                remedy: remedy.to_owned(),
            };
            if let Some(before) = lines.insert(id.clone(), entry.line) {
                mistakes.push(mistake(
                    format!("document {id} is described twice, first in line {before}"),
                    "give one of them another name",
                ));
            } else if let Err(what) = check(&id, &members, &defaults) {
                mistakes.push(mistake(
                    format!("document {id}: {what}"),
                    "correct the replication",
                ));
            }
            documents.insert(id, members);
        }
    }
    if mistakes.is_empty() {
        Ok(documents)
    } else {
        Err(wrong(path, &mistakes))
    }
}

/// Returns the databases for which an entry makes documents.
async fn databases(
    entry: &Entry,
    path: &Path,
    config: &Replicator,
    defaults: &Defaults,
) -> CliResult<Vec<String>> {
    let server = match &entry.databases {
        Databases::None => return Ok(Vec::new()),
        Databases::Listed(names) => return Ok(names.clone()),
        Databases::Of { server, .. } => server,
    };
    let place = || format!("{}:{}: all_dbs", path.display(), entry.line);
    let asked = Replication::parse(
        &json!({"source": server, "target": server}),
        defaults,
        UserCtx::default(),
        None,
    )
    .map_err(|error| {
        CliError::at(
            Exit::Data,
            place(),
            error,
            "write the URL of a server there",
        )
    })?;
    let failed = |error: String| {
        CliError::at(
            Exit::TryAgain,
            place(),
            error,
            "check that the server runs and lets this user list its databases",
        )
    };
    let http = http_client(config, &Logger::root(Discard, o!()))?;
    let server = http
        .endpoint(
            &asked.source,
            HttpSettings::of_source(&asked.options, config.health_threshold),
        )
        .map_err(|error| failed(error.to_string()))?;
    let mut names = all_dbs(&server)
        .await
        .map_err(|crash| failed(crash.to_string()))?;
    names.retain(|name| entry.databases.takes(name));
    Ok(names)
}

/// Checks that the service would accept a document.
fn check(id: &str, members: &Map<String, Value>, defaults: &Defaults) -> Result<(), String> {
    match kind_of(id).map_err(|error| error.to_string())? {
        DocKind::Replication => {}
        _ => return Err("the id of a replication must not begin with _".to_owned()),
    }
    let body = Value::Object(members.clone());
    Replication::parse(&body, defaults, UserCtx::of_body(&body), None)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn wrong(path: &Path, mistakes: &[Mistake]) -> CliError {
    let place = |one: &Mistake| format!("{}:{}", path.display(), one.line);
    if let [one] = mistakes {
        return CliError::at(Exit::Data, place(one), &one.what, &one.remedy);
    }
    let line = |one: &Mistake| format!("{}: {}: {}", place(one), one.what, one.remedy);
    let lines: Vec<String> = mistakes.iter().map(line).collect();
    let hint = format!("{} mistakes in the file, nothing was changed", lines.len());
    CliError::new(Exit::Data, lines.join("\n"), hint)
}

fn foreign(ids: &[String], mark: &str) -> CliError {
    /// Maximum documents named in a message.
    const NAMED_MAX: usize = 10;
    let line = |id: &String| format!("document {id} exists, and was not made from this file");
    let mut lines: Vec<String> = ids.iter().take(NAMED_MAX).map(line).collect();
    if ids.len() > NAMED_MAX {
        lines.push(format!("and {} more", ids.len() - NAMED_MAX));
    }
    CliError::new(
        Exit::Data,
        lines.join("\n"),
        format!(
            "give it another name in the file, or the member \"{MARK}\": \"{mark}\" in _replicator; nothing was changed"
        ),
    )
}

/// Returns the service's documents that are wanted or have the file's mark.
async fn there(service: &Service, wanted: &Documents, mark: &str) -> CliResult<Documents> {
    let (mut documents, mut after) = (Documents::new(), None);
    loop {
        let page: AllDocs = service.get(&all_docs(after.as_deref())).await?;
        let Some(last) = page.rows.last() else {
            return Ok(documents);
        };
        after = Some(last.id.clone());
        for Row { id, doc } in page.rows {
            let is_own = doc.get(MARK).is_some_and(|known| known == mark);
            if is_own || wanted.contains_key(&id) {
                documents.insert(id, doc);
            }
        }
    }
}

/// A page of `_replicator` documents.
#[derive(Deserialize)]
struct AllDocs {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    doc: Map<String, Value>,
}

/// Returns the path of the documents after an id.
fn all_docs(after: Option<&str>) -> String {
    let mut query = vec![
        ("include_docs", "true".to_owned()),
        ("limit", READ_MAX.to_string()),
    ];
    if let Some(after) = after {
        query.extend([
            ("startkey", json!(after).to_string()),
            ("skip", "1".to_owned()),
        ]);
    }
    with_query("/_replicator/_all_docs", query)
}

/// The result of a document.
#[derive(Deserialize)]
struct Written {
    id: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    reason: String,
}

/// Writes documents, and reports those that were refused.
async fn write(service: &Service, documents: &[Value]) -> CliResult {
    let mut refused = Vec::new();
    for batch in documents.chunks(DOCUMENTS_MAX) {
        let written: Vec<Written> = service
            .post("/_replicator/_bulk_docs", &json!({"docs": batch}))
            .await?;
        let failed = written.into_iter().filter(|one| !one.error.is_empty());
        refused.extend(failed.map(|one| format!("{}: {}: {}", one.id, one.error, one.reason)));
    }
    if !refused.is_empty() {
        let all = count(documents.len(), "document");
        refused.push(format!("{} of {all} were not written", refused.len()));
        return Err(CliError::new(
            Exit::Data,
            refused.join("\n"),
            "correct what is wrong and run this again; what is written stays",
        ));
    }
    Ok(())
}
