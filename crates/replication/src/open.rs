//! Opens databases, and reads their information.
//!
//! SOURCE    couch_replicator_api_wrap, db_open, get_db_info, get_pending_count. Error texts are those of
//!           couch_replicator_scheduler_job.
//! DIFFERS   One request opens a database and reads its information: CouchDB sends two. The number of pending
//!           changes is known at the start even if sequences are not numbers.

use serde::Deserialize;

use super::crash::Crash;
use super::endpoint::{Cause, Endpoint, Reply, Request, StatusCode, encode, text_or_json};
use super::filter::param_text;
use super::seq::Seq;
use super::spec::Members;

/// Number of retries of the query for pending changes: few, because a run does not depend on the answer.
const PENDING_RETRIES: u32 = 3;

/// A database's information about itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DbInfo {
    /// The latest sequence of its changes.
    pub(crate) update_seq: Seq,
    /// Identifies the database's incarnation. `0` means unknown.
    #[serde(deserialize_with = "text_or_json")]
    pub(crate) instance_start_time: String,
}

/// Opens a database: checks that it exists and is readable, and returns its information. With `create`, a missing one
/// is first created, with these parameters.
///
/// # Errors
/// The database is missing, cannot be reached, denies access to this user, or does not answer with its information.
pub async fn open_endpoint(endpoint: &Endpoint, create: Option<&Members>) -> Result<DbInfo, Crash> {
    if let Some(params) = create {
        let request = params
            .iter()
            .fold(Request::put(""), |request, (name, value)| {
                request.query(encode(name), param_text(value))
            });
        // Other answers are ignored: the database may already exist.
        ask(endpoint, request).await?;
    }
    db_info(endpoint).await
}

/// Sends a request, and returns the reply unless the database denies access to this user.
async fn ask(endpoint: &Endpoint, request: Request) -> Result<Reply, Crash> {
    let url = || endpoint.url().to_owned();
    let reply = endpoint
        .request(request)
        .await
        .map_err(|failed| match failed.cause {
            Cause::UnknownHost => Crash::Nxdomain(url()),
            _ => failed.into(),
        })?;
    match reply.status {
        StatusCode::UNAUTHORIZED => Err(Crash::Unauthorized(url())),
        StatusCode::FORBIDDEN => Err(Crash::Forbidden(url())),
        _ => Ok(reply),
    }
}

/// Requests a database's information.
///
/// # Errors
/// As [`open_endpoint`].
pub(crate) async fn db_info(endpoint: &Endpoint) -> Result<DbInfo, Crash> {
    let reply = ask(endpoint, Request::get("")).await?;
    let url = endpoint.url();
    match (reply.status, reply.json()) {
        (StatusCode::OK, Ok(info)) => Ok(info),
        (StatusCode::NOT_FOUND, _) => Err(Crash::DbNotFound(url.to_owned())),
        _ => Err(Crash::NoDatabase(format!("{url} ({})", reply.told()))),
    }
}

/// Requests the names of a server's databases.
///
/// # Errors
/// The server cannot be reached, denies access, or does not answer with names.
pub async fn all_dbs(server: &Endpoint) -> Result<Vec<String>, Crash> {
    let reply = ask(server, Request::get("_all_dbs")).await?;
    reply
        .json()
        .ok()
        .filter(|_| reply.status == StatusCode::OK)
        .ok_or_else(|| Crash::DbNotFound(format!("{} ({})", server.url(), reply.told())))
}

