//! Conformance: tests whether a command answers like CouchDB's query servers.
//!
//! SUMMARY   [`suite`] has the cases, [`peer`] is the program under test, [`play`] plays one case, [`run`] many,
//!           [`report`] sums up the results by ability; [`junit`] writes them as XML.
//! PROMISES  Even if the command is missing, silent, floods, hangs or dies, a case ends within its deadline
//!           with a verdict, and leaves no child.
//! CALLED    By `settee conform` and by tests.
//! SOURCE    The JavaScript cases were recorded from CouchDB's own server or follow from its documentation; those of
//!           the ability `policy` go beyond it.
//!
//! A case is one JSON object on a line:
//!
//! | member | meaning |
//! |---|---|
//! | `id`, `why` | its name, and its purpose in one sentence |
//! | `category` | its ability; `ddoc-shows` is the ability `ddoc.shows` |
//! | `steps` | played in order, see below |
//! | `exit` | the exit status after the last step, or a list of accepted ones; null: any |
//! | `compare` | `{"key_order": "exact"}`: the order of keys counts; `{"logs": "ignored"}`: log lines do not |
//!
//! | step | |
//! |---|---|
//! | `{"in": VALUE}` | sends the value as compact JSON and a line feed |
//! | `{"in_raw": TEXT or [TEXT..]}` | sends text verbatim and a line feed; with `"eol": ""` closes the input instead |
//! | `{"out": EXPECTED}` | the next line is JSON that equals this |
//! | `{"out_raw": TEXT}` | the next line is exactly this |
//! | `{"closed": true}` | the output ends by itself; `"may_say": EXPECTED` allows one line before |
//!
//! Without `closed` the input is closed after the last step; the command must then end without another line. In
//! expected values, `{"$any": true}` matches anything, `{"$re": RE}` a string that the expression matches as a whole,
//! `{"$any_of": [..]}` one of these. Anywhere, `{"$repeat": TEXT, "times": N}` is a long string and `{"$source":
//! {LANGUAGE: TEXT, ..}}` a function's source in the tested language; without that language, the case is skipped.
//! Numbers compare as doubles.

#![warn(missing_docs)]

pub mod case;
pub mod compare;
pub mod junit;
pub mod peer;
pub mod play;
pub mod report;
pub mod run;
pub mod suite;
