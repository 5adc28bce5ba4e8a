//! Interpretation of the HTTP library's errors.

use std::error::Error;
use std::io;
use std::iter::successors;

use child::watches;

use super::Cause;
use super::body::BodyFailed;
use super::send::TryFailed;
use crate::endpoint::rules::EndpointDenied;

pub(super) fn classify(error: &reqwest::Error) -> TryFailed {
    let text = describe(error);
    if error.is_builder() {
        return TryFailed::Final(Cause::Invalid(text));
    }
    if let Some(failed) = source_of::<BodyFailed>(error) {
        return TryFailed::Final(Cause::Body(failed.to_string()));
    }
    if let Some(denied) = source_of::<EndpointDenied>(error) {
        return TryFailed::Final(Cause::Denied(denied.clone()));
    }
    if error.is_connect() {
        // The resolver's errors have no visible type.
        if text.contains("dns error") {
            return TryFailed::Retry(Cause::UnknownHost);
        }
        let from = source_of::<io::Error>(error).map(innermost);
        if from.is_some_and(is_no_tls) {
            return TryFailed::Final(Cause::NoTls);
        }
        return TryFailed::Retry(Cause::Connect {
            kind: from.map(io::Error::kind),
            said: text,
        });
    }
    // The HTTP parser has no public error for this either.
    if text.contains("message head is too large") {
        return TryFailed::Final(Cause::HeadTooLong);
    }
    TryFailed::Retry(Cause::Protocol(text))
}

/// Returns the innermost I/O error: the system's, or one that wraps a TLS error.
fn innermost(error: &io::Error) -> &io::Error {
    error
        .get_ref()
        .and_then(|inner| inner.downcast_ref())
        .map_or(error, innermost)
}

/// Whether the data is not TLS at all, such as a plain server's answer.
fn is_no_tls(error: &io::Error) -> bool {
    use rustls::{Error, InvalidMessage};
    matches!(
        error.get_ref().and_then(|error| error.downcast_ref()),
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType))
    )
}

fn source_of<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    successors(Some(error), |error| (*error).source()).find_map(|error| error.downcast_ref())
}

/// Returns an error's description with its causes, without URLs.
pub(super) fn describe(error: &reqwest::Error) -> String {
    let mut texts = Vec::new();
    for error in successors(error.source(), |error| (*error).source()) {
        let text = error.to_string();
        // Some repeat their cause.
        texts.retain(|earlier: &String| !text.contains(&**earlier));
        if !texts.iter().any(|earlier| earlier.contains(&text)) {
            texts.push(text);
        }
    }
    if texts.is_empty() {
        return "the HTTP library refuses the request".to_owned();
    }
    watches::named_in(texts.join(": "), error)
}