/// Requests the number of changes after `since`; `None` if the database does not report it.
pub async fn changes_pending(endpoint: &Endpoint, since: &Seq) -> Option<u64> {
    #[derive(Deserialize)]
    struct Pending {
        pending: u64,
    }
    if let Some(since) = since.as_number() {
        let info: DbInfo = endpoint
            .request(Request::get("").retries(PENDING_RETRIES))
            .await
            .ok()?
            .json()
            .ok()?;
        if let Some(last) = info.update_seq.as_number() {
            return u64::try_from(last.saturating_sub(since)).ok();
        }
    }
    let request = Request::get("_changes")
        .query("since", since.as_text())
        .query("limit", "0")
        .retries(PENDING_RETRIES);
    let reply = endpoint.request(request).await.ok()?;
    Some(reply.json::<Pending>().ok()?.pending)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Answer, Server, endpoint};
    use super::*;

    const INFO: &str = r#"{"db_name":"db","update_seq":"7-abc","instance_start_time":"123"}"#;

    async fn opened(status: u16, body: &'static str) -> Result<DbInfo, Crash> {
        let server = Server::start(move |_| Answer::new(status, body)).await;
        open_endpoint(&server.endpoint(), None).await
    }

    #[tokio::test]
    async fn a_database_reports_its_sequence_and_its_start_time() {
        let info = opened(200, INFO).await.unwrap();
        assert_eq!(info.update_seq.as_json(), r#""7-abc""#);
        assert_eq!(info.instance_start_time, "123");
        let info = opened(
            200,
            r#"{"update_seq":5,"instance_start_time":1700000000000}"#,
        )
        .await;
        assert_eq!(info.unwrap().instance_start_time, "1700000000000");
    }

    #[tokio::test]
    async fn the_error_of_opening_a_database_is_worded_as_in_couchdb() {
        for (status, body, start) in [
            (
                401,
                "{}",
                "unauthorized: unauthorized to access or create database http://127",
            ),
            (
                403,
                "{}",
                "forbidden: forbidden to access or create database http://127",
            ),
            (
                404,
                r#"{"error":"not_found"}"#,
                "db_not_found: could not open http://127",
            ),
            (200, "{}", "db_not_found"),
            (200, r#"{"update_seq":1}"#, "db_not_found"),
            (200, r#"{"instance_start_time":"0"}"#, "db_not_found"),
            (200, "[]", "db_not_found"),
            (200, "<html>", "db_not_found"),
            (202, INFO, "db_not_found"),
            (307, INFO, "db_not_found"),
            (410, INFO, "db_not_found"),
        ] {
            let text = opened(status, body).await.unwrap_err().to_string();
            assert!(text.starts_with(start), "{status}: {text}");
            assert!(!text.contains("nxdomain"));
        }
        let error = opened(500, INFO).await.unwrap_err();
        assert!(matches!(error, Crash::HttpRequestFailed(_)), "{error}");
    }

    #[tokio::test]
    async fn a_password_is_not_in_any_error() {
        let server = Server::start(|_| Answer::new(404, "{}")).await;
        let url = server.url("bob:s3cret@");
        let text = open_endpoint(&endpoint(&url, |_, _| {}), None)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            format!("db_not_found: could not open {}", server.url(""))
        );
        let nowhere = endpoint("http://bob:s3cret@nowhere.invalid/db", |_, _| {});
        let text = open_endpoint(&nowhere, None).await.unwrap_err().to_string();
        assert_eq!(
            text,
            "nxdomain: could not resolve http://nowhere.invalid/db/"
        );
    }

    #[tokio::test]
    async fn a_target_is_created_with_its_parameters_and_most_failures_are_ignored() {
        for status in [200, 201, 202, 400, 405, 412] {
            let server = Server::start(move |request| match request.nth {
                0 => Answer::new(status, "{}"),
                _ => Answer::new(200, INFO),
            });
            let server = server.await;
            let params = json!({"q": 2, "n": "3", "partitioned": true, "a#b&": 1});
            let params = params.as_object().unwrap();
            open_endpoint(&server.endpoint(), Some(params))
                .await
                .unwrap();
            assert_eq!(
                server.lines(),
                ["PUT /db/?q=2&n=3&partitioned=true&a%23b%26=1", "GET /db/"]
            );
            assert_eq!(server.received()[0].header("content-length"), Some("0"));
        }
        for (status, start) in [(401, "unauthorized"), (403, "forbidden")] {
            let server = Server::start(move |_| Answer::new(status, "{}")).await;
            let error = open_endpoint(&server.endpoint(), Some(&Members::new()))
                .await
                .unwrap_err();
            assert!(error.to_string().starts_with(start));
            assert_eq!(server.lines().len(), 1);
        }
    }

    #[tokio::test]
    async fn pending_changes_are_computed_from_numbers_or_requested() {
        let pending = async |since: &str, info: &'static str, changes: &'static str| {
            let server = Server::start(move |request| match &*request.line {
                "GET /db/" => Answer::new(200, info),
                _ => Answer::new(200, changes),
            });
            let server = server.await;
            let since = serde_json::from_str::<Seq>(since).unwrap();
            (
                changes_pending(&server.endpoint(), &since).await,
                server.lines(),
            )
        };
        let numbers = r#"{"update_seq":12,"instance_start_time":"0"}"#;
        assert_eq!(
            pending("5", numbers, "").await,
            (Some(7), vec!["GET /db/".to_owned()])
        );
        let (count, lines) = pending(r#""5-a b""#, "", r#"{"results":[],"pending":4}"#).await;
        assert_eq!(count, Some(4));
        assert_eq!(lines, ["GET /db/_changes?since=5-a%20b&limit=0"]);
        let (count, lines) = pending("0", INFO, r#"{"pending":9}"#).await;
        assert_eq!(count, Some(9));
        assert_eq!(lines[1], "GET /db/_changes?since=0&limit=0");
        assert_eq!(pending(r#""5""#, "", r#"{"results":[]}"#).await.0, None);
        assert_eq!(pending(r#""5""#, "", "<html>").await.0, None);
        assert_eq!(
            pending("50", numbers, "").await.0,
            None,
            "since is beyond update_seq"
        );
    }
}
