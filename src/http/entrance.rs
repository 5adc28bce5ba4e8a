//! What is done with every request before its handler, and with every answer after it.
//!
//! SUMMARY   A middleware around all routes: who sent the request, its name, what memory it may hold, how long it took.
//! PROMISES  A visitor who has not logged in does not learn whether a path that is not public exists,
//!           whatever the route says. What a request holds is held until its answer has been sent.

use std::rc::Rc;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse, web};
use tokio::time::Instant;

use super::HttpContext;
use super::access::{Visitor, admit, renewed_session};
use super::answer::Refusal;
use super::body::Account;
use super::guard::Exchange;
use super::outgoing::Outgoing;
use super::request::{decode, text, trimmed};
use crate::in_flight::{Sender, network_of};
use crate::query_server::request_id::RequestId;

/// Names a request, in both directions.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Answers a request, and counts it.
pub(super) async fn serve(
    shared: web::Data<HttpContext>,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let since = Instant::now();
    let request_id = name(request.request());
    let exchange = Exchange::begin(request.request());
    let response = match let_in(request.request(), &shared, &exchange).await {
        Ok(()) => next.call(request).await?,
        Err(refusal) => request.into_response(refusal.response()),
    };
    let (request, mut response) = response.into_parts();
    renew_session(&request, &mut response, &shared);
    let mut response = hold(&request, response, exchange);
    // A name of printable characters can always be written.
    if let Ok(request_id) = HeaderValue::try_from(request_id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, request_id);
    }
    let code = response.status().as_u16();
    let method = request.method().as_str();
    shared.metrics.http_request(method, code, since.elapsed());
    Ok(ServiceResponse::new(request, response))
}

/// Gives the request its name: the one that the client has for it, or one of ours.
fn name(request: &HttpRequest) -> RequestId {
    let request_id = RequestId::of(text(request, REQUEST_ID));
    request.extensions_mut().insert(request_id.clone());
    request_id
}

/// Finds out who sent the request, and opens the account of what it holds.
async fn let_in(
    request: &HttpRequest,
    shared: &HttpContext,
    exchange: &Exchange,
) -> Result<(), Refusal> {
    let visitor = admit(request, shared).await?;
    if visitor.is_known() {
        exchange.set_known();
        let sender = Sender {
            peer: visitor.peer().map(network_of),
            user: visitor.name.clone(),
        };
        let account = Account::new(shared.in_flight.share(sender));
        request.extensions_mut().insert(account);
    }
    let path = decode(request.path())?;
    if !is_public(&path) {
        visitor.must_be_known()?;
    }
    request.extensions_mut().insert(Rc::new(visitor));
    Ok(())
}

/// Returns whether a path is public: visitors who have not logged in may see it.
pub(super) fn is_public(path: &str) -> bool {
    let path = trimmed(path);
    matches!(path, "" | "_up" | "_session" | "_dashboard") || path.starts_with("_dashboard/")
}

/// A session that was begun or ended just now is not the one that came with the request.
fn renew_session(request: &HttpRequest, response: &mut HttpResponse, shared: &HttpContext) {
    if response.headers().contains_key(header::SET_COOKIE) {
        return;
    }
    let visitor = request.extensions().get::<Rc<Visitor>>().cloned();
    if let Some(cookie) = visitor.and_then(|visitor| renewed_session(request, shared, &visitor)) {
        // A cookie of these letters can always be written.
        let _ = response.add_cookie(&cookie);
    }
}

/// Keeps what the request holds until its answer has been sent. An answer for which there is no memory is
/// refused.
fn hold(request: &HttpRequest, response: HttpResponse, exchange: Exchange) -> HttpResponse {
    let account = request.extensions_mut().remove::<Account>();
    let length = match response.body().size() {
        BodySize::Sized(length) => usize::try_from(length).ok(),
        _ => None,
    };
    let held = account.as_ref().zip(length);
    let response = match held.map(|(account, length)| account.set(length)) {
        Some(Err(refusal)) => refusal.response(),
        _ => response,
    };
    response.map_body(|_, body| Outgoing::new(body, exchange, account).boxed())
}
