//! Languages: the built-in JavaScript server, its transcripts, Mango, and the protocol's page.

mod couchjs;
mod javascript_errors;
mod javascript_forget;
mod javascript_isolates;
mod javascript_memory;
mod javascript_rows;
mod javascript_transcripts;
mod mango;
mod protocol_page;
