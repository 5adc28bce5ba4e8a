//! Passes answers on in the order of their documents.
//!
//! SUMMARY   [`Window`] holds an answer back until the answers of all earlier documents were passed on.
//! PROMISES  Held answers are bounded: a document too far behind the oldest unanswered one is not sent yet. The
//!           oldest one may always be sent, so nothing waits forever.

use std::collections::VecDeque;

use super::answer::MapAnswer;
use super::documents::Document;

/// Maximum documents from the oldest unanswered one to the last one sent.
const DOCUMENTS_MAX: u64 = 4096;

/// While the held answers have this many bytes, only the oldest unanswered document may be sent. Answers to documents
/// already in flight may exceed this size.
const BYTES_MAX: usize = 16 << 20;

/// The order in which documents are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the order of their answers.
    AsAnswered,
    /// In the order of the input.
    AsRead,
}

/// Answers that arrived before their turn.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The number of the document whose answer is passed on next, from 0.
    next: u64,
    /// Answers from that document on, where available.
    held: VecDeque<Option<(Document, MapAnswer)>>,
    held_bytes: usize,
}

impl Window {
    /// Returns whether the document with this number may be sent now.
    pub fn may_begin(&self, number: u64) -> bool {
        let is_near = number < self.next + DOCUMENTS_MAX && self.held_bytes < BYTES_MAX;
        number == self.next || is_near
    }

    /// Takes a document's answer; `hand_on` gets all answers whose turn it is.
    pub fn take(
        &mut self,
        number: u64,
        document: Document,
        answer: MapAnswer,
        mut hand_on: impl FnMut(Document, MapAnswer),
    ) {
        if number == self.next {
            // The document's own place is empty.
            self.held.pop_front();
            self.next += 1;
            hand_on(document, answer);
        } else {
            let place = usize::try_from(number - self.next).expect("VW-6: few documents are begun");
            if self.held.len() <= place {
                self.held.resize_with(place + 1, || None);
            }
            self.held_bytes += answer.text_bytes();
            self.held[place] = Some((document, answer));
        }
        while let Some((document, answer)) = self.held.front_mut().and_then(Option::take) {
            self.held.pop_front();
            self.held_bytes -= answer.text_bytes();
            self.next += 1;
            hand_on(document, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn document(line: u64) -> Document {
        Document {
            line,
            id: Bytes::from_static(b"\"a\""),
            prompt: Bytes::new(),
        }
    }

    fn answer(bytes: usize) -> MapAnswer {
        let mut answer = MapAnswer::default();
        let text = format!("[[[\"{}\",1]]]", "x".repeat(bytes));
        answer.read(Bytes::from(text), 1).unwrap();
        answer
    }

    #[test]
    fn answers_are_handed_on_in_the_order_of_their_documents() {
        let mut window = Window::default();
        let mut lines = Vec::new();
        for number in [2, 0, 3, 1, 6, 5, 4] {
            window.take(number, document(number), answer(1), |document, _| {
                lines.push(document.line);
            });
        }
        assert_eq!(lines, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((window.held.len(), window.held_bytes), (0, 0));
    }

    #[test]
    fn a_document_far_behind_waits_for_the_oldest() {
        let mut window = Window::default();
        assert!(window.may_begin(DOCUMENTS_MAX - 1));
        assert!(!window.may_begin(DOCUMENTS_MAX));
        window.take(0, document(0), answer(1), |_, _| {});
        assert!(window.may_begin(DOCUMENTS_MAX));
    }

    #[test]
    fn large_answers_that_are_held_back_let_only_the_oldest_begin() {
        let mut window = Window::default();
        window.take(1, document(1), answer(BYTES_MAX), |_, _| panic!("not yet"));
        assert!(!window.may_begin(2));
        assert!(window.may_begin(0));
        let mut count = 0;
        window.take(0, document(0), answer(1), |_, _| count += 1);
        assert_eq!(count, 2);
        assert!(window.may_begin(2));
    }
}
