//! Checkpoints: one document in each database records a replication's progress.
//!
//! SUMMARY   [`find`] reads the log of one side, [`renew`] rewrites one of an older version, [`compare`] finds their
//!           common history, [`checkpoint`] commits both sides and writes the logs.
//! PROMISES  Sequences are written unchanged. Nothing is recorded before it is committed. A log that something else
//!           has changed is never overwritten.
//! SOURCE    couch_replicator_scheduler_job: find_replication_logs, compare_replication_logs,
//!           do_checkpoint, update_checkpoint.
//! DIFFERS   Of two logs of one session, CouchDB resumes at the source's: a target restored from a backup then lacks
//!           what was written after it. Settee resumes at the older one.

mod body;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OnceCell;

pub use self::body::{Checkpoint, CheckpointRun, HistoryEntry, LogBody};
use super::crash::Crash;
use super::endpoint::{
    Cause, Endpoint, Reply, Request, RequestFailed, StatusCode, encode_doc_id, text_or_json,
};
use super::filter::{FilterError, fetch_code};
use super::id::{Identity, base_ids};
use super::open::{DbInfo, db_info};
use super::seq::Seq;
use super::spec::Replication;

/// Maximum number of sessions in a log.
pub(crate) const HISTORY_MAX: usize = 50;

/// The log of one side. The default is that of a run without checkpoints, which neither reads nor writes it.
#[derive(Clone, Debug, Default)]
pub struct CheckpointLog {
    /// The document's id, with `_local/`.
    pub(crate) id: String,
    /// Its revision; `None` if it does not exist yet.
    pub(crate) rev: Option<String>,
    /// Whether it was found under the id of an older version, and does not exist under its own yet: see [`renew`].
    pub is_older: bool,
    /// Its content.
    pub body: LogBody,
}

/// The common history of two logs.
#[derive(Clone, Debug, Default)]
pub struct CommonAncestor {
    /// The sequence to continue from.
    pub start_seq: Seq,
    /// The earlier runs, newest first.
    pub history: Vec<HistoryEntry>,
}

/// Why no checkpoint was read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A request failed despite its retries.
    #[error("{0}")]
    Request(#[from] RequestFailed),
    /// An error of the database, other than a missing log.
    #[error("{error}: {reason} (status {status}), the answer to {asked}")]
    Refused {
        /// Method and URL of the request.
        asked: String,
        status: u16,
        /// The error's name.
        error: String,
        /// The server's reason.
        reason: String,
    },
    /// Something else has changed the log since it was read.
    #[error("conflict")]
    Conflict,
    /// An invalid answer.
    #[error("an answer that cannot be understood: {0}")]
    Nonsense(String),
    /// The code of the filter, which ids of older versions depend on, cannot be read.
    #[error("{0}")]
    Filter(#[from] FilterError),
}

impl From<serde_json::Error> for LogError {
    fn from(error: serde_json::Error) -> Self {
        Self::Nonsense(error.to_string())
    }
}

impl LogError {
    /// Returns whether the database denies access to this user.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Request(failed) => failed.is_refused(),
            Self::Refused { status, .. } => matches!(status, 401 | 403),
            Self::Filter(error) => error.is_refusal(),
            Self::Conflict | Self::Nonsense(_) => false,
        }
    }

    /// Returns why there was no answer, if there was none.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Request(failed) => Some(&failed.cause),
            Self::Filter(error) => error.cause(),
            _ => None,
        }
    }
}

/// Why a checkpoint was not made. Ends the run; the next one continues from the previous checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// One side did not commit, or did not accept its log.
    #[error("{step}: {error}")]
    Failed { step: &'static str, error: LogError },
    /// A database was restarted or replaced: the source, the target, or both.
    #[error("instance_start_time on {0} database has changed since last checkpoint.")]
    Restarted(&'static str),
    /// The source is behind the sequences read from it: it was recreated, or restored from a backup.
    #[error("update_seq of the source is behind what was replicated.")]
    SetBack,
}

impl CheckpointError {
    fn at(step: &'static str) -> impl FnOnce(LogError) -> Self {
        move |error| Self::Failed { step, error }
    }

    /// Returns the error of the side that failed; `None` if a database was restarted or set back.
    pub(crate) fn log_error(&self) -> Option<&LogError> {
        match self {
            Self::Failed { error, .. } => Some(error),
            Self::Restarted(_) | Self::SetBack => None,
        }
    }
}

/// One side of a replication, with its log, for [`checkpoint`].
#[derive(Clone, Debug)]
pub struct Side {
    pub endpoint: Endpoint,
    /// Its info when the run began, with the start time to compare.
    pub info: DbInfo,
    /// Its log. A checkpoint changes its revision.
    pub log: CheckpointLog,
}

/// The ids of a replication's logs, newest version first. Those of older versions are computed on demand: they may
/// need the filter's code from the source.
#[derive(Debug)]
pub struct LogIds<'a> {
    newest: String,
    older: OnceCell<Vec<String>>,
    replication: &'a Replication,
    identity: &'a Identity,
    source: &'a Endpoint,
}

