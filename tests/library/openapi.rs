//! The OpenAPI description, `docs/openapi.json`, which the service returns for `GET /_openapi`.
//!
//! SUMMARY   [`described`] joins the rows of `settee::operations` (path, method, sentence, required role) with
//!           `src/http/shapes.json`, which holds by route name what the rows lack: `query` names
//!           parameters; `body` and `answers` name schemas, of JSON or by media type, `null` for none; `errors` are the
//!           codes beyond those of every request. A route `with` another differs from it in the media type alone.
//! PROMISES  A route without an entry and an entry without a route fail a test. `tests/external` checks the description
//!           against the service.
//! LIMITS    `HEAD`, allowed wherever `GET` is, is mentioned only in prose. A last path segment that may contain slashes
//!           is a parameter like others.

use std::collections::BTreeSet;
use std::fmt::Write;

use actix_web::http::StatusCode;
use serde_json::{Map, Value, json};
use settee::operations::{Route, Who};
use strum::VariantArray;

use crate::docs::{read, tables};

/// Error codes of every request: invalid, not permitted, rate-limited, service failure.
const ALWAYS: [u16; 6] = [400, 401, 403, 429, 500, 503];

/// Further codes of a request with a body: it arrives too slowly, or is too long.
const WITH_BODY: [u16; 2] = [408, 413];

fn shapes() -> Value {
    serde_json::from_str(&read("src/http/shapes.json")).unwrap()
}

/// Returns the description of all routes.
fn described() -> Value {
    let mut shapes = shapes();
    let mut paths = Map::new();
    for route in Route::VARIANTS {
        let shape = &shapes["routes"][format!("{route:?}")];
        if shape.get("with").is_some() {
            continue;
        }
        for (path, name) in expanded(route.path()) {
            let id = format!("{route:?}{name}");
            let described = method(&id, route.sentence(), *route, shape, &path);
            let methods = paths.entry(path).or_insert_with(|| json!({}));
            methods[route.method().as_str().to_ascii_lowercase()] = described;
        }
    }
    let mut info = shapes["info"].take();
    info["version"] = env!("CARGO_PKG_VERSION").into();
    let mut components = shapes["components"].take();
    components["responses"] = shared_responses(&shapes["errors"]);
    json!({
        "openapi": "3.1.0",
        "info": info,
        "security": shapes["security"].take(),
        "paths": paths,
        "components": components,
    })
}

/// Expands a pattern to its paths, each with the name chosen: `{a:x|y}` gives two paths.
fn expanded(pattern: &str) -> Vec<(String, String)> {
    let choice = pattern.split_once(":").and_then(|(before, rest)| {
        let (names, after) = rest.split_once('}')?;
        Some((before.rsplit_once('{')?, names, after))
    });
    match choice {
        None => vec![(pattern.to_owned(), String::new())],
        Some(((before, name), ".*", after)) => {
            vec![(format!("{before}{{{name}}}{after}"), String::new())]
        }
        Some(((before, _), names, after)) => {
            let paths = names.split('|');
            let path = |name: &str| (format!("{before}{name}{after}"), name.to_owned());
            paths.map(path).collect()
        }
    }
}

/// Describes a method of a path.
fn method(id: &str, sentence: &str, route: Route, shape: &Value, path: &str) -> Value {
    let mut described = json!({
        "operationId": id,
        "summary": sentence.trim(),
        "parameters": parameters(path, shape),
        "responses": responses(shape),
    });
    match roles(route.who()) {
        Some(roles) => described["description"] = roles.into(),
        None => described["security"] = json!([{}]),
    }
    if let Some(body) = shape.get("body") {
        let required = shape["optional_body"].is_null();
        described["requestBody"] = json!({"required": required, "content": content(body)});
    }
    described
}

/// Names the roles, of which a request needs one; `None` if it needs none.
fn roles(who: Who) -> Option<String> {
    let right = who.right()?;
    let mut names = vec!["admin"];
    names.extend(right.roles().iter().map(<&str>::from));
    let own = match who {
        Who::AllOrOwn(_) => ", or `replicator` for what is their own",
        Who::Local(_) => ", on the Unix socket only",
        Who::Anybody | Who::With(_) | Who::OnPage(_) => "",
    };
    Some(format!("Needs the role `{}`{own}.", names.join("` or `")))
}

