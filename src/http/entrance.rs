//! The processing of every request before its handler, and of every answer after it.
//!
//! SUMMARY   [`serve`] is a middleware around all routes: it identifies the sender, and tracks the request's id, memory
//!           and duration. [`expected`] runs before it for requests whose body waits for `100 Continue`.
//! PROMISES  Without a login, a visitor does not learn whether a path that is not public exists. The memory of a
//!           request is held until its answer has been sent.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::LazyLock;

use actix_http::{ConnectionType, Request, Response};
use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody};
use actix_web::dev::{RequestHead, ResourceDef, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse};
use bytes::Bytes;
use futures_util::stream;
use strum::VariantArray;
use tokio::time::Instant;

use super::access::{Visitor, admit, session_cookie};
use super::answer::{HttpResult, Refusal};
use super::body::Account;
use super::guard::{Connection, Exchange};
use super::outgoing::Outgoing;
use super::request::{decode, text, trimmed};
use super::{HttpContext, Shared};
use crate::in_flight::{Sender, network_of};
use crate::operations::{Route, Who};
use crate::query_server::request_id::RequestId;

/// The header with the id of a request, in the request and in its answer.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Answers a request, and counts it.
pub(super) async fn serve(
    shared: Shared,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let since = Instant::now();
    let request_id = RequestId::of(text(request.head(), REQUEST_ID));
    request.extensions_mut().insert(request_id.clone());
    let exchange = Exchange::begin(request.request());
    let response = match let_in(request.request(), &shared, &exchange).await {
        Ok(()) => next.call(request).await?,
        Err(refusal) => request.into_response(refusal.response()),
    };
    let (request, mut response) = response.into_parts();
    renew_session(&request, &mut response, &shared);
    let mut response = hold(&request, response, exchange);
    finish(request.head(), &request_id, &mut response, since, &shared);
    if *shared.stopping.borrow() {
        // The client should send its next request over a new connection, to the next service.
        response
            .head_mut()
            .set_connection_type(ConnectionType::Close);
    }
    Ok(ServiceResponse::new(request, response))
}

/// Lets the sender of a body that waits for `100 Continue` send it, if allowed. The sender's identity is kept for the
/// request.
///
/// # Errors
/// The answer instead of `100 Continue`; the connection closes after it.
pub(super) async fn expected(
    request: Request,
    shared: &HttpContext,
) -> Result<Request, Response<BoxBody>> {
    let since = Instant::now();
    let connection = request.conn_data::<Rc<Connection>>().cloned();
    match know(request.head(), connection.as_deref(), shared).await {
        Ok(visitor) => {
            request.extensions_mut().insert(visitor);
            Ok(request)
        }
        Err(refusal) => {
            let mut response = refusal.response();
            response
                .head_mut()
                .set_connection_type(ConnectionType::Close);
            finish(
                request.head(),
                &RequestId::of(text(request.head(), REQUEST_ID)),
                &mut response,
                since,
                shared,
            );
            Err(response.into())
        }
    }
}

/// Writes the request's id into its answer, and counts the request.
fn finish(
    head: &RequestHead,
    request_id: &RequestId,
    response: &mut HttpResponse,
    since: Instant,
    shared: &HttpContext,
) {
    // An id of printable characters is always valid.
    if let Ok(request_id) = HeaderValue::try_from(request_id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, request_id);
    }
    let (method, code) = (head.method.as_str(), response.status().as_u16());
    shared.metrics.http_request(method, code, since.elapsed());
}

