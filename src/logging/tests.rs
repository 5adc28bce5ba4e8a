//! Tests of [`super`]: format, level, overflow.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use super::*;

/// Captures the output for the test.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no writer panicked")
    }

    fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.bytes())
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn config(level: LogLevel, format: LogFormat) -> Log {
    Log {
        level,
        format,
        ..crate::config::Config::default().log
    }
}

#[test]
fn without_a_terminal_records_are_json_lines_with_fixed_first_keys() {
    let sink = Sink::default();
    let logging = Logging::to_writer(
        &config(LogLevel::Info, LogFormat::Auto),
        false,
        sink.clone(),
    );
    let log = logging.logger.new(o!("pool" => "javascript"));
    slog::warn!(log, "pool reached its process limit"; "limit" => 100);
    drop(logging);
    let lines = sink.lines();
    assert_eq!(lines.len(), 1);
    let record: Value = serde_json::from_str(&lines[0]).expect("a line is JSON");
    let keys: Vec<_> = record.as_object().expect("an object").keys().collect();
    assert_eq!(keys[..3], ["ts", "level", "msg"], "{}", lines[0]);
    assert_eq!(record["level"], "warning");
    assert_eq!(record["msg"], "pool reached its process limit");
    assert_eq!(
        (&record["pool"], &record["limit"]),
        (&"javascript".into(), &100.into())
    );
}

#[test]
fn long_strings_of_a_record_are_truncated_and_other_values_kept() {
    let sink = Sink::default();
    let format = config(LogLevel::Info, LogFormat::Json);
    let logging = Logging::to_writer(&format, false, sink.clone());
    let long = "é".repeat(bounded::RECORD_BYTES_MAX);
    slog::info!(logging.logger, "audit"; "count" => 7, "user" => None::<&str>, "what" => "short",
                "asked" => &long, "before" => format_args!("{long}"));
    drop(logging);
    let line = sink.lines().concat();
    assert!(
        line.len() < bounded::RECORD_BYTES_MAX + 200,
        "{}",
        line.len()
    );
    let record: Value = serde_json::from_str(&line).expect("a line is JSON");
    assert_eq!(
        (&record["count"], &record["user"]),
        (&7.into(), &Value::Null)
    );
    // slog writes pairs from last to first: the last one gets the space.
    assert!(
        record["before"]
            .as_str()
            .is_some_and(|text| text.ends_with("é…"))
    );
    assert_eq!(record["asked"], "…");
}

#[test]
fn on_a_terminal_records_are_readable_text() {
    let sink = Sink::default();
    let logging = Logging::to_writer(&config(LogLevel::Info, LogFormat::Auto), true, sink.clone());
    slog::info!(logging.logger, "listening"; "listen" => "/x");
    drop(logging);
    let line = sink.lines().concat();
    assert!(line.contains("INFO listening"), "{line}");
    assert!(serde_json::from_str::<Value>(&line).is_err());
}

#[test]
fn the_format_can_be_forced() {
    for (format, terminal, json) in [
        (LogFormat::Json, true, true),
        (LogFormat::Terminal, false, false),
    ] {
        let sink = Sink::default();
        let logging = Logging::to_writer(&config(LogLevel::Info, format), terminal, sink.clone());
        slog::info!(logging.logger, "listening");
        drop(logging);
        assert_eq!(
            serde_json::from_str::<Value>(&sink.lines().concat()).is_ok(),
            json
        );
    }
}

#[test]
fn a_changed_level_applies_to_existing_loggers() {
    let sink = Sink::default();
    let logging = Logging::to_writer(
        &config(LogLevel::Warning, LogFormat::Json),
        false,
        sink.clone(),
    );
    let log = logging.logger.new(o!());
    slog::info!(log, "one");
    logging.set_level(LogLevel::Info);
    slog::info!(log, "two");
    logging.set_level(LogLevel::Off);
    slog::crit!(log, "three");
    drop(logging);
    assert_eq!(sink.lines().len(), 1);
    assert!(sink.lines()[0].contains("two"));
}

