//! `settee jobs verify`: compares both sides of a document's replication.
//!
//! SUMMARY   Asks the service for the document and for what its target refused, and compares like
//!           `settee replicate --verify=only`, in this process. A target that has everything ends the problem of what it
//!           refused.
//! PROMISES  Credentials come over the socket and are not printed; none is on the command line.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::list::{of_any_state, refusals};
use crate::actors::language::Registry;
use crate::cli::config_args::ConfigArgs;
use crate::cli::exit::{CliError, Exit};
use crate::cli::replicate::{self, Comparing};
use crate::cli::service_socket::{Service, SocketArgs, block_on};
use crate::client::{ServiceError, path, with_query};
use crate::replicator;
use replication::refused::RefusedDoc;
use replication::spec::{Replication, UserCtx};

#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// The id of a document in _replicator.
    #[arg(value_name = "DOC")]
    document: String,
    /// Also compare the bytes of attachments.
    #[arg(long)]
    deep: bool,
    /// Keep the progress in this file, and resume from it if it exists.
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
    let (body, refused) = block_on(async {
        let service = Service::at(socket, explain);
        let body: Value = service.get(&path(["_replicator", &args.document])).await?;
        Ok((body, refused(&service, &args.document).await?))
    })?;
    let defaults = replicator::defaults(&config.replicator);
    let user = UserCtx::of_body(&body);
    let replication = Replication::parse(&body, &defaults, user, None).map_err(|error| {
        let place = format!("document {}", args.document);
        CliError::at(Exit::Data, place, error, "correct the document")
    })?;
    let comparing = Comparing {
        deep: args.deep,
        resume: args.resume.clone(),
        json,
    };
    if replicate::verify(replication, config, languages, refused, comparing)? {
        acknowledge(socket, &args.document)?;
    }
    Ok(())
}

/// Says that nothing the target refused is still missing; there may be no such problem.
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

/// Returns the latest documents that the target of a document's job refused.
async fn refused(service: &Service, document: &str) -> Result<Vec<RefusedDoc>, CliError> {
    let jobs = of_any_state(service, document).await?;
    let its = jobs.iter().filter(|job| job["doc_id"] == document);
    let docs = its.flat_map(refusals);
    Ok(docs
        .filter_map(|doc| RefusedDoc::deserialize(doc).ok())
        .collect())
}
