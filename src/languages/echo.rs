//! `echo`: a query server that answers every prompt with the prompt, inside this program.
//!
//! SUMMARY   The smallest native language: an example for authors, and a probe of the pool that needs no child. Off
//!           unless `[native_query_servers] echo` is on.

use strum::VariantArray;

use super::native::NativeLanguage;
use crate::actors::language::Language;
use crate::actors::native_process::NativeServer;
use crate::query_server::abilities::Ability;
use crate::query_server::prompt::Command;

/// Returns the language. It accepts every command, and runs no function.
pub(crate) fn echo() -> impl Language {
    NativeLanguage::new(|_| EchoServer)
        .with_abilities(Ability::VARIANTS)
        .isolating_functions()
}

struct EchoServer;

impl NativeServer for EchoServer {
    /// Answers `true` to resets and teaching, as the protocol requires.
    fn prompt(&mut self, command: &str) -> String {
        if let Some(Command::Reset | Command::Teach) = Command::of(command.as_bytes()) {
            return "true".into();
        }
        command.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_except_reset_and_teaching_is_echoed() {
        let mut server = EchoServer;
        assert_eq!(server.prompt("[\"map_doc\", 1]"), "[\"map_doc\", 1]");
        assert_eq!(server.prompt("[\"reset\",{}]"), "true");
        assert_eq!(server.prompt("[\"ddoc\",\"new\",\"_design/a\",{}]"), "true");
    }
}
