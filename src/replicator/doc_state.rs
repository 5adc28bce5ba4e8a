//! The states in which documents and their jobs are listed.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use policy::counted::Class;
use policy::schedule::JobState;

/// What a document is in lists, or its job.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum DocState {
    /// It has no job yet, because something went wrong; it is retried.
    Error = 1,
    /// Its job waits for its turn.
    Pending = 2,
    /// Its job runs.
    Running = 3,
    /// Its job waits because it crashed.
    Crashing = 4,
    /// Its replication is done.
    Completed = 5,
    /// It never will run.
    Failed = 6,
    /// Its job is not to run until it is resumed. In lists of jobs only.
    Paused = 7,
    /// Nobody has read it yet, or its id is not known. Also read for a name that a later version gives.
    #[serde(other)]
    Initializing = 0,
}

impl DocState {
    /// Those of documents, in the order in which they are listed.
    pub const OF_DOCS: [Self; 7] = [
        Self::Initializing,
        Self::Error,
        Self::Pending,
        Self::Running,
        Self::Crashing,
        Self::Completed,
        Self::Failed,
    ];

    /// Those of documents without a job that somebody has to look at.
    pub const TROUBLED: [Self; 2] = [Self::Error, Self::Failed];

    /// Returns its name, as users write it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the state of a name; none for any other text.
    pub fn of_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns the names of all states of jobs and documents, with commas between them.
    pub fn names() -> String {
        let all = Self::OF_DOCS.into_iter().chain([Self::Paused]);
        all.map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// Returns what a job is in lists of jobs; none for a state that only documents without a job have.
    pub fn of_job(self) -> Option<JobState> {
        let mut jobs = JobState::ALL.into_iter();
        jobs.find(|job| Self::from(*job) == self)
    }

    /// Returns the class that documents in this state are counted in.
    pub(super) const fn class(self) -> Class {
        match self {
            // Lists of documents do not tell them apart.
            Self::Paused => Self::Pending as Class,
            state => state as Class,
        }
    }

    /// Returns the state of a class; none for that of design documents.
    pub(super) fn of_class(class: Class) -> Option<Self> {
        let mut all = Self::OF_DOCS.into_iter();
        all.find(|state| state.class() == class)
    }

    /// Returns its place in a list by trouble: the first ones need somebody first.
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
    fn each_state_has_a_name_of_its_own_here_as_on_the_wire_and_a_class_if_it_is_of_documents() {
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
