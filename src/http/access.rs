//! Authentication and authorization of requests.
//!
//! SUMMARY   [`admit`] checks a request's origin and credentials, and returns a [`Visitor`] with its rights.
//! PROMISES  Requests from web pages of other origins are refused: see [`super::origin`]. A feed ends with its user's
//!           rights: [`WhileAllowed`].
//! SOURCE    chttpd_auth; couch_httpd_auth: default_authentication_handler/1,
//!           cookie_authentication_handler/1.
//! DIFFERS   CouchDB with CORS accepts web pages of other origins; this server never does.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::cookie::{Cookie, SameSite, time};
use actix_web::dev::RequestHead;
use actix_web::http::header;
use actix_web::web::ReqData;
use data_encoding::BASE64;

use super::answer::{HttpResult, Piece, Pieces, Refusal};
use super::guard::{Connection, is_encrypted};
use super::request::text;
use super::{HttpContext, Shared, origin};
use crate::actors::client::peer::local_rights;
use crate::actors::pool_executor::Principal;
use crate::audit::PendingOrder;
use crate::auth::Standing;
use crate::auth::rights::{Right, Rights};
use crate::auth::session::{COOKIE, Session};
use crate::operations::Who;
use crate::query_server::status::Holder;

/// The sender of a request.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// The authenticated user.
    pub name: Option<String>,
    /// How the user was authenticated: `default` (Basic), `cookie` or `certificate`.
    pub by: Option<&'static str>,
    /// The session, for `cookie`.
    pub session: Option<Session>,
    pub rights: Rights,
    /// The peer's address.
    address: Option<SocketAddr>,
    /// The local user at the other end of the Unix socket.
    local: Option<Arc<Holder>>,
}

/// The sender of a request, for handlers.
pub(super) type User = ReqData<Rc<Visitor>>;

/// The order of a request that changes something, for handlers.
pub(super) type Order = ReqData<Rc<PendingOrder>>;

impl Visitor {
    /// Returns the user and the peer, as the holder of the processes that this visitor's calls use.
    pub fn holder(&self) -> Holder {
        let local = self.local.as_deref().cloned().unwrap_or_default();
        Holder {
            user: self.name.clone().or(local.user),
            peer: self.address.map(|peer| peer.to_string()),
            ..local
        }
    }

    /// Returns the principal that functions run as.
    pub fn principal(&self) -> Principal {
        Principal {
            limits: self.rights.limits(),
            who: Some(Arc::new(self.holder())),
        }
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }

    /// Returns the user id of the local user at the other end of the Unix socket.
    pub fn uid(&self) -> Option<u32> {
        self.local.as_ref()?.uid
    }

    /// Refuses a visitor without this right.
    pub fn needs(&self, right: Right) -> HttpResult<()> {
        let Err(missing) = self.rights.require(right) else {
            return Ok(());
        };
        match (&self.name, &self.local) {
            (Some(name), _) => Err(Refusal::forbidden(format!(
                "{missing}, which {name} does not have"
            ))),
            (None, Some(_)) => Err(Refusal::forbidden(missing)),
            (None, None) => Err(Refusal::unauthorized("Authentication required.")),
        }
    }

    /// Refuses a visitor who lacks permission.
    pub fn check(&self, who: Who) -> HttpResult<()> {
        match who {
            Who::Anybody => Ok(()),
            Who::With(right) => self.needs(right),
            Who::Local(right) if self.local.is_some() => self.needs(right),
            Who::Local(_) => Err(Refusal::forbidden(
                "this is answered on the service's Unix socket only (X.http.sock beside X.sock of [server] socket): ask there",
            )),
            Who::OnPage(right) => self.needs(right).map_err(Refusal::for_a_form),
            Who::AllOrOwn(right) if self.rights.has(right) => Ok(()),
            Who::AllOrOwn(_) => self.needs(Right::Replicate),
        }
    }

    /// Returns whether this visitor is logged in, or need not be.
    pub fn is_known(&self) -> bool {
        self.name.is_some() || self.rights.is_admin() || self.local.is_some()
    }
}

