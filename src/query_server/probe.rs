//! Probes of abilities, each in a child outside the pool.
//!
//! SUMMARY   [`probe`] starts the command, resets it, sends the smallest commands that need the ability, and judges
//!           the answers.
//! PROMISES  An ability is absent only if the child clearly refused: by an error, by exiting, or by answering a
//!           `reduce` of two functions with anything but two results. An exit by a signal or a limit of its cell
//!           is inconclusive. Dropping a probe ends its child.
//! CALLED    By [`Abilities`](super::abilities::Abilities), which sets a deadline.
//! LIMITS    Functions in commands are in JavaScript, Python, Perl, Ruby or Lua: in the one with the language's name,
//!           or else in the first one whose map function the command runs.

use bytes::Bytes;
use serde_json::{Value, json};

use super::abilities::{Ability, Finding};
use super::line::{Line, classify};
use child::unpooled_child::UnpooledChild;
use child::{CommandSpec, Spawner};

/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of characters of an answer that a finding quotes.
const QUOTED_CHARACTERS: usize = 400;

/// Functions in one language.
struct Functions {
    language: &'static str,
    /// Emits the document's id and 1.
    map: &'static str,
    /// Adds values up.
    sum: &'static str,
}

const FUNCTIONS: [Functions; 5] = [
    Functions {
        language: "javascript",
        map: "function(doc) { emit(doc._id, 1); }",
        sum: "function(keys, values, rereduce) { return sum(values); }",
    },
    Functions {
        language: "python",
        map: "def fun(doc):\n    yield doc['_id'], 1\n",
        sum: "def fun(keys, values, rereduce):\n    return sum(values)\n",
    },
    Functions {
        language: "perl",
        map: "sub { my ($doc) = @_; emit($doc->{_id}, 1) }",
        sum: "sub { my ($keys, $values, $rereduce) = @_; my $sum = 0; $sum += $_ for @$values; $sum }",
    },
    Functions {
        language: "ruby",
        map: "->(doc) { emit(doc['_id'], 1) }",
        sum: "->(keys, values, rereduce) { values.sum }",
    },
    Functions {
        language: "lua",
        map: "function(doc) emit(doc._id, 1) end",
        sum: "function(keys, values, rereduce) local sum = 0 \
              for _, value in ipairs(values) do sum = sum + value end return sum end",
    },
];

/// Commands with their expected answers.
type Questions = Vec<(Value, Value)>;

/// The child's answers.
enum Outcome {
    /// All as expected.
    AsExpected,
    /// An error; its line.
    Error(String),
    /// Another answer; its line.
    Other(String),
    /// It exited; how.
    Ended(String),
    /// It does not answer `reset` like a query server.
    NoServer,
}

/// Probes one ability of a language's query servers.
///
/// # Errors
/// The probe is inconclusive: the child was not started, or something other than its own refusal ended it. A retry
/// may succeed.
pub(super) async fn probe(
    ability: Ability,
    language: &str,
    command: &CommandSpec,
    spawner: &Spawner,
) -> Result<Finding, String> {
    let questions = match questions(ability) {
        Some(questions) => questions,
        None => match functions_of(language, command, spawner).await? {
            Some(functions) => questions_about(ability, functions.sum),
            None => return Ok(Finding::Open),
        },
    };
    let together = ability == Ability::Pipelining;
    Ok(match ask(&questions, together, command, spawner).await? {
        Outcome::AsExpected => Finding::Present,
        Outcome::Error(line) => absent(&format!("it answered {line}")),
        Outcome::Ended(how) => absent(&format!("it {how}")),
        Outcome::Other(line) if ability == Ability::SeveralReducers => {
            Finding::Absent(format!("when tried with two, it answered {line}").into())
        }
        Outcome::Other(_) | Outcome::NoServer => Finding::Open,
    })
}

fn absent(how: &str) -> Finding {
    Finding::Absent(format!("when tried, {how}").into())
}

