//! `multipart/mixed` and `multipart/related`, as CouchDB speaks them: read and written as streams.
//!
//! SUMMARY   [`parser`] finds the parts in bytes that come in pieces; [`reader`] reads them from a
//!           body, also parts that have parts; [`writer`] lays out a document with its attachments
//!           so that its length is known before the first byte is sent.
//! PROMISES  No part is ever held whole. A boundary is found wherever the pieces are cut. Headers
//!           are bounded ([`parser::HEADERS_MAX`]).
//! SOURCE    RFC 2046; CouchDB's `couch_httpd:parse_multipart_request` and
//!           `couch_doc:doc_to_multi_part_stream`.

pub mod parser;
pub mod reader;
pub(crate) mod writer;
