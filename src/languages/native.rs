//! A language inside this program, made from a factory of query servers.

use futures_util::future::LocalBoxFuture;

use crate::actors::language::{Language, StartContext};
use crate::actors::native_process::{NativeProcess, NativeServer};
use crate::messages::opener::StartError;
use crate::messages::process::ProcessRef;
use crate::query_server::NATIVE;
use crate::query_server::abilities::{Abilities, Ability};

/// A language whose query servers run in this program, each on its own thread.
pub struct NativeLanguage<F> {
    make: F,
    /// `None`: nothing is refused.
    abilities: Option<Vec<Ability>>,
    isolates_functions: bool,
}

impl<F, S> NativeLanguage<F>
where
    F: Fn(&StartContext) -> S + Send + Sync,
    S: NativeServer + 'static,
{
    /// `make` makes a query server for each process; one client at a time uses it.
    pub fn new(make: F) -> Self {
        Self {
            make,
            abilities: None,
            isolates_functions: false,
        }
    }

    /// Declares its abilities: others are refused without asking a process.
    #[must_use]
    pub fn with_abilities(mut self, present: &[Ability]) -> Self {
        self.abilities = Some(present.to_vec());
        self
    }

    /// Declares that no function can see or change what another function of the same process does.
    #[must_use]
    pub fn isolating_functions(mut self) -> Self {
        self.isolates_functions = true;
        self
    }
}

impl<F, S> Language for NativeLanguage<F>
where
    F: Fn(&StartContext) -> S + Send + Sync,
    S: NativeServer + 'static,
{
    fn describe(&self) -> String {
        NATIVE.into()
    }

    fn abilities(&self) -> Abilities {
        self.abilities
            .as_deref()
            .map_or_else(Abilities::undeclared, Abilities::declared)
    }

    fn isolates_functions(&self) -> bool {
        self.isolates_functions
    }

    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        let server = (self.make)(&context);
        Box::pin(async move { NativeProcess::start_with(server, context) })
    }
}
