//! FakeLanguage: processes without a child or a thread, for tests under paused time.
//!
//! SUMMARY   A fake process answers from a closure, on the arbiter of the test, after whatever time
//!           the closure says. With `tokio::time::pause` that time is simulated and costs nothing.
//! PROMISES  To the manager a fake is a process like any other: it has a token, deadlines, an order
//!           of answers, an idle time and a life.
//! LIMITS    Never mix fakes under paused time with real children: simulated time runs on while
//!           a child works.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix::prelude::*;
use actix_rt::time::{sleep, timeout};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::actors::answerer::{Answerer, each};
use crate::actors::language::{Language, StartContext};
use crate::actors::process_duties::{ProcessDuties, set_timeout, watch_idleness};
use crate::messages::opener::StartError;
use crate::messages::process::{
    Fault, Obituary, ProcShared, ProcessRef, Prompt, PromptError, Prompts, SetTimeout, StopProc,
};
use crate::otp::deferred::{Deferred, deferred};
use crate::otp::lifeline::{Down, ExitReason, Lifeline, Watch};
use crate::query_server::prompt::{Work, kind_and_class_of};

/// What becomes of one start of a fake process.
#[derive(Clone, Debug)]
pub enum FakeStart {
    /// It runs at once.
    Runs,
    /// It runs after this time.
    RunsAfter(Duration),
    /// It fails with this reason.
    Fails(String),
    /// It never gets anywhere.
    Hangs,
}

/// What a fake process does about one prompt.
#[derive(Clone, Debug)]
pub enum FakeAnswer {
    /// Answers this at once.
    Now(String),
    /// Answers this after that time.
    After(Duration, String),
    /// Never answers.
    Never,
    /// Ends.
    Exits,
}

type Starts = dyn Fn(u32) -> FakeStart + Send + Sync;
type Answers = dyn Fn(&str) -> FakeAnswer + Send + Sync;

/// A language whose processes are fakes.
#[derive(Clone)]
pub struct FakeLanguage {
    starts: Arc<Starts>,
    answers: Arc<Answers>,
    stop_delay: Duration,
    count: Arc<AtomicU32>,
}

impl Default for FakeLanguage {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeLanguage {
    /// Starts at once, answers `true` to every prompt, stops at once.
    pub fn new() -> Self {
        Self {
            starts: Arc::new(|_| FakeStart::Runs),
            answers: Arc::new(|_| FakeAnswer::Now("true".into())),
            stop_delay: Duration::ZERO,
            count: Arc::default(),
        }
    }

    /// Says what becomes of each start; the first is number 1.
    #[must_use]
    pub fn starts(mut self, starts: impl Fn(u32) -> FakeStart + Send + Sync + 'static) -> Self {
        self.starts = Arc::new(starts);
        self
    }

    /// Says what its processes do about each prompt.
    #[must_use]
    pub fn answers(mut self, answers: impl Fn(&str) -> FakeAnswer + Send + Sync + 'static) -> Self {
        self.answers = Arc::new(answers);
        self
    }

    /// Lets a process take this time to end once it is told to.
    #[must_use]
    pub fn stop_delay(mut self, time: Duration) -> Self {
        self.stop_delay = time;
        self
    }

    /// Returns how often a process was started, or tried to be.
    pub fn start_count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Language for FakeLanguage {
    fn describe(&self) -> String {
        "fake".into()
    }

    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let start = (self.starts)(number);
        let language = self.clone();
        async move {
            match start {
                FakeStart::Runs => {}
                FakeStart::RunsAfter(time) => sleep(time).await,
                FakeStart::Hangs => return std::future::pending().await,
                FakeStart::Fails(reason) => {
                    let fault = Fault::QueryServer;
                    return Err(StartError { reason, fault });
                }
            }
            Ok(FakeProcess::start_with(language, context))
        }
        .boxed_local()
    }
}

struct Pending {
    prompt: Prompt,
    answerer: Answerer,
}

/// A process that is a closure.
struct FakeProcess {
    language: FakeLanguage,
    context: StartContext,
    shared: Arc<ProcShared>,
    prompt_timeout: Duration,
    /// Unanswered prompts, oldest first.
    pending: VecDeque<Pending>,
    /// The watch on the manager, with which it ends.
    owner: Option<Watch>,
    lifeline: Lifeline,
}

impl FakeProcess {
    fn start_with(language: FakeLanguage, context: StartContext) -> ProcessRef {
        let shared = ProcShared::new(None);
        shared.note_activity(context.clock.now());
        let lifeline = Lifeline::new();
        let pulse = lifeline.pulse();
        let address = Self {
            language,
            prompt_timeout: context.prompt_timeout,
            context,
            shared: Arc::clone(&shared),
            pending: VecDeque::new(),
            owner: None,
            lifeline,
        }
        .start();
        ProcessRef {
            prompt: address.clone().recipient(),
            prompts: address.clone().recipient(),
            set_timeout: address.clone().recipient(),
            stop: address.recipient(),
            pulse,
            shared,
        }
    }

