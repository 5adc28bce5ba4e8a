//! Rules between the keys of the sections `[services.NAME]`, and between them and everything else.

use super::SOCKET_PATH_MAX;
use crate::config::keys::SERVICES;
use crate::config::nearest::nearest;
use crate::config::{Config, Problem, ServiceAddress, ServiceConfig};

/// Returns what does not fit together in the sections of services.
pub(super) fn check(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, service) in &config.services {
        let mut check = Check {
            config,
            section: format!("{SERVICES}.{name}"),
            problems: &mut problems,
        };
        check.source(service);
        check.address(service);
        check.others(name, service);
    }
    problems
}

/// The check of one section.
struct Check<'a> {
    config: &'a Config,
    section: String,
    problems: &'a mut Vec<Problem>,
}

impl Check<'_> {
    fn note(&mut self, key: &str, what: &str, remedy: impl Into<String>) {
        let what = format!("[{}] {key}{what}", self.section);
        let place = self.config.origin(&self.section, key);
        self.problems.push(Problem::new(place, what, remedy));
    }

    /// Notes that a key is missing: at the place of any other key of the section.
    fn missing(&mut self, what: &str, remedy: impl Into<String>) {
        let mut origins = self.config.origins.iter();
        let ours = origins.find(|((section, _), _)| *section == self.section);
        let place = ours.map_or_else(|| "configuration".to_owned(), |(_, at)| at.to_string());
        let what = format!("[{}] {what}", self.section);
        self.problems.push(Problem::new(place, what, remedy));
    }

    /// Where its processes come from.
    fn source(&mut self, service: &ServiceConfig) {
        let languages = self.config.language_names();
        match (&service.pool, &service.language) {
            (Some(_), Some(_)) => self.note(
                "pool",
                " and language are both set",
                "keep one of the two: a language stands for its own pool",
            ),
            (None, None) => self.missing(
                "names neither a pool nor a language",
                "add pool = \"NAME\", or language = \"NAME\" for a language's own pool",
            ),
            (None, Some(language)) if !languages.contains(&language.as_str()) => {
                let what = format!(" = {language:?}: no such language is configured");
                self.note("language", &what, advice(language, &languages));
            }
            (Some(pool), None) => {
                let pools = self.config.pools.keys().map(String::as_str);
                let known: Vec<&str> = pools.chain(languages).collect();
                if !service.wait_for_pool && !known.contains(&pool.as_str()) {
                    let what = format!(" = {pool:?}: no such pool is configured");
                    let advice = advice(pool, &known);
                    let remedy = format!(
                        "{advice} (wait_for_pool = true if it is added while the service runs)"
                    );
                    self.note("pool", &what, remedy);
                }
            }
            (None, Some(_)) => {}
        }
    }

    /// Where it listens.
    fn address(&mut self, service: &ServiceConfig) {
        let Some(address) = &service.listen else {
            return self.missing(
                "does not say where it listens",
                "add listen = \"unix:/PATH\" or listen = \"HOST:PORT\"",
            );
        };
        if let ServiceAddress::Unix(path) = address
            && path.as_os_str().len() > SOCKET_PATH_MAX
        {
            let what = format!(
                " has {} bytes; a socket's path can have {SOCKET_PATH_MAX}",
                path.as_os_str().len()
            );
            self.note("listen", &what, "use a shorter path");
        }
        if service.local_only == Some(true) && !address.is_local() {
            let what = format!(" is true, but {address} can be reached from other machines");
            let remedy = "leave local_only out, or listen on a loopback address or a Unix socket";
            self.note("local_only", &what, remedy);
        } else if !address.is_local() && !service.open {
            let what =
                format!(" = \"{address}\" can be reached from other machines, without a login");
            let remedy = "listen on a loopback address or a Unix socket; or add open = true here if \
                          whoever reaches it may run functions";
            self.note("listen", &what, remedy);
        }
    }

    /// Who listens there as well.
    fn others(&mut self, name: &str, service: &ServiceConfig) {
        let Some(address) = &service.listen else {
            return;
        };
        let server = &self.config.server;
        let tcp = |own: &Option<_>| own.map(ServiceAddress::Tcp);
        let own = [
            ("socket", Some(ServiceAddress::Unix(server.socket.clone()))),
            ("tcp", tcp(&server.tcp)),
            ("http", tcp(&server.http)),
        ];
        let taken = own
            .into_iter()
            .find(|(_, own)| own.as_ref().is_some_and(|own| own.excludes(address)))
            .map(|(key, _)| format!("[server] {key}"));
        let before = self.config.services.range(..name.to_owned());
        let taken = taken.or_else(|| {
            let listens = |other: &ServiceConfig| {
                let other = other.listen.as_ref();
                other.is_some_and(|other| other.excludes(address))
            };
            let other = before.into_iter().find(|(_, other)| listens(other));
            other.map(|(other, _)| format!("[{SERVICES}.{other}]"))
        });
        if let Some(taken) = taken {
            let what = format!(" = \"{address}\": {taken} listens there");
            self.note("listen", &what, "name another address");
        }
    }
}

fn advice(asked: &str, known: &[&str]) -> String {
    match nearest(asked, known.iter().copied()) {
        Some(near) if near.likely => format!("did you mean {:?}?", near.name),
        _ => format!("take one of {}", known.join(", ")),
    }
}
