//! `settee jobs verify`: compares both sides of replications.
//!
//! SUMMARY   Gets the document, and the documents its target refused, from the service, and compares in this process,
//!           like `settee replicate --verify=only`. If the target lacks nothing, the problem about refused documents
//!           is acknowledged.
//! PROMISES  Credentials arrive over the socket and are not printed; the command line has none.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use settee_client::{JobSelection, JobsQuery};

use super::list::{SelectArgs, any_state, fetch, of_any_state, refusals};
use super::order::nothing_named;
use crate::actors::language::Registry;
use crate::cli::config_args::ConfigArgs;
use crate::cli::exit::{CliError, Exit};
use crate::cli::output;
use crate::cli::replicate::{self, Comparing};
use crate::cli::service_socket::{Service, SocketArgs, block_on};
use crate::cli::table::{count, printable};
use crate::client::{ServiceError, path, with_query};
use crate::config::Config;
use crate::replicator;
use crate::replicator::selection::is_pattern;
use replication::refused::RefusedDoc;
use replication::spec::{Replication, UserCtx};

#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// Documents in _replicator; * is any text, ? one character.
    #[arg(value_name = "DOC")]
    names: Vec<String>,
    #[command(flatten)]
    select: SelectArgs,
    /// All jobs.
    #[arg(long)]
    all: bool,
    /// Also compare the bytes of attachments.
    #[arg(long)]
    deep: bool,
    /// Of one document: keep the progress in this file, and resume from it if it exists.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes of `settee jobs`.
pub(super) fn verify(
    socket: &SocketArgs,
    args: &VerifyArgs,
    json: bool,
    languages: &Registry,
) -> Result<(), CliError> {
    let config = args.config.load(languages)?.config;
    let how = Comparing {
        deep: args.deep,
        resume: args.resume.clone(),
        json,
        one_of: None,
    };
    let select = args.select.selection(&args.names);
    let names_alone = JobSelection {
        patterns: args.names.clone(),
        ..JobSelection::default()
    };
    if let [document] = &*args.names
        && !is_pattern(document)
        && select == names_alone
    {
        return compare(socket, document, config, languages, how).map(drop);
    }
    if select.is_empty() && !args.all {
        return Err(nothing_named());
    }
    if args.resume.is_some() {
        let message = "--resume keeps the progress of one document, and several are named";
        let hint = "leave it out, or name one document";
        return Err(CliError::new(Exit::Usage, message, hint));
    }
    let selected = block_on(async {
        let service = Service::at(socket, explain);
        documents(&service, select, &args.names).await
    })?;
    let (mut lacking, mut failed) = (0, 0);
    for document in &selected {
        let how = Comparing {
            one_of: Some(document.clone()),
            ..how.clone()
        };
        match compare(socket, document, config.clone(), languages, how) {
            Ok(true) => {}
            Ok(false) => lacking += 1,
            Err(error) => {
                failed += 1;
                let line = if json {
                    json!({"document": document, "error": error.message}).to_string()
                } else {
                    printable(&format!("{document}: not compared: {error}"))
                };
                output::print(&format!("{line}\n"))?;
            }
        }
    }
    tell(selected.len(), lacking, failed, json)
}

/// Prints the sum of several comparisons.
///
/// # Errors
/// A target lacks something, or was not compared.
fn tell(total: usize, lacking: usize, failed: usize, json: bool) -> Result<(), CliError> {
    let complete = total - lacking - failed;
    let jobs = count(total, "job", "jobs");
    output::print(&if json {
        let sum = json!({"jobs": total, "complete": complete, "incomplete": lacking, "not_compared": failed});
        format!("{sum}\n")
    } else {
        format!("{jobs}: {complete} complete, {lacking} incomplete, {failed} not compared\n")
    })?;
    if lacking + failed == 0 {
        return Ok(());
    }
    let what = format!("of {jobs}, {lacking} lack something, and {failed} were not compared");
    let hint = "`settee jobs verify DOC` prints each difference";
    Err(CliError::new(Exit::Data, what, hint))
}

/// Returns the selected documents in any state, and names that match no job: comparing these reports the error.
async fn documents(
    service: &Service,
    mut select: JobSelection,
    names: &[String],
) -> Result<Vec<String>, CliError> {
    if select.states.is_empty() {
        select.states = any_state();
    }
    let query = JobsQuery {
        select,
        ..JobsQuery::default()
    };
    let (jobs, answer) = fetch(service, query, usize::MAX).await?;
    if answer["loading"] == true {
        let what = "the service is still loading its documents";
        let hint = "run it again in a moment";
        return Err(CliError::new(Exit::TryAgain, what, hint));
    }
    let document = |job: &Value| {
        let id = job["doc_id"].as_str().or(job["id"].as_str());
        id.map(str::to_owned)
    };
    let mut found: Vec<String> = jobs.iter().filter_map(document).collect();
    for name in names {
        if !is_pattern(name) && !found.contains(name) {
            found.push(name.clone());
        }
    }
    if found.is_empty() {
        let hint = "`settee jobs` lists them";
        return Err(CliError::new(Exit::NotFound, "no job matches", hint));
    }
    Ok(found)
}

/// Compares both sides of a document's replication. Returns the result of [`replicate::verify`].
fn compare(
    socket: &SocketArgs,
    document: &str,
    config: Config,
    languages: &Registry,
    how: Comparing,
) -> Result<bool, CliError> {
    let (body, refused) = block_on(async {
        let service = Service::at(socket, explain);
        let body: Value = service.get(&path(["_replicator", document])).await?;
        Ok((body, refused(&service, document).await?))
    })?;
    let defaults = replicator::defaults(&config.replicator);
    let user = UserCtx::of_body(&body);
    let replication = Replication::parse(&body, &defaults, user, None).map_err(|error| {
        let place = format!("document {document}");
        CliError::at(Exit::Data, place, error, "correct the document")
    })?;
    let holds_all = replicate::verify(replication, config, languages, refused, how)?;
    if holds_all {
        acknowledge(socket, document)?;
    }
    Ok(holds_all)
}

/// Acknowledges the problem that the target refused documents, if there is one.
fn acknowledge(socket: &SocketArgs, document: &str) -> Result<(), CliError> {
    let subject = [("subject", document.to_owned())];
    let problem = with_query(&path(["_health", "documents_refused"]), subject);
    block_on(async {
        let service = Service::at(socket, explain);
        let _: Result<Value, CliError> = service.delete(&problem).await;
        Ok(())
    })
}

fn explain(_: &Path, said: &ServiceError) -> Option<CliError> {
    let what = "there is no document of this id in _replicator";
    let hint = "`settee jobs` shows the documents of jobs";
    (said.name == "not_found").then(|| CliError::new(Exit::NotFound, what, hint))
}

/// Returns the latest documents that the target refused.
async fn refused(service: &Service, document: &str) -> Result<Vec<RefusedDoc>, CliError> {
    let jobs = of_any_state(service, document).await?;
    let its = jobs.iter().filter(|job| job["doc_id"] == document);
    let docs = its.flat_map(refusals);
    Ok(docs
        .filter_map(|doc| RefusedDoc::deserialize(doc).ok())
        .collect())
}
