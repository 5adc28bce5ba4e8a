//! Writes results to standard output; a closed pipe is not an error.
//!
//! SUMMARY   `settee map ... | head` ends with `head`: silently, with the usual exit code. Other write failures are
//!           errors, so that a full disk is noticed.
//! CALLED    By every subcommand instead of `println!`, which panics on any write failure.

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::json;

use super::exit::{CliError, CliResult};

/// A sink for lines: standard output, except in tests.
#[derive(Debug)]
pub struct Output<W = io::StdoutLock<'static>> {
    sink: W,
}

impl Output {
    /// Returns the program's standard output.
    pub fn standard() -> Self {
        Self {
            sink: io::stdout().lock(),
        }
    }
}

impl<W: Write> Output<W> {
    /// Writes text or bytes and flushes them. `Break`: the reader has closed, so further output is pointless.
    ///
    /// # Errors
    /// Any write failure except a closed pipe; the host's fault.
    pub fn write(&mut self, text: impl AsRef<[u8]>) -> CliResult<ControlFlow<()>> {
        let written = self.sink.write_all(text.as_ref());
        match written.and_then(|()| self.sink.flush()) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            Err(error) => Err(CliError::io("standard output", &error)),
        }
    }
}

/// Writes `text` to standard output. A closed pipe is ignored.
///
/// # Errors
/// As [`Output::write`].
pub fn print(text: &str) -> CliResult {
    Output::standard().write(text).map(drop)
}

/// Returns a value as one line of JSON, or as text.
pub(super) fn json_or(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> String {
    if json {
        json!(value).to_string() + "\n"
    } else {
        text()
    }
}

/// Writes `text` to standard error.
pub fn print_error(text: &str) {
    // A closed standard error leaves no one to report to.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::exit::Exit;
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_ends_the_output_without_an_error() {
        let mut output = Output {
            sink: Failing(io::ErrorKind::BrokenPipe),
        };
        assert_eq!(output.write("x"), Ok(ControlFlow::Break(())));
    }

    #[test]
    fn a_full_device_is_an_error() {
        let mut output = Output {
            sink: Failing(io::ErrorKind::StorageFull),
        };
        let error = output.write("x").expect_err("the device is full");
        assert_eq!(error.code, Exit::Io);
    }
}
