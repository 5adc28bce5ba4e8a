//! Recorder: records every process that a test pool's language starts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use child::cell::terms::CellTerms;
use child::cell::trial::CellTrial;
use settee::actors::language::{Language, StartContext};
use settee::messages::opener::StartError;
use settee::messages::process::ProcessRef;
use settee::query_server::abilities::Abilities;

/// The processes started so far.
#[derive(Clone, Default)]
pub(crate) struct Started(Arc<Mutex<Vec<ProcessRef>>>);

impl Started {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<ProcessRef>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A language that records the processes it starts.
pub(crate) struct Recorded {
    pub(crate) language: Arc<dyn Language>,
    pub(crate) started: Started,
}

impl Language for Recorded {
    fn describe(&self) -> String {
        self.language.describe()
    }

    fn abilities(&self) -> Abilities {
        self.language.abilities()
    }

    fn isolates_functions(&self) -> bool {
        self.language.isolates_functions()
    }

    fn can_forget(&self) -> bool {
        self.language.can_forget()
    }

    fn cell_trial(&self, terms: &CellTerms) -> Option<CellTrial> {
        self.language.cell_trial(terms)
    }

    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        let started = self.started.clone();
        let start = self.language.start(context);
        async move {
            let process = start.await?;
            started.lock().push(process.clone());
            Ok(process)
        }
        .boxed_local()
    }
}
