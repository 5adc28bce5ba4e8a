//! The state that an ending service gives an attached client, so that the next service can continue.
//!
//! SUMMARY   [`Resume`] has what the client has taught, and what it wrote that nobody has answered. The client hands
//!           it over with its pipes, and reads nothing in it.
//! PROMISES  It is sent between two lines only: no answer has begun, and no process has a line. What is read of it
//!           is what an honest client was sent; from any other it is no more than lines that it could have sent.
//! LIMITS    It has at most [`RESUME_BYTES_MAX`].

use bytes::Bytes;
use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use super::Relay;
use crate::client::RESUME_BYTES_MAX;
use crate::query_server::prompt::Command;
use crate::query_server::taught::Taught;

/// The state of a conversation between two lines.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::actors::client) struct Resume {
    /// The lines that the client's process accepted, as far as they still count.
    taught: Vec<String>,
    /// What the client has written beyond them, in base64: it may end inside of a character.
    unread: String,
}

impl Resume {
    /// Reads what came with the pipes; an empty line is a client's first service.
    pub(in crate::actors::client) fn read(line: &[u8]) -> serde_json::Result<Option<Self>> {
        if line.is_empty() {
            Ok(None)
        } else {
            serde_json::from_slice(line).map(Some)
        }
    }

    /// Returns what the client has taught, and what it has written beyond; `None`: that cannot be taken over.
    pub(super) fn restore(self, taught: &mut Taught) -> Option<Bytes> {
        for line in self.taught {
            let line = Bytes::from(line);
            taught.answered(Command::of(&line), &line, b"true");
        }
        let unread = BASE64.decode(self.unread.as_bytes()).ok()?;
        taught.is_portable().then(|| unread.into())
    }
}

impl Relay {
    /// Returns the state of the conversation; `None` if no other service can continue from it.
    pub(super) fn resume(&mut self) -> Option<Resume> {
        if self.sent > 0 || self.too_long || !self.taught.is_portable() {
            return None;
        }
        let mut unread = Vec::new();
        for unanswered in &self.unanswered {
            unread.extend_from_slice(&unanswered.line);
            unread.push(b'\n');
        }
        self.input.take_unread(&mut unread)?;
        let text = |line: &Bytes| String::from_utf8(line.to_vec()).ok();
        let taught: Option<Vec<String>> = self.taught.accepted().map(text).collect();
        let resume = Resume {
            taught: taught?,
            unread: BASE64.encode(&unread),
        };
        let bytes = serde_json::to_vec(&resume).ok()?.len();
        (bytes <= RESUME_BYTES_MAX).then_some(resume)
    }
}
