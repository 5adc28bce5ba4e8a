//! The paths and their handlers.
//!
//! SUMMARY   [`answered_by`] maps each route of [`crate::operations`] to its handler; its row there has the
//!           permissions.
//! PROMISES  The answer to a refused method lists the path's methods. `HEAD` is allowed wherever `GET` is, and a
//!           trailing slash makes no difference.

use std::future::ready;
use std::rc::Rc;
use std::sync::LazyLock;

use actix_web::body::BoxBody;
use actix_web::dev::ServiceRequest;
use actix_web::guard::fn_guard;
use actix_web::http::Method;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, ServiceConfig, to};
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse, Resource};
use serde_json::Value;
use strum::VariantArray;

use super::Shared;
use super::access::User;
use super::answer::{Answer, Refusal};
use super::body::{AtMost, UNKNOWN_BYTES_MAX};
use super::params::Params;
use super::request::{NDJSON, content_type, decode, require_json, segments};
use super::{
    config_api as config, dashboard, export_api as export, functions_api as functions, history,
    info, list_stream, map_stream, pools_api as pools, procs_api as procs, query, replicate,
    replicator, scheduler_api as scheduler, session_api as session, tasks, tenant_log,
};
use crate::audit::{PendingOrder, Sender};
use crate::messages::arguments::Arguments;
use crate::operations::{LONG_NAME_BYTES_MAX, NAME_BYTES_MAX, Route, check_name};
use crate::query_server::request_id::RequestId;
use crate::replicator::JobOrder;

/// Declares all paths.
pub(super) fn routes(app: &mut ServiceConfig) {
    for (path, routes) in by_path() {
        app.service(resource(path, &routes));
    }
    let no_such_query = || {
        ready(Answer::Err(Refusal::not_found(
            "missing: there is no such query",
        )))
    };
    app.service(web::resource("/_query/{name}").to(no_such_query))
        .service(web::resource("/_replicator/{below:.*}").to(replicator::no_such_path))
        .service(web::resource(["/_node/{name}", "/_node/{name}/{below:.*}"]).to(no_such_node))
        .default_service(to(|| ready(Answer::Err(Refusal::no_such_path()))));
}

/// Returns the paths in order, each with its routes in order.
fn by_path() -> Vec<(&'static str, Vec<Route>)> {
    let mut paths: Vec<(&str, Vec<Route>)> = Vec::new();
    for route in Route::VARIANTS {
        match paths.iter_mut().find(|(path, _)| *path == route.path()) {
            Some((_, routes)) => routes.push(*route),
            None => paths.push((route.path(), vec![*route])),
        }
    }
    paths
}

