//! Syntax trees of sources.
//!
//! SUMMARY   [`with_tree`] parses a source and passes its tree on; [`parameters`] finds the parameters of its
//!           function.
//! PROMISES  Invalid sources have no tree, nor do those with too many bytes or brackets for the stack: the parser
//!           itself has no limit.
//! LIMITS    Of the source forms beyond JavaScript's, knows only [`begun`].

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    BindingPattern, Expression, FormalParameter, FormalParameters, Program, SourceType, Statement,
};
use oxc_parser::{ParseOptions, Parser};

use super::source::begun;

/// Maximum length of a parsed source, in bytes, and maximum number of its opening brackets (in TypeScript also `<`).
/// In unoptimised builds, nesting takes up to 6 KiB of stack for each bracket and 450 bytes for any other byte:
/// together less than the thread has.
const SOURCE_BYTES_MAX: usize = 10 << 10;
const BRACKETS_MAX: usize = 600;

/// Returns the result of `look` at a source's tree; `None` without a tree.
pub(super) fn with_tree<R>(source: &str, look: impl FnOnce(&Program<'_>) -> R) -> Option<R> {
    with_tree_of(SourceType::script(), source, look)
}

/// Returns whether a source parses as TypeScript, as most JavaScript also does.
pub(super) fn is_typescript(source: &str) -> bool {
    with_tree_of(SourceType::ts(), source, |_| ()).is_some()
}

fn with_tree_of<R>(
    kind: SourceType,
    source: &str,
    look: impl FnOnce(&Program<'_>) -> R,
) -> Option<R> {
    let opening: &[u8] = if kind.is_typescript() {
        b"([{<"
    } else {
        b"([{"
    };
    let brackets = source.bytes().filter(|byte| opening.contains(byte)).count();
    if source.len() > SOURCE_BYTES_MAX || brackets > BRACKETS_MAX {
        return None;
    }
    let source = begun(source);
    let options = ParseOptions {
        preserve_parens: false,
        ..ParseOptions::default()
    };
    let allocator = Allocator::default();
    let parser = Parser::new(&allocator, &source, kind).with_options(options);
    let parsed = parser.parse();
    parsed.diagnostics.is_empty().then(|| look(&parsed.program))
}

/// The parameters of a source's only function. `None` if the source has anything else, or if the function is async
/// or a generator.
pub(super) fn parameters<'t, 'a>(tree: &'t Program<'a>) -> Option<&'t FormalParameters<'a>> {
    let [Statement::ExpressionStatement(statement)] = tree.body.as_slice() else {
        return None;
    };
    let function = match &statement.expression {
        // The form produced by `begun`.
        Expression::SequenceExpression(list) => match list.expressions.as_slice() {
            [Expression::NumericLiteral(_), function] => function,
            _ => return None,
        },
        function => function,
    };
    match function {
        Expression::FunctionExpression(function) if !(function.r#async || function.generator) => {
            Some(&function.params)
        }
        Expression::ArrowFunctionExpression(function) if !function.r#async => {
            Some(&function.params)
        }
        _ => None,
    }
}

/// The name of a parameter that is a plain name, without a default value.
pub(super) fn plain_name<'t>(parameter: &'t FormalParameter<'_>) -> Option<&'t str> {
    match &parameter.pattern {
        BindingPattern::BindingIdentifier(name) if parameter.initializer.is_none() => {
            Some(name.name.as_str())
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{on_own_stack, reading::only_reads};
    use super::*;

    #[test]
    fn what_is_no_script_has_no_tree() {
        for source in ["'a", "`a${", "/* a", "}", "@"] {
            assert_eq!(with_tree(source, |_| ()), None, "{source}");
        }
        for source in ["function(doc) {}", "a <!-- @", "a\n--> @"] {
            assert_eq!(with_tree(source, |tree| tree.body.len()), Some(1));
        }
    }

    #[test]
    fn the_stack_has_room_for_the_deepest_nesting() {
        for (open, middle, close) in [
            ("(", "1", ")"),
            ("[", "", "]"),
            ("[", "", ""),
            ("{", "", "}"),
            ("!", "1", ""),
            ("a=>", "1", ""),
            ("if(a)", ";", ""),
            ("do ", ";", " while(0)"),
            ("new ", "a", ""),
            ("a?b:", "c", ""),
            ("a=", "c", ""),
            ("a**", "c", ""),
            ("a+", "c", ""),
            ("a.", "a", ""),
            ("a?.", "a", ""),
            ("`${", "1", "}`"),
            ("L:", ";", ""),
            ("(a=", "1", ")=>1"),
            ("class A{m(){", "", "}}"),
            ("({a(){return ", "1", "}})"),
            ("function f(){", "", "}"),
            ("x=>{", "", "}"),
            ("([", "", "])"),
            ("[[a]=", "b", "]"),
            ("else ", "", ""),
        ] {
            let brackets = open.bytes().filter(|byte| b"([{".contains(byte)).count();
            let by_length = (SOURCE_BYTES_MAX - 1) / (open.len() + close.len());
            let by_brackets = BRACKETS_MAX.checked_div(brackets).unwrap_or(by_length);
            for count in [by_length.min(by_brackets), by_length] {
                let source = [&open.repeat(count), middle, &close.repeat(count)].concat();
                on_own_stack(|| only_reads(&source)).unwrap();
                on_own_stack(|| is_typescript(&source)).unwrap();
            }
        }
    }

    #[test]
    fn types_fit_the_stack_too() {
        for (begin, open, middle, close) in [
            ("let x: ", "A<", "B", ">"),
            ("let x: ", "keyof ", "B", ""),
            ("let x: ", "typeof a<", "B", ">"),
            ("let x: ", "A extends B?", "C", ":D"),
            ("let x: ", "(a:", "B", ")=>C"),
            ("let x: ", "new()=>", "B", ""),
            ("let x: ", "{a:", "B", "}"),
            ("let x: ", "`${", "B", "}`"),
            ("x = ", "a<", "1", ""),
            ("x = ", "<T>", "1", ""),
            ("x = ", "<T>(a)=>", "1", ""),
        ] {
            let most = SOURCE_BYTES_MAX / (open.len() + close.len());
            for count in [most.min(BRACKETS_MAX / 2), BRACKETS_MAX, most] {
                let source = [begin, &open.repeat(count), middle, &close.repeat(count)].concat();
                on_own_stack(|| is_typescript(&source)).unwrap();
            }
        }
    }
}
