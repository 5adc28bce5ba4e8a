//! The query servers that this program runs [`conform`]'s cases against.
//!
//! SUMMARY   [`Target`] is what is tested: a command, or a language of this program. [`Peer`] is one of its query
//!           servers, prompted line by line.
//! CALLED    By `settee conform` and by tests. Needs an actor system on its thread.
//! LIMITS    A lent process has no exit status, and no case can send it a line without a line feed.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use slog::{Discard, Logger, o};
use strum::VariantArray;

use crate::actors::language::Language;
use crate::functions::caller::Caller;
use crate::messages::proc_manager::{Lease, Want};
use crate::messages::process::{Answer, PromptError, commands};
use crate::query_server::abilities::{Abilities, Ability};
use crate::query_server::language::LanguageName;
use crate::query_server::line::{Line, classify};
use child::line_buffer::LineTooLong;
use child::unpooled_child::UnpooledChild;
use child::{CommandSpec, Exit, Spawner};
use conform::peer;
use conform::play::LINE_BYTES_MAX;
use policy::pool::ReturnStatus;

/// What is tested.
#[derive(Clone)]
pub enum Target {
    /// A command: each case starts a child.
    Command(CommandSpec),
    /// A language of this program: each case takes a process from its pool.
    Language {
        /// Its name.
        name: LanguageName,
        /// The language.
        language: Arc<dyn Language>,
        /// A client of the pool.
        caller: Rc<Caller>,
    },
}

impl peer::Target for Target {
    type Peer = Peer;

    async fn start(&self, spawner: &Spawner, time: Duration) -> Result<Peer, String> {
        match self {
            Self::Command(command) => Ok(Peer::Child(
                UnpooledChild::start(spawner, command.clone(), LINE_BYTES_MAX)
                    .await
                    .map_err(|error| error.to_string())?,
            )),
            Self::Language { name, caller, .. } => {
                let lease = caller
                    .get_proc(Want::language(name.clone()), Some(time))
                    .await
                    .map_err(|error| error.to_string())?;
                Ok(Peer::Process(LentProcess {
                    lease,
                    time: time * 2,
                    answers: VecDeque::new(),
                    lines: VecDeque::new(),
                    is_closed: false,
                    ended: None,
                }))
            }
        }
    }
}

impl Target {
    /// Runs the daemon's own probes, each for at most `time`, and returns the abilities that they found.
    pub async fn abilities(&self, language: &str, spawner: &Spawner, time: Duration) -> Abilities {
        let abilities = match self {
            Self::Command(command) => Abilities::to_probe(command.clone()),
            Self::Language { language, .. } => language.abilities(),
        };
        let language = LanguageName::new(language);
        let log = Logger::root(Discard, o!());
        for ability in Ability::VARIANTS {
            abilities
                .probe(*ability, &language, spawner, time, &log)
                .await;
        }
        abilities
    }
}

/// One query server.
pub enum Peer {
    /// A child of the command.
    Child(UnpooledChild),
    /// A process of the pool.
    Process(LentProcess),
}

impl peer::Peer for Peer {
    fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Child(child) => child.send(bytes.to_vec()),
            Self::Process(process) => process.send(bytes),
        }
    }

    fn close(&mut self) {
        match self {
            Self::Child(child) => child.close(),
            Self::Process(process) => process.is_closed = true,
        }
    }

    async fn line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        match self {
            Self::Child(child) => child.line().await,
            Self::Process(process) => Ok(process.line().await),
        }
    }

    fn is_error(&self, line: &str) -> bool {
        matches!(
            classify(Bytes::copy_from_slice(line.as_bytes())),
            Line::Error(_) | Line::Fatal(_)
        )
    }

    async fn exit_report(&mut self) -> String {
        match self {
            Self::Child(child) => child.exit_report().await.report,
            Self::Process(process) => process.exit_report(),
        }
    }

    async fn end(self) -> Option<Exit> {
        match self {
            Self::Child(mut child) => Some(child.end().await),
            Self::Process(process) => {
                process.lease.ret_proc(ReturnStatus::Fail).await;
                None
            }
        }
    }
}

/// A process of the pool.
pub struct LentProcess {
    lease: Lease,
    /// How long an answer may take: longer than the case, so that the case's deadline detects silence.
    time: Duration,
    /// Pending answers, oldest first.
    answers: VecDeque<Answer>,
    /// The rest of the latest answer's lines.
    lines: VecDeque<Bytes>,
    is_closed: bool,
    ended: Option<PromptError>,
}

impl LentProcess {
    fn send(&mut self, bytes: &[u8]) {
        for line in commands(&Bytes::copy_from_slice(bytes)) {
            let (process, token) = (&self.lease.process, self.lease.token);
            self.answers
                .push_back(process.prompt_verbatim(token, line, Some(self.time)));
        }
    }

    async fn line(&mut self) -> Option<Bytes> {
        while self.lines.is_empty() && self.ended.is_none() {
            if self.answers.is_empty() && !self.is_closed {
                // Detects whether the process has ended.
                self.send(b"[\"reset\"]");
            }
            match self.answers.pop_front()?.await {
                Ok(printed) => self.lines.extend(commands(&printed)),
                Err(error) => self.ended = Some(error),
            }
        }
        self.lines.pop_front()
    }

    fn exit_report(&self) -> String {
        match &self.ended {
            Some(PromptError::Exited(exit_report)) => exit_report.told(),
            Some(error) => format!("was ended: {error}"),
            None => "ended".into(),
        }
    }
}
