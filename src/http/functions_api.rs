//! `GET /_functions`: recent costs of functions; `GET /_tenants`: costs of databases.

use actix_web::HttpRequest;
use actix_web::web::Data;

use super::HttpContext;
use super::access::User;
use super::answer::{self, Answer, Refusal};
use super::params::{Params, query_parse_error};
use crate::actors::pool_executor::PoolWork;
use crate::functions::QueryServers;
use crate::messages::function_costs::{CostsPage, CostsQuery};
use crate::messages::tenant_costs::{TenantCostsPage, TenantCostsQuery};

/// Lists functions, selected by the parameters `period`, `sort` and `limit`.
pub(super) async fn list(request: HttpRequest, shared: Data<HttpContext>, user: User) -> Answer {
    let params = Params::of(&request)?;
    let [period, sort] = ["period", "sort"].map(|name| params.get(name));
    let query = CostsQuery::of(period, sort, params.count("limit")?).map_err(query_parse_error)?;
    let page = costs(query, &shared, &user).await?;
    Ok(answer::ok(&page))
}

/// Returns the selected functions; `None` if costs are not recorded.
pub(super) async fn costs(
    query: CostsQuery,
    shared: &HttpContext,
    user: &User,
) -> Result<Option<CostsPage>, Refusal> {
    Ok(shared.pool.run(Costs(query), user.principal()).await?)
}

/// Lists databases, selected by the parameters `sort`, `limit` and `db`.
pub(super) async fn tenants(request: HttpRequest, shared: Data<HttpContext>, user: User) -> Answer {
    let params = Params::of(&request)?;
    let db = params.get("db").map(str::to_owned);
    let query = TenantCostsQuery::of(params.get("sort"), params.count("limit")?, db)
        .map_err(query_parse_error)?;
    let page = shared.pool.run(Tenants(query), user.principal()).await?;
    Ok(answer::ok(&page))
}

struct Tenants(TenantCostsQuery);

impl PoolWork for Tenants {
    type Output = Option<TenantCostsPage>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        servers.records().map(|records| records.tenants(&self.0))
    }
}

struct Costs(CostsQuery);

impl PoolWork for Costs {
    type Output = Option<CostsPage>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        servers.records().map(|records| records.costs(self.0))
    }
}
