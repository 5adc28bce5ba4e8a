//! Caller: a client of the pool inside this program.
//!
//! SUMMARY   What a connection is for a client outside: it holds processes, and when it is dropped
//!           they come back.
//! SOURCE    couch_query_servers: get_os_process/1.
//! DIFFERS   A reset that fails is tried again a bounded number of times with a delay (D15).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::auth::rights::CallerLimits;
use crate::messages::proc_manager::{
    CallError, GetProc, GetProcError, GetResetConfig, Lease, ManagerAddress, Require, Want,
};
use crate::messages::process::{AnswerSender, AnswerTo, Prompt, PromptError, SetTimeout};
use crate::otp::pid::{Pid, PidGuard};
use crate::query_server::abilities::Ability;
use crate::query_server::language::LanguageName;
use crate::query_server::status::Holder;
use policy::pool::ReturnStatus;

/// How often a compound call takes another process when the one it got is not reset.
const RESET_TRIES: u32 = 3;

/// The delay before the second try; it doubles.
const RESET_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The ProcManager under its registered name.
#[derive(Clone)]
pub struct Manager(Rc<dyn Fn() -> ManagerAddress>);

impl Manager {
    /// Asks `address` for the manager in force, at first and whenever one is gone.
    pub fn new(address: impl Fn() -> ManagerAddress + 'static) -> Self {
        Self(Rc::new(address))
    }
}

/// A client inside this program. Its drop is its death.
pub struct Caller {
    manager: Manager,
    /// The manager's address as it was last seen: looking it up costs more than a call.
    address: RefCell<ManagerAddress>,
    client: Pid,
    /// Which pools it may use, where that is not any.
    limits: RefCell<Option<CallerLimits>>,
    /// Who it speaks for, for people.
    who: RefCell<Option<Arc<Holder>>>,
    /// None when it speaks in the name of a client that lives elsewhere. It ends without a word: what
    /// is still lent then was not given back.
    _pid_guard: Option<PidGuard>,
}

impl Caller {
    /// Makes a client of a manager.
    pub fn new(manager: impl Into<Manager>) -> Self {
        let pid_guard = PidGuard::new();
        let mut caller = Self::in_the_name_of(pid_guard.pid(), manager);
        caller._pid_guard = Some(pid_guard);
        caller
    }

    /// Makes a voice of a client whose life is somebody else's: a connection. What is taken
    /// through it comes back when that client ends.
    pub(crate) fn in_the_name_of(client: Pid, manager: impl Into<Manager>) -> Self {
        let manager = manager.into();
        let address = RefCell::new((manager.0)());
        Self {
            manager,
            address,
            client,
            limits: RefCell::default(),
            who: RefCell::default(),
            _pid_guard: None,
        }
    }

    /// Holds it to some pools from now on, or to none.
    pub(crate) fn hold_to(&self, limits: Option<CallerLimits>) {
        self.limits.replace(limits);
    }

    /// Says who it speaks for, for people.
    pub(crate) fn speak_for(&self, who: Option<Arc<Holder>>) {
        self.who.replace(who);
    }

    /// Returns the client in whose name it asks.
    pub fn client(&self) -> &Pid {
        &self.client
    }

    /// Takes a process (`get_proc`). `None` as timeout is the configured one.
    ///
    /// # Errors
    /// See [`GetProcError`].
    pub async fn get_proc(
        &self,
        want: Want,
        timeout: Option<Duration>,
    ) -> Result<Lease, GetProcError> {
        let request = GetProc {
            client: self.client.clone(),
            want,
            timeout,
            limits: self.limits.borrow().clone(),
            who: self.who.borrow().clone(),
        };
        let call = self.address.borrow().get_proc.send(request);
        match call.await {
            Ok(answer) => answer.map_err(|error| *error),
            Err(_) => Err(self.manager_is_gone()),
        }
    }

    /// Returns the arguments of `reset`.
    ///
    /// # Errors
    /// [`GetProcError::ShuttingDown`]: there is no manager now.
    pub async fn reset_config(&self) -> Result<Arc<str>, GetProcError> {
        let call = self.address.borrow().reset_config.send(GetResetConfig);
        call.await.map_err(|_| self.manager_is_gone())
    }

