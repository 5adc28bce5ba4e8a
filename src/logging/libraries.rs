//! Errors that the HTTP server's library reports only to the `log` crate.
//!
//! SUMMARY   [`take_over`] redirects them to the service's log.
//! LIMITS    At most one warning in 1000 s for all of them together.

use std::sync::Mutex;

use child::watches;
use slog::{Logger, warn};

use super::RepeatLimiter;
use crate::lock;

/// The crate whose errors are logged.
const LIBRARY: &str = "actix_server";

struct Libraries {
    told: Mutex<RepeatLimiter>,
    log: Logger,
}

/// Redirects the library's errors to the log. The first log that is set remains in use for the whole program.
pub(crate) fn take_over(log: Logger) {
    let libraries = Libraries {
        told: Mutex::default(),
        log,
    };
    if log::set_boxed_logger(Box::new(libraries)).is_ok() {
        log::set_max_level(log::LevelFilter::Error);
    }
}

impl log::Log for Libraries {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with(LIBRARY)
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut told = lock(&self.told);
        let Some(suppressed) = told.admit() else {
            return;
        };
        // The library does not name the exhausted limit.
        let lack = watches::require(1).err();
        let remedy = lack.as_ref().and_then(watches::remedy);
        let error = match lack.filter(|_| remedy.is_some()) {
            Some(lack) => lack.to_string(),
            None => record.args().to_string(),
        };
        warn!(self.log, "the HTTP server cannot serve a connection"; "suppressed" => suppressed, "error" => error,
            "effect" => "connections are closed, or wait to be accepted",
            "remedy" => remedy.unwrap_or("raise the limit that `error` names"));
    }

    fn flush(&self) {}
}
