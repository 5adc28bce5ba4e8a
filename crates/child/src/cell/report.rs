//! What a launcher reports to the service: one JSON object a line, on the socket that carries [orders](super::rest)
//! the other way.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::layers::Layer;
use crate::line_buffer::LineBuffer;
use crate::pipe::PipeReader;

/// Maximum length of a line, in bytes: it may name every layer with a reason.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The command was refused this system call for the first time.
    Refused(String),
    /// Layers that are not in effect, and why.
    Missing(BTreeMap<Layer, String>),
    /// Why the command was not started.
    Error(String),
    /// Why the command was not started, if the machine is the cause: no command would have started.
    HostError(String),
    /// The cell met a limit, which may have ended its command.
    Met(MetLimit),
}

/// A limit that a cell reached, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetLimit {
    /// All processes together needed more memory than this, in bytes, and one was killed.
    Memory(u64),
    /// No further process could be started.
    Processes(u32),
}

/// Which limit was reached, and the pool's key that raises it.
impl fmt::Display for MetLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(most) => write!(
                f,
                "it needed more memory than its pool's memory_max allows, {most} bytes"
            ),
            Self::Processes(most) => write!(
                f,
                "it needed more processes than its pool's processes_max allows, {most}"
            ),
        }
    }
}

/// Where reports go: the socket, or standard error if the launcher is run by hand.
pub(super) struct Reporter(pub(super) Option<File>);

impl Reporter {
    /// Failures are ignored: there is no other channel to report them on.
    pub(super) fn tell(&self, report: &Report) {
        let Ok(mut line) = serde_json::to_vec(report) else {
            return;
        };
        line.push(b'\n');
        drop(match &self.0 {
            // One write, so that lines of two processes do not mix.
            Some(pipe) => (&*pipe).write_all(&line),
            None => io::stderr().write_all(&line),
        });
    }
}

/// The service's end of the socket.
pub struct Reports {
    /// Readable when reports are available.
    pub pipe: Rc<PipeReader>,
    lines: LineBuffer,
    /// Why the command was not started.
    pub error: Option<String>,
    /// Whether the machine caused `error`.
    pub is_hosts_fault: bool,
    /// Which limit the cell reached; memory if several.
    pub met: Option<MetLimit>,
}

impl Reports {
    /// Watches a non-blocking socket.
    ///
    /// # Errors
    /// The event loop has no room for it.
    pub fn new(pipe: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            pipe: PipeReader::new(pipe)?,
            lines: LineBuffer::new(LINE_BYTES_MAX),
            error: None,
            is_hosts_fault: false,
            met: None,
        })
    }

    /// Takes the chunk that was read; returns newly refused system calls.
    pub fn take(&mut self, chunk: Bytes) -> Vec<String> {
        self.lines.add(chunk);
        let mut refused = Vec::new();
        // The launcher is this program too: an invalid line is skipped, and one that is too long ends reading.
        while let Ok(Some(line)) = self.lines.next_line() {
            match serde_json::from_slice(&line) {
                Ok(Report::Refused(call)) => refused.push(call),
                Ok(Report::Error(why)) => self.error = Some(why),
                Ok(Report::HostError(why)) => (self.error, self.is_hosts_fault) = (Some(why), true),
                Ok(Report::Met(limit)) if !matches!(self.met, Some(MetLimit::Memory(_))) => {
                    self.met = Some(limit);
                }
                // A trial reports missing layers, once for all processes.
                Ok(Report::Met(_) | Report::Missing(_)) | Err(_) => {}
            }
        }
        refused
    }

    /// Reads all available reports; returns newly refused system calls.
    pub fn take_rest(&mut self) -> Vec<String> {
        match self.pipe.read() {
            Ok(chunk) if !chunk.is_empty() => self.take(chunk),
            _ => Vec::new(),
        }
    }
}