/// Identifies the sender of a request, and opens an account of its memory.
async fn let_in(
    request: &HttpRequest,
    shared: &HttpContext,
    exchange: &Exchange,
) -> HttpResult<()> {
    let found = request.extensions_mut().remove::<Rc<Visitor>>();
    let visitor = match found {
        Some(visitor) => visitor,
        None => {
            know(
                request.head(),
                request.conn_data::<Rc<Connection>>().map(|own| &**own),
                shared,
            )
            .await?
        }
    };
    if visitor.is_known() {
        exchange.set_known();
        let sender = Sender {
            peer: visitor.peer().map(network_of),
            uid: visitor.uid(),
            user: visitor.name.clone(),
        };
        request
            .extensions_mut()
            .insert(Account::new(shared.in_flight.share(sender)));
    }
    request.extensions_mut().insert(visitor);
    Ok(())
}

/// Identifies the sender of a request, and refuses it if a login is needed and missing.
async fn know(
    head: &RequestHead,
    connection: Option<&Connection>,
    shared: &HttpContext,
) -> HttpResult<Rc<Visitor>> {
    let visitor = admit(head, connection, shared).await?;
    if !is_public(&decode(head.uri.path())?) && !visitor.is_known() {
        return Err(Refusal::unauthorized("Authentication required."));
    }
    Ok(Rc::new(visitor))
}

/// The paths that need no login.
static PUBLIC: LazyLock<ResourceDef> = LazyLock::new(|| {
    let is_public = |who| matches!(who, Who::Anybody | Who::OnPage(_));
    let public = Route::VARIANTS
        .iter()
        .filter(|route| is_public(route.who()));
    ResourceDef::new(public.map(|route| route.path()).collect::<Vec<_>>())
});

fn is_public(path: &str) -> bool {
    PUBLIC.is_match(&format!("/{}", trimmed(path)))
}

/// Renews a session cookie, unless the request has just begun or ended a session.
fn renew_session(request: &HttpRequest, response: &mut HttpResponse, shared: &HttpContext) {
    if response.headers().contains_key(header::SET_COOKIE) {
        return;
    }
    let visitor = request.extensions().get::<Rc<Visitor>>().cloned();
    let session = visitor
        .as_ref()
        .and_then(|visitor| visitor.session.as_ref());
    let session = session.filter(|session| session.needs_renewal);
    if let Some(value) = session.and_then(|session| shared.authority.renew(session)) {
        // The characters of a session cookie are always valid.
        let _ = response.add_cookie(&session_cookie(request, shared, value));
    }
}

/// Holds the memory of a request until its answer has been sent. If there is no memory for the answer, returns an error
/// instead.
fn hold(request: &HttpRequest, response: HttpResponse, exchange: Exchange) -> HttpResponse {
    let account = request.extensions_mut().remove::<Account>();
    let length = match response.body().size() {
        BodySize::Sized(length) => usize::try_from(length).ok(),
        BodySize::None | BodySize::Stream => None,
    };
    let response = match account
        .as_ref()
        .zip(length)
        .map(|(account, length)| account.set(length))
    {
        Some(Err(refusal)) => refusal.response(),
        _ => response,
    };
    let is_head = request.method() == Method::HEAD;
    response.map_body(|_, body| {
        let body = match body.size() {
            // The library would poll the stream to its end, sending nothing, and a feed has no end.
            BodySize::Stream if is_head => {
                let nothing = stream::empty::<Result<Bytes, Infallible>>();
                BodyStream::new(nothing).boxed()
            }
            _ => body,
        };
        Outgoing::new(body, exchange, account).boxed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_login_only_public_paths_are_visible() {
        let paths = Route::VARIANTS.iter().map(|route| route.path());
        let mut public: Vec<_> = paths.filter(|path| is_public(path)).collect();
        public.dedup();
        let known = [
            "/",
            "/_up",
            "/_openapi",
            "/_session",
            "/_dashboard",
            "/_dashboard/state",
            "/_dashboard/history",
            "/_dashboard/{file}",
        ];
        assert_eq!(public, known);
        assert!(is_public("/_dashboard/page.js") && is_public("/_up/"));
        assert!(!is_public("/_dashboard/x/y") && !is_public("/x"));
        assert!(!is_public("/_dashboard_link"));
    }
}
