//! Every kind of function of a design document, through the library and the socket.

mod support;

mod compile;
mod content;
mod ddoc;
mod endless;
mod filter;
mod list;
mod map;
mod reduce;
mod socket;
mod surplus;
mod validate;
