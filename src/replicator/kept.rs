//! What the store keeps of a document's job: whether it is paused, and its priority.

use std::sync::Arc;

use serde_json::{Value, json};

use policy::schedule::{Level, Pause, WallTime};

/// What was set by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Who paused it, if somebody did.
    pub paused: Option<Pause>,
    /// Its priority.
    pub priority: Level,
}

impl Kept {
    /// Reads it; text that cannot be read counts as nothing.
    pub fn read(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let pause = |paused: &Value| {
            let by: Arc<str> = paused["by"].as_str()?.into();
            let since = WallTime::from_micros(paused["since"].as_u64()?);
            Some(Pause { by, since })
        };
        let priority = value["priority"]
            .as_i64()
            .and_then(|level| i8::try_from(level).ok());
        Self {
            paused: pause(&value["paused"]),
            priority: Level(priority.unwrap_or(0)),
        }
    }

    /// Returns its text; none where there is nothing to keep.
    pub fn text(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let paused = self.paused.as_ref();
        let paused =
            paused.map(|pause| json!({"by": &*pause.by, "since": pause.since.as_micros()}));
        Some(json!({"paused": paused, "priority": self.priority.0}).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_reads_as_it_was_written() {
        let pause = Pause {
            by: "ann".into(),
            since: WallTime::from_micros(7),
        };
        for kept in [
            Kept {
                paused: Some(pause),
                priority: Level(-3),
            },
            Kept {
                paused: None,
                priority: Level(1),
            },
        ] {
            assert_eq!(Kept::read(&kept.text().unwrap()), kept);
        }
        assert_eq!(Kept::default().text(), None);
        assert_eq!(Kept::read("junk"), Kept::default());
    }
}
