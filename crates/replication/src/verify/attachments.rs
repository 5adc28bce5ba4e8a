//! Compares the attachments of revisions that both sides have: names, lengths and, optionally, bytes.
//!
//! PROMISES  The target is queried only for revisions that have attachments at the source. Bytes are compared as they
//!           arrive, uncompressed; one piece from each side is in memory, or the whole attachment if no URL can name
//!           it.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::reading::{Seen, by_id, chunks};
use super::{Comparison, Difference, Leaf, Step};
use crate::crash::Crash;
use crate::endpoint::{BodyStream, Chunks, Endpoint, StatusCode};
use crate::worker::attached::attachment_request;
use crate::worker::bulk_get::{OpenDocs, RevRequest, ask};
use crate::worker::document::DocMeta;
use crate::worker::failed::DocFailed;
use crate::worker::inline::{attachment_has_path, has_path};
use crate::worker::missing::{Wanted, revisions};

/// The result of comparing bytes.
struct Compared {
    /// The difference, as text, if there is one.
    how: Option<String>,
    /// The number of bytes before the first difference.
    bytes: u64,
}

impl Compared {
    fn new(differ: bool, bytes: u64) -> Self {
        let how = || format!("the bytes differ from byte {bytes} on");
        Self {
            how: differ.then(how),
            bytes,
        }
    }
}

impl Comparison {
    /// Compares the attachments of revisions that the target knows.
    pub(super) async fn attachments(
        &self,
        present: Vec<Wanted>,
        step: &mut Step,
    ) -> Result<(), Crash> {
        for chunk in chunks(present) {
            let asked = revisions(&chunk);
            let mut at_source = self.source.read(chunk, false).await?;
            at_source.retain(|leaf, seen| seen.rev == leaf.rev);
            step.counts.changed += (asked - at_source.len()) as u64;
            let attached: BTreeMap<Leaf, Seen> = at_source
                .into_iter()
                .filter(|(_, seen)| !seen.attachments.is_empty())
                .collect();
            if attached.is_empty() {
                continue;
            }
            let at_target = self.target.read(by_id(attached.keys()), false).await?;
            for (leaf, source) in attached {
                match at_target.get(&leaf) {
                    // The target has a newer revision, and need not keep this one.
                    Some(target) if target.rev != leaf.rev => step.counts.changed += 1,
                    Some(target) => self.of_revision(leaf, &source, target, step).await?,
                    None => step.differences.push(Difference::Unreadable(leaf)),
                }
            }
        }
        Ok(())
    }

    async fn of_revision(
        &self,
        leaf: Leaf,
        source: &Seen,
        target: &Seen,
        step: &mut Step,
    ) -> Result<(), Crash> {
        let there: BTreeMap<_, _> = target.attachments.iter().cloned().collect();
        for (name, length) in &source.attachments {
            step.counts.attachments += 1;
            let differs = |how: String| Difference::AttachmentDiffers {
                leaf: leaf.clone(),
                name: name.clone(),
                how,
            };
            let difference = match (length, there.get(name)) {
                (_, None) => Some(Difference::AttachmentMissing {
                    leaf: leaf.clone(),
                    name: name.clone(),
                }),
                (Some(here), Some(Some(there))) if here != there => Some(differs(format!(
                    "{here} bytes at the source, {there} at the target"
                ))),
                _ if self.deep => {
                    let Compared { how, bytes } = self.bytes(&leaf, name).await?;
                    step.counts.bytes += bytes;
                    how.map(differs)
                }
                _ => None,
            };
            step.differences.extend(difference);
        }
        Ok(())
    }

    /// Compares bytes, with retries.
    async fn bytes(&self, leaf: &Leaf, name: &str) -> Result<Compared, Crash> {
        let sides = [&self.source.database, &self.target.database];
        let mut retries = sides[0].retries(self.retries);
        loop {
            let compared = if has_path(&leaf.id) && attachment_has_path(name) {
                streamed(sides, leaf, name).await
            } else {
                inline(sides, leaf, name).await
            };
            let why = match compared {
                Ok(compared) => return Ok(compared),
                Err(DocFailed::Crash(crash)) => return Err(crash),
                Err(failed) => failed,
            };
            let Some(wait) = retries.next(Instant::now()) else {
                let why = format!("attachment '{name}': {why}");
                return Err(Crash::undelivered(&leaf.id, why, None));
            };
            sleep(wait).await;
        }
    }
}

async fn streamed(sides: [&Endpoint; 2], leaf: &Leaf, name: &str) -> Result<Compared, DocFailed> {
    let mut source = open(sides[0], leaf, name).await?;
    let mut target = open(sides[1], leaf, name).await?;
    let (mut here, mut there, mut at) = (Bytes::new(), Bytes::new(), 0);
    loop {
        if here.is_empty() {
            here = source.chunk().await?.unwrap_or_default();
        }
        if there.is_empty() {
            there = target.chunk().await?.unwrap_or_default();
        }
        let length = here.len().min(there.len());
        if length == 0 {
            return Ok(Compared::new(here.len() != there.len(), at));
        }
        if here[..length] != there[..length] {
            let same = here
                .iter()
                .zip(&there)
                .take_while(|(here, there)| here == there);
            return Ok(Compared::new(true, at + same.count() as u64));
        }
        here.advance(length);
        there.advance(length);
        at += length as u64;
    }
}

async fn open(database: &Endpoint, leaf: &Leaf, name: &str) -> Result<BodyStream, DocFailed> {
    // Both sides decode compressed attachments, so their compression may differ.
    let request = attachment_request(&leaf.id, &leaf.rev, name);
    let reply = database.stream(request).await?;
    match reply.status {
        StatusCode::OK => Ok(reply.body),
        _ => Err(DocFailed::Retry(reply.told().await)),
    }
}

/// Compares an attachment that no URL can name, by reading it as part of its document's text.
async fn inline(sides: [&Endpoint; 2], leaf: &Leaf, name: &str) -> Result<Compared, DocFailed> {
    let source = data(sides[0], leaf, name).await?;
    let target = data(sides[1], leaf, name).await?;
    let (Some(source), Some(target)) = (source, target) else {
        let how = "not compared: no URL can name the attachment, and one side does not send it in its document";
        return Ok(Compared {
            how: Some(how.to_owned()),
            bytes: 0,
        });
    };
    let same = source
        .iter()
        .zip(&target)
        .take_while(|(here, there)| here == there)
        .count();
    Ok(Compared::new(source != target, same as u64))
}

/// Reads an attachment from its document's text; `None` if it is missing.
async fn data(database: &Endpoint, leaf: &Leaf, name: &str) -> Result<Option<Vec<u8>>, DocFailed> {
    #[derive(Deserialize)]
    struct Inline {
        data: String,
    }
    let asked = [RevRequest {
        id: &leaf.id,
        rev: &leaf.rev,
        atts_since: &[],
    }];
    let reply = ask(database, &asked, true).await?;
    let found = OpenDocs::of(&by_id([leaf]))
        .find(&reply.body)
        .unwrap_or_default();
    let text = found.first().map_or("", |found| found.text(&reply.body));
    Ok(DocMeta::read(text.as_bytes()).and_then(|meta| {
        let all: BTreeMap<String, &RawValue> =
            serde_json::from_str(meta.attachments?.get()).ok()?;
        let one: Inline = serde_json::from_str(all.get(name)?.get()).ok()?;
        data_encoding::BASE64.decode(one.data.as_bytes()).ok()
    }))
}
