//! Who gets the answer to a prompt: the sender of one, or of several at once.

use bytes::Bytes;

use crate::messages::process::{AnswerSender, Prompt, PromptError, Prompts};
use crate::otp::deferred::Replier;

/// Takes the answer to one [`Prompt`](crate::messages::process::Prompt), or the next answer to
/// [`Prompts`](crate::messages::process::Prompts).
pub(crate) enum Answerer {
    One(Replier<Result<Bytes, PromptError>>),
    Several(AnswerSender),
}

impl Answerer {
    /// Answers. A caller that gave up gets nothing; the answer was still its own.
    pub(crate) fn send(self, answer: Result<Bytes, PromptError>) {
        match self {
            Self::One(replier) => drop(replier.send(answer)),
            Self::Several(answers) => drop(answers.send(answer)),
        }
    }
}

/// Takes several prompts apart: into prompts, each with who gets its answer.
pub(crate) fn each(prompts: &Prompts) -> impl Iterator<Item = (Prompt, Answerer)> + '_ {
    commands(&prompts.lines).map(|line| {
        let prompt = Prompt {
            token: prompts.token,
            line,
            timeout: prompts.timeout,
            verbatim: false,
        };
        (prompt, Answerer::Several(prompts.answers.clone()))
    })
}

/// Takes commands apart. A missing last line feed is taken for there.
pub(crate) fn commands(lines: &Bytes) -> impl Iterator<Item = Bytes> + '_ {
    let mut start = 0;
    let unended = lines.last().filter(|byte| **byte != b'\n');
    let ends = memchr::memchr_iter(b'\n', lines).chain(unended.map(|_| lines.len()));
    ends.map(move |end| {
        let line = lines.slice(start..end);
        start = end + 1;
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_cut_at_line_feeds() {
        let cut = |text: &'static str| -> Vec<Bytes> {
            commands(&Bytes::from_static(text.as_bytes())).collect()
        };
        assert_eq!(cut("[1]\n[2]\n"), ["[1]", "[2]"]);
        assert_eq!(cut("\n[2]\n"), ["", "[2]"]);
        assert_eq!(cut("[1]\n[2]"), ["[1]", "[2]"]);
        assert_eq!(cut(""), [""; 0]);
    }
}
