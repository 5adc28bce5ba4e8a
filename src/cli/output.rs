//! Writes results to standard output; a closed pipe is not an error.
//!
//! SUMMARY   `settee map ... | head` ends with `head`: silently, with the usual exit code. Other write failures are
//!           errors, so that a full disk is noticed.
//! CALLED    By every subcommand instead of `println!`, which panics on any write failure.

use std::io::{self, Write};
use std::ops::ControlFlow;

use super::exit::{CliError, CliResult};

/// A sink for lines.
#[derive(Debug)]
pub struct Output<W> {
    sink: W,
}

impl Output<io::StdoutLock<'static>> {
    /// Returns the program's standard output.
    pub fn standard() -> Self {
        Self {
            sink: io::stdout().lock(),
        }
    }
}

impl<W: Write> Output<W> {
    /// Returns an output on top of `sink`.
    pub fn new(sink: W) -> Self {
        Self { sink }
    }

    /// Writes `text` and flushes it. `Break`: the reader has closed, so further output is pointless.
    ///
    /// # Errors
    /// Any write failure except a closed pipe; the host's fault.
    pub fn write(&mut self, text: &str) -> CliResult<ControlFlow<()>> {
        self.write_bytes(text.as_bytes())
    }

    /// Writes `bytes` in the same way.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) -> CliResult<ControlFlow<()>> {
        let written = self.sink.write_all(bytes).and_then(|()| self.sink.flush());
        match written {
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
        let mut output = Output::new(Failing(io::ErrorKind::BrokenPipe));
        assert_eq!(output.write("x"), Ok(ControlFlow::Break(())));
    }

    #[test]
    fn a_full_device_is_an_error() {
        let mut output = Output::new(Failing(io::ErrorKind::StorageFull));
        let error = output.write("x").expect_err("the device is full");
        assert_eq!(error.code, Exit::Io);
    }
}
