//! The engine that maps documents, used as a library: functions, order, limits, errors.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use settee::client::Client;
use settee::functions::view::{
    self, BATCHES_AHEAD, Batches, Counts, MapSink, Mapped, Order, Part, Processes, Run, View,
    ViewError,
};
use settee::messages::proc_manager::CallError;
use settee::messages::proc_manager::{TakeFrom, TenantName};
use settee::messages::process::PromptError;
use settee_testkit::{FakeAnswer, FakeLanguage, TestPool, eventually};
use tokio::sync::mpsc;

use crate::support::daemon::Service;

/// Keeps everything: id, the whole answer, and the rows as function, key, value.
#[derive(Default)]
struct Kept {
    documents: RefCell<Vec<(String, Vec<u8>)>>,
    rows: RefCell<Vec<(usize, String, String)>>,
    /// The number of documents after which no more are wanted.
    enough: Option<usize>,
}

impl MapSink for Kept {
    fn mapped(&self, mapped: &Mapped<'_>) {
        let id = mapped.document.id_text().to_owned();
        let answer = mapped.answer().to_vec();
        self.documents.borrow_mut().push((id, answer));
        let rows = mapped.rows();
        self.rows
            .borrow_mut()
            .extend(rows.map(|row| (row.function, row.key.to_owned(), row.value.to_owned())));
    }

    async fn ready(&self) -> bool {
        self.enough
            .is_none_or(|enough| self.documents.borrow().len() < enough)
    }
}

impl Kept {
    fn ids(&self) -> Vec<String> {
        let documents = self.documents.borrow();
        documents.iter().map(|(id, _)| id.clone()).collect()
    }
}

fn view(funs: &[&str], lib: Option<Value>) -> View {
    View {
        language: "x".into(),
        funs: funs
            .iter()
            .map(|fun| RawValue::from_string(json!(fun).to_string()).unwrap())
            .collect(),
        lib: lib.map(|lib| RawValue::from_string(lib.to_string()).unwrap()),
    }
}

fn input(count: usize) -> Batches {
    let texts: Vec<String> = (0..count)
        .map(|number| json!({"_id": number.to_string()}).to_string())
        .collect();
    let mut documents = view::Documents::of(texts.iter().map(String::as_str));
    let (sender, batches) = mpsc::channel(count.max(1));
    loop {
        match documents.next_batch().unwrap() {
            batch if batch.is_empty() => return batches,
            batch => sender.try_send(Ok(batch)).unwrap(),
        }
    }
}

async fn run(
    pool: &TestPool,
    view: &View,
    input: Batches,
    sink: &Kept,
    how: (usize, Order),
) -> Result<(), ViewError> {
    let processes = Processes::Pool(Rc::new(pool.caller()), TakeFrom::Own, TenantName::Client);
    run_in(&processes, view, input, sink, how).await
}

async fn run_in(
    processes: &Processes,
    view: &View,
    input: Batches,
    sink: &Kept,
    (width, order): (usize, Order),
) -> Result<(), ViewError> {
    let counts = Counts::default();
    let run = Run {
        width,
        order,
        timeout: None,
        counts: &counts,
    };
    view::map(view, processes, input, sink, run).await
}

/// Answers `map_doc` with this, and everything else with `true`.
fn mapping(answer: impl Fn(&str) -> FakeAnswer + Send + Sync + 'static) -> FakeLanguage {
    FakeLanguage::new().answers(move |prompt| {
        if prompt.starts_with("[\"map_doc\"") {
            answer(prompt)
        } else {
            FakeAnswer::Now("true".into())
        }
    })
}

