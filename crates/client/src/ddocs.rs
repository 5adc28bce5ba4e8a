//! Design documents sent on a connection: later calls send the digest instead of the text.
//!
//! SOURCE    Redis' clients, with EVALSHA.
//! LIMITS    Remembers at most [`SENT_MAX`]; then all are forgotten, and sent again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::functions::With;
use super::{Client, ClientError, DdocIn};

/// Minimum length of a design document that is replaced by its digest, in bytes.
const DDOC_BYTES_MIN: usize = 1024;

/// Maximum design documents remembered as sent.
const SENT_MAX: usize = 1024;

/// A database, and the digest of a design document's text.
type Key = (String, [u8; 32]);

/// The design documents sent on a connection.
#[derive(Debug, Default)]
pub(super) struct SentDdocs {
    /// The JSON that a later call sends instead.
    references: Mutex<HashMap<Key, Box<RawValue>>>,
    /// Whether the service accepts digests.
    takes_digests: OnceCell<bool>,
}

impl SentDdocs {
    fn references(&self) -> MutexGuard<'_, HashMap<Key, Box<RawValue>>> {
        self.references
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn reference_of(text: &str, (_, digest): &Key) -> serde_json::Result<Box<RawValue>> {
    let document: Value = serde_json::from_str(text)?;
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    to_raw_value(&json!({"_id": document["_id"], "sha256": digits}))
}

impl Client {
    /// Makes a call for a design document, with more arguments.
    pub(super) async fn for_ddoc(
        &self,
        call: &'static str,
        ddoc: DdocIn<'_>,
        more: impl Into<BTreeMap<&'static str, Box<RawValue>>>,
    ) -> Result<Box<RawValue>, ClientError> {
        let more = &more.into();
        let send = async |first| self.function(call, &With { first, more }).await;
        let text = ddoc.ddoc.get();
        if text.len() < DDOC_BYTES_MIN {
            return send(ddoc).await;
        }
        let key: Key = (ddoc.db.to_owned(), Sha256::digest(text).into());
        let reference = self.ddocs.references().get(&key).cloned();
        if let Some(reference) = &reference
            && self.takes_digests().await
        {
            let named = DdocIn {
                ddoc: reference,
                ..ddoc
            };
            match send(named).await {
                Err(ClientError::Service(error)) if error.name == "unknown_ddoc" => {}
                outcome => return outcome,
            }
        }
        let outcome = send(ddoc).await;
        if reference.is_none()
            && let Ok(reference) = reference_of(text, &key)
        {
            let mut references = self.ddocs.references();
            if references.len() == SENT_MAX {
                references.clear();
            }
            references.insert(key, reference);
        }
        outcome
    }

    /// Asks the service once whether it accepts digests: an earlier version would mistake a digest for a document.
    async fn takes_digests(&self) -> bool {
        let ask = async || {
            let limits: Result<Value, _> = self.typed("limits", &()).await;
            limits.is_ok_and(|limits| limits["ddoc_sha256"] == true)
        };
        *self.ddocs.takes_digests.get_or_init(ask).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::UnixStream;

    use super::*;

    /// Makes this many calls to a service that reports these limits and does not know the digest in the third call.
    /// Returns for each call whether it had a digest.
    async fn digests(limits: Value, calls: usize) -> Vec<bool> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serve = async {
            let mut digests = Vec::new();
            let (reader, mut writer) = theirs.into_split();
            let mut lines = BufReader::new(reader).lines();
            while let Some(line) = lines.next_line().await.unwrap() {
                let request: Value = serde_json::from_str(&line).unwrap();
                let mut reply = json!({"id": request["id"], "ok": limits});
                if request["call"] != "limits" {
                    digests.push(request["ddoc"]["sha256"].is_string());
                    reply["ok"] = json!(true);
                    if digests == [false, true, true] {
                        reply["error"] = json!({"name": "unknown_ddoc", "fault": "client"});
                    }
                }
                let reply = format!("{reply}\n");
                writer.write_all(reply.as_bytes()).await.unwrap();
            }
            digests
        };
        let call = async {
            let client = Client::on(ours);
            let text = json!({"_id": "_design/d", "x": "x".repeat(DDOC_BYTES_MIN)});
            let text = to_raw_value(&text).unwrap();
            for _ in 0..calls {
                let ddoc = DdocIn {
                    db: "shop",
                    ddoc: &text,
                };
                client.rewrite(ddoc, &json!({})).await.unwrap();
            }
        };
        tokio::join!(serve, call).0
    }

    #[tokio::test]
    async fn a_service_that_does_not_know_the_digest_or_accepts_no_digests_gets_the_text() {
        let new = json!({"line_max": 1 << 20, "ddoc_sha256": true});
        let expected = [false, true, true, false, true];
        assert_eq!(digests(new, 4).await, expected);
        assert_eq!(digests(json!({"line_max": 1 << 20}), 3).await, [false; 3]);
    }
}