/// Returns a route's handler.
#[expect(clippy::too_many_lines, reason = "one line for each route")]
fn answered_by(route: Route) -> actix_web::Route {
    use Route::*;
    let lines = || fn_guard(|request| content_type(request.head()) == NDJSON);
    match route {
        Welcome => to(info::welcome),
        Up => to(info::up),
        Health => to(info::health),
        AcknowledgeLosses => to(info::acknowledge),
        DrainState => to(info::drain_state),
        Drain => to(info::drain),
        Undrain => to(info::undrain),
        Audit => to(info::audit),
        OpenApi => to(info::openapi),
        ShowSession => to(session::who),
        LogIn => to(session::log_in),
        LogOut => to(session::log_out),
        Limits => to(query::limits),
        MapStream => to(map_stream::map).guard(lines()),
        ListStream => to(list_stream::list).guard(lines()),
        Functions => to(functions::list),
        Tenants => to(functions::tenants),
        TenantLog => to(tenant_log::log),
        Status => to(pools::status),
        Pools => to(pools::list),
        Pool => to(pools::show),
        PoolProcs => to(pools::procs),
        PutPool => to(pools::put),
        RemovePool => to(pools::delete),
        UnthrottlePool => to(pools::unthrottle),
        TerminateStale => to(pools::terminate_stale),
        Reload => to(pools::reload),
        Procs => to(procs::list),
        KillProc => to(procs::kill),
        System => to(info::system),
        Tasks => to(tasks::list),
        Stats | StatsPart => to(info::stats),
        Metrics | Prometheus => to(info::prometheus),
        ReloadConfig => to(config::reload),
        PlanConfig => to(config::plan),
        Config => to(config::everything),
        ConfigSection => to(config::section),
        ConfigValue => to(config::value),
        SetConfig => to(config::put),
        UnsetConfig => to(config::delete),
        DashboardLink => to(dashboard::link),
        DashboardPage => to(dashboard::page),
        DashboardState => to(dashboard::state::state),
        DashboardHistory => to(history::history),
        DashboardFile => to(dashboard::part),
        Replicate => to(replicate::replicate),
        Jobs => to(scheduler::jobs),
        Job => to(scheduler::job),
        OrderJobs => to(scheduler::bulk),
        PauseJob => scheduler::order(route, |_| Ok(JobOrder::Pause)),
        ResumeJob => scheduler::order(route, |_| Ok(JobOrder::Resume)),
        RestartJob => scheduler::order(route, |_| Ok(JobOrder::Restart)),
        SetJobPriority => scheduler::order(route, scheduler::priority),
        Docs | DocsBelow => to(scheduler::docs),
        Fleet => to(info::fleet),
        ExportJobs => to(export::export),
        ImportJobs => to(export::import),
        Database => to(replicator::info),
        CreateDatabase => to(replicator::create),
        PostDoc => to(replicator::post),
        AllDocs | PostAllDocs => to(replicator::all_docs),
        Changes | PostChanges => to(replicator::changes),
        BulkDocs => to(replicator::bulk_docs),
        Security => to(replicator::security),
        SetSecurity => to(replicator::set_security),
        GetRevisions | PutRevisions | PostRevisions => to(replicator::revisions),
        GetDoc | GetReserved => to(replicator::get),
        PutDoc | PutReserved => to(replicator::put),
        DeleteDoc | DeleteReserved => to(replicator::delete),
        // A function's route is named after it.
        function => query::route(function.into()),
    }
}

/// Returns a route's handler for its method, behind the checks of names, permission, audit and parameters.
fn guarded(route: Route) -> actix_web::Route {
    let (wanted, who) = (route.method(), route.who());
    let is_wanted = fn_guard(move |request| {
        let given = &request.head().method;
        *given == wanted || wanted == Method::GET && *given == Method::HEAD
    });
    let check = move |user: User, mut request: ServiceRequest, next: Next<BoxBody>| async move {
        if let Err(refusal) = check_names(&request) {
            return Ok(request.into_response(refusal.response()));
        }
        let order = route.changes().then(|| begin(route, &user, &request));
        let unrecorded = order.as_ref().and_then(|order| order.audit().refusal());
        let recorded = unrecorded.map_or(Ok(()), |error| {
            let reason = format!(
                "orders cannot be recorded, and [log] audit_required is set: {error}; make room for [log] audit, and try again"
            );
            Err(Refusal::unavailable("audit_unavailable", reason))
        });
        let checked = match user.check(who).and(recorded) {
            Ok(()) => refuse_unknown(route, &mut request).await,
            Err(refusal) => Err(refusal.into()),
        };
        if let Err(error) = checked {
            if let Some(order) = order {
                order.finish(error.as_error().and_then(Refusal::name));
            }
            return Ok(request.into_response(error.error_response()));
        }
        let response = next.call(request).await?;
        if let Some(order) = order {
            finish(&order, response.response());
        }
        Ok(response)
    };
    answered_by(route).guard(is_wanted).wrap(from_fn(check))
}

/// Checks the length of the names in a path.
fn check_names(request: &ServiceRequest) -> Result<(), Refusal> {
    for (what, name) in request.match_info().iter() {
        let bytes_max = match what {
            // Document ids, and the remainders of paths.
            "id" | "below" => LONG_NAME_BYTES_MAX,
            _ => NAME_BYTES_MAX,
        };
        // Wrong encodings are reported by the handler.
        check_name(what, &decode(name).unwrap_or(name.into()), bytes_max)
            .map_err(Refusal::bad_request)?;
    }
    Ok(())
}

/// What a route reads.
struct Reads {
    /// The names of its query parameters.
    parameters: Vec<String>,
    has_body: bool,
}

