//! Parses the engine's stack traces: which frames are the user's, and their positions.
//!
//! SUMMARY   [`frames`] parses a trace by its file names: [`FUNCTION`] is the function's source, a name that begins
//!           with [`MODULE`] is a module, [`EVALUATED`] is a text passed to `eval`; all others are the server's own.
//! PROMISES  Accepts any text as a trace: a function can write its own.

/// The file of a function's source.
pub(super) const FUNCTION: &str = "eval_script";

/// The prefix of a module's file name.
pub(super) const MODULE: &str = "module:";

/// The file name of a text that user code has evaluated.
const EVALUATED: &str = "<input>";

/// Maximum characters of a module's id in its file name.
const MODULE_CHARACTERS_MAX: usize = 200;

/// A frame of a trace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// The function's name; `None` for an error of the parser.
    pub name: Option<&'a str>,
    pub file: File<'a>,
    /// Line and byte, from 1; 0 if unknown.
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File<'a> {
    Function,
    Module(&'a str),
    Evaluated,
    /// Code of the engine.
    Native,
    /// Code of the server, or unknown.
    Server,
}

/// Parses a trace, innermost frame first.
pub(super) fn frames(stack: &str) -> impl Iterator<Item = Frame<'_>> {
    stack.lines().filter_map(frame)
}

fn frame(line: &str) -> Option<Frame<'_>> {
    let text = line.trim_start().strip_prefix("at ")?;
    let (name, place) = match text.strip_suffix(')') {
        Some(text) => {
            let (name, place) = text.rsplit_once(" (")?;
            (Some(name), place)
        }
        None => (None, text),
    };
    let mut parts = place.rsplitn(3, ':');
    let (column, line, file) = (parts.next(), parts.next(), parts.next());
    let number = |part: Option<&str>| part.and_then(|part| part.parse().ok()).unwrap_or(0);
    let file = match file {
        Some(FUNCTION) => File::Function,
        Some(EVALUATED) => File::Evaluated,
        Some(file) => file.strip_prefix(MODULE).map_or(File::Server, File::Module),
        None if place == "native" => File::Native,
        None => File::Server,
    };
    Some(Frame {
        name,
        file,
        line: number(line),
        column: number(column),
    })
}

/// Returns the file name of a module. It has none of the characters that end a name in a trace.
pub(super) fn module_file(id: &str) -> String {
    let plain = |c: char| match c {
        '(' | ')' => '_',
        c if c.is_whitespace() || c.is_control() => '_',
        c => c,
    };
    let id = id.chars().take(MODULE_CHARACTERS_MAX).map(plain);
    MODULE.chars().chain(id).collect()
}

/// Returns the trace as answers show it: without files for modules.
pub(super) fn without_modules(stack: &str) -> String {
    let plain = |line: &str| {
        let (name, place) = line.rsplit_once(" (module:")?;
        let mut parts = place.rsplitn(3, ':');
        let (column, row) = (parts.next()?, parts.next()?);
        Some(format!("{name} ({EVALUATED}:{row}:{column}"))
    };
    stack
        .split_inclusive('\n')
        .map(|line| plain(line).unwrap_or_else(|| line.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_an_owner_and_a_position() {
        let stack = "    at eval_script:3:9\n    at f (b:1:2) (eval_script:1:18)\n    at <anonymous> (module:views/lib/a:b:2:1)\n    \
                     at <eval> (<input>:4:1)\n    at map (native)\n    at show (render:88:48)\n    at x (missing)\nwords\n";
        let found: Vec<_> = frames(stack)
            .map(|frame| (frame.name, frame.file, frame.line, frame.column))
            .collect();
        let expected = [
            (None, File::Function, 3, 9),
            (Some("f (b:1:2)"), File::Function, 1, 18),
            (Some("<anonymous>"), File::Module("views/lib/a:b"), 2, 1),
            (Some("<eval>"), File::Evaluated, 4, 1),
            (Some("map"), File::Native, 0, 0),
            (Some("show"), File::Server, 88, 48),
            (Some("x"), File::Server, 0, 0),
        ];
        assert_eq!(found, expected);
        for no_trace in ["", "at", "    at (", "at )(", "x\ny"] {
            assert_eq!(frames(no_trace).filter(|frame| frame.line > 0).count(), 0);
        }
    }

    #[test]
    fn modules_can_be_taken_out_of_a_trace() {
        let stack = "    at f (module:lib/m:2:10)\n    at <anonymous> (eval_script:2:29)\n";
        let plain = "    at f (<input>:2:10)\n    at <anonymous> (eval_script:2:29)\n";
        assert_eq!(without_modules(stack), plain);
        assert_eq!(without_modules(plain), plain);
        assert_eq!(module_file("a (b)\n"), "module:a__b__");
    }
}
