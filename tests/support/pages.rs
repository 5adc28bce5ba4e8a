//! Pages of the documentation, for tests that run their code blocks.

use std::fs;

use super::program::project;

/// Returns the code blocks of a page in a language.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(project().join(page)).unwrap();
    let mut blocks = Vec::new();
    for piece in text.split(&format!("```{language}\n")).skip(1) {
        let (block, _) = piece.split_once("```").unwrap();
        blocks.push(block.to_owned());
    }
    assert!(!blocks.is_empty(), "{page} has no {language} block");
    blocks
}
