//! Isolates: several tenants in one process, each with its own heap, one selected at a time.
//!
//! SUMMARY   `["tenant", NONCE, NAME]` selects a tenant's isolate, creating a missing one; `["tenant", NONCE, NAME,
//!           "new"]` always makes it anew. The answer names the isolates evicted for it: `{"evicted": [NAME, ..]}`.
//!           An isolate ends only by eviction, by being made anew, or with its process.
//! PROMISES  Only the process and the service know the nonce: no line that a holder sends can select an isolate.
//! CALLED    By the manager, which decides what to select, and by the process's actor, which sends the line before a
//!           holder's line.

use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde::Deserialize;

use super::prompt;
use crate::config::password::random;
use policy::pool::{ClientId, Select, Tenant};

/// How a process with isolates is started.
#[derive(Clone, Debug)]
pub struct IsolateTerms {
    max: u32,
    nonce: Arc<str>,
}

impl IsolateTerms {
    /// Makes the terms of a process with this maximum of isolates.
    pub(crate) fn new(max: u32) -> Self {
        let nonce = HEXLOWER.encode(&random::<16>()).into();
        Self { max, nonce }
    }

    /// Returns the process's environment variables.
    pub(crate) fn environment(&self) -> [(String, String); 2] {
        [
            ("SETTEE_ISOLATES_MAX".to_owned(), self.max.to_string()),
            ("SETTEE_TENANT_NONCE".to_owned(), self.nonce.to_string()),
        ]
    }

    /// Returns the line that selects an isolate.
    pub(crate) fn line(&self, select: &Select) -> Bytes {
        let name = name_of(&select.tenant);
        if select.is_new {
            prompt::line(&("tenant", &*self.nonce, name, "new"))
        } else {
            prompt::line(&("tenant", &*self.nonce, name))
        }
    }
}

/// Returns the tenants of evicted isolates from a selection's answer; `None` for any other answer.
pub(crate) fn evicted(answer: &[u8]) -> Option<Vec<Tenant>> {
    #[derive(Deserialize)]
    struct Answer {
        evicted: Vec<String>,
    }
    let Answer { evicted } = serde_json::from_slice(answer).ok()?;
    Some(evicted.iter().filter_map(|name| tenant_of(name)).collect())
}

/// Returns the name of a tenant's isolate: the kind and name of the tenant, so that it is unique.
fn name_of(tenant: &Tenant) -> String {
    match tenant {
        Tenant::Database(db) => format!("database:{db}"),
        Tenant::Databases => "databases:".to_owned(),
        Tenant::User(user) => format!("user:{user}"),
        Tenant::Client(client) => format!("client:{}", client.0),
    }
}

fn tenant_of(name: &str) -> Option<Tenant> {
    let (kind, name) = name.split_once(':')?;
    Some(match kind {
        "database" => Tenant::Database(name.into()),
        "databases" => Tenant::Databases,
        "user" => Tenant::User(name.into()),
        "client" => Tenant::Client(ClientId(name.parse().ok()?)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_isolate_identifies_its_tenant() {
        let terms = IsolateTerms::new(2);
        for tenant in [
            Tenant::Database("user:x".into()),
            Tenant::Databases,
            Tenant::User("a:\"b\"".into()),
            Tenant::Client(ClientId(7)),
        ] {
            let is_new = false;
            let line = terms.line(&Select {
                tenant: tenant.clone(),
                is_new,
            });
            let [_, _, name]: [String; 3] = serde_json::from_slice(&line).unwrap();
            let answer = serde_json::json!({"evicted": [name, "else:x", "client:-"]}).to_string();
            assert_eq!(evicted(answer.as_bytes()), Some(vec![tenant]));
        }
        assert_eq!(evicted(b"true"), None);
    }
}