/// Identifies the sender of a request by its head and connection.
///
/// # Errors
/// The request comes from a web page of another origin, or through a proxy where only local users are served, or its
/// credentials are wrong.
pub(super) async fn admit(
    head: &RequestHead,
    connection: Option<&Connection>,
    shared: &HttpContext,
) -> HttpResult<Visitor> {
    origin::check(head, &shared.config.borrow().server.hosts)?;
    let mut visitor = Visitor {
        name: None,
        by: None,
        session: None,
        rights: Rights::default(),
        address: head.peer_addr,
        local: connection.and_then(Connection::local).cloned(),
    };
    if let Some(local) = &visitor.local {
        refuse_forwarded(
            head,
            "the Unix socket is for users of this machine only: let it use [server] http",
        )?;
        visitor.rights = local_rights(local.uid);
    } else if shared.authority.is_open() {
        refuse_forwarded(
            head,
            "[server] open = true is for this machine only: remove open, so that a login is required",
        )?;
        visitor.rights = Rights::all();
        return Ok(visitor);
    }
    if let Some(credentials) = text(head, header::AUTHORIZATION) {
        let (name, password) = basic(credentials).ok_or_else(|| {
            Refusal::bad_request("Authorization must be Basic with name and password")
        })?;
        shared
            .authority
            .log_in(&name, &password, visitor.peer())
            .await?;
        visitor.name = Some(name);
        visitor.by = Some("default");
    } else if let Some(session) = session_of(head, shared) {
        visitor.name = Some(session.name.clone());
        visitor.session = Some(session);
        visitor.by = Some("cookie");
    } else if let Some(name) = connection.and_then(|connection| connection.certified.get())
        && shared.authority.knows(name)
    {
        visitor.name = Some(name.clone());
        visitor.by = Some("certificate");
    }
    if let Some(name) = &visitor.name {
        visitor.rights = shared.authority.rights(name);
    }
    Ok(visitor)
}

/// A streamed answer without a limit of time. It ends once its user is removed, or has other rights or another
/// password.
pub(super) struct WhileAllowed<P> {
    pieces: P,
    shared: Shared,
    user: Option<(String, Standing)>,
}

impl<P: Pieces> WhileAllowed<P> {
    pub fn new(pieces: P, visitor: &Visitor, shared: Shared) -> Self {
        let named = |name: &String| (name.clone(), shared.authority.standing(name));
        Self {
            pieces,
            user: visitor.name.as_ref().map(named),
            shared,
        }
    }
}

impl<P: Pieces> Pieces for WhileAllowed<P> {
    async fn next(&mut self) -> Piece {
        let piece = self.pieces.next().await?;
        let authority = &self.shared.authority;
        let is_allowed = match &self.user {
            Some((name, standing)) => authority.standing(name) == *standing,
            None => true,
        };
        Ok(piece.filter(|_| is_allowed))
    }
}

/// Returns the session of the first session cookie.
fn session_of(head: &RequestHead, shared: &HttpContext) -> Option<Session> {
    let mut cookies = head
        .headers
        .get_all(header::COOKIE)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';').map(str::trim))
        .filter_map(|cookie| Cookie::parse_encoded(cookie).ok());
    shared
        .authority
        .session(cookies.find(|cookie| cookie.name() == COOKIE)?.value())
}

/// Refuses a request forwarded by a proxy: regardless of its address, it may come from anywhere.
fn refuse_forwarded(head: &RequestHead, why: &str) -> HttpResult<()> {
    const ADDED: &[&str] = &["forwarded", "via", "x-real-ip", "x-client-ip"];
    let mut names = head.headers.keys().map(|name| name.as_str());
    match names.find(|name| ADDED.contains(name) || name.starts_with("x-forwarded")) {
        Some(name) => Err(Refusal::forbidden(format!(
            "the request came through a proxy ({name}), and {why}"
        ))),
        None => Ok(()),
    }
}

/// Returns the cookie of a session.
pub(super) fn session_cookie(
    request: &HttpRequest,
    shared: &HttpContext,
    value: String,
) -> Cookie<'static> {
    let timeout = shared.config.borrow().chttpd_auth.timeout;
    cookie(
        request,
        value,
        i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
    )
}

/// Returns a cookie that lasts this long; with 0 seconds it ends a session. A cookie set over an encrypted connection
/// is never sent over an unencrypted one.
pub(super) fn cookie(request: &HttpRequest, value: String, seconds: i64) -> Cookie<'static> {
    Cookie::build(COOKIE, value)
        .path("/")
        .max_age(time::Duration::seconds(seconds))
        .http_only(true)
        .secure(is_encrypted(request))
        .same_site(SameSite::Strict)
        .finish()
}

fn basic(credentials: &str) -> Option<(String, String)> {
    let (scheme, encoded) = credentials.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64.decode(encoded.trim().as_bytes()).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_apart_at_the_first_colon() {
        let ann = |password: &str| Some(("ann".to_owned(), password.to_owned()));
        assert_eq!(basic("Basic YW5uOnNlY3JldA=="), ann("secret"));
        assert_eq!(basic("basic  YW5uOmE6Yg=="), ann("a:b"));
        for wrong in [
            "",
            "Basic",
            "Basic !!",
            "Basic YW5u",
            "Bearer YW5uOmE=",
            "Basic /w==",
        ] {
            assert_eq!(basic(wrong), None, "{wrong}");
        }
    }
}
