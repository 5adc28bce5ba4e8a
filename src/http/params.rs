//! Parses the query parameters of a request.
//!
//! SOURCE    chttpd_db, couch_mrview_http: parse_params/4 and its errors.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use serde_json::Value;

use super::answer::{HttpResult, Refusal};
use crate::config::nearest::hint;
use crate::operations::{LONG_NAME_BYTES_MAX, NAME_BYTES_MAX, check_name};
use crate::query_server::prompt_error::shorten;

/// The parameters of a query, in order; of several with the same name, the last one applies.
#[derive(Clone, Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

/// Returns the refusal of a query with a wrong value.
pub(super) fn query_parse_error(reason: impl Into<Value>) -> Refusal {
    Refusal::of("query_parse_error", reason)
}

impl Params {
    /// Parses the query of a request.
    ///
    /// # Errors
    /// The encoding is invalid, or a name or value is too long.
    pub fn of(request: &HttpRequest) -> HttpResult<Self> {
        let params = Self::read(request.query_string())?;
        for (name, value) in params.0.iter().filter(|(name, _)| !is_key(name)) {
            check_name("a parameter", name, NAME_BYTES_MAX)
                .and_then(|()| check_name(name, value, LONG_NAME_BYTES_MAX))
                .map_err(query_parse_error)?;
        }
        Ok(params)
    }

    fn read(query: &str) -> HttpResult<Self> {
        let parsed = web::Query::<Vec<(String, String)>>::from_query(query)
            .map_err(|error| query_parse_error(error.to_string()))?;
        Ok(Self(parsed.into_inner()))
    }

    /// Adds the members of a JSON object, which override the query.
    pub fn with_body(mut self, body: &Value) -> Self {
        self.0
            .extend(body.as_object().into_iter().flatten().map(|(name, value)| {
                let text = match value {
                    // In a query, only keys are in quotes.
                    Value::String(text) if !is_key(name) => text.clone(),
                    value => value.to_string(),
                };
                (name.clone(), text)
            }));
        self
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns every value of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Refuses unknown parameters.
    pub fn check(&self, known: &[String]) -> HttpResult<()> {
        let mut names = self.0.iter().map(|(name, _)| name);
        let Some(name) = names.find(|name| !known.contains(name)) else {
            return Ok(());
        };
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let hint = hint(name, &known, "expected");
        let name = shorten(name);
        Err(query_parse_error(format!(
            "there is no parameter '{name}': {hint}"
        )))
    }

    pub fn boolean(&self, name: &str, default: bool) -> HttpResult<bool> {
        match self.get(name).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(query_parse_error(format!(
                "Invalid boolean parameter: {other:?}"
            ))),
        }
    }

    /// Returns a non-negative integer.
    pub fn count(&self, name: &str) -> HttpResult<Option<usize>> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match text.parse::<i128>() {
            Ok(number) if number < 0 => Err(query_parse_error(format!(
                "Invalid value for positive integer: {text:?}"
            ))),
            // A number that does not fit is larger than any count.
            Ok(number) => Ok(Some(usize::try_from(number).unwrap_or(usize::MAX))),
            Err(_) => Err(query_parse_error(format!(
                "Invalid value for integer: {text:?}"
            ))),
        }
    }

    /// Returns the parameter `limit`; without it everything is wanted.
    pub fn limit(&self) -> HttpResult<usize> {
        Ok(self.count("limit")?.unwrap_or(usize::MAX))
    }

    /// Returns the value of the first of several names that is present, as JSON.
    pub fn json(&self, names: &[&str]) -> HttpResult<Option<Value>> {
        let text = names.iter().find_map(|name| self.get(name));
        Ok(text.map(serde_json::from_str).transpose()?)
    }
}

impl FromRequest for Params {
    type Error = Refusal;
    type Future = Ready<HttpResult<Self>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::of(request))
    }
}

/// Returns whether the parameter with this name is JSON in a query.
fn is_key(name: &str) -> bool {
    matches!(
        name,
        "key" | "keys" | "startkey" | "start_key" | "endkey" | "end_key" | "doc_ids"
    )
}

#[cfg(test)]
mod tests {
    use actix_web::http::StatusCode;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_the_wrong_type_are_refused_and_the_last_value_applies() {
        let params = Params::read("limit=7&skip=x&a=true&b=1&key=%22k%22&neg=-1&limit=8").unwrap();
        assert_eq!(params.count("limit").unwrap(), Some(8));
        assert_eq!(params.count("none").unwrap(), None);
        assert!(params.boolean("a", false).unwrap());
        assert_eq!(params.json(&["key"]).unwrap(), Some(json!("k")));
        for refusal in [
            params.count("skip").unwrap_err(),
            params.count("neg").unwrap_err(),
            params.boolean("b", false).unwrap_err(),
        ] {
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn members_of_a_body_are_read_like_query_parameters() {
        let body = json!({"startkey": "a", "limit": 2, "descending": true, "feed": "longpoll"});
        let params = Params::default().with_body(&body);
        assert_eq!(params.json(&["startkey"]).unwrap(), Some(json!("a")));
        assert_eq!(params.count("limit").unwrap(), Some(2));
        assert!(params.boolean("descending", false).unwrap());
        assert_eq!(params.get("feed"), Some("longpoll"));
    }
}
