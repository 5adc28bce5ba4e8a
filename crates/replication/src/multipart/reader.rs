//! Reads the parts of a multipart body that arrives as a stream; a part may have parts itself.
//!
//! SUMMARY   [`Multipart::next_part`] goes to the next part, [`Chunks::chunk`] reads it. A part is
//!           a stream again, so that a `multipart/related` inside a `multipart/mixed` is read by a
//!           second [`Multipart`] on top of the first.
//! PROMISES  At most a piece of the body is in memory. What of a part is not read is passed over.
//!           A body that ends before its last delimiter is an error, never a short part.

use bytes::Bytes;

use super::parser::{Headers, MultipartError, Parser, Piece};

/// Bytes that arrive in pieces.
#[allow(
    async_fn_in_trait,
    reason = "everything that reads lives on one thread"
)]
pub(crate) trait Chunks {
    /// Why no more arrive.
    type Error: From<MultipartError>;

    /// Waits for the next piece, which is never empty; `None` at the end.
    ///
    /// # Errors
    /// The stream broke, or is not what it says it is.
    async fn chunk(&mut self) -> Result<Option<Bytes>, Self::Error>;
}

impl<C: Chunks> Chunks for &mut C {
    type Error = C::Error;

    async fn chunk(&mut self) -> Result<Option<Bytes>, Self::Error> {
        C::chunk(self).await
    }
}

/// A multipart body; as a stream, the part that is being read.
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
    pub fn new(content_type: &str, chunks: C) -> Result<Self, MultipartError> {
        Ok(Self {
            chunks,
            parser: Parser::new(content_type)?,
            in_part: false,
        })
    }

    /// Goes to the next part, past what is left of this one; `None` behind the last.
    ///
    /// # Errors
    /// The stream broke, or is no multipart body.
    pub(crate) async fn next_part(&mut self) -> Result<Option<Headers>, C::Error> {
        while self.chunk().await?.is_some() {}
        match self.piece().await? {
            Piece::Headers(headers) => {
                self.in_part = true;
                Ok(Some(headers))
            }
            _ => Ok(None),
        }
    }

    /// Reads what is left of the body, up to its very end: only then can its connection be used
    /// again.
    ///
    /// # Errors
    /// The stream broke.
    pub(crate) async fn finish(&mut self) -> Result<(), C::Error> {
        while self.next_part().await?.is_some() {}
        while self.chunks.chunk().await?.is_some() {}
        Ok(())
    }

    async fn piece(&mut self) -> Result<Piece, C::Error> {
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
    type Error = C::Error;

    async fn chunk(&mut self) -> Result<Option<Bytes>, C::Error> {
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

/// Collects a stream, for which memory for `expected` bytes is set aside.
///
/// # Errors
/// The stream broke; `None` when it has more than `max` bytes, of which nothing is kept.
pub(crate) async fn collect<C: Chunks>(
    chunks: &mut C,
    expected: usize,
    max: usize,
) -> Result<Option<Bytes>, C::Error> {
    let Some(first) = chunks.chunk().await? else {
        return Ok(Some(Bytes::new()));
    };
    let Some(second) = chunks.chunk().await? else {
        return Ok((first.len() <= max).then_some(first));
    };
    let mut collected = Vec::with_capacity(expected.max(first.len() + second.len()));
    collected.extend_from_slice(&first);
    collected.extend_from_slice(&second);
    while collected.len() <= max {
        match chunks.chunk().await? {
            Some(chunk) => collected.extend_from_slice(&chunk),
            None => return Ok(Some(collected.into())),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body in pieces of this size.
    struct Pieces(Bytes, usize);

    impl Chunks for Pieces {
        type Error = MultipartError;

        async fn chunk(&mut self) -> Result<Option<Bytes>, MultipartError> {
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
            let kind = headers.content_type().unwrap();
            assert_eq!(kind.parameter("error"), Some("true"));
            assert!(outer.next_part().await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn what_is_not_read_is_passed_over() {
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
