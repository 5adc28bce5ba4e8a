//! What ends a command without a result, as the line that answers it.
//!
//! SOURCE    The error forms of CouchDB's loop.js: arrays, named objects, everything else.

use rquickjs::convert::Coerced;
use rquickjs::{Array, Ctx, Object, Type, Value};

use super::text::quote;

/// An error answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The answer, one line of JSON.
    pub(super) line: String,
    /// Whether the server ends after it.
    pub(super) fatal: bool,
}

impl Failure {
    /// `["error", name, reason]`; the server lives on.
    pub(super) fn error(name: &str, reason: &str) -> Self {
        Failure {
            line: error_line(&quote(name), &quote(reason)),
            fatal: false,
        }
    }

    /// `["error", name, reason]`; the server ends.
    pub(super) fn fatal(name: &str, reason: &str) -> Self {
        Failure {
            fatal: true,
            ..Failure::error(name, reason)
        }
    }

    /// What an exception of the server's own code looks like, in CouchDB too.
    pub(super) fn type_error() -> Self {
        Failure {
            line: error_line("\"TypeError\"", "{}"),
            fatal: false,
        }
    }

    /// The engine has no memory left, not even for an exception.
    pub(super) fn out_of_memory() -> Self {
        Failure::fatal("InternalError", "out of memory")
    }

    /// The answer for the exception that is pending in a realm.
    pub(super) fn caught(ctx: &Ctx<'_>) -> Self {
        Failure::thrown(ctx, &ctx.catch())
    }

    /// The answer for a thrown value.
    pub(super) fn thrown<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Self {
        match value.type_of() {
            Type::Uninitialized => Failure::out_of_memory(),
            Type::Null | Type::Undefined => Failure::type_error(),
            _ => match value.as_object() {
                Some(object) => from_object(ctx, object).unwrap_or_else(|_| {
                    // A getter or toJSON of the thrown object threw in turn.
                    ctx.catch();
                    Failure::type_error()
                }),
                None => unnamed("null"),
            },
        }
    }
}

fn error_line(name: &str, reason: &str) -> String {
    format!("[\"error\",{name},{reason}]")
}

fn unnamed(stack: &str) -> Failure {
    Failure {
        line: error_line("\"unnamed_error\"", stack),
        fatal: false,
    }
}

fn from_object<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<Failure> {
    if let Some(array) = object.as_array()
        && let Ok(kind @ ("error" | "fatal")) = array.get::<String>(0).as_deref()
    {
        return Ok(Failure {
            line: rest_of(ctx, array)?,
            fatal: kind == "fatal",
        });
    }
    let name: Value<'_> = object.get("name")?;
    if name
        .as_string()
        .is_some_and(|name| name.to_string().is_ok_and(|n| n == "InternalError"))
    {
        let message = json(ctx, object.get("message")?)?;
        return Ok(Failure {
            line: error_line("\"InternalError\"", &message),
            fatal: true,
        });
    }
    let (error, reason): (Value<'_>, Value<'_>) = (object.get("error")?, object.get("reason")?);
    let line = if truthy(&error) && truthy(&reason) {
        error_line(&json(ctx, error)?, &json(ctx, reason)?)
    } else if truthy(&name) {
        error_line(&json(ctx, name)?, &json(ctx, object.as_value().clone())?)
    } else {
        let stack: Value<'_> = object.get("stack")?;
        let stack = if truthy(&stack) {
            json(ctx, stack)?
        } else {
            "null".to_owned()
        };
        return Ok(unnamed(&stack));
    };
    Ok(Failure { line, fatal: false })
}

/// The array as an answer, with "error" as its first element.
fn rest_of<'js>(ctx: &Ctx<'js>, array: &Array<'js>) -> rquickjs::Result<String> {
    let mut line = "[\"error\"".to_owned();
    for item in array.iter::<Value<'_>>().skip(1) {
        line.push(',');
        line.push_str(&json(ctx, item?)?);
    }
    Ok(line + "]")
}

fn truthy(value: &Value<'_>) -> bool {
    value.get::<Coerced<bool>>().is_ok_and(|coerced| coerced.0)
}

/// A value as JSON text, `null` when JSON cannot express it.
pub(super) fn json<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> rquickjs::Result<String> {
    match ctx.json_stringify(value)? {
        Some(text) => text.to_string(),
        None => Ok("null".to_owned()),
    }
}
