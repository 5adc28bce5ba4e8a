//! The log of frequent starts, in simulated time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use settee_testkit::{FakeLanguage, TestPool};
use slog::{Drain, Logger, Never, OwnedKVList, Record, o};

/// Collects the messages of log records.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    fn count(&self, message: &str) -> usize {
        let all = self.0.lock().unwrap();
        all.iter().filter(|known| *known == message).count()
    }

    /// Returns the number of records of single starts, and of summaries.
    fn starts(&self) -> (usize, usize) {
        (
            self.count("query server started"),
            self.count("query servers started"),
        )
    }
}

impl Drain for Messages {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        self.0.lock().unwrap().push(record.msg().to_string());
        Ok(())
    }
}

#[actix_rt::test]
async fn frequent_starts_are_summarized_once_a_minute_until_a_minute_without_any() {
    tokio::time::pause();
    // One second more, for the manager to run.
    const MINUTE: Duration = Duration::from_secs(61);
    let messages = Messages::default();
    let pool = TestPool::builder()
        .hard_limit(1)
        .log(&Logger::root(messages.clone(), o!()))
        .language("x", FakeLanguage::new())
        .start();
    let mut client = pool.client("1");
    let mut start = async |count: usize| {
        for _ in 0..count {
            client.takes(pool.any()).await;
            client.returns_broken().await;
        }
    };
    start(15).await;
    assert_eq!(messages.starts(), (10, 0));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(messages.starts(), (10, 1));
    start(3).await;
    assert_eq!(messages.starts(), (10, 1));
    tokio::time::sleep(MINUTE * 2).await;
    assert_eq!(messages.starts(), (10, 2));
    tokio::time::sleep(MINUTE).await;
    start(1).await;
    assert_eq!(messages.starts(), (11, 2));
    drop(client);
    pool.assert_quiet().await;
    assert_eq!(messages.starts(), (11, 2));
}