impl<'a> LogIds<'a> {
    /// Makes the log ids of the replication with the base id `base`.
    pub fn new(
        base: &str,
        replication: &'a Replication,
        identity: &'a Identity,
        source: &'a Endpoint,
    ) -> Self {
        Self {
            newest: base.to_owned(),
            older: OnceCell::new(),
            replication,
            identity,
            source,
        }
    }

    /// Returns the ids of older versions, newest version first.
    async fn older(&self) -> Result<&[String], LogError> {
        let computing = async || {
            let code = fetch_code(self.source, &self.replication.options.filter).await?;
            let [_newest, older @ ..] = base_ids(self.replication, self.identity, code.as_deref());
            Ok(older.to_vec())
        };
        self.older
            .get_or_try_init(computing)
            .await
            .map(Vec::as_slice)
    }
}

/// Reads the log of one side: under the newest id, or else under those of older versions. Writes nothing; see
/// [`CheckpointLog::is_older`].
///
/// # Errors
/// The database answers with an error other than a missing log, or not at all; or older ids need the code of a filter
/// that cannot be read.
pub async fn find(endpoint: &Endpoint, ids: &LogIds<'_>) -> Result<CheckpointLog, LogError> {
    let id = format!("_local/{}", ids.newest);
    if let Some(log) = read(endpoint, &id).await? {
        return Ok(log);
    }
    let mut log = CheckpointLog {
        id,
        ..CheckpointLog::default()
    };
    for older in ids.older().await? {
        if let Some(found) = read(endpoint, &format!("_local/{older}")).await? {
            (log.body, log.is_older) = (found.body, true);
            break;
        }
    }
    Ok(log)
}

/// Writes a log found under an older id to the newest one: an older id changes with the server's host name or port.
///
/// # Errors
/// As for a checkpoint: something else has written another log, or the database refuses it.
pub async fn renew(endpoint: &Endpoint, log: &mut CheckpointLog) -> Result<(), LogError> {
    let body = log.body.clone();
    write(endpoint, log, &body).await
}

/// Reads a log; `None` if there is none.
async fn read(endpoint: &Endpoint, id: &str) -> Result<Option<CheckpointLog>, LogError> {
    let reply = endpoint.request(Request::get(encode_doc_id(id))).await?;
    match reply.status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        _ if reply.error().error == "not_found" => return Ok(None),
        _ => return Err(refused(&reply)),
    }
    let (rev, body) = LogBody::parse(&reply.body)
        .map_err(|error| LogError::Nonsense(format!("{id}: {error}")))?;
    Ok(Some(CheckpointLog {
        id: id.to_owned(),
        rev,
        is_older: false,
        body,
    }))
}

fn refused(reply: &Reply) -> LogError {
    let (error, reason) = reply.error_and_reason();
    LogError::Refused {
        asked: reply.asked.to_string(),
        status: reply.status.as_u16(),
        error,
        reason,
    }
}

/// Finds where to continue: the common history of both sides' logs.
pub fn compare(source: &LogBody, target: &LogBody) -> CommonAncestor {
    if source.session_id == target.session_id {
        // Sequences have no order; counters only grow. With equal ones it is the target's, which is written last.
        let counted = |log: &LogBody| log.history.first().map(|entry| entry.stats);
        let older = if counted(source) < counted(target) {
            source
        } else {
            target
        };
        return CommonAncestor {
            start_seq: older.source_last_seq.clone().unwrap_or_default(),
            history: older.history.clone(),
        };
    }
    let (mut source, mut target) = (&*source.history, &*target.history);
    while let ([of_source, source_rest @ ..], [of_target, target_rest @ ..]) = (source, target) {
        if of_source.is_among(target) {
            return CommonAncestor {
                start_seq: of_source.recorded_seq.clone().unwrap_or_default(),
                history: source_rest.to_vec(),
            };
        }
        if of_target.is_among(source_rest) {
            return CommonAncestor {
                start_seq: of_target.recorded_seq.clone().unwrap_or_default(),
                history: target_rest.to_vec(),
            };
        }
        (source, target) = (source_rest, target_rest);
    }
    CommonAncestor::default()
}

