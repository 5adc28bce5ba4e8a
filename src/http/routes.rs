//! The paths: which handler answers what, and what that takes.
//!
//! SUMMARY   [`table`] says it. A method of a path cannot be declared without the rights of which one is
//!           needed; that none is needed can be declared of what is public alone.
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
    HttpContext, config_api as config, dashboard, entrance, fleet_api as fleet,
    functions_api as functions, history, info, list_stream, map_stream, pools_api as pools,
    procs_api as procs, query, replicate, scheduler_api as scheduler, session_api as session,
    tasks,
};
use crate::auth::rights::Right::{self, Administer, Call, Inspect, Look, Operate, Replicate};
use crate::otp::registered_name::RegisteredName;

const GET: Method = Method::GET;
const PUT: Method = Method::PUT;
const POST: Method = Method::POST;
const DELETE: Method = Method::DELETE;

const CONFIG_KEY: &str = "/_node/_local/_config/{section}/{key}";
const JOB_ORDER: &str = "/_scheduler/jobs/{id}/{order:_pause|_resume|_restart|_priority}";

/// Declares all paths.
pub(super) fn routes(app: &mut ServiceConfig) {
    let mut table = table().into_iter().peekable();
    while let Some(first) = table.next() {
        let path = first.path;
        let mut methods = vec![first];
        methods.extend(std::iter::from_fn(|| {
            table.next_if(|next| next.path == path)
        }));
        app.service(resource(path, methods));
    }
    app.service(web::resource(["/_replicator", "/_replicator/{below:.*}"]).to(replicator))
        .service(web::resource(["/_node/{name}", "/_node/{name}/{below:.*}"]).to(no_such_node))
        .default_service(web::to(|| ready(Answer::Err(Refusal::no_such_path()))));
}

/// A path's methods stand together.
fn table() -> Vec<Declared> {
    vec![
        on(GET, "/", [], info::welcome),
        on(GET, "/_up", [], info::up),
        on(GET, "/_session", [], session::who),
        on(POST, "/_session", [], session::log_in),
        on(DELETE, "/_session", [], session::log_out),
        on(GET, "/_dashboard", [], dashboard::page),
        on(GET, "/_dashboard/state", [], dashboard::state),
        on(GET, "/_dashboard/history", [], history::history),
        on(GET, "/_dashboard/{file}", [], dashboard::part),
        on(GET, "/_active_tasks", [Look], tasks::list),
        on(GET, "/_fleet", [Look], fleet::list),
        on(GET, "/_functions", [Look], functions::list),
        on(GET, "/metrics", [Look], info::prometheus),
        on(POST, "/_reload_query_servers", [Operate], pools::reload),
        on(POST, "/_replicate", [Replicate], replicate::replicate),
        on(GET, "/_pools", [Look], pools::list),
        on(GET, "/_pools/{name}", [Look], pools::show),
        on(PUT, "/_pools/{name}", [Operate], pools::put),
        on(DELETE, "/_pools/{name}", [Operate], pools::delete),
        on(GET, "/_pools/{name}/_procs", [Look], pools::procs),
        on(
            POST,
            "/_pools/{name}/_terminate_stale",
            [Operate],
            pools::terminate_stale,
        ),
        on(
            POST,
            "/_pools/{name}/_unthrottle",
            [Operate],
            pools::unthrottle,
        ),
        on(GET, "/_procs", [Look], procs::list),
        on(DELETE, "/_procs/{pool}/{number}", [Operate], procs::kill),
        on(POST, "/_query/{name:map}", [Call], map_stream::map).of_lines(),
        on(POST, "/_query/{name:map}", [Call], query::call),
        on(POST, "/_query/{name:list}", [Call], list_stream::list).of_lines(),
        on(POST, "/_query/{name:list}", [Call], query::call),
        on(POST, "/_query/{name}", [Call], query::call),
        on(GET, "/_scheduler/jobs", [Look, Replicate], scheduler::jobs),
        on(
            POST,
            "/_scheduler/_bulk",
            [Operate, Replicate],
            scheduler::bulk,
        ),
        on(
            GET,
            "/_scheduler/jobs/{id}",
            [Look, Replicate],
            scheduler::job,
        ),
        on(POST, JOB_ORDER, [Operate, Replicate], scheduler::order),
        on(
            GET,
            "/_scheduler/docs",
            [Inspect, Replicate],
            scheduler::docs,
        ),
        on(
            GET,
            "/_scheduler/docs/{below:.*}",
            [Inspect, Replicate],
            scheduler::docs,
        ),
        on(GET, "/_node/_local/_stats", [Look], info::stats),
        on(GET, "/_node/_local/_stats/{below:.*}", [Look], info::stats),
        on(GET, "/_node/_local/_prometheus", [Look], info::prometheus),
        on(GET, "/_node/_local/_system", [Look], info::system),
        on(GET, "/_node/_local/_config", [Inspect], config::everything),
        on(
            POST,
            "/_node/_local/_config/_reload",
            [Administer],
            config::reload,
        ),
        on(
            GET,
            "/_node/_local/_config/{section}",
            [Inspect],
            config::section,
        ),
        on(GET, CONFIG_KEY, [Inspect], config::value),
        on(PUT, CONFIG_KEY, [Administer], config::put),
        on(DELETE, CONFIG_KEY, [Administer], config::delete),
    ]
}

/// A method of a path, with what answers it.
struct Declared {
    path: &'static str,
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

/// Declares a method of a path: which rights, of which one is needed, and what answers.
fn on<F, Args, const N: usize>(
    method: Method,
    path: &'static str,
    rights: [Right; N],
    handler: F,
) -> Declared
where
    F: Handler<Args, Output = Answer>,
    Args: FromRequest + 'static,
{
    assert!(
        N > 0 || entrance::is_public(path),
        "{path} takes no right, and is not public"
    );
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
        path,
        method,
        route: route.wrap(from_fn(check)),
    }
}

/// Makes the resource of a path with its methods.
fn resource(path: &str, methods: Vec<Declared>) -> Resource {
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
    let resource = web::resource([path.to_owned(), format!("{path}/")]);
    let resource = resource.default_service(web::to(other));
    let routes = methods.into_iter().map(|declared| declared.route);
    routes.fold(resource, Resource::route)
}

/// The replicator database takes its paths apart by itself.
async fn replicator(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<HttpContext>,
    user: User,
) -> Answer {
    let path = segments(request.path())?;
    let path: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
    super::replicator::answer(&path, &request, payload, &shared, &user).await
}

async fn no_such_node(request: HttpRequest) -> Answer {
    let path = segments(request.path())?;
    Err(match path.get(1).map_or("", String::as_str) {
        "_local" => Refusal::no_such_path(),
        name => Refusal::not_found(&format!("no such node: {name}; this one is _local")),
    })
}

/// Asks an actor on the pool's arbiter.
pub(super) async fn ask<A, M>(actor: &RegisteredName<A>, question: M) -> Result<M::Result, Refusal>
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_no_right_is_public_and_nothing_else_is() {
        for declared in table() {
            let public = ["/", "/_up", "/_session"].contains(&declared.path);
            let public = public || declared.path.starts_with("/_dashboard");
            assert_eq!(
                entrance::is_public(declared.path),
                public,
                "{}",
                declared.path
            );
        }
    }

    #[test]
    #[should_panic(expected = "takes no right")]
    fn a_path_that_takes_no_right_by_mistake_cannot_be_declared() {
        on(GET, "/_pools", [], pools::list);
    }
}
