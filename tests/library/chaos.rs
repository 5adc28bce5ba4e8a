//! Chaos for some seconds: clients that connect, misbehave and die, real children that fail in many ways, reloads and
//! changing limits. Every request is answered, no client gets another client's answer, the counts agree, and no process
//! is left.
//!
//! The seed is printed; `SETTEE_SEED=.. cargo test --test library chaos` repeats the choices (not the same
//! interleaving: the children are real).

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use settee::actors::proc_manager::{GetStatus, ReloadConfig};
use settee::messages::proc_manager::{GetProcError, Want};
use settee::messages::process::PromptError;
use settee_testkit::{
    PATIENCE, Script, ScriptedChild, Step, TestClient, TestPool, TestRandom, within,
};

const CHAOS: Duration = Duration::from_secs(6);
/// Time limit on a loaded machine, which takes longer to answer every client.
const CHAOS_MAX: Duration = Duration::from_secs(40);
const CLIENTS: usize = 12;
const LIMIT: u32 = 4;

/// Prompts that make a child misbehave. None prints a line late: it would look like the answer to the
/// next prompt.
const MISDEEDS: [&str; 15] = [
    "garbage",
    "blank",
    "twice",
    "exit",
    "crash",
    "hang",
    "flood",
    "drip",
    "huge",
    "error",
    "fatal",
    "half",
    "grandchild",
    "stubborn",
    "closed",
];

fn rogue() -> ScriptedChild {
    let script = Script::echo()
        .on("garbage", [Step::answer("garbage")])
        .on("blank", [Step::answer("")])
        // In one write, so that both lines arrive together.
        .on("twice", [Step::Print("true\n\"twice\"".into())])
        .on("exit", [Step::Complain("I am off".into()), Step::Exit(7)])
        .on("crash", [Step::Signal("SEGV")])
        .on("hang", [Step::Hang])
        .on("flood", [Step::Flood("[\"log\",\"flood\"]".into())])
        .on("drip", [Step::Drip("[\"log\",\"drip\"]".into())])
        .on("huge", [Step::PrintHuge(5_000_000)])
        .on("error", [Step::error("error", "no")])
        .on("fatal", [Step::fatal("fatal", "no")])
        .on("half", [Step::PrintPart("[1,".into()), Step::Exit(0)])
        .on("grandchild", [Step::Grandchild, Step::Echo])
        .on("stubborn", [Step::IgnoreTerm, Step::Echo])
        .on("closed", [Step::CloseOutput, Step::Hang])
        .on_teach("_design/error", [Step::error("compilation_error", "no")])
        .on_teach("_design/exit", [Step::Exit(1)])
        .on_teach("_design/hang", [Step::Hang])
        .on_teach("_design/junk", [Step::answer("junk")]);
    ScriptedChild::new(script)
}

/// Events that one client counted.
#[derive(Debug, Default)]
struct Tally {
    requests: usize,
    refused: usize,
    answers: usize,
    lost: usize,
    deaths: usize,
}

fn want(pool: &TestPool, random: &mut TestRandom) -> Want {
    if random.below(3) == 0 {
        return pool.any();
    }
    let ddocs = [
        "1", "2", "3", "1", "2", "3", "error", "exit", "hang", "junk",
    ];
    let db = *random.one_of(&["a", "b", "c", "d"]);
    pool.ddoc(db, &format!("_design/{}", random.one_of(&ddocs)))
}

/// Sends prompts: each is answered with itself, or fails, and never gets another answer.
async fn send_prompts(client: &TestClient, name: &str, tally: &mut Tally, random: &mut TestRandom) {
    let lines: Vec<String> = (0..=random.below(4))
        .map(|n| {
            format!(
                "[\"map_doc\",\"{name}\",{},{n}]",
                tally.answers + tally.lost
            )
        })
        .collect();
    let sent: Vec<_> = lines.iter().map(|line| client.sends(line)).collect();
    for (line, sent) in lines.iter().zip(sent) {
        match sent.answer().await {
            Ok(answer) => {
                assert_eq!(&answer, line, "{name} gets an answer that is not its own");
                tally.answers += 1;
            }
            Err(
                PromptError::Timeout { .. }
                | PromptError::Exited(_)
                | PromptError::Protocol { .. }
                | PromptError::NotRun { .. },
            ) => tally.lost += 1,
            Err(error) => panic!("{name} gets an error that is not its own: {error}"),
        }
    }
}

