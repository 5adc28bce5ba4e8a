//! `query`: Mango, inside this program.
//!
//! SUMMARY   The language of index definitions and of selectors that validate documents. Always
//!           there: no configuration switches it off or puts a command in its place.
//! SOURCE    CouchDB's mango_native_proc.

mod server;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use strum::VariantArray;

use crate::actors::language::{Language, StartContext};
use crate::actors::native_process::NativeProcess;
use crate::messages::opener::StartError;
use crate::messages::process::ProcessRef;
use crate::query_server::abilities::{Abilities, Ability};

pub use server::QueryServer;

/// The language.
pub struct Query;

impl Language for Query {
    fn describe(&self) -> String {
        "native".into()
    }

    /// All but libraries: an index definition has nothing to require.
    fn abilities(&self) -> Abilities {
        let present = Ability::VARIANTS.iter().copied();
        let present: Vec<Ability> = present.filter(|it| *it != Ability::AddLib).collect();
        Abilities::declared(&present)
    }

    /// Selectors and index definitions only look at the document.
    fn isolates_functions(&self) -> bool {
        true
    }

    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        let server = QueryServer::new(context.log.clone(), context.clock);
        async move { NativeProcess::start_with(server, context) }.boxed_local()
    }
}
