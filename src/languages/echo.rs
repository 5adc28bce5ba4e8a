//! `echo`: a query server that answers every prompt with the prompt, inside this program.
//!
//! SUMMARY   The smallest native language: an example for authors, and a probe of the pool that
//!           costs no child. Off unless `[native_query_servers] echo` is on.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use strum::VariantArray;

use crate::actors::language::{Language, StartContext};
use crate::actors::native_process::{NativeProcess, NativeServer};
use crate::messages::opener::StartError;
use crate::messages::process::ProcessRef;
use crate::query_server::abilities::{Abilities, Ability};
use crate::query_server::prompt::Command;

/// The language.
pub struct Echo;

impl Language for Echo {
    fn describe(&self) -> String {
        "native".into()
    }

    /// It takes everything, and runs nothing.
    fn abilities(&self) -> Abilities {
        Abilities::declared(Ability::VARIANTS)
    }

    /// It runs none.
    fn isolates_functions(&self) -> bool {
        true
    }

    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        async move { NativeProcess::start_with(EchoServer, context) }.boxed_local()
    }
}

struct EchoServer;

impl NativeServer for EchoServer {
    /// Resets and lessons are answered `true`: that much the protocol demands.
    fn prompt(&mut self, command: &str) -> String {
        if let Some(Command::Reset | Command::Teach) = Command::of(command.as_bytes()) {
            return "true".into();
        }
        command.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_a_reset_or_a_lesson_is_echoed() {
        let mut server = EchoServer;
        assert_eq!(server.prompt("[\"map_doc\", 1]"), "[\"map_doc\", 1]");
        assert_eq!(server.prompt("[\"reset\",{}]"), "true");
        assert_eq!(server.prompt("[\"ddoc\",\"new\",\"_design/a\",{}]"), "true");
    }
}
