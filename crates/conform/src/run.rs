//! Runs many cases, several at a time.
//!
//! PROMISES  Reports keep the order of the cases. A process serves one case. An ability that the command never
//!           answers costs a bounded number of deadlines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use serde::de::IgnoredAny;

use crate::case::Case;
use crate::compare::quote;
use crate::peer::{Peer, Target};
use crate::play::{Failure, Kind, play};
use crate::report::{CaseReport, CaseResult};
use crate::suite;
use child::Spawner;

/// How many cases run at a time.
const WIDTH: usize = 4;

/// After this many unanswered cases of an ability, its other cases are not run.
const SILENCES_MAX: usize = 3;

/// What is tested, and the time limit.
#[derive(Clone)]
pub struct Subject<T> {
    /// The command, or the language.
    pub target: T,
    /// The time limit of a case.
    pub time: Duration,
    /// Starts the processes that run the cases, and those that probe abilities.
    pub spawner: Spawner,
}

/// Optional abilities of a query server; `ddoc` includes `ddoc.shows` and the like.
const OPTIONAL: &[&str] = &[
    "ddoc",
    "index",
    "lib",
    "pipelining",
    "reduce",
    "reduce.context",
    "reduce.several",
    "rereduce",
];

/// Returns whether the command clearly refused the ability of the case: by an error, by exiting, or by a single result
/// for several functions. A missing answer is a failure instead.
pub(crate) fn is_unsupported(case: &Case, failure: &Failure) -> bool {
    let ability = case.ability.as_str();
    let is_optional = OPTIONAL.contains(&ability) || ability.starts_with("ddoc.");
    let one_for_several = ability == "reduce.several" && failure.kind == Kind::Line;
    is_optional && (matches!(failure.kind, Kind::Error | Kind::End) || one_for_several)
}

impl<T: Target> Subject<T> {
    /// Checks that the subject answers a `reset` with any line of JSON.
    ///
    /// # Errors
    /// Why there is nothing to test: it cannot be started, ends, does not answer, or prints an interpreter's error
    /// about an unreadable script.
    pub async fn greets(&self) -> Result<(), String> {
        let greet = async {
            let mut peer = self.target.start(&self.spawner, self.time).await?;
            peer.send(b"[\"reset\"]\n");
            match peer.line().await {
                Ok(Some(line)) => match serde_json::from_slice::<IgnoredAny>(&line) {
                    Ok(_) => Ok(()),
                    Err(_) => Err(format!(
                        "it said {}",
                        quote(&String::from_utf8_lossy(&line))
                    )),
                },
                Ok(None) => Err(format!("it {}", peer.exit_report().await)),
                Err(error) => Err(error.to_string()),
            }
        };
        tokio::time::timeout(self.time, greet)
            .await
            .unwrap_or_else(|_| {
                let seconds = self.time.as_secs_f64();
                Err(format!("it said nothing within {seconds} s"))
            })
    }

    /// Returns the language of its functions: the first of [`suite::LANGUAGES`] whose first function passes.
    pub async fn language(&self) -> Option<&'static str> {
        for language in suite::LANGUAGES {
            if let Some(case) = suite::first_function(language)
                && play(&case, self).await.is_ok()
            {
                return Some(language);
            }
        }
        None
    }

    /// Runs cases, [`WIDTH`] at a time. Returns the report of each.
    pub fn reports<'a>(&'a self, cases: &'a [Case]) -> impl Stream<Item = CaseReport> + 'a {
        let silences = Rc::new(RefCell::new(HashMap::<&str, usize>::new()));
        let played = move |case: &'a Case| {
            let silences = Rc::clone(&silences);
            async move {
                if silences.borrow().get(case.ability.as_str()) >= Some(&SILENCES_MAX) {
                    return CaseReport {
                        result: CaseResult::NotRun,
                        ..CaseReport::of(case, None, Duration::ZERO)
                    };
                }
                let begun = Instant::now();
                let failure = play(case, self).await.err();
                let kind = failure.as_ref().map(|failure| failure.kind);
                if kind == Some(Kind::Silence) {
                    *silences.borrow_mut().entry(&case.ability).or_default() += 1;
                }
                CaseReport::of(case, failure, begun.elapsed())
            }
        };
        futures_util::stream::iter(cases)
            .map(played)
            .buffered(WIDTH)
    }
}
