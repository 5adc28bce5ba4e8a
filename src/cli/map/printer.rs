//! Prints rows from a separate thread, in large pieces.
//!
//! SUMMARY   [`Printer`] collects text and passes it to the thread that writes standard output.
//! PROMISES  A slow or stopped reader blocks only that thread: the pool continues to answer, and no document times
//!           out because of it. Pending text is bounded.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use super::csv::Csv;
use crate::cli::exit::{CliError, CliResult, Exit, IoAt};
use crate::cli::output::Output;
use crate::functions::view::{MapSink, Mapped};

/// The size at which collected text is passed to the thread, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Initial capacity of a piece, in bytes: the row that completes it rarely needs more.
const PIECE_CAPACITY: usize = PIECE_BYTES + 4096;

/// Maximum pieces waiting to be written.
const PIECES_WAITING: usize = 8;

/// Maximum time that a row waits for others.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Standard output behind a bounded queue.
pub(super) struct Printer {
    /// `None` prints JSON.
    csv: Option<Csv>,
    text: RefCell<Vec<u8>>,
    pieces: mpsc::Sender<Vec<u8>>,
    thread: JoinHandle<CliResult>,
}

impl Printer {
    /// Starts the thread, and prints the CSV header.
    pub(super) fn start(csv: Option<Csv>) -> CliResult<Self> {
        let (pieces, queue) = mpsc::channel(PIECES_WAITING);
        let thread = std::thread::Builder::new()
            .name("printer".into())
            .spawn(move || write(queue))
            .io_at("a thread for printing")?;
        let mut text = Vec::with_capacity(PIECE_CAPACITY);
        text.extend_from_slice(csv.map_or("", Csv::header).as_bytes());
        Ok(Self {
            csv,
            text: RefCell::new(text),
            pieces,
            thread,
        })
    }

    /// Prints a line. `false`: the reader has closed, or writing failed.
    pub(super) async fn print(&self, line: &[u8]) -> bool {
        self.write(line);
        self.ready().await
    }

    fn write(&self, line: &[u8]) {
        let mut text = self.text.borrow_mut();
        match self.csv {
            Some(csv) => csv.write(line, &mut text),
            None => text.extend_from_slice(line),
        }
    }

    /// Passes on collected text. `false`: as [`Self::print`].
    pub(super) async fn flush(&self) -> bool {
        if self.text.borrow().is_empty() {
            return !self.pieces.is_closed();
        }
        // Room is reserved first, so that a cancelled flush loses no text.
        match self.pieces.reserve().await {
            Ok(room) => {
                room.send(self.text.replace(Vec::with_capacity(PIECE_CAPACITY)));
                true
            }
            Err(_) => false,
        }
    }

    /// Flushes regularly, so that rows of a slow input are visible.
    pub(super) async fn flush_regularly(&self) -> Infallible {
        let mut ticks = actix_rt::time::interval(FLUSH_INTERVAL);
        loop {
            ticks.tick().await;
            self.flush().await;
        }
    }

    /// Waits until everything is written.
    pub(super) async fn finish(self) -> CliResult {
        drop(self.pieces);
        tokio::task::spawn_blocking(|| self.thread.join())
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_else(|| {
                Err(CliError::new(
                    Exit::Internal,
                    "printing ended unexpectedly",
                    "report it with what the program printed",
                ))
            })
    }
}

impl MapSink for Printer {
    fn mapped(&self, mapped: &Mapped<'_>) {
        if self.csv.is_none() {
            let mut text = self.text.borrow_mut();
            return mapped.rows().for_each(|row| row.write(&mut text));
        }
        let mut line = Vec::new();
        for row in mapped.rows() {
            line.clear();
            row.write(&mut line);
            self.write(&line);
        }
    }

    async fn ready(&self) -> bool {
        if self.text.borrow().len() >= PIECE_BYTES {
            return self.flush().await;
        }
        !self.pieces.is_closed()
    }
}

fn write(mut queue: mpsc::Receiver<Vec<u8>>) -> CliResult {
    let mut output = Output::standard();
    while let Some(piece) = queue.blocking_recv() {
        if output.write(piece)? == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}
