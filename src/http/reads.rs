//! The query parameters and the body that each route reads, from the source of the OpenAPI description.

use std::sync::LazyLock;

use serde_json::Value;
use strum::VariantArray;

use crate::operations::Route;

/// What a route reads.
pub(super) struct Reads {
    /// The names of its query parameters.
    pub(super) parameters: Vec<String>,
    pub(super) has_body: bool,
}

/// What each route reads, in the order of the routes.
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

/// Returns what a route reads.
pub(super) fn reads(route: Route) -> &'static Reads {
    &READS[route as usize]
}
