//! A process's log lines, passed to the service's log within limits.
//!
//! SUMMARY   [`ChildLog`] admits lines of `log()` and of standard error, and refused system calls, within a limit of
//!           lines a second for each process and of bytes a minute for each pool. One line reports how many were
//!           dropped.
//! PROMISES  No function fills the disk by logging, however many processes run it. Dropped lines are counted.
//! LIMITS    A line is cut after [`LINE_BYTES_MAX`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slog::{Logger, info, warn};

use super::call::{Call, call_log};
use crate::lock;
use crate::otp::Clock;
use child::stderr::LINE_BYTES_MAX;
use policy::time::Timestamp;

/// Overhead of a log record besides its line and the names of its call, in bytes.
const RECORD_BYTES: usize = 200;

/// The period of the limit on a process's lines.
const LINES_PERIOD: Duration = Duration::from_secs(1);

/// The period of the limit on a pool's bytes.
const BYTES_PERIOD: Duration = Duration::from_secs(60);

/// Minimum time between two reports of dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Usage within a period.
#[derive(Debug, Default)]
struct Used {
    since: Option<Timestamp>,
    amount: usize,
}

impl Used {
    /// Takes `amount` of the `of` that a period allows; returns false, and takes nothing, if less remains.
    fn take(&mut self, amount: usize, of: usize, period: Duration, now: Timestamp) -> bool {
        if self.since.is_none_or(|since| now.since(since) >= period) {
            *self = Self {
                since: Some(now),
                amount: 0,
            };
        }
        let is_left = self.amount + amount <= of;
        if is_left {
            self.amount += amount;
        }
        is_left
    }
}

/// The logged bytes of a pool's processes.
#[derive(Debug, Default)]
pub struct PoolLog(Mutex<Used>);

/// Limits of a process's log.
#[derive(Clone, Debug)]
pub struct LogTerms {
    /// Maximum lines a second.
    pub lines_max: usize,
    /// Maximum bytes a minute, for all processes of the pool.
    pub pool_bytes_max: usize,
    /// The pool's logged bytes.
    pub pool: Arc<PoolLog>,
}

/// The log of one process.
pub(crate) struct ChildLog {
    log: Logger,
    clock: Clock,
    terms: LogTerms,
    lines: RefCell<Used>,
    /// Dropped lines that have not been reported yet.
    left_out: Cell<u64>,
    reported: Cell<Option<Timestamp>>,
    /// The call that lines are attributed to.
    call: RefCell<Option<Arc<Call>>>,
}

impl ChildLog {
    /// Makes the log of a process.
    pub fn new(log: Logger, clock: Clock, terms: LogTerms) -> Rc<Self> {
        Rc::new(Self {
            log,
            clock,
            terms,
            lines: RefCell::default(),
            left_out: Cell::new(0),
            reported: Cell::new(None),
            call: RefCell::default(),
        })
    }

    /// Attributes the following lines to a call.
    pub(crate) fn speak_for(&self, call: Option<&Arc<Call>>) {
        self.call.replace(call.cloned());
    }

    /// Returns the log, attributed to the current call.
    fn log(&self) -> Logger {
        call_log(self.call.borrow().as_ref(), &self.log)
    }

    /// Logs a line of `log()`.
    pub fn said(self: &Rc<Self>, text: &str) {
        if let Some(line) = self.admit(text) {
            info!(self.log(), "query server log"; "line" => line);
        }
    }

    /// Logs a line of standard error.
    pub(crate) fn complained(self: &Rc<Self>, text: &str) {
        if let Some(line) = self.admit(text) {
            info!(self.log(), "query server stderr"; "line" => line);
        }
    }

    /// Logs a system call that the cell refused.
    pub(crate) fn refused(self: &Rc<Self>, call: &str) {
        if let Some(call) = self.admit(call) {
            warn!(self.log(), "query server was refused a system call"; "call" => call,
                  "effect" => "the call failed", "remedy" => remedy_of_refused(call));
        }
    }

