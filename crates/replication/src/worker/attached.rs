//! The sources of a document's attachments: parts of the answer that contains it, or separate requests.

use reqwest::header::ACCEPT_ENCODING;

use super::Worker;
use super::document::{Attachment, DocMeta};
use super::failed::DocFailed;
use super::put::Attachments;
use crate::endpoint::{
    BodyStream, Chunks, HeaderValue, Request, StatusCode, encode, encode_doc_id,
};
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
    pub id: &'a str,
    pub rev: String,
}

impl Attachments for Fetched<'_> {
    async fn next(&mut self, attachment: &Following) -> Result<impl Chunks, DocFailed> {
        let request = attachment_request(self.id, &self.rev, &attachment.name).inside();
        let reply = self.worker.source.stream(request).await?;
        if reply.status != StatusCode::OK {
            let why = format!("{}: {}", reply.asked, reply.status);
            return Err(DocFailed::Retry(why));
        }
        Ok(reply.body)
    }
}

/// Returns the request for an attachment of a revision, not to be compressed.
pub(crate) fn attachment_request(id: &str, rev: &str, name: &str) -> Request {
    Request::get(format!("{}/{}", encode_doc_id(id), encode(name)))
        .query("rev", rev)
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}

/// The attachments to be sent with a document.
pub(super) fn following(
    meta: &DocMeta<'_>,
    sends: impl Fn(&Attachment) -> bool,
) -> Result<Vec<Following>, DocFailed> {
    let nonsense = || DocFailed::Retry("invalid attachments".to_owned());
    meta.parse_attachments()
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