/// What each route reads, in the order of the routes: from the source of the OpenAPI description.
static READS: LazyLock<Vec<Reads>> = LazyLock::new(|| {
    let described: Value = serde_json::from_str(include_str!("shapes.json"))
        .expect("HTTP: the description of the routes is JSON");
    let name_of = |key: &Value| {
        let parameter = &described["components"]["parameters"][key.as_str()?];
        (parameter["in"] == "query").then(|| parameter["name"].as_str().map(str::to_owned))?
    };
    Route::VARIANTS
        .iter()
        .map(|route: &Route| {
            let routes = &described["routes"];
            let own = &routes[format!("{route:?}")];
            let shape = own["with"].as_str().map_or(own, |other| &routes[other]);
            let keys = shape["query"].as_array().into_iter().flatten();
            Reads {
                parameters: keys.filter_map(name_of).collect(),
                has_body: !shape["body"].is_null(),
            }
        })
        .collect()
});

/// Refuses unknown parameters, and unknown members of an order's body. A handler that reads a body checks its members.
async fn refuse_unknown(route: Route, request: &mut ServiceRequest) -> Result<(), Error> {
    if route.ignores_unknown() {
        return Ok(());
    }
    let reads = &READS[route as usize];
    Params::of(request.request())?.check(&reads.parameters)?;
    if route.method() != Method::GET && !reads.has_body {
        let AtMost(body) = request.extract::<AtMost<UNKNOWN_BYTES_MAX>>().await?;
        let text = body.text()?;
        if !text.is_empty() {
            require_json(request.request())?;
        }
        Arguments::of_order(text, &[]).map_err(Refusal::from)?;
    }
    Ok(())
}

/// Begins the order of a request that changes something; its target is in its path.
fn begin(route: Route, user: &User, request: &ServiceRequest) -> Rc<PendingOrder> {
    let sender = Sender::of(
        "http",
        &user.holder(),
        request.extensions().get().map(RequestId::to_string),
    );
    let shared = request
        .app_data::<Shared>()
        .expect("HTTP: every request has the shared context");
    let order = Rc::new(shared.audit.begin(sender, route.into()));
    let subject: Vec<&str> = request.match_info().iter().map(|(_, name)| name).collect();
    order.on(subject.join("/"));
    request.extensions_mut().insert(Rc::clone(&order));
    order
}

/// Records an answered order.
fn finish(order: &PendingOrder, response: &HttpResponse) {
    let refusal = response
        .error()
        .and_then(|error| error.as_error::<Refusal>());
    let code = response.status().as_u16().to_string();
    let code = (!response.status().is_success()).then_some(&*code);
    order.finish(refusal.and_then(Refusal::name).or(code));
}

/// Makes a path's resource with its routes.
fn resource(path: &str, routes: &[Route]) -> Resource {
    let mut allowed: Vec<String> = Vec::new();
    for route in routes {
        match route.method() {
            Method::GET => allowed.extend(["GET", "HEAD"].map(str::to_owned)),
            method => allowed.push(method.to_string()),
        }
    }
    allowed.dedup();
    let allowed = allowed.join(",");
    let other = move || ready(Answer::Err(Refusal::method_not_allowed(&allowed)));
    let resource = web::resource([path.to_owned(), format!("{path}/")]).default_service(to(other));
    routes
        .iter()
        .map(|route| guarded(*route))
        .fold(resource, Resource::route)
}

async fn no_such_node(request: HttpRequest) -> Answer {
    Err(
        match segments(request.path())?.get(1).map_or("", String::as_str) {
            "_local" => Refusal::no_such_path(),
            name => Refusal::not_found(&format!("no such node: {name}; this one is _local")),
        },
    )
}

/// Returns the refusal after the manager has ended: the service is ending, or the manager is restarting.
pub(super) fn shutting_down() -> Refusal {
    Refusal::unavailable("shutting_down", "the service is shutting down")
}

#[cfg(test)]
mod tests {
    use actix_web::dev::ResourceDef;

    use super::*;

    #[test]
    fn no_path_shadows_a_later_one() {
        let paths: Vec<_> = by_path().into_iter().map(|(path, _)| path).collect();
        for path in &paths {
            let found = paths
                .iter()
                .find(|known| **known == *path || ResourceDef::new(**known).is_match(path));
            assert_eq!(found, Some(path));
        }
    }
}
