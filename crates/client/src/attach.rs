//! `attach`: a connection that becomes the input and output of one process.
//!
//! SUMMARY   [`attach`] copies lines over the connection; with [`attach_pipes`] the service itself reads and
//!           writes the client's pipes, as for `settee attach`.
//! PROMISES  No byte of the process is lost or added: the returned reader has everything after the reply. If the
//!           service shuts down between two lines of the client's pipes, it returns the state that its successor needs
//!           to continue ([`AttachEnd::resume`]).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::Taking;
use super::error::{ClientError, ServiceError};
use super::wire::{self, Borrowed};

/// Maximum length of the service's reply, in bytes.
const REPLY_BYTES_MAX: u64 = 1 << 20;

/// Maximum length of [`AttachEnd::resume`], in bytes of JSON.
pub const RESUME_BYTES_MAX: usize = 16 << 20;

/// Maximum length of a connection's last line, in bytes.
const END_BYTES_MAX: u64 = RESUME_BYTES_MAX as u64 + REPLY_BYTES_MAX;

/// A process with a connection as its input and output.
#[derive(Debug)]
pub struct Attached {
    /// The process, without `config`.
    pub proc: Borrowed,
    /// Its output.
    pub output: tokio::io::BufReader<OwnedReadHalf>,
    /// Its input. After its shutdown the outstanding answers follow, then the end.
    pub input: OwnedWriteHalf,
}

/// Attaches to a process of a language, a pool or a group on a separate connection.
///
/// # Errors
/// As [`super::Client::connect`] and [`super::Client::get_proc_from`].
pub async fn attach<'a>(
    path: impl AsRef<Path>,
    from: impl Into<Taking<'a>>,
) -> Result<Attached, ClientError> {
    let asked = request(from.into(), &[])?;
    let (output, mut input) = UnixStream::connect(path).await?.into_split();
    input.write_all(&asked).await?;
    let mut output = tokio::io::BufReader::new(output);
    let mut line = Vec::new();
    (&mut output)
        .take(REPLY_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .await?;
    let proc = wire::typed("attach", &value(&line)?)?;
    Ok(Attached {
        proc,
        output,
        input,
    })
}

/// The first byte of a connection's last line, before a JSON object with the outcome of the attached
/// process. No line of a query server begins with it.
pub const END_MARK: u8 = 0;

/// The outcome of the process.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AttachEnd {
    /// Whether it lived until returned to its pool.
    pub alive: bool,
    /// How it ended, in words.
    pub exit: Option<String>,
    /// Why there was no process at all.
    pub error: Option<Box<ServiceError>>,
    /// How long the client waits for an answer, in milliseconds, if the service knows.
    pub patience_ms: Option<u64>,
    /// Set if the service ended between two lines of the client's pipes: pass it to the successor with
    /// [`attach_pipes`].
    pub resume: Option<Value>,
}

/// A conversation of the service over the client's pipes: see [`attach_pipes`].
#[derive(Debug)]
pub struct AttachedPipes(BufReader<BlockingStream>);

/// Passes two pipes to the service: it reads lines from `input` and writes answers to `output`, with processes that
/// may change between two lines. Starts no runtime. `resume` is from the pipes' previous service
/// ([`AttachEnd::resume`]).
///
/// The descriptors are made non-blocking. The conversation ends when the returned value is dropped.
///
/// # Errors
/// As [`attach`], except those of taking a process, which is taken later ([`AttachEnd::error`]).
pub fn attach_pipes<'a>(
    path: &Path,
    from: impl Into<Taking<'a>>,
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    resume: Option<&Value>,
) -> Result<AttachedPipes, ClientError> {
    let mut stream = BufReader::new(BlockingStream::connect(path)?);
    stream
        .get_ref()
        .write_all(&request(from.into(), &["end", "descriptors"])?)?;
    read_reply(&mut stream)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let pipes = [input, output];
    control.push(SendAncillaryMessage::ScmRights(&pipes));
    let line = resume.map_or_else(String::new, Value::to_string) + "\n";
    let whole = [io::IoSlice::new(line.as_bytes())];
    let sent = sendmsg(stream.get_ref(), &whole, &mut control, SendFlags::NOSIGNAL)
        .map_err(io::Error::from)?;
    stream.get_ref().write_all(&line.as_bytes()[sent..])?;
    read_reply(&mut stream)?;
    Ok(AttachedPipes(stream))
}

impl AttachedPipes {
    /// Waits for the end. `None`: the service ended without a report.
    pub fn wait(self) -> Option<AttachEnd> {
        let mut line = Vec::new();
        // If the connection breaks, what arrived before is used.
        let _ = self.0.take(END_BYTES_MAX).read_to_end(&mut line);
        serde_json::from_slice(line.strip_prefix(&[END_MARK])?).ok()
    }
}

/// Builds the request, with these flags as `true`.
fn request(from: Taking<'_>, flags: &[&str]) -> Result<Vec<u8>, ClientError> {
    let mut arguments = from.arguments();
    for flag in flags {
        arguments[*flag] = true.into();
    }
    wire::request(0, "attach", &arguments)
}

fn read_reply(stream: &mut BufReader<BlockingStream>) -> Result<Box<RawValue>, ClientError> {
    let mut line = Vec::new();
    stream.take(REPLY_BYTES_MAX).read_until(b'\n', &mut line)?;
    value(&line)
}

/// Returns the value of a reply.
fn value(line: &[u8]) -> Result<Box<RawValue>, ClientError> {
    if !line.ends_with(b"\n") {
        return Err(match line.len() as u64 {
            REPLY_BYTES_MAX => ClientError::Protocol("a reply without an end".into()),
            _ => ClientError::Closed,
        });
    }
    wire::reply(line)?.1
}
