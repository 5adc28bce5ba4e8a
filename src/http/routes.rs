//! The paths: which handler answers what, and what that takes.
//!
//! SUMMARY   [`routes`] is the table. A method of a path cannot be declared without the rights of which
//!           one is needed; no right is for what is public, or for a handler that asks for itself.
//! PROMISES  A method that a path does not have is told with those that it has. `HEAD` may stand wherever
//!           `GET` may, and a slash at the end makes no difference.

use std::future::ready;

use actix::{Actor, Context, Message};
use actix_web::body::BoxBody;
use actix_web::dev::ServiceRequest;
use actix_web::guard::fn_guard;
use actix_web::http::Method;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{FromRequest, Handler, HttpRequest, Resource, Route};

use super::access::User;
use super::answer::{Answer, Refusal};
use super::request::{is_lines, segments};
use super::{
    Shared, config_api, dashboard, info, list_stream, map_stream, pools_api, query, replicate,
    scheduler_api, session_api, tasks,
};
use crate::auth::rights::Right::{self, Administer, Call, Inspect, Look, Operate, Replicate};
use crate::otp::named::Named;

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const DELETE: Method = Method::DELETE;

/// Declares all paths.
pub(super) fn routes(app: &mut ServiceConfig) {
    app.service(resource("/", [on(GET, [], info::welcome)]))
        .service(resource("/_up", [on(GET, [], info::up)]))
        .service(resource(
            "/_session",
            [
                on(GET, [], session_api::who),
                on(POST, [], session_api::log_in),
                on(DELETE, [], session_api::log_out),
            ],
        ))
        .service(resource("/_dashboard", [on(GET, [], dashboard::page)]))
        .service(resource(
            "/_dashboard/page.css",
            [on(GET, [], dashboard::style)],
        ))
        .service(resource(
            "/_dashboard/page.js",
            [on(GET, [], dashboard::script)],
        ))
        .service(resource(
            "/_dashboard/state",
            [on(GET, [], dashboard::state)],
        ))
        .service(resource("/_active_tasks", [on(GET, [Look], tasks::list)]))
        .service(resource("/metrics", [on(GET, [Look], info::prometheus)]))
        .service(resource(
            "/_reload_query_servers",
            [on(POST, [Operate], pools_api::reload_query_servers)],
        ))
        .service(resource(
            "/_replicate",
            [on(POST, [Replicate], replicate::replicate)],
        ))
        .service(web::resource(tree("/_replicator")).to(replicator))
        .service(web::scope("/_pools").configure(pools))
        .service(web::scope("/_query").configure(functions))
        .service(web::scope("/_scheduler").configure(scheduler))
        .service(web::scope("/_node/_local").configure(node))
        .service(web::resource(tree("/_node/{name}")).to(no_such_node))
        .default_service(web::to(|| ready(Answer::Err(Refusal::no_such_path()))));
}

fn pools(scope: &mut ServiceConfig) {
    scope
        .service(resource("", [on(GET, [Look], pools_api::list)]))
        .service(resource(
            "/{name}",
            [
                on(GET, [Look], pools_api::show),
                on(PUT, [Operate], pools_api::put),
                on(DELETE, [Operate], pools_api::delete),
            ],
        ))
        .service(resource(
            "/{name}/_procs",
            [on(GET, [Look], pools_api::procs)],
        ))
        .service(resource(
            "/{name}/_terminate_stale",
            [on(POST, [Operate], pools_api::terminate_stale)],
        ))
        .service(resource(
            "/{name}/_unthrottle",
            [on(POST, [Operate], pools_api::unthrottle)],
        ));
}

fn functions(scope: &mut ServiceConfig) {
    let whole = || on(POST, [Call], query::call);
    scope
        .service(resource(
            "/{name:map}",
            [on(POST, [Call], map_stream::map).of_lines(), whole()],
        ))
        .service(resource(
            "/{name:list}",
            [on(POST, [Call], list_stream::list).of_lines(), whole()],
        ))
        .service(resource("/{name}", [whole()]));
}

fn scheduler(scope: &mut ServiceConfig) {
    scope
        .service(resource(
            "/jobs",
            [on(GET, [Look, Replicate], scheduler_api::jobs)],
        ))
        .service(resource(
            "/jobs/{id}",
            [on(GET, [Look, Replicate], scheduler_api::job)],
        ))
        .service(resource(
            "/jobs/{id}/{order:_pause|_resume|_restart|_priority}",
            [on(POST, [Operate, Replicate], scheduler_api::order)],
        ))
        .service(resources(
            tree("/docs"),
            [on(GET, [Inspect, Replicate], scheduler_api::docs)],
        ));
}

