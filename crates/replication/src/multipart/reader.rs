//! Reads the parts of a streamed multipart body; a part may have parts itself.
//!
//! SUMMARY   [`Multipart::next_part`] advances to the next part, [`Chunks::chunk`] reads it. A part is again a
//!           stream, so a `multipart/related` inside a `multipart/mixed` is read by a second [`Multipart`] on top of
//!           the first.
//! PROMISES  At most a piece of the body is in memory. The unread rest of a part is skipped. A body that ends before
//!           its last delimiter is an error, never a short part.

use bytes::Bytes;

use super::parser::{Headers, MultipartError, Parser, Piece};
use crate::endpoint::{BodyFailed, Chunks};

impl From<MultipartError> for BodyFailed {
    fn from(error: MultipartError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// A multipart body; as a stream, the current part.
#[derive(Debug)]
pub(crate) struct Multipart<C> {
    chunks: C,
    parser: Parser,
    in_part: bool,
}

impl<C: Chunks> Multipart<C> {
    /// Reads a body of this content type.
    ///
    /// # Errors
    /// The content type names no boundary.
    pub fn new(content_type: &str, chunks: C) -> Result<Self, BodyFailed> {
        Ok(Self {
            chunks,
            parser: Parser::new(content_type)?,
            in_part: false,
        })
    }

    /// Advances to the next part, skipping the rest of this one; `None` after the last.
    ///
    /// # Errors
    /// The stream broke, or is not a multipart body.
    pub async fn next_part(&mut self) -> Result<Option<Headers>, BodyFailed> {
        while self.chunk().await?.is_some() {}
        match self.piece().await? {
            Piece::Headers(headers) => {
                self.in_part = true;
                Ok(Some(headers))
            }
            _ => Ok(None),
        }
    }

    /// Reads the rest of the body to its very end: only then can its connection be reused.
    ///
    /// # Errors
    /// The stream broke.
    pub async fn finish(&mut self) -> Result<(), BodyFailed> {
        while self.next_part().await?.is_some() {}
        while self.chunks.chunk().await?.is_some() {}
        Ok(())
    }

    async fn piece(&mut self) -> Result<Piece, BodyFailed> {
        loop {
            if let Some(piece) = self.parser.next()? {
                return Ok(piece);
            }
            match self.chunks.chunk().await? {
                Some(chunk) => self.parser.push(chunk),
                None => return Err(MultipartError::Truncated.into()),
            }
        }
    }
}

impl<C: Chunks> Chunks for Multipart<C> {
    async fn chunk(&mut self) -> Result<Option<Bytes>, BodyFailed> {
        if !self.in_part {
            return Ok(None);
        }
        match self.piece().await? {
            Piece::Data(data) => Ok(Some(data)),
            _ => {
                self.in_part = false;
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::collect;
    use crate::multipart::parser::ContentType;

    /// A body in pieces of this size.
    struct Pieces(Bytes, usize);

    impl Chunks for Pieces {
        async fn chunk(&mut self) -> Result<Option<Bytes>, BodyFailed> {
            let size = self.1.min(self.0.len());
            Ok((size > 0).then(|| self.0.split_to(size)))
        }
    }

    const MIXED: &str = "--out\r\nContent-Type: multipart/related; boundary=\"in\"\r\n\r\n\
        --in\r\nContent-Type: application/json\r\n\r\n{\"_id\":\"a\"}\r\n\
        --in\r\nContent-Disposition: attachment; filename=\"x\"\r\n\r\nattached\r\n--in--\r\n\
        --out\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":\"1-a\"}\r\n\
        --out--";

    #[tokio::test]
    async fn a_part_may_have_parts() {
        for size in 1..80 {
            let body = Pieces(Bytes::from_static(MIXED.as_bytes()), size);
            let mut outer = Multipart::new("multipart/mixed; boundary=out", body).unwrap();
            let headers = outer.next_part().await.unwrap().unwrap();
            let kind = headers.get("content-type").unwrap();
            let mut inner = Multipart::new(kind, &mut outer).unwrap();
            assert!(inner.next_part().await.unwrap().is_some());
            let doc = collect(&mut inner, 0, 100).await.unwrap().unwrap();
            assert_eq!(doc, "{\"_id\":\"a\"}");
            assert!(inner.next_part().await.unwrap().is_some());
            let attached = collect(&mut inner, 0, 100).await.unwrap().unwrap();
            assert_eq!(attached, "attached");
            assert!(inner.next_part().await.unwrap().is_none());
            inner.finish().await.unwrap();
            let headers = outer.next_part().await.unwrap().unwrap();
            let kind = ContentType::parse(headers.get("content-type").unwrap());
            assert_eq!(kind.parameter("error"), Some("true"));
            assert!(outer.next_part().await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn unread_parts_are_skipped() {
        let body = Pieces(Bytes::from_static(MIXED.as_bytes()), 5);
        let mut outer = Multipart::new("multipart/mixed; boundary=out", body).unwrap();
        assert!(outer.next_part().await.unwrap().is_some());
        assert!(outer.next_part().await.unwrap().is_some());
        assert!(outer.next_part().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_part_that_is_too_long_is_not_kept() {
        let mut body = Pieces(Bytes::from(vec![0; 1000]), 100);
        assert_eq!(collect(&mut body, 0, 999).await, Ok(None));
        let mut body = Pieces(Bytes::from(vec![0; 1000]), 100);
        let kept = collect(&mut body, 0, 1000).await.unwrap();
        assert_eq!(kept.unwrap().len(), 1000);
    }
}
