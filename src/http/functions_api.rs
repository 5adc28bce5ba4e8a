//! `GET /_functions`: what functions cost lately.

use actix_web::HttpRequest;
use actix_web::web::Data;

use super::HttpContext;
use super::access::User;
use super::answer::{self, Answer, Refusal};
use super::params::{Params, query_parse_error};
use crate::actors::pool_executor::PoolWork;
use crate::functions::QueryServers;
use crate::messages::function_costs::{CostsPage, CostsQuery};

/// The parameters `period`, `sort` and `limit` choose.
pub(super) async fn list(request: HttpRequest, shared: Data<HttpContext>, user: User) -> Answer {
    let params = Params::of(&request)?;
    let page = costs(&params, params.count("limit")?, &shared, &user).await?;
    Ok(answer::ok(&page))
}

/// Returns at most `limit` functions of the `period` and in the order of `sort` among the parameters.
pub(super) async fn costs(
    params: &Params,
    limit: Option<usize>,
    shared: &HttpContext,
    user: &User,
) -> Result<Option<CostsPage>, Refusal> {
    let [period, sort] = ["period", "sort"].map(|name| params.get(name));
    let query = CostsQuery::of(period, sort, limit).map_err(query_parse_error)?;
    Ok(shared.pool.run(Costs(query), user.principal()).await?)
}

struct Costs(CostsQuery);

impl PoolWork for Costs {
    type Output = Option<CostsPage>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        servers.records().map(|records| records.costs(self.0))
    }
}