#[actix_rt::test]
async fn every_function_has_its_rows_and_the_answer_is_kept_whole() {
    tokio::time::pause();
    let answer = r#"[[["a", 1.0],[null,{}]],[],[[[1],"z"]]]"#;
    let fake = mapping(move |_| FakeAnswer::Now(answer.into()));
    let pool = TestPool::builder().language("x", fake).start();
    let kept = Kept::default();
    let view = view(&["f", "g", "h"], None);
    run(&pool, &view, input(1), &kept, (2, Order::AsAnswered))
        .await
        .unwrap();
    assert_eq!(
        *kept.documents.borrow(),
        [("\"0\"".to_owned(), answer.as_bytes().to_vec())]
    );
    let row = |function, key: &str, value: &str| (function, key.to_owned(), value.to_owned());
    assert_eq!(
        *kept.rows.borrow(),
        [
            row(0, "\"a\"", "1.0"),
            row(0, "null", "{}"),
            row(2, "[1]", "\"z\"")
        ]
    );
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_answer_for_a_wrong_number_of_functions_is_reported_with_its_document() {
    tokio::time::pause();
    let fake = mapping(|_| FakeAnswer::Now("[[]]".into()));
    let pool = TestPool::builder().language("x", fake).start();
    let kept = Kept::default();
    let done = run(
        &pool,
        &view(&["f", "g"], None),
        input(1),
        &kept,
        (1, Order::AsRead),
    )
    .await;
    let error = done.unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1: document \"0\": the query server answered for 1 functions, not for 2"
    );
    assert!(error.cause().is_none());
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn the_library_is_sent_first_and_only_if_it_has_modules() {
    tokio::time::pause();
    for (lib, wanted) in [
        (None, vec!["[\"add_fun\",\"f\"]", "[\"add_fun\",\"g\"]"]),
        (
            Some(json!({})),
            vec!["[\"add_fun\",\"f\"]", "[\"add_fun\",\"g\"]"],
        ),
        (
            Some(json!({"b": "x", "a": {"c": "y"}})),
            vec![
                "[\"add_lib\",{\"b\":\"x\",\"a\":{\"c\":\"y\"}}]",
                "[\"add_fun\",\"f\"]",
                "[\"add_fun\",\"g\"]",
            ],
        ),
    ] {
        let (said, heard) = std::sync::mpsc::channel();
        let fake = FakeLanguage::new().answers(move |prompt| {
            said.send(prompt.to_owned()).unwrap();
            FakeAnswer::Now("true".into())
        });
        let pool = TestPool::builder().language("x", fake).start();
        let kept = Kept::default();
        run(
            &pool,
            &view(&["f", "g"], lib),
            input(0),
            &kept,
            (1, Order::AsRead),
        )
        .await
        .unwrap();
        let heard: Vec<String> = heard.try_iter().skip(1).collect();
        assert_eq!(heard, wanted);
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn documents_are_passed_on_in_input_order_whichever_process_is_faster() {
    tokio::time::pause();
    let fake = mapping(|prompt| {
        let number: u64 = prompt.split('"').nth(5).unwrap().parse().unwrap();
        let time = Duration::from_millis(number * 7919 % 23);
        FakeAnswer::After(time, format!("[[[{number},1]]]"))
    });
    let pool = TestPool::builder().language("x", fake).start();
    let kept = Kept::default();
    run(
        &pool,
        &view(&["f"], None),
        input(500),
        &kept,
        (3, Order::AsRead),
    )
    .await
    .unwrap();
    let wanted: Vec<String> = (0..500).map(|number| format!("\"{number}\"")).collect();
    assert_eq!(kept.ids(), wanted);
    assert_eq!(pool.started().len(), 3);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn fewer_processes_than_requested_do_all_the_work() {
    tokio::time::pause();
    let slow = || FakeAnswer::After(Duration::from_millis(900), "[[[1,1]]]".into());
    let fake = mapping(move |_| slow());
    let pool = TestPool::builder()
        .hard_limit(1)
        .language("x", fake)
        .start();
    let kept = Kept::default();
    // The work takes longer than a request for a process waits.
    run(
        &pool,
        &view(&["f"], None),
        input(20),
        &kept,
        (4, Order::AsAnswered),
    )
    .await
    .unwrap();
    assert_eq!(kept.ids().len(), 20);
    assert_eq!(pool.started().len(), 1);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_error_keeps_its_cause_and_names_the_document() {
    tokio::time::pause();
    let fake = mapping(|prompt| match prompt.contains("\"13\"") {
        true => FakeAnswer::Exits,
        false => FakeAnswer::Now("[[]]".into()),
    });
    let pool = TestPool::builder().language("x", fake).start();
    let kept = Kept::default();
    let done = run(
        &pool,
        &view(&["f"], None),
        input(20),
        &kept,
        (1, Order::AsRead),
    )
    .await;
    let error = done.unwrap_err();
    assert!(
        error.to_string().starts_with("line 14: document \"13\": "),
        "{error}"
    );
    let said = error.cause();
    assert!(
        matches!(said, Some(CallError::Prompt(PromptError::Exited(_)))),
        "{said:?}"
    );
    assert_eq!(kept.ids().len(), 13);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_function_that_is_refused_is_named() {
    tokio::time::pause();
    let fake = FakeLanguage::new().answers(|prompt| match prompt.contains("bad") {
        true => FakeAnswer::Now("false".into()),
        false => FakeAnswer::Now("true".into()),
    });
    let pool = TestPool::builder().language("x", fake).start();
    let kept = Kept::default();
    let funs = ["f", "bad", "g"];
    let done = run(
        &pool,
        &view(&funs, None),
        input(1),
        &kept,
        (1, Order::AsRead),
    )
    .await;
    let error = done.unwrap_err();
    let is_second = |error: &ViewError| {
        matches!(
            error,
            ViewError::Compile {
                part: Part::Function(1),
                ..
            }
        )
    };
    assert!(is_second(&error), "{error}");
    assert!(error.to_string().starts_with("map function 2 "), "{error}");
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn cancelled_work_returns_its_processes() {
    tokio::time::pause();
    let fake = mapping(|_| FakeAnswer::Never);
    let pool = TestPool::builder().language("x", fake).start();
    let (view, kept) = (view(&["f"], None), Kept::default());
    {
        let work = run(&pool, &view, input(50), &kept, (2, Order::AsRead));
        let asked = eventually("two processes are lent", async || {
            pool.status().await.used == 2
        });
        tokio::select! {
            done = work => panic!("nothing was answered: {done:?}"),
            () = asked => {}
        }
    }
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_services_process_whose_reset_fails_is_returned_at_once() {
    let service = Service::start("[query_servers]\nx = \"cat\"\n");
    let client = Client::connect(service.socket()).await.unwrap();
    let processes = Processes::Service(client, None);
    let (view, kept) = (view(&["f"], None), Kept::default());
    let done = run_in(&processes, &view, input(1), &kept, (1, Order::AsRead)).await;
    assert!(matches!(done, Err(ViewError::Process(_))), "{done:?}");
    service.connect().wait_for_pool("x", &[("used", 0)]);
    drop(processes);
    service.stop();
}

#[actix_rt::test]
async fn a_sink_that_stops_reading_ends_the_work() {
    tokio::time::pause();
    let fake = mapping(|_| FakeAnswer::Now("[[]]".into()));
    let pool = TestPool::builder().language("x", fake).start();
    let kept = Kept {
        enough: Some(10),
        ..Kept::default()
    };
    let done = run(
        &pool,
        &view(&["f"], None),
        input(5000),
        &kept,
        (1, Order::AsRead),
    )
    .await;
    assert!(matches!(done, Err(ViewError::Unwanted)), "{done:?}");
    assert!((10..1000).contains(&kept.ids().len()));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn documents_may_arrive_while_others_are_mapped() {
    tokio::time::pause();
    let fake = mapping(|_| FakeAnswer::Now("[[]]".into()));
    let pool = TestPool::builder().language("x", fake).start();
    let (view, kept) = (view(&["f"], None), Kept::default());
    let (sender, input) = mpsc::channel(BATCHES_AHEAD);
    let feed = async {
        for number in 0..30 {
            let text = json!({"_id": number.to_string()}).to_string();
            let batch = view::Documents::of([text.as_str()]).next_batch();
            sender.send(batch).await.unwrap();
            eventually("the document is mapped", async || kept.ids().len() > number).await;
        }
        let bad = view::Documents::of(["7"]).next_batch();
        sender.send(bad).await.unwrap();
    };
    let work = run(&pool, &view, input, &kept, (2, Order::AsRead));
    let (done, ()) = futures_util::future::join(work, feed).await;
    let error = done.unwrap_err();
    assert!(matches!(error, ViewError::Input(_)), "{error}");
    assert_eq!(kept.ids().len(), 30);
    pool.assert_quiet().await;
}
