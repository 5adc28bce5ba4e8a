//! Response objects of shows, lists and updates.
//!
//! SOURCE    chttpd_external, parse_external_response/1.
//! DIFFERS   Values of a wrong type cause the same error as unknown members; they crash the reference.

use std::collections::BTreeMap;

use data_encoding::BASE64_MIME_PERMISSIVE;
use serde::Serialize;
use serde_json::value::RawValue;

use super::decode::{decode, excerpt};
use super::{FunctionError, FunctionResult};

/// The reference's error name.
const BAD_RESPONSE: &str = "external_response_error";

/// A validated response object: only known members, with values of the right types.
///
/// `code` is from 100 to 599, `headers` an object of strings, `body` and `base64` are strings, `json` is any value,
/// `stop` is passed on.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Response {
    /// The function's original response.
    pub json: Box<RawValue>,
    /// Whether it has a `code`.
    #[serde(skip)]
    has_code: bool,
}

/// All members; of several with the same name, the last counts.
type Members = BTreeMap<String, Box<RawValue>>;

impl Response {
    /// Validates a response object.
    pub(super) fn check(json: &RawValue) -> FunctionResult<Self> {
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

    /// Adds a `code` if it has none.
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

fn check_member(name: &str, value: &RawValue) -> FunctionResult<()> {
    let must_be = |what: &str| {
        let came = excerpt(value.get());
        Err(bad(format!(
            "'{name}' of the response is {came}; it must be {what}"
        )))
    };
    match name {
        "code" if !decode(value.get()).is_some_and(is_status) => {
            must_be("a status from 100 to 599")
        }
        "body" if !value.get().starts_with('"') => must_be("a string"),
        "base64" if !decode::<String>(value.get()).is_some_and(|text| is_base64(&text)) => {
            must_be("a string in Base64")
        }
        "headers" if decode::<BTreeMap<String, String>>(value.get()).is_none() => {
            must_be("an object of strings")
        }
        "code" | "body" | "base64" | "headers" | "json" | "stop" => Ok(()),
        unknown => Err(bad(format!(
            "the response has a member '{}'; it may have code, headers, body, base64, json and stop",
            excerpt(unknown)
        ))),
    }
}

fn is_status(code: f64) -> bool {
    code.fract() == 0.0 && (100.0..600.0).contains(&code)
}

fn is_base64(text: &str) -> bool {
    let text: String = text.split_ascii_whitespace().collect();
    BASE64_MIME_PERMISSIVE.decode(text.as_bytes()).is_ok()
}

fn bad(reason: String) -> FunctionError {
    FunctionError::refused(BAD_RESPONSE, reason)
}
