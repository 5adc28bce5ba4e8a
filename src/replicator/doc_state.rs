//! The states of documents and their jobs in lists.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use policy::counted::Class;
use policy::schedule::JobState;

/// The state of a document or its job in lists.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum DocState {
    /// It has no job yet, because of an error; it is retried.
    Error = 1,
    /// Its job waits for its turn.
    Pending = 2,
    /// Its job runs.
    Running = 3,
    /// Its job waits because it crashed.
    Crashing = 4,
    /// Its replication is done.
    Completed = 5,
    /// It will never run.
    Failed = 6,
    /// Its job must not run until it is resumed. Only in lists of jobs.
    Paused = 7,
    /// It has not been read yet, or its id is unknown. Also stands for unknown names, which later versions may send.
    #[serde(other)]
    Initializing = 0,
}

impl DocState {
    /// The states of documents, in the order in which lists show them.
    pub const OF_DOCS: [Self; 7] = [
        Self::Initializing,
        Self::Error,
        Self::Pending,
        Self::Running,
        Self::Crashing,
        Self::Completed,
        Self::Failed,
    ];

    /// The states of documents without a job that need attention.
    pub const TROUBLED: [Self; 2] = [Self::Error, Self::Failed];

    /// Returns its name, as users see and write it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the state with a name; `None` for any other text.
    pub fn of_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns the names of all states of jobs and documents, separated by commas.
    pub fn names() -> String {
        Self::OF_DOCS
            .into_iter()
            .chain([Self::Paused])
            .map(Self::name)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Returns the state of a job in lists of jobs; `None` for a state of documents without a job.
    pub fn of_job(self) -> Option<JobState> {
        JobState::ALL
            .into_iter()
            .find(|job| Self::from(*job) == self)
    }

    /// Returns the class that documents in this state are counted in.
    pub(super) const fn class(self) -> Class {
        match self {
            // Lists of documents do not distinguish them.
            Self::Paused => Self::Pending as Class,
            state => state as Class,
        }
    }

    /// Returns the state of a class; `None` for that of design documents.
    pub(super) fn of_class(class: Class) -> Option<Self> {
        Self::OF_DOCS
            .into_iter()
            .find(|state| state.class() == class)
    }

    /// Returns its rank in a list by trouble: the first need attention most.
    pub const fn trouble(self) -> u8 {
        match self {
            Self::Crashing => 0,
            Self::Error => 1,
            Self::Failed => 2,
            Self::Paused => 3,
            Self::Pending => 4,
            Self::Running => 5,
            Self::Initializing => 6,
            Self::Completed => 7,
        }
    }
}

impl From<JobState> for DocState {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Running => Self::Running,
            JobState::Pending => Self::Pending,
            JobState::Crashing => Self::Crashing,
            JobState::Paused => Self::Paused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_a_unique_name_also_in_json_and_each_document_state_a_class() {
        for state in DocState::OF_DOCS.into_iter().chain([DocState::Paused]) {
            let text = format!("\"{}\"", state.name());
            assert_eq!(serde_json::to_string(&state).unwrap(), text);
            assert_eq!(serde_json::from_str::<DocState>(&text).unwrap(), state);
            assert_eq!(DocState::of_name(state.name()), Some(state));
            assert!(
                state
                    .of_job()
                    .is_none_or(|job| DocState::from(job) == state)
            );
        }
        let classes = DocState::OF_DOCS.map(DocState::class);
        assert_eq!(classes, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(classes.map(DocState::of_class), DocState::OF_DOCS.map(Some));
        assert_eq!(
            serde_json::from_str::<DocState>("\"later\"").unwrap(),
            DocState::Initializing
        );
    }
}