fn node(scope: &mut ServiceConfig) {
    scope
        .service(resources(tree("/_stats"), [on(GET, [Look], info::stats)]))
        .service(resource(
            "/_prometheus",
            [on(GET, [Look], info::prometheus)],
        ))
        .service(resource("/_system", [on(GET, [Look], info::system)]))
        .service(resource(
            "/_config",
            [on(GET, [Inspect], config_api::everything)],
        ))
        .service(resource(
            "/_config/_reload",
            [on(POST, [Administer], config_api::reload)],
        ))
        .service(resource(
            "/_config/{section}",
            [on(GET, [Inspect], config_api::section)],
        ))
        .service(resource(
            "/_config/{section}/{key}",
            [
                on(GET, [Inspect], config_api::value),
                on(PUT, [Administer], config_api::put),
                on(DELETE, [Administer], config_api::delete),
            ],
        ));
}

/// A method of a path, with what answers it.
struct Declared {
    method: Method,
    route: Route,
}

impl Declared {
    /// Answers only requests whose body is lines.
    fn of_lines(self) -> Self {
        let route = self
            .route
            .guard(fn_guard(|request| is_lines(request.head())));
        Self { route, ..self }
    }
}

/// Declares a method: which rights, of which one is needed, and what answers.
fn on<F, Args, const N: usize>(method: Method, rights: [Right; N], handler: F) -> Declared
where
    F: Handler<Args, Output = Answer>,
    Args: FromRequest + 'static,
{
    let wanted = method.clone();
    let is_wanted = fn_guard(move |request| {
        let given = &request.head().method;
        *given == wanted || wanted == GET && *given == Method::HEAD
    });
    let check = move |user: User, request: ServiceRequest, next: Next<BoxBody>| async move {
        match user.needs_one_of(&rights) {
            Ok(()) => next.call(request).await,
            Err(refusal) => Ok(request.into_response(refusal.response())),
        }
    };
    let route = web::route().guard(is_wanted).to(handler);
    Declared {
        method,
        route: route.wrap(from_fn(check)),
    }
}

/// Declares a path with its methods.
fn resource<const N: usize>(path: &str, methods: [Declared; N]) -> Resource {
    resources([path.to_owned(), format!("{path}/")], methods)
}

/// Returns the patterns of a path and of all below it.
fn tree(path: &str) -> [String; 2] {
    [path.to_owned(), format!("{path}/{{below:.*}}")]
}

fn resources<const N: usize>(paths: [String; 2], methods: [Declared; N]) -> Resource {
    let mut allowed: Vec<&str> = Vec::new();
    for Declared { method, .. } in &methods {
        match *method {
            Method::GET => allowed.extend(["GET", "HEAD"]),
            _ => allowed.push(method.as_str()),
        }
    }
    allowed.dedup();
    let allowed = allowed.join(",");
    let other = move || ready(Answer::Err(Refusal::method_not_allowed(&allowed)));
    let resource = web::resource(paths).default_service(web::to(other));
    let routes = methods.into_iter().map(|declared| declared.route);
    routes.fold(resource, Resource::route)
}

/// The replicator database takes its paths apart by itself.
async fn replicator(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
    user: User,
) -> Answer {
    let path = segments(request.path())?;
    let path: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
    super::replicator::answer(&path, &request, payload, &shared, &user).await
}

async fn no_such_node(request: HttpRequest) -> Answer {
    let path = segments(request.path())?;
    let name = path.get(1).map_or("", String::as_str);
    Err(Refusal::not_found(&format!(
        "no such node: {name}; this one is _local"
    )))
}

/// Asks an actor on the pool's arbiter.
pub(super) async fn ask<A, M>(actor: &Named<A>, question: M) -> Result<M::Result, Refusal>
where
    A: Actor<Context = Context<A>> + actix::Handler<M>,
    M: Message<Result: Send> + Send + 'static,
{
    let asked = actor.address().send(question).await;
    asked.map_err(|_| shutting_down())
}

/// The manager is gone: the service ends, or it is being started again.
pub(super) fn shutting_down() -> Refusal {
    Refusal::unavailable("shutting_down", "the service is shutting down")
}