/// Returns the commands without functions; `None` if the ability needs one.
fn questions(ability: Ability) -> Option<Questions> {
    let ddoc = |rev| {
        let ddoc = json!({"_id": "_design/a", "_rev": rev});
        (json!(["ddoc", "new", "_design/a", ddoc]), json!(true))
    };
    Some(match ability {
        Ability::Ddoc => vec![ddoc("1-a"), ddoc("2-b")],
        Ability::AddLib => vec![(json!(["add_lib", {}]), json!(true))],
        Ability::IndexDoc => vec![(json!(["index_doc", {"_id": "a"}]), json!([]))],
        Ability::Pipelining => vec![(json!(["reset", {}]), json!(true)); 3],
        Ability::Reduce | Ability::ReduceContext | Ability::SeveralReducers => return None,
    })
}

/// Returns the commands with reduce functions.
fn questions_about(ability: Ability, sum: &str) -> Questions {
    let rows = json!([[["x", "d1"], 1], [["y", "d2"], 2], [["z", "d3"], 3.5]]);
    match ability {
        Ability::SeveralReducers => vec![(
            json!(["reduce", [sum, sum], rows]),
            json!([true, [6.5, 6.5]]),
        )],
        Ability::ReduceContext => ["db/_design/d/_view/v", ""]
            .map(|context| {
                let question = json!(["reduce", [sum], rows, context]);
                (question, json!([true, [6.5]]))
            })
            .into(),
        _ => vec![(json!(["reduce", [sum], rows]), json!([true, [6.5]]))],
    }
}

/// Returns functions that the command runs, if it runs any of [`FUNCTIONS`].
async fn functions_of(
    language: &str,
    command: &CommandSpec,
    spawner: &Spawner,
) -> Result<Option<&'static Functions>, String> {
    let named = FUNCTIONS
        .iter()
        .find(|functions| functions.language == language);
    if named.is_some() {
        return Ok(named);
    }
    for functions in &FUNCTIONS {
        let questions = vec![
            (json!(["add_fun", functions.map]), json!(true)),
            (json!(["map_doc", {"_id": "a"}]), json!([[["a", 1]]])),
        ];
        if let Outcome::AsExpected = ask(&questions, false, command, spawner).await? {
            return Ok(Some(functions));
        }
    }
    Ok(None)
}

/// Starts the command, resets it and sends the commands: one after the other, or all `together`.
async fn ask(
    questions: &[(Value, Value)],
    together: bool,
    command: &CommandSpec,
    spawner: &Spawner,
) -> Result<Outcome, String> {
    let mut child = UnpooledChild::start(spawner, command.clone(), LINE_BYTES_MAX)
        .await
        .map_err(|error| error.to_string())?;
    let send = |child: &UnpooledChild, command: &Value| child.send(format!("{command}\n"));
    send(&child, &json!(["reset", {}]));
    match answer(&mut child, &json!(true)).await? {
        Outcome::AsExpected => {}
        Outcome::Ended(how) => return Err(how),
        _ => return Ok(Outcome::NoServer),
    }
    if together {
        let all: String = questions
            .iter()
            .map(|(asked, _)| format!("{asked}\n"))
            .collect();
        child.send(all);
    }
    for (asked, expected) in questions {
        if !together {
            send(&child, asked);
        }
        match answer(&mut child, expected).await? {
            Outcome::AsExpected => {}
            outcome => return Ok(outcome),
        }
    }
    Ok(Outcome::AsExpected)
}

/// Reads the next answer, skipping log lines.
async fn answer(child: &mut UnpooledChild, expected: &Value) -> Result<Outcome, String> {
    loop {
        let line = match child.line().await {
            Ok(Some(line)) => line,
            Ok(None) => {
                let end = child.exit_report().await;
                let ended = if end.is_its_own { Ok } else { Err };
                return ended(end.report).map(Outcome::Ended);
            }
            Err(_) => return Ok(Outcome::NoServer),
        };
        return Ok(match classify(line.clone()) {
            Line::Log(_) => continue,
            Line::Error(_) | Line::Fatal(_) => Outcome::Error(quoted(&line)),
            Line::Answer(_) => match serde_json::from_slice::<Value>(&line) {
                Ok(value) if value == *expected => Outcome::AsExpected,
                _ => Outcome::Other(quoted(&line)),
            },
            Line::Malformed(_) => Outcome::Other(quoted(&line)),
        });
    }
}

fn quoted(line: &Bytes) -> String {
    String::from_utf8_lossy(line)
        .chars()
        .take(QUOTED_CHARACTERS)
        .collect()
}
