//! Rules for the keys of the sections `[services.NAME]`, and between them and other sections.

use super::{Rules, SOCKET_PATH_MAX, Section, advice};
use crate::keys::SERVICES;
use crate::{ServiceAddress, ServiceConfig};

impl Rules<'_> {
    /// Reports problems in a service's section.
    pub(super) fn service(&mut self, name: &str, service: &ServiceConfig) {
        let mut section = self.section(format!("{SERVICES}.{name}"));
        section.pool_of_service(service);
        match &service.listen {
            Some(address) => {
                section.reach(service, address);
                section.others(name, address);
            }
            None => section.problem(
                "listen",
                "does not say where it listens",
                "add listen = \"unix:/PATH\" or listen = \"HOST:PORT\"",
            ),
        }
    }
}

impl Section<'_> {
    /// Checks that the service names one configured pool or language.
    fn pool_of_service(&mut self, service: &ServiceConfig) {
        let languages = self.config.language_names();
        match (&service.pool, &service.language) {
            (Some(_), Some(_)) => {
                self.problem(
                    "pool",
                    "pool and language are both set",
                    "keep one of the two: a language means its own pool",
                );
            }
            (None, None) => {
                self.problem(
                    "pool",
                    "names neither a pool nor a language",
                    "add pool = \"NAME\", or language = \"NAME\" for a language's own pool",
                );
            }
            (None, Some(language)) => {
                if !languages.contains(&language.as_str()) {
                    self.problem(
                        "language",
                        format!("language = {language:?}: no such language is configured"),
                        advice(language, &languages, ""),
                    );
                }
            }
            (Some(pool), None) => {
                let pools = self.config.pools.keys().map(String::as_str);
                let mut known: Vec<&str> = pools.chain(languages).collect();
                known.sort_unstable();
                known.dedup();
                if !service.wait_for_pool && !known.contains(&pool.as_str()) {
                    self.problem(
                        "pool",
                        format!("pool = {pool:?}: no such pool is configured"),
                        format!(
                            "{} (wait_for_pool = true if it is added while the service runs)",
                            advice(pool, &known, "")
                        ),
                    );
                }
            }
        }
    }

    /// Checks the address: its length, and whether other machines may reach it.
    fn reach(&mut self, service: &ServiceConfig, address: &ServiceAddress) {
        if let ServiceAddress::Unix(path) = address
            && path.as_os_str().len() > SOCKET_PATH_MAX
        {
            let length = path.as_os_str().len();
            self.problem(
                "listen",
                format!("listen has {length} bytes; a socket's path can have {SOCKET_PATH_MAX}"),
                "use a shorter path",
            );
        }
        if address.is_local() {
            return;
        }
        if service.local_only == Some(true) {
            self.problem(
                "local_only",
                format!("local_only is true, but {address} can be reached from other machines"),
                "leave local_only out, or listen on a loopback address or a Unix socket",
            );
        } else if !service.open {
            self.problem(
                "listen",
                format!(
                    "listen = \"{address}\" can be reached from other machines, without a login"
                ),
                "listen on a loopback address or a Unix socket; or add open = true here if \
                 everybody who reaches it may run functions",
            );
        }
    }

    /// Checks that no other socket of the configuration listens there.
    fn others(&mut self, name: &str, address: &ServiceAddress) {
        let socket = ServiceAddress::Unix(self.config.server.socket.clone());
        let own = self.config.own_addresses().into_iter();
        let own = own.map(|(key, own)| (key.to_owned(), ServiceAddress::Tcp(own)));
        let before = self.config.services.range(..name.to_owned());
        let before = before.filter_map(|(other, service)| {
            Some((format!("[{SERVICES}.{other}]"), service.listen.clone()?))
        });
        let mut all = [("[server] socket".to_owned(), socket)]
            .into_iter()
            .chain(own)
            .chain(before);
        if let Some((taken, _)) = all.find(|(_, other)| other.excludes(address)) {
            self.problem(
                "listen",
                format!("listen = \"{address}\": {taken} listens there"),
                "name another address",
            );
        }
    }
}
