//! `GET /_functions`: recent costs of functions; `GET /_tenants`: costs of databases.

use super::access::User;
use super::answer::{self, Answer, Refusal};
use super::params::{Params, query_parse_error};
use super::{HttpContext, Shared};
use crate::actors::pool_executor::PoolWork;
use crate::functions::QueryServers;
use crate::functions::records::CallRecords;
use crate::messages::costs::{CostsPage, CostsQuery, TenantCostsQuery};

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
    let costs = OfRecords(move |records: &CallRecords| records.costs(query));
    Ok(shared.pool.run(costs, user.principal()).await?)
}

/// Lists databases, selected by the parameters `sort`, `limit` and `db`.
pub(super) async fn tenants(params: Params, shared: Shared, user: User) -> Answer {
    let query = TenantCostsQuery::of(
        params.get("sort"),
        params.count("limit")?,
        params.get("db").map(str::to_owned),
    )
    .map_err(query_parse_error)?;
    let tenants = OfRecords(move |records: &CallRecords| records.tenants(&query));
    answer::ok(&shared.pool.run(tenants, user.principal()).await?)
}

/// Reads the records of finished calls; `None` if there are none.
pub(super) struct OfRecords<F>(pub F);

impl<F, T> PoolWork for OfRecords<F>
where
    F: FnOnce(&CallRecords) -> T + Send + 'static,
    T: Send + 'static,
{
    type Output = Option<T>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        servers.records().map(self.0)
    }
}
