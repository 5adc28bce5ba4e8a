//! `GET /_functions`: recent costs of functions; `GET /_tenants`: costs of databases.

use super::access::User;
use super::answer::{self, Answer, Refusal};
use super::params::{Params, query_parse_error};
use super::{HttpContext, Shared};
use crate::actors::pool_executor::PoolWork;
use crate::functions::QueryServers;
use crate::messages::costs::{CostsPage, CostsQuery, TenantCostsPage, TenantCostsQuery};

/// Lists functions, selected by the parameters `period`, `sort` and `limit`.
pub(super) async fn list(params: Params, shared: Shared, user: User) -> Answer {
    let [period, sort] = ["period", "sort"].map(|name| params.get(name));
    let query = CostsQuery::of(period, sort, params.count("limit")?).map_err(query_parse_error)?;
    answer::ok(&costs(query, &shared, &user).await?)
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
pub(super) async fn tenants(params: Params, shared: Shared, user: User) -> Answer {
    let query = TenantCostsQuery::of(
        params.get("sort"),
        params.count("limit")?,
        params.get("db").map(str::to_owned),
    )
    .map_err(query_parse_error)?;
    answer::ok(&shared.pool.run(Tenants(query), user.principal()).await?)
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
