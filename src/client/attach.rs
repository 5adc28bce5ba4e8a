//! `attach`: a connection that becomes the input and output of one process.
//!
//! SUMMARY   [`attach`] carries the lines over the connection, for tokio programs; [`attach_pipes`] hands
//!           pipes of the client's over, without a runtime: what `settee attach` does.
//! PROMISES  Not a byte of the process's is lost or added: what came behind the reply is handed on.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::TakeFrom;
use super::error::{ClientError, ServiceError};
use super::wire::{self, Borrowed};

/// How much is read at a time until the reply is whole, in bytes.
const REPLY_READ_BYTES: usize = 8 * 1024;

/// The longest reply to `attach`, in bytes.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// How the service's last line begins, before its JSON object. No line of a query server's begins so.
pub const END_MARK: u8 = 0;

/// What became of the process: what the service says at the end.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AttachEnd {
    /// Whether it lived until it went back to its pool.
    pub alive: bool,
    /// How it ended, in words.
    #[serde(default)]
    pub exit: Option<String>,
    /// Why there was no process at all.
    #[serde(default)]
    pub error: Option<Box<ServiceError>>,
}

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
    let request = wire::request(0, "attach", &from.arguments())?;
    stream.write_all(&request).await?;
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

/// A conversation that the service leads over pipes of the client's: see [`attach_pipes`].
#[derive(Debug)]
pub struct AttachedPipes {
    stream: BlockingStream,
    received: Vec<u8>,
}

/// Hands two pipes to the service: it reads lines from `input` and answers them on `output`, with
/// processes that it may change between two lines.
///
/// The descriptors are made non-blocking. The conversation ends with the returned value. Starts no
/// runtime, which makes `settee attach` small and quick.
///
/// # Errors
/// As [`attach`]; no process is taken yet. The service may have no room for the descriptors.
pub fn attach_pipes(
    path: &Path,
    from: TakeFrom<'_>,
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
) -> Result<AttachedPipes, ClientError> {
    let mut stream = BlockingStream::connect(path)?;
    let mut arguments = from.arguments();
    for member in ["end", "descriptors"] {
        arguments[member] = true.into();
    }
    stream.write_all(&wire::request(0, "attach", &arguments)?)?;
    let mut received = Vec::new();
    let _: IgnoredAny = read_reply(&mut stream, &mut received)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let pipes = [input, output];
    control.push(SendAncillaryMessage::ScmRights(&pipes));
    let line = [io::IoSlice::new(b"\n")];
    sendmsg(&stream, &line, &mut control, SendFlags::NOSIGNAL).map_err(io::Error::from)?;
    let _: IgnoredAny = read_reply(&mut stream, &mut received)?;
    Ok(AttachedPipes { stream, received })
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
    pub fn wait(mut self) -> Option<AttachEnd> {
        // Nothing else comes over the connection now. Without the whole line it was cut off.
        let mut rest = self.stream.take(REPLY_BYTES_MAX as u64);
        let _ = rest.read_to_end(&mut self.received);
        let json = self.received.strip_prefix(&[END_MARK])?;
        serde_json::from_slice(json).ok()
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
