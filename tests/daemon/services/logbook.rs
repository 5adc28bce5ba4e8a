//! A log kept in memory, for tests to search.

use std::sync::{Arc, Mutex};

use slog::{Drain, KV, OwnedKVList, Record, Serializer};

/// Keeps each record as one string: level, message, then `key=value`. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Logbook(Arc<Mutex<Vec<String>>>);

impl Logbook {
    /// Returns the records that contain `text`.
    pub fn with(&self, text: &str) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|r| r.contains(text)).cloned().collect()
    }
}

struct Line(String);

impl Serializer for Line {
    fn emit_arguments(&mut self, key: slog::Key, value: &std::fmt::Arguments<'_>) -> slog::Result {
        self.0.push_str(&format!(" {key}={value}"));
        Ok(())
    }
}

impl Drain for Logbook {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), slog::Never> {
        let mut line = Line(format!("{} {}", record.level(), record.msg()));
        let _ = record.kv().serialize(record, &mut line);
        let _ = values.serialize(record, &mut line);
        self.0.lock().unwrap().push(line.0);
        Ok(())
    }
}
