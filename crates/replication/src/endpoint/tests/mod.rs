//! Endpoints against servers with scripted answers.

mod connections;
mod guard;
mod redirects;
mod requests;
mod sessions;
mod tls;
mod ways;

use super::{Cause, StatusCode};

fn status(code: u16, said: &str) -> Cause {
    Cause::Status {
        status: StatusCode::from_u16(code).unwrap(),
        said: said.to_owned(),
    }
}
