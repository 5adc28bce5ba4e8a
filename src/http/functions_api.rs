//! `GET /_functions`: what functions cost lately.

use actix_web::HttpRequest;
use actix_web::web::Data;

use super::HttpContext;
use super::access::User;
use super::answer::{self, Answer};
use super::params::{Params, query_parse_error};
use crate::actors::pool_executor::PoolWork;
use crate::functions::QueryServers;
use crate::messages::function_costs::{CostsPage, CostsQuery};

/// The parameters `period`, `sort` and `limit` choose.
pub(super) async fn list(request: HttpRequest, shared: Data<HttpContext>, user: User) -> Answer {
    let params = Params::of(&request)?;
    let [period, sort] = ["period", "sort"].map(|name| params.get(name));
    let query = CostsQuery::of(period, sort, params.count("limit")?).map_err(query_parse_error)?;
    let page = shared.pool.run(Costs(query), user.principal()).await?;
    Ok(answer::ok(&page))
}

struct Costs(CostsQuery);

impl PoolWork for Costs {
    type Output = Option<CostsPage>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        servers.records().map(|records| records.costs(self.0))
    }
}
