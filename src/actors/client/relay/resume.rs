//! The state that an ending service gives an attached client, for the next service to continue from.
//!
//! SUMMARY   [`Resume`] has the lines that taught the client's process, and the client's unanswered input. The client
//!           passes it with its pipes to the next service, without parsing it.
//! PROMISES  It is sent only between two lines: no answer has begun, and no process works on a line. A client that
//!           alters it gains nothing: it could have sent the same lines.
//! LIMITS    At most [`RESUME_BYTES_MAX`].

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
    /// The lines that the client's process accepted and that are still in effect.
    taught: Vec<String>,
    /// The client's further input, in base64: it may end within a character.
    unread: String,
}

impl Resume {
    /// Parses the line sent with the pipes; it is empty for the client's first service.
    pub(in crate::actors::client) fn read(line: &[u8]) -> serde_json::Result<Option<Self>> {
        if line.is_empty() {
            Ok(None)
        } else {
            serde_json::from_slice(line).map(Some)
        }
    }

    /// Adds the taught lines to `taught`, and returns the further input; `None` if they cannot be taken over.
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
