//! Redirects connections to other hosts and ports (`connect_to`).
//!
//! SUMMARY   `pattern:port:target:target_port[,..]`: a request with a matching host and port goes to the target; the
//!           first match applies. Its URL, `Host` and TLS server name do not change.
//! SOURCE    couch_replicator's `connect_to`: a pattern is a name, or `*.` and a name, which matches sub-domains
//!           only. IPv6 addresses are in brackets as targets, and refused as patterns.

use super::rules::matches_name;

/// The redirections of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectTo {
    rules: Vec<Rule>,
    /// Invalid entries, which are ignored.
    pub malformed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// A name, or a suffix with a leading dot.
    pattern: String,
    port: u16,
    target: Target,
}

/// The target of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
}

impl ConnectTo {
    pub fn parse(text: &str) -> Self {
        let mut read = Self::default();
        let entries = text.split(',').map(str::trim);
        for entry in entries.filter(|entry| !entry.is_empty()) {
            match Rule::parse(entry) {
                Some(rule) => read.rules.push(rule),
                None => read.malformed.push(entry.to_owned()),
            }
        }
        read
    }

    /// Returns the target that replaces a host and port, if a rule matches them.
    pub fn target(&self, host: &str, port: u16) -> Option<&Target> {
        self.rules
            .iter()
            .find(|rule| rule.matches(host, port))
            .map(|rule| &rule.target)
    }
}

impl Rule {
    fn parse(entry: &str) -> Option<Self> {
        let (pattern, rest) = entry.split_once(':')?;
        let (port, rest) = rest.split_once(':')?;
        let (host, target_port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once("]:")?,
            None => rest
                .split_once(':')
                .filter(|(_, port)| !port.contains(':'))?,
        };
        let name = pattern.strip_prefix("*.").unwrap_or(pattern);
        if name.is_empty() || name.contains(['*', '[', ']']) || host.is_empty() {
            return None;
        }
        let is_wild = name.len() < pattern.len();
        Some(Self {
            pattern: pattern[usize::from(is_wild)..].to_ascii_lowercase(),
            port: port.parse().ok()?,
            target: Target {
                host: host.to_owned(),
                port: target_port.parse().ok()?,
            },
        })
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        self.port == port && matches_name(&self.pattern, &host.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(rules: &str, host: &str, port: u16) -> Option<String> {
        let rules = ConnectTo::parse(rules);
        assert_eq!(rules.malformed, <[String; 0]>::default());
        let target = rules.target(host, port)?;
        Some(format!("{} {}", target.host, target.port))
    }

    #[test]
    fn the_first_rule_that_matches_host_and_port_applies() {
        let rules = "a.example:443:t1:1, *.example:443:t2:2,*.example:80:[::1]:3";
        assert_eq!(target(rules, "a.example", 443).unwrap(), "t1 1");
        assert_eq!(target(rules, "A.EXAMPLE", 443).unwrap(), "t1 1");
        assert_eq!(target(rules, "b.example", 443).unwrap(), "t2 2");
        assert_eq!(target(rules, "x.b.example", 80).unwrap(), "::1 3");
        assert_eq!(target(rules, "example", 443), None);
        assert_eq!(target(rules, "badexample", 443), None);
        assert_eq!(target(rules, "a.example", 5984), None);
        assert_eq!(target("", "a", 1), None);
    }

    #[test]
    fn malformed_rules_are_left_out() {
        let text = "a:1:b,[::1]:1:b:2,a:x:b:2,a:1::2,:1:b:2,a*:1:b:2,a:1:::1:2,ok:1:b:2";
        let ConnectTo { rules, malformed } = ConnectTo::parse(text);
        assert_eq!(rules.len(), 1);
        assert_eq!(malformed.len(), 7, "{malformed:?}");
    }
}
