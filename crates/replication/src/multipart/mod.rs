//! `multipart/mixed` and `multipart/related` in CouchDB's form, read and written as streams.
//!
//! SUMMARY   [`parser`] finds the parts in a sequence of chunks; [`reader`] reads them from a body,
//!           nested parts included; [`writer`] lays out a document with its attachments
//!           so that its length is known before the first byte is sent.
//! PROMISES  No part is ever held whole. Boundaries are found across chunks. Headers are bounded
//!           ([`parser::HEADERS_MAX`]).
//! SOURCE    RFC 2046; CouchDB's `couch_httpd:parse_multipart_request` and
//!           `couch_doc:doc_to_multi_part_stream`.

pub mod parser;
pub mod reader;
pub(crate) mod writer;
