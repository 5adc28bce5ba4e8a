//! What a launcher tells the service: one JSON object a line, on a pipe of their own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use serde::{Deserialize, Serialize};

use super::layers::Layer;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The command made this system call, for the first time, and was refused.
    Refused(String),
    /// These layers do not hold; why.
    Missing(BTreeMap<Layer, String>),
    /// The command was not started; why.
    Error(String),
}

/// Where reports go: the pipe, or standard error where somebody runs the launcher by hand.
pub(super) struct Reporter(pub(super) Option<File>);

impl Reporter {
    /// Nobody is left to tell where this fails.
    pub(super) fn tell(&self, report: &Report) {
        let Ok(mut line) = serde_json::to_vec(report) else {
            return;
        };
        line.push(b'\n');
        drop(match &self.0 {
            // In one piece, so that the lines of two processes do not mix.
            Some(pipe) => (&*pipe).write_all(&line),
            None => std::io::stderr().write_all(&line),
        });
    }
}
