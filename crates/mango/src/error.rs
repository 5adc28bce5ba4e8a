//! Errors of selectors and of matching.

/// Why a text is not a selector. Its author's fault; a retry fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct SelectorError {
    pub kind: SelectorErrorKind,
    /// The line of the mistake in the selector's text, from 1.
    pub line: usize,
    /// The byte in that line, from 1.
    pub column: usize,
}

impl SelectorError {
    pub(super) fn at(text: &str, offset: usize, kind: SelectorErrorKind) -> Self {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
        Self {
            kind,
            line: memchr::memchr_iter(b'\n', before).count() + 1,
            column: before.len() - line_start + 1,
        }
    }

    /// Returns CouchDB's name of the error.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }
}

/// A mistake in a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorErrorKind {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// It is JSON of another type.
    #[error("a selector must be a JSON object, not {0}")]
    NotAnObject(&'static str),
    /// A condition instead of a field: an operator without a field.
    #[error("missing_field_name: one or more conditions have no field name")]
    MissingFieldName,
    /// An operator's argument has the wrong type or value.
    #[error("bad argument for operator {operator}: {problem}")]
    BadArgument {
        /// The operator.
        operator: String,
        /// The requirement, or how the argument violates it.
        problem: String,
    },
    /// An operator of MongoDB that CouchDB does not have.
    #[error("unsupported operator: {0}")]
    NotSupported(String),
    /// An unknown operator, or one with an argument of a type that it never takes.
    #[error("invalid operator: {0}")]
    InvalidOperator(String),
    /// `$text` below a field.
    #[error("invalid field normalization: $text belongs to the root of a selector")]
    BadField,
    /// A field's name has an empty segment.
    #[error("invalid field name {0:?}: a segment between two dots is empty")]
    InvalidFieldName(String),
    /// It exceeds one of this library's limits.
    #[error("the selector {what} (at most {limit})")]
    TooLarge {
        /// The excess, for example `has too many bytes`.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl SelectorErrorKind {
    /// Returns CouchDB's name of the error.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "invalid_json",
            Self::NotAnObject(_) => "invalid_selector_json",
            Self::MissingFieldName | Self::TooLarge { .. } => "invalid_selector",
            Self::BadArgument { .. } => "bad_arg",
            Self::NotSupported(_) => "not_supported",
            Self::InvalidOperator(_) => "invalid_operator",
            Self::BadField => "bad_field",
            Self::InvalidFieldName(_) => "invalid_field_name",
        }
    }

    pub(super) fn bad_argument(operator: &str, problem: impl Into<String>) -> Self {
        Self::BadArgument {
            operator: operator.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Why a selector or an index failed on a document. A retry fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchError {
    /// The document is not a JSON object. Its author's fault.
    #[error("the document is not a JSON object: {0}")]
    NotADocument(String),
    /// A regular expression exceeded its bounds on a string of the document. The expression's author is at fault.
    #[error("the regular expression {pattern:?} takes too long on a string of {bytes} bytes")]
    Pattern {
        /// The expression.
        pattern: String,
        /// The string's length, in bytes.
        bytes: usize,
    },
    /// A text index would have too many entries for the document.
    #[error("the document makes more than {limit} bytes of text entries")]
    TooManyEntries {
        /// The limit, in bytes.
        limit: usize,
    },
}

impl MatchError {
    /// Returns its name in APIs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotADocument(_) => "invalid_document",
            Self::Pattern { .. } => "regex_limit",
            Self::TooManyEntries { .. } => "too_large",
        }
    }
}