    /// A successor, if there is one, serves the next call.
    fn manager_is_gone(&self) -> GetProcError {
        self.address.replace((self.manager.0)());
        GetProcError::ShuttingDown
    }

    /// Requires that the query servers of a language can do something, before it is asked of one.
    /// They are probed if nobody knows yet; a request for a design document brings its own check.
    ///
    /// # Errors
    /// [`GetProcError::Unable`], or that there is no such language or no manager.
    pub async fn require(
        &self,
        language: &LanguageName,
        ability: Ability,
    ) -> Result<(), GetProcError> {
        let language = language.clone();
        let limits = self.limits.borrow().clone();
        let question = Require {
            language,
            ability,
            limits,
        };
        let call = self.address.borrow().require.send(question);
        call.await.unwrap_or_else(|_| Err(self.manager_is_gone()))
    }

    /// Takes a process and resets it.
    ///
    /// # Errors
    /// [`CallError::GetProc`] or, after a few processes, [`CallError::Reset`].
    pub async fn get_clean_proc(
        &self,
        want: &Want,
        timeout: Option<Duration>,
    ) -> Result<Lease, CallError> {
        let get = async || self.get_proc(want.clone(), timeout).await;
        let (lease, ()) = get_clean_proc(get, Lease::reset).await?;
        Ok(lease)
    }
}

/// Takes a process with `get` and resets it with `reset`. One that could not be reset goes back, and
/// after a delay another one is taken. Returns what `reset` returned, too.
///
/// # Errors
/// Those of `get`; [`CallError::Reset`] after the last try.
pub(crate) async fn get_clean_proc<T>(
    mut get: impl AsyncFnMut() -> Result<Lease, GetProcError>,
    mut reset: impl AsyncFnMut(&Lease) -> Result<T, PromptError>,
) -> Result<(Lease, T), CallError> {
    let mut tries_left = RESET_TRIES;
    let mut delay = RESET_RETRY_DELAY;
    loop {
        let lease = get().await?;
        let error = match reset(&lease).await {
            Ok(value) => return Ok((lease, value)),
            Err(error) => error,
        };
        lease.ret_proc(ReturnStatus::Fail).await;
        tries_left -= 1;
        if tries_left == 0 {
            return Err(CallError::Reset(error));
        }
        actix_rt::time::sleep(delay).await;
        delay *= 2;
    }
}

impl Lease {
    /// Sends a command and waits for its answer. `None` as timeout is the process's own.
    ///
    /// Several may be sent before the first is answered; the answers come in the same order.
    ///
    /// # Errors
    /// See [`PromptError`].
    pub async fn prompt(
        &self,
        line: Bytes,
        timeout: Option<Duration>,
    ) -> Result<Bytes, PromptError> {
        self.process.prompt(self.token, line, timeout).await
    }

    /// Sends several commands, with a line feed after each; their answers go to `answers`, as
    /// [`AnswerTo`] says.
    pub fn prompts(&self, lines: Bytes, timeout: Option<Duration>, answers: AnswerSender) {
        // One that is lost drops `answers`, which is how the process's end is told.
        self.process.prompts.do_send(Prompt {
            token: self.token,
            lines,
            timeout,
            verbatim: false,
            answer_to: AnswerTo::Several(answers),
        });
    }

    /// Sends `reset` with the configuration that came with the process, and requires `true`.
    ///
    /// # Errors
    /// See [`PromptError`]; another answer than `true` counts as a broken protocol.
    pub async fn reset(&self) -> Result<(), PromptError> {
        let answer = self.prompt(self.lender.reset.clone(), None).await?;
        if answer.trim_ascii() == b"true" {
            return Ok(());
        }
        Err(PromptError::protocol(
            "an answer to reset that is not true",
            &answer,
        ))
    }

    /// Sets the timeout of prompts that bring none. `false`: the process is not held any more.
    pub async fn set_timeout(&self, timeout: Duration) -> bool {
        let order = SetTimeout {
            token: self.token,
            timeout,
        };
        self.process.set_timeout.send(order).await.unwrap_or(false)
    }
}