/// Reports the first write, and blocks it until released.
struct Gate {
    entered: SyncSender<()>,
    released: Receiver<()>,
    open: bool,
    sink: Sink,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.open {
            self.entered.send(()).map_err(io::Error::other)?;
            self.released.recv().map_err(io::Error::other)?;
            self.open = true;
        }
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn records_that_do_not_fit_the_queue_are_counted_and_the_count_is_logged() {
    let sink = Sink::default();
    let (entered, has_entered) = sync_channel(1);
    let (release, released) = sync_channel(1);
    let gate = Gate {
        entered,
        released,
        open: false,
        sink: sink.clone(),
    };
    let logging = Logging::to_writer(&config(LogLevel::Info, LogFormat::Json), false, gate);
    slog::info!(logging.logger, "held at the gate");
    has_entered
        .recv_timeout(Duration::from_secs(10))
        .expect("the first record is written");
    for _ in 0..QUEUE_RECORDS_MAX + 7 {
        slog::info!(logging.logger, "burst");
    }
    assert_eq!(logging.losses().count(), 7);
    release.send(()).expect("the gate waits");
    drop(logging);
    let lines = sink.lines();
    assert_eq!(lines.len(), 1 + QUEUE_RECORDS_MAX + 1);
    let last: Value = serde_json::from_str(&lines[lines.len() - 1]).expect("a line is JSON");
    assert_eq!(
        (&last["level"], &last["count"]),
        (&"warning".into(), &7.into())
    );
}

#[test]
fn a_failing_sink_blocks_neither_the_caller_nor_shutdown() {
    struct Failing;
    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for format in [LogFormat::Json, LogFormat::Terminal] {
        let logging = Logging::to_writer(&config(LogLevel::Info, format), false, Failing);
        slog::info!(logging.logger, "lost");
        slog::info!(logging.logger, "lost too");
        drop(logging);
    }
}

/// Refuses writes while full.
#[derive(Clone, Default)]
struct Disk {
    sink: Sink,
    is_full: Arc<std::sync::atomic::AtomicBool>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn unwritable_records_are_counted_and_the_gap_is_logged_once_there_is_room() {
    for format in [LogFormat::Json, LogFormat::Terminal] {
        let disk = Disk::default();
        let logging = Logging::to_writer(&config(LogLevel::Info, format), false, disk.clone());
        let losses = logging.losses();
        let wait = |count| {
            let deadline = std::time::Instant::now() + Duration::from_secs(10);
            while losses.count() < count {
                assert!(std::time::Instant::now() < deadline, "{}", losses.count());
                std::thread::yield_now();
            }
        };
        disk.is_full.store(true, Ordering::SeqCst);
        slog::info!(logging.logger, "first");
        slog::info!(logging.logger, "second");
        wait(2);
        assert_eq!(losses.failure().as_deref(), Some("no storage space"));
        disk.is_full.store(false, Ordering::SeqCst);
        slog::info!(logging.logger, "third");
        drop(logging);
        let lines = disk.sink.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("log records could not be written"));
        assert!(lines[0].contains("no storage space") && lines[0].contains('2'));
        assert!(lines[1].contains("third"), "{lines:?}");
        assert_eq!((losses.count(), losses.failure()), (2, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_warning_reports_how_many_were_suppressed() {
    let sink = Sink::default();
    let logging = Logging::to_writer(
        &config(LogLevel::Info, LogFormat::Json),
        false,
        sink.clone(),
    );
    let mut limiter = RepeatLimiter::default();
    for seconds in [0, 1, 1, 998] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        crate::warn_repeating!(logging.logger, limiter, "full"; "pool" => "p");
    }
    drop(logging);
    let counts: Vec<Value> = sink
        .lines()
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["suppressed"].clone())
        .collect();
    assert_eq!(counts, [0, 2]);
}

#[test]
fn timestamps_are_rfc_3339_in_utc() {
    let at =
        |seconds, millis| timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + millis);
    let none = Duration::ZERO;
    assert_eq!(at(0, none), "1970-01-01T00:00:00.000Z");
    assert_eq!(at(951_782_400, none), "2000-02-29T00:00:00.000Z");
    assert_eq!(at(951_868_800, none), "2000-03-01T00:00:00.000Z");
    assert_eq!(
        at(1_735_689_599, Duration::from_millis(7)),
        "2024-12-31T23:59:59.007Z"
    );
    assert_eq!(at(4_107_542_400, none), "2100-03-01T00:00:00.000Z");
    assert_eq!(at(4_107_542_399, none), "2100-02-28T23:59:59.000Z");
}

#[test]
fn reopening_a_file_does_not_split_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, renamed) = (folder.path().join("log"), folder.path().join("log.1"));
    let (mut file, reopener) = LogFile::open(&path).expect("the file can be created");
    file.write_all(b"one\ntw").expect("there is room");
    std::fs::rename(&path, &renamed).expect("a free name");
    reopener.reopen().expect("the file can be created");
    file.write_all(b"o\n").expect("there is room");
    file.write_all(b"three\n").expect("there is room");
    let text = |path| std::fs::read_to_string(path).expect("the file exists");
    assert_eq!((&*text(&renamed), &*text(&path)), ("one\ntwo\n", "three\n"));
}

#[test]
fn control_characters_neither_reach_the_terminal_nor_end_the_record() {
    let text = "a\u{1b}[2J\u{9b}31m\u{202e}gpj.exe\u{2028}b\nlevel: critical";
    for format in [LogFormat::Json, LogFormat::Terminal] {
        let sink = Sink::default();
        let logging = Logging::to_writer(&config(LogLevel::Info, format), false, sink.clone());
        slog::info!(logging.logger, "query server log"; "line" => text);
        drop(logging);
        let written = String::from_utf8(sink.bytes().clone()).unwrap();
        let (record, rest) = written.split_once('\n').unwrap();
        assert_eq!(rest, "", "{format:?}");
        assert!(!record.contains(json::shown::is_unprintable), "{record:?}");
        if format == LogFormat::Json {
            let record: Value = serde_json::from_str(record).unwrap();
            assert_eq!(record["line"], text);
        }
    }
}
