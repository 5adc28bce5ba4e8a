//! The result of trying a cell: which of its layers hold on this machine.
//!
//! PROMISES  Written once, by the ProcManager; pools with the same cell share it.

use std::sync::{Arc, OnceLock};

use super::status::SandboxStatus;
use child::cell::layers::Layers;
use child::cell::trial::CellTrial;

/// A cell and its trial's result.
#[derive(Debug)]
pub(crate) struct TriedCell {
    pub(crate) trial: CellTrial,
    found: OnceLock<Result<Layers, String>>,
}

impl TriedCell {
    pub(crate) fn new(trial: CellTrial) -> Arc<Self> {
        let found = OnceLock::new();
        Arc::new(Self { trial, found })
    }

    /// Sets the result; only the first call counts. Called by the ProcManager only.
    pub(crate) fn set_found(&self, found: Result<Layers, String>) {
        let _ = self.found.set(found);
    }

    /// Returns which layers hold, or why there is no cell; `None` before it is tried.
    pub(crate) fn found(&self) -> Option<&Result<Layers, String>> {
        self.found.get()
    }

    /// Returns the result for `status`.
    pub(crate) fn status(&self) -> SandboxStatus {
        let (layers, error) = match self.found() {
            None => (Layers::default(), None),
            Some(Ok(layers)) => (layers.clone(), None),
            Some(Err(error)) => (Layers::default(), Some(error.clone())),
        };
        let missing = layers.missing.into_iter();
        SandboxStatus {
            mode: self.trial.mode.to_string(),
            layers: layers.held.iter().map(ToString::to_string).collect(),
            missing: missing
                .map(|(layer, why)| (layer.to_string(), why))
                .collect(),
            error,
        }
    }
}
