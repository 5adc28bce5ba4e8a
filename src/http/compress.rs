//! Compressed answers, for clients that accept them.
//!
//! SUMMARY   A [`Text`] has a whole answer in both forms; [`Text::answer`] selects the one that the request accepts.
//! PROMISES  Without gzip in `Accept-Encoding` the text is sent uncompressed. `Content-Length` is that of the sent
//!           form. Streamed answers are not compressed, so no compressor delays a piece.
//! LIMITS    Texts shorter than [`GZIP_MIN`] are not compressed.

use std::io::Write;
use std::sync::OnceLock;

use actix_web::http::header::{self, AcceptEncoding, Encoding, Header};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Minimum length of a text to compress, in bytes: a shorter one fits one packet anyway.
const GZIP_MIN: usize = 1024;

/// A text; it is compressed for the first client that accepts gzip.
#[derive(Debug)]
pub(super) struct Text {
    plain: Bytes,
    level: Compression,
    gzip: OnceLock<Option<Bytes>>,
}

impl Text {
    /// Returns a permanent text, which gets the best compression.
    pub const fn constant(text: &'static str) -> Self {
        Self {
            plain: Bytes::from_static(text.as_bytes()),
            level: Compression::best(),
            gzip: OnceLock::new(),
        }
    }

    /// Returns a short-lived text, which gets the fastest compression.
    pub fn passing(plain: Bytes) -> Self {
        Self {
            plain,
            level: Compression::fast(),
            gzip: OnceLock::new(),
        }
    }

    /// Answers a request with the text.
    pub fn answer(&self, request: &HttpRequest, mut response: HttpResponseBuilder) -> HttpResponse {
        response.insert_header((header::VARY, "Accept-Encoding"));
        let gzip = accepts_gzip(request).then(|| self.gzip()).flatten();
        match gzip {
            Some(gzip) => response
                .insert_header((header::CONTENT_ENCODING, "gzip"))
                .body(gzip),
            None => response.body(self.plain.clone()),
        }
    }

    fn gzip(&self) -> Option<Bytes> {
        self.gzip
            .get_or_init(|| {
                if self.plain.len() < GZIP_MIN {
                    return None;
                }
                let mut encoder = GzEncoder::new(Vec::new(), self.level);
                encoder.write_all(&self.plain).ok()?;
                encoder.finish().ok().map(Bytes::from)
            })
            .clone()
    }
}

fn accepts_gzip(request: &HttpRequest) -> bool {
    let known = [Encoding::gzip(), Encoding::identity()];
    let accepted = AcceptEncoding::parse(request);
    accepted.is_ok_and(|accepted| accepted.negotiate(known.iter()) == Some(Encoding::gzip()))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it_by_name() {
        let accepts = |value: &str| {
            let request = TestRequest::default().insert_header(("Accept-Encoding", value));
            accepts_gzip(&request.to_http_request())
        };
        for value in [
            "gzip",
            "gzip, deflate, br, zstd",
            "br;q=1, gzip;q=0.1, identity;q=0",
        ] {
            assert!(accepts(value), "{value}");
        }
        for value in [
            "",
            "identity",
            "br",
            "gzip;q=0",
            "deflate, identity",
            "gzip;q=x",
        ] {
            assert!(!accepts(value), "{value}");
        }
        assert!(!accepts_gzip(&TestRequest::default().to_http_request()));
    }
}
