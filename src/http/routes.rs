//! The paths: which part of the service answers what, and who may ask.

use actix_web::body::{BodySize, MessageBody};
use actix_web::http::{Method, header};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use tokio::time::Instant;

use super::access::{Visitor, admit, peer, renewed_session};
use super::answer::{Answer, Refusal};
use super::body::Account;
use super::guard::Exchange;
use super::outgoing::Outgoing;
use super::request::{allow, require_json, segments};
use super::{
    Shared, answer, config_api, dashboard, info, pools_api, query, replicate, replicator,
    scheduler_api, session_api,
};
use crate::auth::rights::Right;
use crate::in_flight::{Sender, network_of};
use crate::messages::proc_manager::SetThresholdTs;

/// Answers a request, and counts it.
pub(super) async fn route(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> HttpResponse {
    let since = Instant::now();
    let exchange = Exchange::begin(&request);
    let response = respond(&request, payload, &shared, &exchange).await;
    let response = hold(&request, response, exchange);
    let code = response.status().as_u16();
    let method = request.method().as_str();
    shared.metrics.http_request(method, code, since.elapsed());
    response
}

async fn respond(
    request: &HttpRequest,
    payload: web::Payload,
    shared: &web::Data<Shared>,
    exchange: &Exchange,
) -> HttpResponse {
    let visitor = match admit(request, shared).await {
        Ok(visitor) => visitor,
        Err(refusal) => return refusal.response(),
    };
    if visitor.is_known() {
        exchange.set_known();
        let sender = Sender {
            peer: peer(request).map(network_of),
            user: visitor.name.clone(),
        };
        let account = Account::new(shared.in_flight.share(sender));
        request.extensions_mut().insert(account);
    }
    let answer = answer_to(request, payload, shared, &visitor).await;
    let mut response = answer.unwrap_or_else(|refusal| refusal.response());
    // A session that was begun or ended just now is not the one that came with the request.
    if !response.headers().contains_key(header::SET_COOKIE)
        && let Some(cookie) = renewed_session(shared, &visitor)
    {
        // A cookie of these letters can always be written.
        let _ = response.add_cookie(&cookie);
    }
    response
}

/// Holds what the request holds until its answer has gone out. An answer that finds no room is refused.
fn hold(request: &HttpRequest, response: HttpResponse, exchange: Exchange) -> HttpResponse {
    let account = request.extensions_mut().remove::<Account>();
    let length = match response.body().size() {
        BodySize::Sized(length) => usize::try_from(length).unwrap_or(usize::MAX),
        _ => return response.map_body(|_, body| Outgoing::new(body, exchange, account).boxed()),
    };
    let response = match account.as_ref().map(|account| account.set(length)) {
        Some(Err(refusal)) => refusal.response(),
        _ => response,
    };
    response.map_body(|_, body| Outgoing::new(body, exchange, account).boxed())
}

async fn answer_to(
    request: &HttpRequest,
    payload: web::Payload,
    shared: &web::Data<Shared>,
    visitor: &Visitor,
) -> Answer {
    const GET: &[Method] = &[Method::GET];
    let path = segments(request.path())?;
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        [] => {
            allow(request, GET)?;
            Ok(info::welcome(shared).await)
        }
        ["_up"] => {
            allow(request, GET)?;
            info::up(shared)
        }
        ["_session"] => session_api::answer(request, payload, shared, visitor).await,
        ["_dashboard", path @ ..] => dashboard::answer(path, request, shared, visitor).await,
        // Who is nobody does not even learn what there is.
        _ => {
            visitor.must_be_known()?;
            answer_to_known(&path, request, payload, shared, visitor).await
        }
    }
}

/// Answers somebody who has logged in.
async fn answer_to_known(
    path: &[&str],
    request: &HttpRequest,
    payload: web::Payload,
    shared: &web::Data<Shared>,
    visitor: &Visitor,
) -> Answer {
    const GET: &[Method] = &[Method::GET];
    const POST: &[Method] = &[Method::POST];
    match path {
        ["_active_tasks"] => {
            allow(request, GET)?;
            visitor.needs(Right::Look)?;
            let mut tasks = shared.tasks.list();
            tasks.extend(shared.replications.tasks().await?);
            Ok(answer::ok(&tasks))
        }
        ["_replicate"] => replicate::answer(request, payload, shared, visitor).await,
        ["_scheduler", path @ ..] => {
            scheduler_api::answer(path, request, payload, shared, visitor).await
        }
        ["_replicator", path @ ..] => {
            replicator::answer(path, request, payload, shared, visitor).await
        }
        ["metrics"] => {
            allow(request, GET)?;
            visitor.needs(Right::Look)?;
            info::prometheus(shared).await
        }
        ["_reload_query_servers"] => {
            allow(request, POST)?;
            visitor.needs(Right::Operate)?;
            require_json(request)?;
            reload_query_servers(shared).await
        }
        ["_pools", path @ ..] => pools_api::answer(path, request, payload, shared, visitor).await,
        ["_query", name] => {
            allow(request, POST)?;
            visitor.needs(Right::Call)?;
            query::answer(name, request, payload, shared, visitor).await
        }
        ["_node", "_local", rest @ ..] => match rest {
            ["_config", place @ ..] => {
                visitor.needs(match *request.method() {
                    Method::GET | Method::HEAD => Right::Inspect,
                    _ => Right::Administer,
                })?;
                config_api::answer(place, request, payload, shared).await
            }
            ["_stats", path @ ..] => {
                allow(request, GET)?;
                visitor.needs(Right::Look)?;
                info::stats(path, shared).await
            }
            ["_prometheus"] => {
                allow(request, GET)?;
                visitor.needs(Right::Look)?;
                info::prometheus(shared).await
            }
            ["_system"] => {
                allow(request, GET)?;
                visitor.needs(Right::Look)?;
                info::system(shared).await
            }
            _ => Err(no_such_path()),
        },
        ["_node", name, ..] => Err(Refusal::not_found(&format!(
            "no such node: {name}; this one is _local"
        ))),
        _ => Err(no_such_path()),
    }
}

fn no_such_path() -> Refusal {
    Refusal::not_found("missing: there is nothing at this path")
}

async fn reload_query_servers(shared: &Shared) -> Answer {
    let reloaded = shared
        .gateway
        .run(|inside| async move { inside.manager.address().send(SetThresholdTs).await.is_ok() });
    match reloaded.await? {
        true => Ok(answer::done()),
        false => Err(shutting_down()),
    }
}

/// The manager is gone: the service ends, or it is being started again.
pub(super) fn shutting_down() -> Refusal {
    Refusal::unavailable("shutting_down", "the service is shutting down")
}
