//! Lays out a document and its attachments as `multipart/related` before reading an attachment.
//!
//! SUMMARY   [`Layout::new`] takes the document's text and its attachments; [`Layout::length`] is the length of the
//!           whole body; [`Layout::before`] and [`Layout::end`] are the texts around the attachments' bytes.
//! PROMISES  The length is exact, so the body needs no chunked encoding. A name cannot inject a header.
//! SOURCE    `couch_doc:doc_to_multi_part_stream`: attachments follow in the order of the
//!           document, each in the encoding in which it is stored.
//! DIFFERS   Quotes and control characters in names are escaped as browsers do (`%22`): receivers match parts by
//!           order, not by name.

use std::fmt::Write as _;

use bytes::Bytes;

/// An attachment whose bytes follow the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Following {
    pub name: String,
    /// Its content type, from the document.
    pub content_type: String,
    /// Its length in the stored encoding, in bytes.
    pub length: u64,
    /// The stored encoding, for example `gzip`.
    pub encoding: Option<String>,
}

/// The whole body except the attachments' bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The text before the bytes of each attachment; the first contains the document.
    pub before: Vec<Bytes>,
    /// The text at the end.
    pub end: Bytes,
    /// The length of the whole body.
    pub length: u64,
}

impl Layout {
    /// Lays out a document with at least one attachment. `boundary` must not occur in the body; 32 random hex
    /// digits suffice.
    pub fn new(boundary: &str, document: &str, following: &[Following]) -> Self {
        let mut text = format!(
            "--{boundary}\r\nContent-Type: application/json\r\n\r\n{document}\r\n--{boundary}"
        );
        let mut before = Vec::with_capacity(following.len());
        let mut length = 0u64;
        for attachment in following {
            headers(&mut text, attachment);
            length = length.saturating_add(text.len() as u64 + attachment.length);
            before.push(Bytes::from(std::mem::replace(
                &mut text,
                format!("\r\n--{boundary}"),
            )));
        }
        text.push_str("--");
        Self {
            length: length.saturating_add(text.len() as u64),
            before,
            end: text.into(),
        }
    }
}

fn headers(text: &mut String, attachment: &Following) {
    text.push_str("\r\nContent-Disposition: attachment; filename=\"");
    for character in attachment.name.chars() {
        match character {
            '"' => text.push_str("%22"),
            '\0'..='\x1f' | '\x7f' => {
                // Writing to a string cannot fail.
                let _ = write!(text, "%{:02X}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
    text.push('"');
    let plain = |value: &str| value.replace(|character: char| character.is_control(), " ");
    let _ = write!(
        text,
        "\r\nContent-Type: {}\r\nContent-Length: {}",
        plain(&attachment.content_type),
        attachment.length
    );
    if let Some(encoding) = &attachment.encoding {
        let _ = write!(text, "\r\nContent-Encoding: {}", plain(encoding));
    }
    text.push_str("\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::super::parser::{Parser, Piece};
    use super::*;

    fn body(layout: &Layout, bytes: &[&[u8]]) -> Vec<u8> {
        let mut body = Vec::new();
        for (before, bytes) in layout.before.iter().zip(bytes) {
            body.extend_from_slice(before);
            body.extend_from_slice(bytes);
        }
        body.extend_from_slice(&layout.end);
        body
    }

    fn following(name: &str, length: u64, encoding: Option<&str>) -> Following {
        Following {
            name: name.to_owned(),
            content_type: "text/plain".to_owned(),
            length,
            encoding: encoding.map(str::to_owned),
        }
    }

    #[test]
    fn the_layout_is_couchdbs_and_its_length_exact() {
        let attachments = [
            following("a.txt", 3, None),
            following("b.gz", 2, Some("gzip")),
        ];
        let layout = Layout::new("B", "{\"_id\":\"x\"}", &attachments);
        let body = body(&layout, &[b"abc", b"\x1f\x8b"]);
        let expected = b"--B\r\nContent-Type: application/json\r\n\r\n{\"_id\":\"x\"}\r\n--B\r\n\
            Content-Disposition: attachment; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\
            Content-Length: 3\r\n\r\nabc\r\n--B\r\n\
            Content-Disposition: attachment; filename=\"b.gz\"\r\nContent-Type: text/plain\r\n\
            Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\r\n--B--";
        assert_eq!(
            String::from_utf8_lossy(&body),
            String::from_utf8_lossy(expected)
        );
        assert_eq!(layout.length, body.len() as u64);
    }

    #[test]
    fn a_name_cannot_inject_a_header() {
        let mut attachment = following("a\"\r\nX: y\u{e9}", 1, None);
        attachment.content_type = "text/plain\r\nX: z".to_owned();
        let layout = Layout::new("B", "{}", &[attachment]);
        let body = body(&layout, &[b"1"]);
        let mut parser = Parser::new("multipart/related; boundary=\"B\"").unwrap();
        parser.push(body.into());
        let headers: Vec<_> = std::iter::from_fn(|| match parser.next().unwrap() {
            Some(Piece::End) | None => None,
            piece => piece,
        })
        .filter_map(|piece| match piece {
            Piece::Headers(headers) => Some(headers),
            _ => None,
        })
        .collect();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers[1].get("x"), None);
        assert_eq!(
            headers[1].get("content-disposition"),
            Some("attachment; filename=\"a%22%0D%0AX: y\u{e9}\"")
        );
    }
}
