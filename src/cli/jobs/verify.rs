//! `settee jobs verify`: compares both sides of replications.
//!
//! SUMMARY   Gets the document, and the documents its target refused, from the service, and compares in this process,
//!           like `settee replicate --verify=only`. If the target lacks nothing, the problem about refused documents
//!           is acknowledged.
//! PROMISES  Credentials arrive over the socket and are not printed; the command line has none.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use settee_client::{JobSelection, JobsQuery};

use super::list::{SelectArgs, any_state, fetch, of_any_state, refusals};
use super::order::nothing_named;
use crate::actors::language::Registry;
use crate::cli::config_args::ConfigArgs;
use crate::cli::exit::{CliError, CliResult, Exit};
use crate::cli::output::{self, json_or};
use crate::cli::replicate::{self, Comparing};
use crate::cli::service_socket::{Service, SocketArgs, block_on};
use crate::cli::table::{count, printable};
use crate::client::{path, with_query};
use crate::config::Config;
use crate::replicator;
use crate::replicator::selection::is_pattern;
use replication::refused::RefusedDoc;
use replication::spec::{Replication, UserCtx};

#[derive(clap::Args)]
pub(super) struct VerifyArgs {
    /// Documents in _replicator; * is any text, ? one character.
    #[arg(value_name = "DOC")]
    names: Vec<String>,
    #[command(flatten)]
    select: SelectArgs,
    /// All jobs of documents.
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
) -> CliResult {
    let config = args.config.load(languages)?.config;
    let service = Service::at(socket, |_, said| {
        (said.name == "not_found").then(|| {
            CliError::new(
                Exit::NotFound,
                "there is no document of this id in _replicator",
                "`settee jobs` shows the documents of jobs",
            )
        })
    });
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
        return compare(&service, document, config, languages, how).map(drop);
    }
    if select.is_empty() && !args.all {
        return Err(nothing_named());
    }
    if args.resume.is_some() {
        return Err(CliError::new(
            Exit::Usage,
            "--resume keeps the progress of one document, and several are named",
            "leave it out, or name one document",
        ));
    }
    let selected = block_on(documents(&service, select, &args.names))?;
    let (mut lacking, mut failed) = (0, 0);
    for document in &selected {
        let how = Comparing {
            one_of: Some(document.clone()),
            ..how.clone()
        };
        match compare(&service, document, config.clone(), languages, how) {
            Ok(true) => {}
            Ok(false) => lacking += 1,
            Err(error) => {
                failed += 1;
                let line = json!({"document": document, "error": error.message});
                output::print(&json_or(json, &line, || {
                    printable(&format!("{document}: not compared: {error}")) + "\n"
                }))?;
            }
        }
    }
    tell(selected.len(), lacking, failed, json)
}

/// Prints the sum of several comparisons.
///
/// # Errors
/// A target lacks something, or was not compared.
fn tell(total: usize, lacking: usize, failed: usize, json: bool) -> CliResult {
    let complete = total - lacking - failed;
    let jobs = count(total, "job");
    let sum =
        json!({"jobs": total, "complete": complete, "incomplete": lacking, "not_compared": failed});
    output::print(&json_or(json, &sum, || {
        format!("{jobs}: {complete} complete, {lacking} incomplete, {failed} not compared\n")
    }))?;
    if lacking + failed == 0 {
        return Ok(());
    }
    Err(CliError::new(
        Exit::Data,
        format!("of {jobs}, {lacking} lack something, and {failed} were not compared"),
        "`settee jobs verify DOC` prints each difference",
    ))
}

/// Returns the selected documents in any state, and names that match no job: comparing these reports the error. Jobs
/// of `POST /_replicate` have no document.
async fn documents(
    service: &Service,
    mut select: JobSelection,
    names: &[String],
) -> CliResult<Vec<String>> {
    if select.states.is_empty() {
        select.states = any_state();
    }
    let query = JobsQuery {
        select,
        ..JobsQuery::default()
    };
    let (jobs, answer) = fetch(service, query, usize::MAX).await?;
    if answer["loading"] == true {
        return Err(CliError::new(
            Exit::TryAgain,
            "the service is still loading its documents",
            "run it again in a moment",
        ));
    }
    let mut found: Vec<String> = jobs
        .iter()
        .filter_map(|job| job["doc_id"].as_str())
        .map(str::to_owned)
        .collect();
    for name in names {
        if !is_pattern(name) && !found.contains(name) {
            found.push(name.clone());
        }
    }
    if found.is_empty() {
        return Err(CliError::new(
            Exit::NotFound,
            "no job matches",
            "`settee jobs` lists them",
        ));
    }
    Ok(found)
}

/// Compares both sides of a document's replication. Returns the result of [`replicate::verify`].
fn compare(
    service: &Service,
    document: &str,
    config: Config,
    languages: &Registry,
    how: Comparing,
) -> CliResult<bool> {
    let (body, refused) = block_on(async {
        let body: Value = service.get(&path(["_replicator", document])).await?;
        Ok((body, refused(service, document).await?))
    })?;
    let replication = Replication::parse(
        &body,
        &replicator::defaults(&config.replicator),
        UserCtx::of_body(&body),
        None,
    )
    .map_err(|error| {
        CliError::at(
            Exit::Data,
            format!("document {document}"),
            error,
            "correct the document",
        )
    })?;
    let holds_all = replicate::verify(replication, config, languages, refused, how)?;
    if holds_all {
        // Acknowledges the problem that the target refused documents, if there is one.
        let problem = with_query(
            &path(["_health", "documents_refused"]),
            [("subject", document.to_owned())],
        );
        block_on(async {
            let _: CliResult<Value> = service.delete(&problem).await;
            Ok(())
        })?;
    }
    Ok(holds_all)
}

/// Returns the latest documents that the target refused.
async fn refused(service: &Service, document: &str) -> CliResult<Vec<RefusedDoc>> {
    let jobs = of_any_state(service, document).await?;
    Ok(jobs
        .iter()
        .filter(|job| job["doc_id"] == document)
        .flat_map(refusals)
        .filter_map(|doc| RefusedDoc::deserialize(doc).ok())
        .collect())
}
