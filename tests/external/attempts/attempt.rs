//! One attempt: something that a function must not be able to do.
//!
//! PROMISES  [`Attempt::fails_in_a_cell`] passes only if the attempt works without a cell and fails in one. That the pool
//!           serves the next client is shown by the next attempt, and after the last one by the site. It skips attempts
//!           that this machine does not allow even without a cell (see [`Attempt::is_possible`]), and attempts whose
//!           layer this machine lacks.
//! LIMITS    An error in the attempt's own code fails the test with or without a cell; it never counts as a refusal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Value, json};

use super::site::{Mode, Site};
use crate::support::daemon::{Client, Service};

/// Attempts that share a source.
pub struct Group {
    pub source: &'static str,
    /// The layer that refuses them; where it is missing, they are not tried in a cell.
    pub layer: &'static str,
    /// Whether the cell may use the network.
    pub network: bool,
}

pub struct Attempt {
    pub group: &'static Group,
    pub id: &'static str,
    pub function: &'static str,
    /// The number and arguments of the system call, if the attempt is a single one.
    call: Option<(u64, &'static [i64])>,
    may_end_it: bool,
}

/// The result of an attempt.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "failing tests show the strings")]
pub enum Outcome {
    Did(Value),
    /// A call failed with this error.
    Refused(String),
    /// No call failed, but the attempt had no effect.
    Nothing(String),
    /// The process ended.
    Ended(String),
}

impl Outcome {
    /// Returns the outcome that a reply reports.
    pub fn from_reply(service: &Service, reply: &Value) -> Self {
        let Some(ok) = reply.get("ok") else {
            return Self::Ended(reply["error"].to_string());
        };
        let row = &ok[0][0][0];
        let detail = row[1].as_str().unwrap_or_default().to_owned();
        match row[0].as_str() {
            Some("did") => Self::Did(row[1].clone()),
            Some("refused") => Self::Refused(detail),
            Some("nothing") => Self::Nothing(detail),
            _ => panic!("{reply}\n{}", service.log()),
        }
    }

    pub fn did(&self) -> bool {
        matches!(self, Self::Did(_))
    }

    /// Returns whether it is an error that a cell causes.
    pub fn is_refused_by_a_cell(&self) -> bool {
        matches!(self, Self::Refused(error) if OF_A_CELL.contains(&error.as_str()))
    }
}

/// Errors of a kernel without the feature, with or without a cell.
const UNKNOWN: &[&str] = &[
    "ENOSYS",
    "EAFNOSUPPORT",
    "EPROTONOSUPPORT",
    "ESOCKTNOSUPPORT",
    "ENOTSUP",
    "EOPNOTSUPP",
];
/// Errors for a user who lacks the right even without a cell.
const FORBIDDEN: &[&str] = &["EPERM", "EACCES"];
/// Errors in a cell: `ENOSYS` for calls whose arguments it cannot see, `EAGAIN` for one process too many.
const OF_A_CELL: &[&str] = &["EPERM", "EACCES", "ENOSYS", "EAGAIN"];

/// Why an attempt is impossible on this machine without a cell, by the attempt's id: determined once.
type Found = Arc<OnceLock<Option<String>>>;
static FOUND: Mutex<Option<HashMap<&'static str, Found>>> = Mutex::new(None);

impl Attempt {
    pub const fn new(group: &'static Group, id: &'static str, function: &'static str) -> Self {
        Self {
            group,
            id,
            function,
            call: None,
            may_end_it: false,
        }
    }

    /// Makes the attempt a single system call.
    pub const fn calls(mut self, number: u64, arguments: &'static [i64]) -> Self {
        self.function = "call_by_number";
        self.call = Some((number, arguments));
        self
    }

    /// Runs another function of the group's source.
    pub const fn by(mut self, function: &'static str) -> Self {
        self.function = function;
        self
    }

    /// Accepts that the kernel kills the process.
    pub const fn may_end_it(mut self) -> Self {
        self.may_end_it = true;
        self
    }

    pub fn fails_in_a_cell(&self) {
        // Both are held, so that neither is restarted for each attempt.
        let (_off, cell) = (self.site(Mode::Off), self.site(Mode::Standard));
        if !self.is_possible() || cell.lacks(self.group.layer) {
            return;
        }
        let outcome = self.run(&cell);
        assert!(self.is_prevented(&outcome), "in a cell: {outcome:?}");
        if let Outcome::Nothing(why) = outcome {
            println!("{}: {why}", self.id);
        }
    }

    /// Returns whether the cell prevented the attempt.
    pub fn is_prevented(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Ended(how) => self.may_end_it && how.contains("was killed by"),
            Outcome::Nothing(_) => true,
            outcome => outcome.is_refused_by_a_cell(),
        }
    }

    /// Returns whether the attempt works without a cell, and prints the reason if not.
    pub fn is_possible(&self) -> bool {
        let found = {
            let mut all = FOUND.lock().unwrap();
            let all = all.get_or_insert_default();
            Arc::clone(all.entry(self.id).or_default())
        };
        found.get_or_init(|| self.why_impossible()).is_none()
    }

    fn why_impossible(&self) -> Option<String> {
        let outcome = self.run(&self.site(Mode::Off));
        let why = match &outcome {
            Outcome::Did(_) => return None,
            Outcome::Refused(error) if UNKNOWN.contains(&error.as_str()) => error,
            Outcome::Refused(error)
                if FORBIDDEN.contains(&error.as_str()) && !has_every_capability() =>
            {
                error
            }
            // The attempt runs a program that asks for a password.
            Outcome::Nothing(why) if !has_every_capability() => why,
            _ => panic!("without a cell: {outcome:?}"),
        };
        println!(
            "not tried, because it fails without a cell: {}: {why}",
            self.id
        );
        Some(why.clone())
    }

    fn site(&self, mode: Mode) -> Arc<Site> {
        Site::shared(mode, self.group.network)
    }

    fn run(&self, site: &Site) -> Outcome {
        self.run_by(site, &mut site.service().connect())
    }

    /// Makes the attempt as this client.
    pub fn run_by(&self, site: &Site, client: &mut Client) -> Outcome {
        let mut more = json!({"attempt": self.id.rsplit("::").next(), "function": self.function});
        if let Some((number, arguments)) = self.call {
            more["number"] = json!(number);
            more["arguments"] = json!(arguments);
        }
        site.run_by(client, self.group.source, &more)
    }
}

/// Returns whether this process has every capability, so that nothing fails for lack of a right.
fn has_every_capability() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap();
    let last: u32 = last.trim().parse().unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(held.unwrap().trim(), 16).unwrap() == (1 << (last + 1)) - 1
}

/// Defines a test for each attempt, and a list of all.
macro_rules! attempts {
    ($group:ident; $($name:ident $(.$how:ident($($with:expr),*))*;)*) => {
        pub const ALL: &[$crate::attempts::attempt::Attempt] = &[$(
            $crate::attempts::attempt::Attempt::new(
                &$group, concat!(module_path!(), "::", stringify!($name)), stringify!($name),
            )$(.$how($($with),*))*
        ),*];

        $(#[test]
        fn $name() {
            let name = stringify!($name);
            let it = ALL.iter().find(|it| it.id.rsplit("::").next() == Some(name));
            it.unwrap().fails_in_a_cell();
        })*
    };
}
pub(super) use attempts;
