//! Reads revisions of one database: the lengths of their attachments and, on request, their bodies.
//!
//! SUMMARY   [`Reader::read`] uses `_bulk_get`. Documents that the answer omits are read one by one, as are all
//!           documents if the database has no `_bulk_get`. Attachments are stubs.

use std::cell::Cell;

use bytes::Bytes;
use reqwest::header::ACCEPT;
use rustc_hash::FxHashMap;

use super::Leaf;
use crate::crash::Crash;
use crate::endpoint::{Endpoint, HeaderValue, Request, StatusCode, encode_doc_id};
use crate::offload::offload;
use crate::worker::bulk_get::{OpenDocs, bulk_get, is_too_much, revisions_of};
use crate::worker::document::{DOCUMENT_MAX, DocMeta};
use crate::worker::inline::has_path;
use crate::worker::missing::{Wanted, revisions};

/// Maximum number of revisions in one request.
const REVISIONS_MAX: usize = 200;

/// Maximum number of revisions in the URL of one request.
const LINE_REVISIONS_MAX: usize = 80;

/// A revision as sent by a database.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The revision, or a newer one instead.
    pub rev: String,
    /// Names and lengths of its attachments; `None`: the length was not given.
    pub attachments: Vec<(String, Option<u64>)>,
    /// Its body as JSON text, if requested.
    pub text: String,
}

/// Reads revisions of one database. Results omit revisions that the database lacks.
pub(super) struct Reader {
    pub database: Endpoint,
    has_bulk_get: Cell<bool>,
}

impl Reader {
    pub fn new(database: Endpoint, use_bulk_get: bool) -> Self {
        Self {
            database,
            has_bulk_get: Cell::new(use_bulk_get),
        }
    }

    /// Reads the revisions of one of the [`chunks`], with their bodies if `texts` is set.
    ///
    /// # Errors
    /// The database does not answer or refuses, or its answer is invalid.
    pub async fn read(
        &self,
        wanted: Vec<Wanted>,
        texts: bool,
    ) -> Result<FxHashMap<Leaf, Seen>, Crash> {
        let mut seen = FxHashMap::default();
        let mut left = Vec::new();
        let mut parts = vec![wanted];
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            if !self.has_bulk_get.get() {
                left.extend(part);
                continue;
            }
            let asked: Vec<_> = part.iter().flat_map(revisions_of).collect();
            match bulk_get(&self.database, &asked).await {
                Ok(reply) => {
                    let found = found(&part, reply.body, texts).await;
                    seen.extend(found.unwrap_or_default());
                    left.extend(part);
                }
                Err(cause) if is_too_much(&cause) => halve(part, &mut parts, &mut left),
                // If the database is gone, reading documents one by one fails too.
                Err(_) => {
                    self.has_bulk_get.set(false);
                    left.extend(part);
                }
            }
        }
        let is_open = |id: &str, rev: &String| {
            let (id, rev) = (id.to_owned(), rev.clone());
            !seen.contains_key(&Leaf { id, rev })
        };
        left.retain_mut(|wanted| {
            wanted.revs.retain(|rev| is_open(&wanted.id, rev));
            !wanted.revs.is_empty() && has_path(&wanted.id)
        });
        for wanted in left {
            for revs in wanted.revs.chunks(LINE_REVISIONS_MAX) {
                seen.extend(self.single(&wanted.id, revs, texts).await?);
            }
        }
        Ok(seen)
    }

    /// Reads revisions of one document.
    async fn single(
        &self,
        id: &str,
        revs: &[String],
        texts: bool,
    ) -> Result<Vec<(Leaf, Seen)>, Crash> {
        let open_revs = serde_json::to_string(revs).expect("strings are JSON");
        let request = Request::get(encode_doc_id(id))
            .query("revs", "true")
            .query("open_revs", open_revs)
            .query("latest", "true")
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .reply_bytes_max(DOCUMENT_MAX);
        let reply = self.database.request(request).await;
        let reply =
            reply.map_err(|failed| Crash::undelivered(id, failed.to_string(), Some(failed)))?;
        let unread = || Crash::undelivered(id, reply.told(), None);
        match reply.status {
            StatusCode::NOT_FOUND => return Ok(Vec::new()),
            StatusCode::OK => {}
            _ => return Err(unread()),
        }
        let wanted = [Wanted::new(id, revs.to_vec())];
        // The entries have the form of those in an answer to `_bulk_get`.
        let answer = [br#"{"results":[{"docs":"#, &*reply.body, b"}]}"].concat();
        found(&wanted, answer.into(), texts)
            .await
            .ok_or_else(unread)
    }
}

/// Finds the wanted revisions in an answer to `_bulk_get`; `None` if it is not such an answer.
async fn found(wanted: &[Wanted], answer: Bytes, texts: bool) -> Option<Vec<(Leaf, Seen)>> {
    let (open, bytes) = (OpenDocs::of(wanted), answer.len());
    let find = move || {
        let mut seen = Vec::new();
        for found in open.find(&answer)? {
            let text = found.text(&answer);
            let Some(meta) = DocMeta::read(text.as_bytes()) else {
                continue;
            };
            let lengths: Vec<_> = meta
                .parse_attachments()?
                .into_iter()
                .map(|(name, one)| (name, one.length))
                .collect();
            seen.extend(found.answers.iter().map(|rev| {
                let (id, rev) = (found.id.clone(), rev.clone());
                (
                    Leaf { id, rev },
                    Seen {
                        rev: meta.rev.to_string(),
                        attachments: lengths.clone(),
                        text: if texts {
                            text.to_owned()
                        } else {
                            String::new()
                        },
                    },
                )
            }));
        }
        Some(seen)
    };
    offload(bytes, find).await
}

/// Returns the revisions of each document; leaves of a document are consecutive.
pub(super) fn by_id<'a>(leaves: impl IntoIterator<Item = &'a Leaf>) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for Leaf { id, rev } in leaves {
        match wanted.last_mut().filter(|last| last.id == *id) {
            Some(last) => last.revs.push(rev.clone()),
            None => wanted.push(Wanted::new(id, vec![rev.clone()])),
        }
    }
    wanted
}

/// Splits the wanted revisions into parts of at most [`REVISIONS_MAX`].
pub(super) fn chunks(wanted: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    split(wanted, REVISIONS_MAX)
}

fn split(wanted: Vec<Wanted>, most: usize) -> Vec<Vec<Wanted>> {
    let mut parts: Vec<Vec<Wanted>> = Vec::new();
    let mut room = 0;
    for wanted in wanted {
        let mut revs = wanted.revs.into_iter().peekable();
        while revs.peek().is_some() {
            if room == 0 {
                parts.push(Vec::new());
                room = most;
            }
            let taken: Vec<String> = revs.by_ref().take(room).collect();
            room -= taken.len();
            let part = Wanted::new(&*wanted.id, taken);
            parts.last_mut().expect("the last part has room").push(part);
        }
    }
    parts
}

/// Halves a request; a single revision remains to be read separately.
fn halve(part: Vec<Wanted>, parts: &mut Vec<Vec<Wanted>>, left: &mut Vec<Wanted>) {
    match revisions(&part) {
        0 | 1 => left.extend(part),
        count => parts.extend(split(part, count.div_ceil(2))),
    }
}