/// Makes a checkpoint: commits both sides, compares their start times with those at the start of the run, writes the
/// source's log and then the target's. Returns what both logs contain now.
///
/// # Errors
/// See [`CheckpointError`]. If only the target's log failed, the next run continues from its previous one.
pub async fn checkpoint(
    source: &mut Side,
    target: &mut Side,
    checkpoint: &Checkpoint<'_>,
) -> Result<LogBody, CheckpointError> {
    let (of_source, of_target) = tokio::join!(
        ensure_full_commit(&source.endpoint),
        ensure_full_commit(&target.endpoint),
    );
    let of_target = of_target.map_err(CheckpointError::at("Failure on target commit"))?;
    let of_source = of_source.map_err(CheckpointError::at("Failure on source commit"))?;
    match (
        source.lives_since(&of_source),
        target.lives_since(&of_target),
    ) {
        (true, true) => {}
        (true, false) => return Err(CheckpointError::Restarted("target")),
        (false, true) => return Err(CheckpointError::Restarted("source")),
        (false, false) => return Err(CheckpointError::Restarted("source and target")),
    }
    let body = checkpoint.body();
    for (side, step) in [
        (source, "Error updating the source checkpoint document"),
        (target, "Error updating the target checkpoint document"),
    ] {
        write(&side.endpoint, &mut side.log, &body)
            .await
            .map_err(CheckpointError::at(step))?;
    }
    Ok(body)
}

/// Checks that both databases are still those that the run opened, and that the source is not behind `read`.
///
/// # Errors
/// A database is gone, denies access or was replaced, or the source was set back: the next run determines where to
/// continue.
pub async fn check_databases(source: &Side, target: &Side, read: &Seq) -> Result<(), Crash> {
    let (of_source, of_target) = tokio::join!(db_info(&source.endpoint), db_info(&target.endpoint));
    let (of_source, of_target) = (of_source?, of_target?);
    let ends = (of_source.update_seq.as_number(), read.as_number());
    let error = if !source.lives_since(&of_source.instance_start_time) {
        CheckpointError::Restarted("source")
    } else if !target.lives_since(&of_target.instance_start_time) {
        CheckpointError::Restarted("target")
    } else if let (Some(end), Some(read)) = ends
        && end < read
    {
        CheckpointError::SetBack
    } else {
        return Ok(());
    };
    Err(Crash::CheckpointCommitFailure(error))
}

impl Side {
    /// Whether the database is still the one at the start of the run; true if a start time is `0`, which is the answer
    /// of servers without start times.
    fn lives_since(&self, instance_start_time: &str) -> bool {
        let known = &*self.info.instance_start_time;
        known == instance_start_time || known == "0" || instance_start_time == "0"
    }
}

/// Commits a database's writes, and returns its start time.
///
/// # Errors
/// The answer is not a 201 with a start time, or there is no answer.
pub(crate) async fn ensure_full_commit(endpoint: &Endpoint) -> Result<String, LogError> {
    #[derive(Deserialize)]
    struct Committed {
        #[serde(deserialize_with = "text_or_json")]
        instance_start_time: String,
    }
    let reply = endpoint
        .request(Request::post("_ensure_full_commit").json(""))
        .await?;
    if reply.status != StatusCode::CREATED {
        return Err(refused(&reply));
    }
    let committed: Committed = reply.json()?;
    Ok(committed.instance_start_time)
}

/// Writes a log and remembers its revision. Also succeeds if an earlier attempt wrote it and only the answer was lost.
///
/// # Errors
/// [`LogError::Conflict`] if the log has other content by now; otherwise the database refused it, or did not answer.
pub(crate) async fn write(
    endpoint: &Endpoint,
    log: &mut CheckpointLog,
    body: &LogBody,
) -> Result<(), LogError> {
    #[derive(Deserialize)]
    struct Written {
        rev: String,
    }
    let mut front = vec![("_id", Value::from(&*log.id))];
    front.extend(log.rev.as_deref().map(|rev| ("_rev", rev.into())));
    let request = Request::put(encode_doc_id(&log.id))
        .no_full_commit()
        .json(body.with_front(&front).to_string());
    let reply = endpoint.request(request).await?;
    let rev = match reply.status.as_u16() {
        200..=202 => Some(reply.json::<Written>()?.rev),
        409 => {
            read(endpoint, &log.id)
                .await?
                .filter(|there| there.body.says_the_same_as(body))
                .ok_or(LogError::Conflict)?
                .rev
        }
        _ => return Err(refused(&reply)),
    };
    (log.rev, log.is_older) = (rev, false);
    log.body = body.clone();
    Ok(())
}

#[cfg(test)]
mod tests;
