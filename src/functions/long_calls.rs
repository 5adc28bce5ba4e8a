//! Calls with long arguments run on their own arbiter, so that writing their commands and reading their answers
//! delays no other call.
//!
//! PROMISES  Dropping a call cancels its work. If no thread can be started, the call runs on the pool's arbiter.

use std::cell::OnceCell;
use std::io;

use actix::Arbiter;
use actix::prelude::ArbiterHandle;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::{FunctionError, QueryServers};
use crate::messages::function::FunctionCall;

thread_local! {
    /// The arbiter of long calls to the pool on this thread.
    static ARBITER: OnceCell<ArbiterHandle> = const { OnceCell::new() };
}

/// Returns the arbiter of long calls, started for the first one.
fn arbiter() -> io::Result<ArbiterHandle> {
    ARBITER.with(|arbiter| match arbiter.get() {
        Some(arbiter) => Ok(arbiter.clone()),
        None => {
            let handle = Arbiter::try_new()?.handle();
            Ok(arbiter.get_or_init(|| handle).clone())
        }
    })
}

impl QueryServers {
    /// Like [`Self::perform`], for a call with long arguments.
    ///
    /// # Errors
    /// Those of [`Self::perform`].
    ///
    /// # Panics
    /// The call panicked.
    pub(super) async fn perform_aside(&self, call: FunctionCall) -> Result<Bytes, FunctionError> {
        let Ok(arbiter) = arbiter() else {
            return self.perform(call).await;
        };
        let (mut reply, value) = oneshot::channel();
        let (caller, sums) = (self.caller.elsewhere(), self.sums.clone());
        arbiter.spawn_fn(move || {
            let servers = Self {
                sums,
                ..Self::new(caller())
            };
            actix_rt::spawn(async move {
                tokio::select! {
                    biased;
                    value = servers.perform(call) => drop(reply.send(value)),
                    () = reply.closed() => {}
                }
            });
        });
        value.await.expect("CL-1: a call that panics is lost")
    }
}

#[cfg(test)]
mod tests {
    use slog::{Logger, o};

    use super::*;
    use crate::actors::proc_manager::{ManagerSettings, ProcManager};
    use crate::functions::caller::Caller;
    use crate::messages::function::{FunctionName, FunctionRequest};
    use crate::messages::proc_manager::{GetProcError, Want};
    use crate::otp::{RegisteredName, Stop};
    use crate::query_server::known_ddocs::KnownDdocs;
    use crate::query_server::language::LanguageName;
    use actix::{Actor, Addr};
    use child::Spawner;
    use test_support::{eventually, turns_beside};

    fn manager() -> Addr<ProcManager> {
        let log = Logger::root(slog::Discard, o!());
        let spawner = Spawner::start().unwrap();
        ProcManager::new(ManagerSettings::without_languages(), spawner, &log).start()
    }

    #[actix_rt::test]
    async fn a_caller_on_another_thread_asks_the_current_manager() {
        let first = manager();
        let name = RegisteredName::new(first.clone());
        let caller = Caller::new(name.clone());
        first.do_send(Stop { now: true });
        eventually("its end", async || !first.connected()).await;
        name.replace(manager());
        let elsewhere = caller.elsewhere()();
        let refused = elsewhere
            .get_proc(Want::language(LanguageName::new("none")), None)
            .await;
        let is_answered = matches!(refused, Err(GetProcError::UnknownQueryLanguage(_)));
        assert!(is_answered, "{:?}", refused.err());
    }

    #[actix_rt::test]
    async fn other_tasks_run_while_a_call_with_long_arguments_is_performed() {
        let servers = QueryServers::new(Caller::new(RegisteredName::new(manager())));
        let serve = async |length: usize| {
            let text = format!("\"{}\"", "x".repeat(length));
            let call = format!(r#"{{"funs":["function() {{}}"],"values":[{text}]}}"#);
            let request =
                FunctionRequest::parse(FunctionName::Finalize, &call, &KnownDdocs::default())
                    .unwrap();
            let (served, turns) = turns_beside(servers.serve(request)).await;
            assert_eq!(served.value.unwrap(), format!("[{text}]"));
            turns
        };
        assert_eq!(serve(1).await, 0);
        // This thread may be preempted while the other one works.
        for _ in 0..100 {
            if serve(1 << 20).await > 0 {
                return;
            }
        }
        panic!("no other task ran");
    }
}
