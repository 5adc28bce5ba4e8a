//! The sources of a document's attachments: parts of the answer that contains it, or separate requests.

use reqwest::header::ACCEPT_ENCODING;

use super::Worker;
use super::document::{self, Attachment, DocMeta};
use super::failed::DocFailed;
use super::put::Attachments;
use crate::endpoint::{BodyStream, Chunks, HeaderValue, Request, StatusCode, encode};
use crate::multipart::reader::Multipart;
use crate::multipart::writer::Following;

/// The attachments of a `multipart/related`, in the order of the document.
pub(super) struct Parts<'a, 'b>(
    pub(super) Multipart<&'a mut Multipart<BodyStream>>,
    pub(super) &'b [Following],
);

impl Attachments for Parts<'_, '_> {
    async fn next(&mut self, attachment: &Following) -> Result<impl Chunks, DocFailed> {
        let Some(headers) = self.0.next_part().await? else {
            return Err(DocFailed::Retry(format!(
                "attachment '{}' is missing",
                attachment.name
            )));
        };
        // Named parts must be in the document's order.
        let named = headers.get("content-disposition").and_then(|value| {
            let (_, name) = value.split_once("filename=\"")?;
            name.strip_suffix('"')
        });
        let is_another = |name| self.1.iter().any(|known| known.name == name);
        match named {
            Some(name) if name != attachment.name && is_another(name) => Err(DocFailed::Retry(
                format!("attachment '{name}' is out of order"),
            )),
            _ => Ok(&mut self.0),
        }
    }
}

/// Attachments read one by one.
pub(super) struct Fetched<'a> {
    pub worker: &'a Worker,
    pub path: String,
    pub rev: String,
}

impl Attachments for Fetched<'_> {
    async fn next(&mut self, attachment: &Following) -> Result<impl Chunks, DocFailed> {
        let path = format!("{}/{}", self.path, encode(&attachment.name));
        let request = Request::get(path)
            .query("rev", &self.rev)
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .inside();
        let reply = self.worker.source.stream(request).await?;
        if reply.status != StatusCode::OK {
            let why = format!("{}: {}", reply.asked, reply.status);
            return Err(DocFailed::Retry(why));
        }
        Ok(reply.body)
    }
}

/// The attachments to be sent with a document.
pub(super) fn following(
    meta: &DocMeta<'_>,
    sends: impl Fn(&Attachment) -> bool,
) -> Result<Vec<Following>, DocFailed> {
    let Some(raw) = meta.attachments.filter(|_| meta.has_attachments()) else {
        return Ok(Vec::new());
    };
    let nonsense = || DocFailed::Retry("invalid attachments".to_owned());
    document::attachments(raw)
        .ok_or_else(nonsense)?
        .into_iter()
        .filter(|(_, attachment)| sends(attachment))
        .map(|(name, attachment)| {
            let length = attachment.stored_length().ok_or_else(nonsense)?;
            Ok(Following {
                content_type: attachment.content_type().to_owned(),
                length,
                encoding: attachment.encoding,
                name,
            })
        })
        .collect()
}
