//! `[tenants.NAME]`: limits on a tenant's processes, waiting calls, processor time and time per answer.
//!
//! SUMMARY   [`TenantConfig`] is one section: of a database, or of all databases that match a pattern.
//! SOURCE    None.

use std::time::Duration;

use policy::pool::{TenantRule, TenantRules};

use super::kinds::*;
use super::section::section;
use super::types::Config;
use super::value::Kind;

/// Maximum length of a section's name, in bytes; CouchDB allows database names of 238.
const TENANT_NAME_BYTES_MAX: usize = 256;

/// The rule of [`is_tenant_name`], worded to follow "use".
pub(crate) const TENANT_NAME_RULE: &str = "1 to 256 bytes of a database's name, without control characters; * stands \
     for the rest of a name, only at the end";

section! {
    /// One section `[tenants.NAME]`.
    #[derive(Debug, Default)]
    #[serde(default)]
    pub struct TenantConfig {
        /// Maximum processes lent at a time, over all pools; further requests wait. 0: no limit.
        processes_max: Option<u32>, PROCESSES, unit("processes"), otherwise("that of a shorter pattern; else any number");
        /// Maximum waiting calls, over all pools; further ones are refused at once with `tenant_busy`. 0: no limit.
        queue_max: Option<u32>, PROCESSES, unit("calls"), otherwise("that of a shorter pattern; else any number");
        /// [Processor time](pools.md#a-share-of-processor-time), in cores: 0.5 is 30 s of each minute. A tenant that
        /// used more gets no process until its share covers the excess. 0: no limit.
        cpu_share: Option<f64>, Kind::Ratio, otherwise("that of a shorter pattern; else any");
        /// How long a process may take to answer, even if the call or the service allows more. 0: no bound.
        timeout: Option<Duration>, ms(0, YEAR), otherwise("that of a shorter pattern; else no bound");
    }
}

/// Returns whether a string can name a section `[tenants.NAME]`.
pub(crate) fn is_tenant_name(text: &str) -> bool {
    let start = text.strip_suffix('*').unwrap_or(text);
    !text.is_empty()
        && text.len() <= TENANT_NAME_BYTES_MAX
        && !start.contains('*')
        && !text.contains(char::is_control)
}

impl Config {
    /// Returns the limits of each tenant.
    pub fn tenant_rules(&self) -> TenantRules {
        TenantRules::new(self.tenants.iter().map(|(name, tenant)| {
            let rule = TenantRule {
                processes_max: tenant.processes_max,
                queue_max: tenant.queue_max,
                cpu_share: tenant.cpu_share.map(thousandths),
                timeout: tenant
                    .timeout
                    .map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
            };
            (name.clone(), rule)
        }))
    }
}

/// Converts a share to thousandths of a core, at least one.
fn thousandths(share: f64) -> u32 {
    let nearest = (share * 1000.0).round() as u32;
    nearest.max(u32::from(share > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_in_thousandths_of_a_core_and_the_smallest_is_one_of_them() {
        let shares = [0.0, 0.1, 0.3, 2.0, 0.000_01, f64::MAX].map(thousandths);
        assert_eq!(shares, [0, 100, 300, 2000, 1, u32::MAX]);
    }

    #[test]
    fn a_star_is_allowed_only_at_the_end_of_a_name() {
        for name in ["*", "acme-*", "Shop/eu+(1)", "a.b", &"x".repeat(256)] {
            assert!(is_tenant_name(name), "{name}");
        }
        for name in ["", "*a", "a*b", "**", "a\nb", &"x".repeat(257)] {
            assert!(!is_tenant_name(name), "{name}");
        }
    }
}
