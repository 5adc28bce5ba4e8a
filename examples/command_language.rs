//! A language that is a command: any program that reads JSON lines and answers them.
//!
//! The same line in the configuration is all that a service needs. Run it with a command of your own:
//! `cargo run --example command_language -- couchpy`.

use settee::testkit::TestPool;

/// Answers `true` to everything: the smallest query server there is.
pub const SMALLEST: &str = "sh -c 'while read -r line; do echo true; done'";

/// Borrows one process of the command and resets it.
pub async fn reset_one(command: &str) {
    let pool = TestPool::builder().command("mine", command).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let answer = client.prompts(r#"["reset",{}]"#).await;
    println!("{command} answers {answer:?} to reset");
    assert_eq!(answer.as_deref(), Ok("true"));
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = words.join(" ");
    reset_one(if command.is_empty() {
        SMALLEST
    } else {
        &command
    })
    .await;
}