fn parameters(path: &str, shape: &Value) -> Vec<Value> {
    let parts = path.split(['{', '}']).skip(1).step_by(2);
    let of_path = parts.map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    let of_query = texts(&shape["query"]);
    let of_query = of_query.map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
    of_path.chain(of_query).collect()
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn responses(shape: &Value) -> Map<String, Value> {
    let mut responses = Map::new();
    for (code, of) in shape["answers"].as_object().into_iter().flatten() {
        let status = code
            .parse()
            .ok()
            .and_then(|code| StatusCode::from_u16(code).ok());
        let reason = status.and_then(|status| status.canonical_reason());
        let mut response = json!({"description": reason});
        if !of.is_null() {
            response["content"] = content(of);
        }
        responses.insert(code.clone(), response);
    }
    let with_body = WITH_BODY.iter().filter(|_| shape.get("body").is_some());
    let own = shape["errors"].as_array().into_iter().flatten();
    let own = own.filter_map(Value::as_u64).map(|code| code.to_string());
    let usual = ALWAYS.iter().chain(with_body).map(u16::to_string);
    let mut codes: Vec<String> = usual.chain(own).collect();
    codes.sort();
    for code in codes {
        let shared = json!({"$ref": format!("#/components/responses/{code}")});
        responses.entry(code).or_insert(shared);
    }
    responses
}

/// Returns the error responses by status code.
fn shared_responses(errors: &Value) -> Value {
    let errors = errors.as_object().into_iter().flatten();
    let response = |(code, of): (&String, &Value)| {
        let response = json!({"description": of, "content": content(&json!("Error"))});
        (code.clone(), response)
    };
    errors.map(response).collect()
}

/// Returns the schema of a JSON body, or one for each media type.
fn content(of: &Value) -> Value {
    let schema = |name: &Value| match name.as_str() {
        Some(name) => json!({"schema": {"$ref": format!("#/components/schemas/{name}")}}),
        None => json!({}),
    };
    match of.as_object() {
        Some(types) => {
            let types = types.iter();
            types
                .map(|(media, name)| (media.clone(), schema(name)))
                .collect()
        }
        None => json!({"application/json": schema(of)}),
    }
}

#[test]
fn each_route_has_an_entry_and_each_entry_a_route() {
    let shapes = shapes();
    let entries = shapes["routes"].as_object().unwrap();
    let routes = Route::VARIANTS.iter().map(|route| format!("{route:?}"));
    let routes: BTreeSet<String> = routes.collect();
    assert_eq!(entries.keys().cloned().collect::<BTreeSet<_>>(), routes);
    let route = |name: &str| Route::VARIANTS.iter().find(|r| format!("{r:?}") == name);
    for (name, entry) in entries {
        let answers = |entry: &Value| entry["answers"].is_object();
        assert_ne!(answers(entry), entry.get("with").is_some(), "{name}");
        let Some(with) = entry.get("with") else {
            continue;
        };
        let (one, other) = (route(name).unwrap(), route(with.as_str().unwrap()).unwrap());
        let place = |route: &Route| (route.path(), route.method(), route.who());
        assert_eq!(place(one), place(other));
    }
}

#[test]
fn a_pattern_is_expanded_to_its_paths() {
    let of = |pattern| {
        let expanded = expanded(pattern).into_iter();
        expanded.map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(of("/a/{b}"), ["/a/{b}"]);
    assert_eq!(of("/a/{below:.*}"), ["/a/{below}"]);
    assert_eq!(of("/a/{kind:x|y}/{id}"), ["/a/x/{id}", "/a/y/{id}"]);
}

/// Writes an object with one line per member down to `depth`, for readable diffs.
fn lines(document: &Value, depth: usize) -> String {
    let members = match document.as_object() {
        Some(members) if depth > 0 && !members.is_empty() => members,
        _ => return document.to_string(),
    };
    let mut text = String::new();
    for (name, value) in members {
        let comma = if text.is_empty() { "" } else { "," };
        let name = Value::from(name.as_str());
        write!(text, "{comma}\n{name}: {}", lines(value, depth - 1)).unwrap();
    }
    format!("{{{text}\n}}")
}

#[test]
fn openapi_json_describes_all_operations() {
    let text = lines(&described(), 3) + "\n";
    if std::env::var_os("WRITE_PAGES").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
        std::fs::write(path, &text).unwrap();
    }
    let help = "run `WRITE_PAGES=1 cargo test --test library openapi_json_describes`";
    assert!(read("docs/openapi.json") == text, "{help}");
}

#[test]
fn openapi_json_names_each_request_error_at_its_status_codes() {
    let described = described();
    for row in &tables(&read("docs/errors.md"))["Errors of requests"] {
        // 405 is the answer to methods that are not described.
        let codes = row[1]
            .split(", ")
            .filter(|code| !["", "405"].contains(code));
        for code in codes {
            let response = &described["components"]["responses"][code]["description"];
            let named = response.as_str().unwrap();
            assert!(named.contains(&format!("`{}`", row[0])), "{code}: {row:?}");
        }
    }
}
