//! The socket and HTTP pages list every operation with its required role.

use std::collections::BTreeMap;

use actix_web::dev::ResourceDef;
use settee::auth::rights::Right;
use settee::operations::{CallName, Route, Who};
use strum::VariantArray;

use crate::docs::{read, tables};

fn roles(right: Right) -> String {
    let names: Vec<&str> = right.roles().iter().map(Into::into).collect();
    match names.is_empty() {
        true => "admin".to_owned(),
        false => names.join(", "),
    }
}

/// Returns the required role as the pages write it; `of_their_own` is empty for the socket.
fn shown(who: Who, of_their_own: &str) -> String {
    match who {
        Who::Anybody => "anybody".to_owned(),
        Who::With(right) | Who::OnPage(right) => roles(right),
        Who::AllOrOwn(right) => roles(right) + of_their_own,
        Who::Local(right) => roles(right) + "; local",
    }
}

#[test]
fn the_socket_page_lists_every_call_and_its_roles() {
    let tables = tables(&read("docs/socket.md"));
    let mut documented = BTreeMap::new();
    for row in &tables["Calls"] {
        documented.extend(row[0].split(", ").map(|name| (name, row[1].clone())));
    }
    // Calls that run functions have their own table.
    let functions = documented.remove("..").expect("a row with '..'");
    for row in &tables["Calls that run functions"] {
        documented.insert(&row[0], functions.clone());
    }
    let calls = CallName::VARIANTS.iter();
    let known: BTreeMap<&str, _> = calls.map(|c| (c.into(), shown(c.who(), ""))).collect();
    assert_eq!(documented, known);
}

/// Returns the route of a method and a path in the page's notation: `/_pools/NAME`.
fn route(method: &str, path: &str) -> Option<Route> {
    let fits = |route: &&Route| ResourceDef::new(route.path()).is_match(path);
    let first = Route::VARIANTS.iter().find(fits)?;
    let mut all = Route::VARIANTS.iter();
    let found = all.find(|r| r.path() == first.path() && r.method().as_str() == method);
    found.copied()
}

#[test]
fn the_http_page_lists_every_method_of_every_path_and_its_roles() {
    let tables = tables(&read("docs/http.md"));
    let mut documented = Vec::new();
    for row in &tables["Paths"] {
        let (folder, _) = row[0].split(", ").next().unwrap().rsplit_once('/').unwrap();
        for path in row[0].split(", ") {
            let path = match path.starts_with('/') {
                true => path.to_owned(),
                false => format!("{folder}/{path}"),
            };
            let uses = row[1].split(", ");
            documented.extend(uses.map(|method| (method.to_owned(), path.clone(), row[2].clone())));
        }
    }
    let mut paths = documented.iter().map(|(_, path, _)| path);
    let query = paths.position(|path| path == "/_query/NAME");
    let (method, _, who) = documented.remove(query.expect("a row for /_query/NAME"));
    for cells in tables["Functions"].iter().flat_map(|row| row.chunks(3)) {
        let path = format!("/_query/{}", cells[0]);
        let function = route(&method, &path).unwrap_or_else(|| panic!("{path} is not a route"));
        let call: CallName = cells[1].parse().unwrap();
        let is_it = Route::VARIANTS.iter().any(|known| {
            let (known_name, name): (&str, &str) = (known.into(), call.into());
            known_name == name && known.path() == function.path()
        });
        assert!(is_it, "{path} is not {call:?}");
        documented.push((method.clone(), path, who.clone()));
    }
    let mut left: Vec<Route> = Route::VARIANTS.to_vec();
    for (method, path, who) in documented {
        let found =
            route(&method, &path).unwrap_or_else(|| panic!("{method} {path} is not a route"));
        assert_eq!(
            who,
            shown(found.who(), "; replicator: own"),
            "{method} {path}"
        );
        left.retain(|known| known.path() != found.path() || known.method() != found.method());
    }
    assert!(left.is_empty(), "not on the page: {left:?}");
}
