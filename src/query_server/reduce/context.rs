//! The context of a reduction: the limit of sums, the view, and the log.
//!
//! SOURCE    couch_query_servers: check_sum_overflow/3.
//! DIFFERS   The log is rate-limited; the reference writes a record for every reduction.

use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use slog::Logger;

use super::sum::error_object;
use crate::config::{QueryServerConfig, ReduceLimit};
use crate::lock;
use crate::logging::RepeatLimiter;
use crate::query_server::call::{Call, call_log};

/// When a sum is too long for a reduction (`reduce_limit` and its companions).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SumLimit {
    /// The treatment of such a sum.
    pub mode: ReduceLimit,
    /// Sums up to this size are never too long, in bytes of Erlang's external term format.
    pub threshold: u64,
    /// A longer sum is too long if its size times this exceeds the input's.
    pub ratio: f64,
}

impl SumLimit {
    /// No sum is too long.
    pub(crate) const NONE: Self = Self {
        mode: ReduceLimit::False,
        threshold: 0,
        ratio: 1.0,
    };

    /// Returns the configured limit.
    pub fn of(config: &QueryServerConfig) -> Self {
        Self {
            mode: config.reduce_limit,
            threshold: config.reduce_limit_threshold,
            ratio: config.reduce_limit_ratio,
        }
    }
}

/// The context of a reduction.
#[derive(Clone, Copy, Debug)]
pub struct ReduceContext<'a> {
    /// When a sum is too long.
    pub limit: SumLimit,
    /// The view, `DB/DDOC/_view/NAME`; empty while an index is built.
    pub name: &'a str,
    /// Logs sums that are too long.
    pub log: Option<&'a OverflowLog>,
    /// The call that it belongs to.
    pub call: Option<&'a Arc<Call>>,
}

impl ReduceContext<'_> {
    /// Replaces a sum that is too long with an error, or only logs it. `input` returns the size of the summands; it
    /// is called only if needed.
    pub(super) fn check(&self, sum: Box<RawValue>, input: impl FnOnce() -> u64) -> Box<RawValue> {
        let limit = self.limit;
        if limit.mode == ReduceLimit::False {
            return sum;
        }
        let output = json::erlang::size_of_value(sum.get());
        if output <= limit.threshold {
            return sum;
        }
        let input = input();
        #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
        if output as f64 * limit.ratio <= input as f64 {
            return sum;
        }
        let reason = format!(
            "Reduce output must shrink more rapidly: input size: {input} output size: {output} \
             context: {}",
            self.name
        );
        if let Some(log) = self.log {
            log.tell(&reason, self.call);
        }
        if limit.mode == ReduceLimit::True {
            return error_object(&reason, None);
        }
        if let Some(call) = self.call {
            call.warn(reason);
        }
        sum
    }
}

/// Logs sums that are too long: at most one record in [`crate::logging::REPEAT_INTERVAL`].
#[derive(Debug)]
pub struct OverflowLog {
    log: Logger,
    limiter: Mutex<RepeatLimiter>,
}

impl OverflowLog {
    /// Logs to `log`.
    pub fn new(log: Logger) -> Self {
        Self {
            log,
            limiter: Mutex::default(),
        }
    }

    fn tell(&self, reason: &str, call: Option<&Arc<Call>>) {
        let admitted = lock(&self.limiter).admit();
        if let Some(suppressed) = admitted {
            slog::error!(call_log(call, &self.log), "a built-in sum is too long"; "error" => reason,
                "suppressed" => suppressed);
        }
    }
}