    /// Works on the oldest prompt.
    fn work(&mut self, ctx: &mut Context<Self>) {
        let Some(head) = self.pending.front() else {
            return;
        };
        let limit = head.prompt.timeout.unwrap_or(self.prompt_timeout);
        let text = String::from_utf8_lossy(&head.prompt.line);
        let answer = (self.language.answers)(&text);
        let work = kind_and_class_of(&head.prompt.line)
            .map_or(Work::Other, |(kind, class)| Work::of(kind, class));
        let answer = timeout(limit, async move {
            match answer {
                FakeAnswer::Now(text) => Ok(Bytes::from(text)),
                FakeAnswer::After(time, text) => {
                    sleep(time).await;
                    Ok(Bytes::from(text))
                }
                FakeAnswer::Never => std::future::pending().await,
                FakeAnswer::Exits => Err(PromptError::Exited(Obituary::default())),
            }
        });
        ctx.spawn(answer.into_actor(self).map(move |answer, process, ctx| {
            let answer = answer.unwrap_or(Err(PromptError::Timeout {
                timeout: limit,
                work,
            }));
            process.answered(answer, ctx);
        }));
    }

    fn answered(&mut self, answer: Result<Bytes, PromptError>, ctx: &mut Context<Self>) {
        let Some(head) = self.pending.pop_front() else {
            return;
        };
        self.shared.prompt_answered();
        let failure = answer.as_ref().err().map(ToString::to_string);
        head.answerer.send(answer);
        match failure {
            None => self.work(ctx),
            Some(reason) => self.end(ExitReason::Failed(reason), ctx),
        }
    }

    fn end(&mut self, reason: ExitReason, ctx: &mut Context<Self>) {
        for prompt in self.pending.drain(..) {
            self.shared.prompt_answered();
            let gone = Err(PromptError::Exited(Obituary::default()));
            prompt.answerer.send(gone);
        }
        self.lifeline.ending(reason);
        ctx.stop();
    }
}

impl Actor for FakeProcess {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.owner = Some(self.context.owner.watch(ctx.address().recipient()));
        watch_idleness(self, ctx);
    }
}

impl FakeProcess {
    fn take(&mut self, prompt: Prompt, answerer: Answerer, ctx: &mut Context<Self>) {
        if !self.shared.is_assigned_to(prompt.token) {
            return answerer.send(Err(PromptError::NotHolder));
        }
        self.shared.prompt_sent();
        self.shared.note_activity(self.context.clock.now());
        self.pending.push_back(Pending { prompt, answerer });
        if self.pending.len() == 1 {
            self.work(ctx);
        }
    }
}

impl Handler<Prompt> for FakeProcess {
    type Result = Deferred<Result<Bytes, PromptError>>;

    fn handle(&mut self, prompt: Prompt, ctx: &mut Self::Context) -> Self::Result {
        let (answer, replier) = deferred();
        self.take(prompt, Answerer::One(replier), ctx);
        answer
    }
}

impl Handler<Prompts> for FakeProcess {
    type Result = ();

    fn handle(&mut self, prompts: Prompts, ctx: &mut Self::Context) {
        each(&prompts).for_each(|(prompt, answerer)| self.take(prompt, answerer, ctx));
    }
}

impl ProcessDuties for FakeProcess {
    fn start_context(&self) -> &StartContext {
        &self.context
    }

    fn shared(&self) -> &ProcShared {
        &self.shared
    }

    fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    fn prompt_timeout(&mut self) -> &mut Duration {
        &mut self.prompt_timeout
    }
}

impl Handler<SetTimeout> for FakeProcess {
    type Result = bool;

    fn handle(&mut self, msg: SetTimeout, _: &mut Self::Context) -> bool {
        set_timeout(self, &msg)
    }
}

impl Handler<StopProc> for FakeProcess {
    type Result = ();

    fn handle(&mut self, _: StopProc, ctx: &mut Self::Context) {
        ctx.run_later(self.language.stop_delay, |process, ctx| {
            process.end(ExitReason::Shutdown, ctx);
        });
    }
}

impl Handler<Down> for FakeProcess {
    type Result = ();

    fn handle(&mut self, _: Down, ctx: &mut Self::Context) {
        self.end(ExitReason::Shutdown, ctx);
    }
}
