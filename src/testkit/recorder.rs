//! Recorder: notes every process that a language of a test pool starts.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::actors::language::{Language, StartContext};
use crate::messages::opener::StartError;
use crate::messages::process::ProcessRef;
use crate::query_server::abilities::Abilities;
use child::cell::terms::CellTerms;
use child::cell::trial::CellTrial;

/// The processes that were started so far.
#[derive(Clone, Default)]
pub(super) struct Started(Arc<Mutex<Vec<ProcessRef>>>);

impl Started {
    pub(super) fn all(&self) -> Vec<ProcessRef> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn add(&self, process: ProcessRef) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(process);
    }
}

/// A language as it is, but for the note of what it starts.
pub(super) struct Recorded {
    pub(super) language: Arc<dyn Language>,
    pub(super) started: Started,
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
            started.add(process.clone());
            Ok(process)
        }
        .boxed_local()
    }
}
