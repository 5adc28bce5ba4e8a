//! `attach`: a connection that becomes the input and output of one process.
//!
//! SUMMARY   [`attach`] for tokio programs, [`attach_blocking`] for others: the latter starts no
//!           runtime, which is what makes `settee attach` small and quick.
//! PROMISES  Not a byte of the process's is lost or added: what came behind the reply is handed on.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::TakeFrom;
use super::attach_end::{AttachEnd, EndLine};
use super::error::ClientError;
use super::wire::{self, Borrowed};

/// How much is read at a time until the reply is whole, in bytes.
const REPLY_READ_BYTES: usize = 8 * 1024;

/// The longest reply to `attach`, in bytes.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A process whose input and output are a connection.
#[derive(Debug)]
pub struct Attached {
    /// The process; it carries no `config`.
    pub proc: Borrowed,
    /// What it prints.
    pub output: AttachOutput,
    /// What it reads. Shut it down to have the outstanding answers and then the end.
    pub input: OwnedWriteHalf,
}

/// What a process prints: an [`AsyncRead`].
#[derive(Debug)]
pub struct AttachOutput {
    early: Vec<u8>,
    taken: usize,
    stream: OwnedReadHalf,
}

impl AsyncRead for AttachOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let early = &self.early[self.taken..];
        if early.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = early.len().min(buffer.remaining());
        buffer.put_slice(&early[..length]);
        self.taken += length;
        Poll::Ready(Ok(()))
    }
}

/// Attaches to a process of a language, a pool or a group on a connection of its own.
///
/// # Errors
/// As [`super::Client::connect`] and [`super::Client::get_proc_from`].
pub async fn attach(path: impl AsRef<Path>, from: TakeFrom<'_>) -> Result<Attached, ClientError> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(&request(from, false)?).await?;
    let mut received = Vec::new();
    let end = loop {
        let from = received.len();
        stream.read_buf(&mut received).await?;
        if let Some(end) = line_end(&received, from)? {
            break end;
        }
    };
    let proc = accept(&received[..end])?;
    let (output, input) = stream.into_split();
    Ok(Attached {
        proc,
        output: AttachOutput {
            early: received,
            taken: end + 1,
            stream: output,
        },
        input,
    })
}

/// A process at the other end of a connection without a runtime.
#[derive(Debug)]
pub struct Tunnel {
    /// The connection: what is written to it, the process reads; what it prints is to be read.
    pub stream: BlockingStream,
    /// The process; it carries no `config`.
    pub proc: Borrowed,
    /// What came behind the reply already.
    pub early: Vec<u8>,
    /// Whether the last line tells what became of the process: see [`super::EndLine`]. A service of
    /// an earlier version does not know of that.
    pub tells_end: bool,
}

/// Attaches without a runtime, and asks to be told what becomes of the process.
///
/// # Errors
/// As [`attach`].
pub fn attach_blocking(path: &Path, from: TakeFrom<'_>) -> Result<Tunnel, ClientError> {
    let mut stream = BlockingStream::connect(path)?;
    stream.write_all(&request(from, true)?)?;
    let mut received = Vec::new();
    let mut chunk = [0; REPLY_READ_BYTES];
    let end = loop {
        let from = received.len();
        let length = stream.read(&mut chunk)?;
        received.extend_from_slice(&chunk[..length]);
        if let Some(end) = line_end(&received, from)? {
            break end;
        }
    };
    let proc = accept(&received[..end])?;
    let TellsEnd { end: tells_end } = accept(&received[..end])?;
    received.drain(..=end);
    Ok(Tunnel {
        stream,
        proc,
        early: received,
        tells_end,
    })
}

/// Whether the service does what it was asked for.
#[derive(Deserialize)]
struct TellsEnd {
    #[serde(default)]
    end: bool,
}

fn request(from: TakeFrom<'_>, end: bool) -> Result<Vec<u8>, ClientError> {
    let mut arguments = from.arguments();
    if end {
        arguments["end"] = true.into();
    }
    wire::request(0, "attach", &arguments)
}

/// A conversation that the service leads over pipes of the client's: see [`attach_pipes`].
#[derive(Debug)]
pub struct AttachedPipes {
    stream: BlockingStream,
    end: EndLine,
}

/// Hands two pipes to the service: it reads lines from `input` and answers them on `output`, with
/// processes that it may change between two lines. `None`: this service does not, or cannot now.
///
/// The descriptors are made non-blocking. The conversation ends with the returned value.
///
/// # Errors
/// As [`attach`]; no process is taken yet.
pub fn attach_pipes(
    path: &Path,
    from: TakeFrom<'_>,
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
) -> Result<Option<AttachedPipes>, ClientError> {
    let mut stream = BlockingStream::connect(path)?;
    let mut arguments = from.arguments();
    for member in ["end", "descriptors"] {
        arguments[member] = true.into();
    }
    stream.write_all(&wire::request(0, "attach", &arguments)?)?;
    let mut received = Vec::new();
    let answer: TakesPipes = read_reply(&mut stream, &mut received)?;
    if !answer.descriptors {
        return Ok(None);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let pipes = [input, output];
    control.push(SendAncillaryMessage::ScmRights(&pipes));
    let line = [io::IoSlice::new(b"\n")];
    sendmsg(&stream, &line, &mut control, SendFlags::NOSIGNAL).map_err(io::Error::from)?;
    match read_reply::<bool>(&mut stream, &mut received) {
        Ok(_) => {}
        // It had no room for the descriptors.
        Err(ClientError::Service(_)) => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut end = EndLine::default();
    let Ok(()) = end.take(&received, ignore);
    Ok(Some(AttachedPipes { stream, end }))
}

/// Whether the service takes pipes.
#[derive(Deserialize)]
struct TakesPipes {
    #[serde(default)]
    descriptors: bool,
}

fn ignore(_: &[u8]) -> Result<(), Infallible> {
    Ok(())
}

/// Reads the next reply; what came behind it is left in `received`.
fn read_reply<T: DeserializeOwned>(
    stream: &mut BlockingStream,
    received: &mut Vec<u8>,
) -> Result<T, ClientError> {
    let mut chunk = [0; REPLY_READ_BYTES];
    let mut from = 0;
    let end = loop {
        if received.len() > from
            && let Some(end) = line_end(received, from)?
        {
            break end;
        }
        from = received.len();
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Err(ClientError::Closed);
        }
        received.extend_from_slice(&chunk[..length]);
    };
    let value = accept(&received[..end]);
    received.drain(..=end);
    value
}

impl AttachedPipes {
    /// Waits for the end. `None`: the service ended without a word.
    pub fn wait(self) -> Option<AttachEnd> {
        let Self {
            mut stream,
            mut end,
        } = self;
        let mut chunk = [0; REPLY_READ_BYTES];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => {
                    let Ok(()) = end.take(&chunk[..length], ignore);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let Ok(end) = end.finish(ignore);
        end
    }
}

/// Finds the end of the reply in what was received; nothing new since `from` is the end of all.
fn line_end(received: &[u8], from: usize) -> Result<Option<usize>, ClientError> {
    if received.len() == from {
        return Err(ClientError::Closed);
    }
    let end = memchr::memchr(b'\n', &received[from..]).map(|end| from + end);
    if end.is_none() && received.len() > REPLY_BYTES_MAX {
        return Err(ClientError::Protocol("a reply without an end".into()));
    }
    Ok(end)
}

fn accept<T: DeserializeOwned>(line: &[u8]) -> Result<T, ClientError> {
    let (_, outcome) = wire::reply(line)?;
    wire::typed("attach", &outcome?)
}
