//! Response objects of shows, lists and updates.
//!
//! SOURCE    chttpd_external, parse_external_response/1.
//! DIFFERS   Values of a wrong type are the same clear error as members that nobody knows; there
//!           they are crashes.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::FunctionError;
use super::decode::{decode, excerpt, refused};

/// The reference's name of the error.
const BAD_RESPONSE: &str = "external_response_error";

/// A response object that was checked: what it may have, with values of the right types.
///
/// `code` is from 100 to 599, `headers` an object of strings, `body` and `base64` are strings,
/// `json` is anything, `stop` is passed on.
#[derive(Clone, Debug)]
pub struct Response {
    /// The response as the function gave it.
    pub json: Box<RawValue>,
    /// Whether it says which status it has.
    has_code: bool,
}

/// The members that matter; of several of one name the last counts.
type Members = BTreeMap<String, Box<RawValue>>;

impl Response {
    /// Checks a response object.
    pub(super) fn check(json: &RawValue) -> Result<Self, FunctionError> {
        let Some(members) = decode::<Members>(json.get()) else {
            let came = excerpt(json.get());
            return Err(bad(format!("the response is {came}; it must be an object")));
        };
        for (name, value) in &members {
            check_member(name, value)?;
        }
        Ok(Self {
            json: json.to_owned(),
            has_code: members.contains_key("code"),
        })
    }

    /// Gives it a status, unless it says which it has.
    #[must_use]
    pub(super) fn or_code(mut self, code: u16) -> Self {
        if self.has_code {
            return self;
        }
        let text = self.json.get().trim();
        let rest = text.strip_prefix('{').unwrap_or(text).trim_start();
        let separator = if rest == "}" { "" } else { "," };
        let with_code = format!("{{\"code\":{code}{separator}{rest}");
        if let Ok(json) = RawValue::from_string(with_code) {
            self.json = json;
            self.has_code = true;
        }
        self
    }
}

fn check_member(name: &str, value: &RawValue) -> Result<(), FunctionError> {
    let must_be = |what: &str| {
        let came = excerpt(value.get());
        Err(bad(format!(
            "'{name}' of the response is {came}; it must be {what}"
        )))
    };
    match name {
        "code" => match decode::<Value>(value.get()).as_ref().and_then(status) {
            Some(_) => Ok(()),
            None => must_be("a status from 100 to 599"),
        },
        "body" if !is_string(value) => must_be("a string"),
        "base64" if !decode::<String>(value.get()).is_some_and(|text| is_base64(&text)) => {
            must_be("a string in Base64")
        }
        "headers" if decode::<BTreeMap<String, String>>(value.get()).is_none() => {
            must_be("an object of strings")
        }
        "body" | "base64" | "headers" | "json" | "stop" => Ok(()),
        unknown => Err(bad(format!(
            "the response has a member '{}'; it may have code, headers, body, base64, json and stop",
            excerpt(unknown)
        ))),
    }
}

fn status(value: &Value) -> Option<u64> {
    let whole = value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0)?;
        // Out of range becomes the nearest, which is out of range as well.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "see above"
        )]
        Some(float as u64)
    });
    whole.filter(|code| (100..600).contains(code))
}

fn is_string(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

fn is_base64(text: &str) -> bool {
    let text: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = &text[..text.len() - padding];
    text.len().is_multiple_of(4)
        && padding <= 2
        && digits
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn bad(reason: String) -> FunctionError {
    refused(BAD_RESPONSE, reason)
}

impl serde::Serialize for Response {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(to)
    }
}
