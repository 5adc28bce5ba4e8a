//! The proxy of an endpoint.

use std::fmt;

use url::Url;

use super::credentials::{split_url, user_info};
use super::endpoint::URL_BYTES_MAX;
use super::{BasicAuth, SpecError, mask_params, mask_url};

/// A proxy: `http`, `https` or `socks5`. Displayed with its password masked.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ProxySpec(String);

impl ProxySpec {
    /// Parses a URL whose scheme is one of `allowed`.
    pub(super) fn parse(url: &str, allowed: &[String]) -> Result<Self, SpecError> {
        if url.len() > URL_BYTES_MAX {
            let bytes = url.len();
            return Err(SpecError::invalid(format!(
                "the proxy url has {bytes} bytes, at most {URL_BYTES_MAX} are allowed"
            )));
        }
        let (plain, _) = split_url(url);
        let parsed = Url::parse(&plain)
            .ok()
            .filter(Url::has_host)
            .ok_or_else(|| SpecError::invalid("Invalid proxy url"))?;
        if !allowed.iter().any(|scheme| scheme == parsed.scheme()) {
            return Err(SpecError::invalid("proxy has an invalid url"));
        }
        Ok(Self(url.to_owned()))
    }

    /// Returns the URL without its credentials.
    pub fn url(&self) -> String {
        split_url(&self.0).0
    }

    /// Returns the URL without its credentials, in parts.
    pub fn parsed(&self) -> Option<Url> {
        Url::parse(&self.url()).ok()
    }

    /// Returns the credentials.
    pub fn auth(&self) -> Option<BasicAuth> {
        split_url(&self.0).1
    }
}

impl fmt::Display for ProxySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match mask_url(&self.0) {
            Some(masked) => f.write_str(&masked),
            // Valid without its password, which has characters that URLs cannot contain.
            None => {
                let shown = user_info(&self.0).map_or(&*self.0, |info| &self.0[info.end..]);
                f.write_str(&mask_params(shown))
            }
        }
    }
}

impl fmt::Debug for ProxySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