    /// Returns the part of a line that is logged; `None` if it is dropped.
    fn admit<'a>(self: &Rc<Self>, text: &'a str) -> Option<&'a str> {
        let line = &text[..text.floor_char_boundary(LINE_BYTES_MAX)];
        let now = self.clock.now();
        let bytes_of_call = self
            .call
            .borrow()
            .as_ref()
            .map_or(0, |call| call.subject.bytes());
        let mut lines = self.lines.borrow_mut();
        let admitted = lines.take(1, self.terms.lines_max, LINES_PERIOD, now) && {
            let bytes = written(line) + bytes_of_call;
            lock(&self.terms.pool.0).take(bytes, self.terms.pool_bytes_max, BYTES_PERIOD, now)
        };
        if !admitted {
            self.leave_out(now);
        }
        admitted.then_some(line)
    }

    fn leave_out(self: &Rc<Self>, now: Timestamp) {
        let left_out = self.left_out.get();
        self.left_out.set(left_out + 1);
        if left_out > 0 {
            return;
        }
        let recently = |before| now.since(before) < REPORT_INTERVAL;
        let wait = if self.reported.get().is_some_and(recently) {
            REPORT_INTERVAL
        } else {
            LINES_PERIOD
        };
        let itself = Rc::downgrade(self);
        // The task ends after `wait`.
        actix_rt::spawn(async move {
            actix_rt::time::sleep(wait).await;
            if let Some(log) = itself.upgrade() {
                log.report();
            }
        });
    }

    fn report(&self) {
        let left_out = self.left_out.take();
        if left_out == 0 {
            return;
        }
        self.reported.set(Some(self.clock.now()));
        warn!(self.log, "lines of a query server were left out"; "count" => left_out,
              "limit" => format!("{} lines a second, {} bytes a minute for the pool",
                                 self.terms.lines_max, self.terms.pool_bytes_max),
              "effect" => "these lines are lost",
              "remedy" => "log less in the function, or raise [log] child_lines_max or pool_bytes_max");
    }
}

/// Returns the remedy for a system call refused by a cell.
pub(crate) fn remedy_of_refused(call: &str) -> &'static str {
    match call {
        "socket" | "connect" | "sendto" | "sendmsg" | "sendmmsg" => {
            "if the query server should use the network, set network = true for its pool"
        }
        _ => {
            "ignore this if all functions work, else allow the call in its pool's system_calls_allowed"
        }
    }
}

/// Reports the remaining dropped lines.
impl Drop for ChildLog {
    fn drop(&mut self) {
        self.report();
    }
}

/// Returns a line's bytes in the log, with escaped control characters.
fn written(line: &str) -> usize {
    let controls = line.bytes().filter(u8::is_ascii_control).count();
    line.len() + controls * 5 + RECORD_BYTES
}

#[cfg(test)]
mod tests {
    use slog::{Drain, Never, OwnedKVList, Record, o};

    use super::*;

    /// Counts records by their text.
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<Vec<String>>>);

    impl Drain for Counts {
        type Ok = ();
        type Err = Never;

        fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
            self.0.lock().unwrap().push(record.msg().to_string());
            Ok(())
        }
    }

    impl Counts {
        fn of(&self, message: &str) -> usize {
            let records = self.0.lock().unwrap();
            records.iter().filter(|record| *record == message).count()
        }
    }

    fn terms(lines_max: usize, pool_bytes_max: usize) -> LogTerms {
        LogTerms {
            lines_max,
            pool_bytes_max,
            pool: Arc::default(),
        }
    }

    fn log(counts: &Counts, terms: LogTerms) -> Rc<ChildLog> {
        let logger = Logger::root(counts.clone(), o!());
        ChildLog::new(logger, Clock::new(), terms)
    }

    const LEFT_OUT: &str = "lines of a query server were left out";

    #[actix_rt::test]
    async fn a_process_logs_a_bounded_number_of_lines_a_second_and_the_rest_is_reported() {
        tokio::time::pause();
        let counts = Counts::default();
        let log = log(&counts, terms(100, 1 << 20));
        for _ in 0..60 {
            log.said("said");
            log.complained("complained");
        }
        let (said, complained) = ("query server log", "query server stderr");
        assert_eq!((counts.of(said), counts.of(complained)), (50, 50));
        assert_eq!(counts.of(LEFT_OUT), 0);
        actix_rt::time::sleep(LINES_PERIOD * 2).await;
        assert_eq!(counts.of(LEFT_OUT), 1);
        log.said("later");
        assert_eq!(counts.of(said), 51);
    }

    #[actix_rt::test]
    async fn the_processes_of_a_pool_share_its_log_bytes_per_minute() {
        tokio::time::pause();
        let counts = Counts::default();
        let terms = terms(100, 10 * (RECORD_BYTES + 1));
        let (one, other) = (log(&counts, terms.clone()), log(&counts, terms));
        for _ in 0..10 {
            one.said("x");
            other.said("x");
        }
        assert_eq!(counts.of("query server log"), 10);
        actix_rt::time::sleep(BYTES_PERIOD).await;
        other.said("x");
        assert_eq!(counts.of("query server log"), 11);
    }

    #[actix_rt::test]
    async fn a_flood_is_reported_at_intervals_and_at_the_end() {
        tokio::time::pause();
        let counts = Counts::default();
        let log = log(&counts, terms(1, 1 << 20));
        for _ in 0..200 {
            log.said("x");
            actix_rt::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(counts.of(LEFT_OUT) <= 3, "{}", counts.of(LEFT_OUT));
        let before = counts.of(LEFT_OUT);
        drop(log);
        assert_eq!(counts.of(LEFT_OUT), before + 1);
    }

    #[test]
    fn the_size_of_a_line_counts_escaped_control_characters() {
        assert_eq!(written("a\u{1}"), RECORD_BYTES + 7);
    }
}