/// One turn of a client: requests a process, uses it, and continues or dies.
async fn one_turn(
    pool: &TestPool,
    mut client: TestClient,
    tally: &mut Tally,
    random: &mut TestRandom,
    name: &str,
) -> Option<TestClient> {
    let patience = Duration::from_millis(50 + random.below(500) as u64);
    client.asks_within(want(pool, random), Some(patience));
    tally.requests += 1;
    if random.below(15) == 0 {
        tally.deaths += 1;
        client.dies();
        return None;
    }
    match client.answer().await {
        Ok(()) => {}
        Err(GetProcError::UnknownQueryLanguage(_) | GetProcError::ShuttingDown) => {
            panic!("{name} is refused for no reason")
        }
        Err(_) => {
            tally.refused += 1;
            return Some(client);
        }
    }
    send_prompts(&client, name, tally, random).await;
    if random.below(2) == 0 {
        let line = format!("[\"{}\"]", random.one_of(&MISDEEDS));
        let limit = Duration::from_millis(20 + random.below(200) as u64);
        let sent = client.sends_within(&line, Some(limit));
        if random.below(4) == 0 {
            tally.deaths += 1;
            client.dies();
            return None;
        }
        drop(sent.answer().await);
        send_prompts(&client, name, tally, random).await;
    }
    match random.below(8) {
        0 => client.lets_go(),
        1 => drop(client.returns_broken().await),
        2 => {
            client.dies();
            tally.deaths += 1;
            return None;
        }
        _ => drop(client.returns().await),
    }
    Some(client)
}

async fn misbehave(pool: Rc<TestPool>, number: usize, mut random: TestRandom) -> Tally {
    let begin = Instant::now();
    let name = format!("client {number}");
    let mut tally = Tally::default();
    let mut client = None;
    let lacks = |tally: &Tally| tally.answers == 0 || pool.started().len() <= CLIENTS;
    while begin.elapsed() < CHAOS || lacks(&tally) && begin.elapsed() < CHAOS_MAX {
        let present = client.take().unwrap_or_else(|| pool.client(&name));
        client = one_turn(&pool, present, &mut tally, &mut random, &name).await;
    }
    tally
}

/// Reloads and changes limits while the clients run.
async fn operate(pool: Rc<TestPool>, mut random: TestRandom) {
    let end = Instant::now() + CHAOS;
    while Instant::now() < end {
        match random.below(4) {
            0 => pool.reload().await,
            1 => pool.terminate_stale_procs().await,
            _ => {
                let mut settings = (*pool.settings()).clone();
                settings.limits.hard_limit = random.below(LIMIT as usize + 1) as u32;
                settings.limits.affinity_wait = Duration::from_millis(random.below(50) as u64);
                let reload = ReloadConfig(Arc::new(settings));
                let answer = pool.manager().send(reload).await;
                answer.expect("the manager is alive");
            }
        }
        // One message, so that all numbers are of one moment.
        let service = pool.manager().send(GetStatus::default()).await;
        let service = service.expect("the manager is alive").status();
        let status = &service.pools[0];
        let known = status.used + status.free + status.opening;
        assert_eq!(service.proc_count, known, "{status:?}");
        assert_eq!(status.procs.len() as u32, status.used + status.free);
        assert!(known <= LIMIT, "{status:?}");
        actix_rt::time::sleep(Duration::from_millis(random.below(300) as u64)).await;
    }
}

#[actix_rt::test]
async fn after_chaos_the_pool_is_consistent_and_no_process_is_left() {
    let mut random = TestRandom::for_test("chaos");
    let child = rogue();
    let pool = TestPool::builder()
        .hard_limit(LIMIT)
        .soft_limit(1)
        .timeout(Duration::from_millis(300))
        .settings(|settings| settings.idle_limit = Duration::from_millis(100))
        .settings(|settings| settings.stop_grace = Duration::from_millis(200))
        .settings(|settings| settings.line_bytes_max = 100_000)
        .script("javascript", &child)
        .start();
    let pool = Rc::new(pool);
    let operator = actix_rt::spawn(operate(Rc::clone(&pool), random.fork()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| actix_rt::spawn(misbehave(Rc::clone(&pool), number, random.fork())))
        .collect();
    let mut answers = 0;
    for client in clients {
        let tally = within("every request and prompt is answered", client)
            .await
            .unwrap();
        println!("{tally:?}");
        answers += tally.answers;
    }
    operator.await.unwrap();
    assert!(answers > 0 && pool.started().len() > CLIENTS);
    println!("{answers} answers, {} processes", pool.started().len());
    heal(Rc::into_inner(pool).expect("all tasks have ended")).await;
}

/// Checks that the pool serves as many clients as its limit, each with its own process.
async fn heal(mut pool: TestPool) {
    pool.reconfigure(|settings| settings.os_process_timeout = PATIENCE)
        .await;
    let mut clients = pool.clients(["w", "x", "y", "z"]).await;
    for client in &clients {
        let answer = client.prompts("[\"map_doc\",{}]").await;
        assert_eq!(answer.as_deref(), Ok("[\"map_doc\",{}]"));
    }
    let status = pool.status().await;
    assert_eq!((status.used, status.free, status.waiting), (LIMIT, 0, 0));
    for client in &mut clients {
        assert!(client.returns().await);
    }
    assert_eq!(pool.stale_proc_count().await, 0);
    pool.assert_quiet().await;
}
