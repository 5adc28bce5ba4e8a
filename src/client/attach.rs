//! `attach`: a connection that becomes the input and output of one process.
//!
//! SUMMARY   [`attach`] for tokio programs, [`attach_blocking`] for others: the latter starts no
//!           runtime, which is what makes `settee attach` small and quick.
//! PROMISES  Not a byte of the process's is lost or added: what came behind the reply is still to be
//!           read from the returned reader.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::TakeFrom;
use super::attach_end::{AttachEnd, EndLine};
use super::error::ClientError;
use super::wire::{self, Borrowed};

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 8 * 1024;

/// The longest reply to `attach`, in bytes.
const REPLY_BYTES_MAX: u64 = 1 << 20;

/// A process whose input and output are a connection.
#[derive(Debug)]
pub struct Attached {
    /// The process; it carries no `config`.
    pub proc: Borrowed,
    /// What it prints.
    pub output: tokio::io::BufReader<OwnedReadHalf>,
    /// What it reads. Shut it down to have the outstanding answers and then the end.
    pub input: OwnedWriteHalf,
}

/// Attaches to a process of a language, a pool or a group on a connection of its own.
///
/// # Errors
/// As [`super::Client::connect`] and [`super::Client::get_proc_from`].
pub async fn attach(path: impl AsRef<Path>, from: TakeFrom<'_>) -> Result<Attached, ClientError> {
    let (output, mut input) = UnixStream::connect(path).await?.into_split();
    input.write_all(&request(from, &[])?).await?;
    let mut output = tokio::io::BufReader::new(output);
    let mut line = Vec::new();
    let mut reply = (&mut output).take(REPLY_BYTES_MAX);
    reply.read_until(b'\n', &mut line).await?;
    let proc = wire::typed("attach", &value(&line)?)?;
    Ok(Attached {
        proc,
        output,
        input,
    })
}

/// A process at the other end of a connection without a runtime.
#[derive(Debug)]
pub struct Tunnel {
    /// The connection: what is written to it, the process reads; what it prints is to be read.
    pub stream: BufReader<BlockingStream>,
    /// The process; it carries no `config`.
    pub proc: Borrowed,
    /// Whether the last line tells what became of the process: see [`super::EndLine`]. A service of
    /// an earlier version does not know of that.
    pub tells_end: bool,
}

/// What the service will do. One of an earlier version does not say.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Agreed {
    /// It tells what became of the process.
    end: bool,
    /// It takes pipes.
    descriptors: bool,
}

/// Attaches without a runtime, and asks to be told what becomes of the process.
///
/// # Errors
/// As [`attach`].
pub fn attach_blocking(path: &Path, from: TakeFrom<'_>) -> Result<Tunnel, ClientError> {
    let mut stream = connect(path)?;
    stream.get_ref().write_all(&request(from, &["end"])?)?;
    let reply = read_reply(&mut stream)?;
    let agreed: Agreed = wire::typed("attach", &reply)?;
    Ok(Tunnel {
        stream,
        proc: wire::typed("attach", &reply)?,
        tells_end: agreed.end,
    })
}

/// A conversation that the service leads over pipes of the client's: see [`attach_pipes`].
#[derive(Debug)]
pub struct AttachedPipes(BufReader<BlockingStream>);

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
    let mut stream = connect(path)?;
    let asked = request(from, &["end", "descriptors"])?;
    stream.get_ref().write_all(&asked)?;
    let agreed: Agreed = wire::typed("attach", &read_reply(&mut stream)?)?;
    if !agreed.descriptors {
        return Ok(None);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let pipes = [input, output];
    control.push(SendAncillaryMessage::ScmRights(&pipes));
    let line = [io::IoSlice::new(b"\n")];
    let flags = SendFlags::NOSIGNAL;
    sendmsg(stream.get_ref(), &line, &mut control, flags).map_err(io::Error::from)?;
    match read_reply(&mut stream) {
        Ok(_) => Ok(Some(AttachedPipes(stream))),
        // It had no room for the descriptors.
        Err(ClientError::Service(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl AttachedPipes {
    /// Waits for the end. `None`: the service ended without a word.
    pub fn wait(mut self) -> Option<AttachEnd> {
        let ignore = |_: &[u8]| Ok::<(), Infallible>(());
        let mut end = EndLine::default();
        let mut chunk = [0; READ_BYTES];
        loop {
            match self.0.read(&mut chunk) {
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

fn connect(path: &Path) -> io::Result<BufReader<BlockingStream>> {
    let stream = BlockingStream::connect(path)?;
    Ok(BufReader::with_capacity(READ_BYTES, stream))
}

/// Makes the request, with the arguments that are `true`.
fn request(from: TakeFrom<'_>, flags: &[&str]) -> Result<Vec<u8>, ClientError> {
    let mut arguments = from.arguments();
    for flag in flags {
        arguments[*flag] = true.into();
    }
    wire::request(0, "attach", &arguments)
}

fn read_reply(stream: &mut BufReader<BlockingStream>) -> Result<Box<RawValue>, ClientError> {
    let mut line = Vec::new();
    let mut reply = stream.take(REPLY_BYTES_MAX);
    reply.read_until(b'\n', &mut line)?;
    value(&line)
}

/// Returns the value that a reply brings.
fn value(line: &[u8]) -> Result<Box<RawValue>, ClientError> {
    if !line.ends_with(b"\n") {
        return Err(match line.len() as u64 {
            REPLY_BYTES_MAX => ClientError::Protocol("a reply without an end".into()),
            _ => ClientError::Closed,
        });
    }
    wire::reply(line)?.1
}
