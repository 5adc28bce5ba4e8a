//! The values that the store keeps for a document's job: pause, priority, and the last restart.

use std::sync::Arc;

use serde_json::{Value, json};

use policy::schedule::{Earlier, History, HistoryEntry, Level, Pause, WallTime};

/// The values set by users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The pause, if it is paused.
    pub paused: Option<Pause>,
    /// Its priority.
    pub priority: Level,
    /// When a user last restarted it, if several daemons share the store: its earlier past is ignored.
    pub restarted: Option<WallTime>,
}

impl Kept {
    /// Parses kept values; invalid text counts as empty.
    pub fn read(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let pause = |paused: &Value| {
            let by: Arc<str> = paused["by"].as_str()?.into();
            Some(Pause {
                by,
                since: WallTime::from_micros(paused["since"].as_u64()?),
            })
        };
        let priority = value["priority"]
            .as_i64()
            .and_then(|level| i8::try_from(level).ok());
        Self {
            paused: pause(&value["paused"]),
            priority: Level(priority.unwrap_or(0)),
            restarted: value["restarted"].as_u64().map(WallTime::from_micros),
        }
    }

    /// Returns a job's past since its last restart. Daemons' clocks must differ by less than it takes to notice a
    /// failed job and restart it.
    pub fn counts_of(&self, past: Earlier) -> Earlier {
        let Some(restarted) = self.restarted else {
            return past;
        };
        let later: Vec<HistoryEntry> = past
            .history
            .iter()
            .filter(|entry| entry.at > restarted)
            .cloned()
            .collect();
        if later.is_empty() {
            Earlier::default()
        } else {
            Earlier {
                history: History::of(later),
                not_before: past.not_before,
            }
        }
    }

    /// Returns its text; `None` if there is nothing to keep.
    pub fn text(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let paused = self.paused.as_ref();
        let paused =
            paused.map(|pause| json!({"by": &*pause.by, "since": pause.since.as_micros()}));
        let mut kept = json!({"paused": paused, "priority": self.priority.0});
        if let Some(restarted) = self.restarted {
            kept["restarted"] = restarted.as_micros().into();
        }
        Some(kept.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::schedule::HistoryEvent;

    #[test]
    fn settings_are_read_as_they_were_written() {
        let pause = Pause {
            by: "ann".into(),
            since: WallTime::from_micros(7),
        };
        for kept in [
            Kept {
                paused: Some(pause),
                priority: Level(-3),
                restarted: Some(WallTime::from_micros(9)),
            },
            Kept {
                paused: None,
                priority: Level(1),
                restarted: None,
            },
        ] {
            assert_eq!(Kept::read(&kept.text().unwrap()), kept);
        }
        assert_eq!(Kept::default().text(), None);
        assert_eq!(Kept::read("junk"), Kept::default());
    }

    #[test]
    fn only_the_past_since_the_last_restart_counts() {
        let past = |times: &[u64]| {
            let entry = |at: &u64| HistoryEntry {
                at: WallTime::from_micros(*at),
                what: HistoryEvent::Started,
            };
            Earlier {
                history: History::of(times.iter().map(entry)),
                not_before: WallTime::from_micros(50),
            }
        };
        let kept = |restarted: Option<u64>| Kept {
            restarted: restarted.map(WallTime::from_micros),
            ..Kept::default()
        };
        assert_eq!(kept(None).counts_of(past(&[9, 5])), past(&[9, 5]));
        assert_eq!(kept(Some(5)).counts_of(past(&[9, 5])), past(&[9]));
        assert_eq!(kept(Some(9)).counts_of(past(&[9, 5])), Earlier::default());
    }
}
