//! Parses one side of a replication from its member of a request body.
//!
//! SOURCE    couch_replicator_parse: parse_rep_db.
//! DIFFERS   Headers and proxies are validated here, not when the job starts.

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::credentials::{BasicAuth, split_headers, split_url};
use super::{Defaults, EndpointSpec, ProxySpec, SpecError};
use crate::endpoint::keeps_path;

/// Maximum bytes of a URL with its headers: more than servers accept.
pub(super) const URL_BYTES_MAX: usize = 16 << 10;

impl EndpointSpec {
    pub(super) fn parse(
        name: &str,
        value: Option<&Value>,
        proxy: Option<&str>,
        defaults: &Defaults,
    ) -> Result<Self, SpecError> {
        let wrong_url = || SpecError::invalid("endpoint has an invalid url");
        let (url, headers, auth) = match value {
            None | Some(Value::Null) => {
                return Err(SpecError::invalid("Missing replicator database"));
            }
            Some(Value::String(url))
                if !url.starts_with("http://") && !url.starts_with("https://") =>
            {
                return Err(SpecError::invalid("local_endpoints_not_supported"));
            }
            Some(Value::String(url)) => (url.as_str(), None, None),
            Some(value) => {
                let url = value.get("url").and_then(Value::as_str);
                let url = url.ok_or_else(wrong_url)?;
                (url, value.get("headers"), value.get("auth"))
            }
        };
        let (mut url, url_auth) = split_url(url);
        let parsed = url::Url::parse(&url).map_err(|_| wrong_url())?;
        let allowed = &defaults.valid_endpoint_protocols;
        if !parsed.has_host() || !allowed.iter().any(|scheme| scheme == parsed.scheme()) {
            return Err(wrong_url());
        }
        // Segments like `..`, backslashes and anything after a `#` would lead to another database.
        if !keeps_path(&parsed, url.split('?').next().unwrap_or_default()) {
            return Err(wrong_url());
        }
        let mut headers = parse_headers(name, headers)?;
        let lengths = headers.iter().map(|(name, value)| name.len() + value.len());
        let bytes = url.len() + lengths.sum::<usize>();
        if bytes > URL_BYTES_MAX {
            return Err(SpecError::invalid(format!(
                "`{name}`: its url and headers have {bytes} bytes, at most {URL_BYTES_MAX} are allowed"
            )));
        }
        let header_auth = split_headers(&mut headers);
        let auth = match auth {
            None | Some(Value::Object(_)) => auth.and_then(BasicAuth::of_auth),
            Some(_) => {
                return Err(SpecError::invalid(format!(
                    "`auth` of `{name}`: must be a JSON object"
                )));
            }
        };
        let proxy = proxy
            .map(|url| ProxySpec::parse(url, &defaults.valid_proxy_protocols))
            .transpose()?;
        if !url.contains('?') && !url.ends_with('/') {
            url.push('/');
        }
        Ok(Self {
            url,
            auth: auth.or(url_auth).or(header_auth),
            headers,
            proxy,
        })
    }
}

fn parse_headers(side: &str, headers: Option<&Value>) -> Result<Vec<(String, String)>, SpecError> {
    let wrong = |what: String| SpecError::invalid(format!("`headers` of `{side}`: {what}"));
    let members = match headers {
        None => return Ok(Vec::new()),
        Some(Value::Object(members)) => members,
        Some(_) => return Err(wrong("must be a JSON object".into())),
    };
    let mut headers = Vec::with_capacity(members.len());
    for (name, value) in members {
        let Some(value) = value.as_str() else {
            return Err(wrong(format!("the value of `{name}` must be a string")));
        };
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(wrong(format!("`{name}` is not a header name")));
        }
        if HeaderValue::from_str(value).is_err() {
            // Not displayed: it may be a secret.
            return Err(wrong(format!(
                "the value of `{name}` has bytes that are not allowed in a header"
            )));
        }
        headers.push((name.clone(), value.to_owned()));
    }
    headers.sort_unstable();
    Ok(headers)
}
