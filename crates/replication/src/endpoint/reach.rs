//! Whether a server answers at all.
//!
//! SUMMARY   [`Http::answers`] asks a server once, for its root. [`EndpointSpec::server`] names the server of a database.
//! PROMISES  The question carries no credentials and no headers of a document. Any answer below 500 counts: one of 500
//!           and above may come from a proxy whose server is away.
//! LIMITS    The way to a server counts as the server: a proxy that is away, a name that is not resolved.

use std::time::Duration;

use reqwest::Method;
use tokio::time::timeout;
use url::Url;

use super::body::RequestBody;
use super::http::own_headers;
use super::sending::Sending;
use super::session::Credentials;
use super::{Http, HttpSettings};
use crate::spec::EndpointSpec;

impl EndpointSpec {
    /// Returns the server as `http://db.example:5984`.
    pub fn server(&self) -> String {
        let url = Url::parse(&self.url);
        url.map_or_else(|_| String::new(), |url| url.origin().ascii_serialization())
    }
}

impl Http {
    /// Asks the server of a database once, and returns whether it answers within this time.
    pub async fn answers(
        &self,
        spec: &EndpointSpec,
        settings: HttpSettings,
        within: Duration,
    ) -> bool {
        let Ok(root) = Url::parse(&spec.server()) else {
            return false;
        };
        let Ok(endpoint) = self.endpoint(spec, settings) else {
            return false;
        };
        let shown = root.to_string();
        let mut asking = Sending::new(Method::GET, root, shown, own_headers(), RequestBody::Empty);
        asking.trusted = false;
        let answer = timeout(
            within,
            endpoint.exchange(&mut asking, &Credentials::Nothing),
        );
        matches!(answer.await, Ok(Ok((response, _))) if response.status().as_u16() < 500)
    }
}
