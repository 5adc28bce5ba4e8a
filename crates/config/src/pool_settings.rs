//! Derives the core's pool settings from a pool's section.

use std::time::Duration;

use super::pools::PoolConfig;
use policy::admission::ThrottleSettings;
use policy::pool::{Cull, GroupId, LanguageId, Limits, PoolKind, PoolSettings, Recycle, Reuse};

/// A language's requirements of its pools, and the defaults of their sections.
#[derive(Clone, Copy, Debug)]
pub struct PoolTerms {
    pub limits: Limits,
    /// Which tenants a process may serve.
    pub reuse: Reuse,
    /// Whether its processes can forget.
    pub can_forget: bool,
    /// Maximum isolates of a process; 0: it has none.
    pub isolates_max: u32,
    /// Whether a process itself isolates the functions of different tenants.
    pub isolates_functions: bool,
}

impl PoolConfig {
    /// Returns the settings of a pool with this section, and with the terms of its language's pools.
    pub fn core_settings(
        &self,
        kind: PoolKind,
        language: LanguageId,
        group: Option<GroupId>,
        terms: PoolTerms,
    ) -> PoolSettings {
        let section = self;
        let max = section.max.unwrap_or(terms.limits.hard_limit);
        let limits = Limits {
            hard_limit: max,
            soft_limit: terms.limits.soft_limit.min(max),
            ..terms.limits
        };
        let defaults = match kind {
            PoolKind::Language => PoolSettings::of_language(language, limits),
            PoolKind::Named => PoolSettings::named(language, limits),
        };
        let unless_zero = |number: u64| (number > 0).then_some(number);
        let unless_none = |time: Duration| (!time.is_zero()).then_some(time);
        let reuse = match section.cell.reuse.unwrap_or(terms.reuse) {
            Reuse::Isolates if terms.isolates_max > 0 => Reuse::Isolates,
            Reuse::Isolates if !terms.isolates_functions => Reuse::Database,
            Reuse::Database => Reuse::Database,
            Reuse::Any | Reuse::Isolates => Reuse::Any,
        };
        let isolates_max = match reuse {
            Reuse::Isolates => terms.isolates_max,
            Reuse::Any | Reuse::Database => 0,
        };
        PoolSettings {
            kind,
            language,
            limits,
            group,
            init_size: section.init_size,
            min_free: section.min_free,
            queue_max: section.queue_max,
            reuse,
            // A pool with a process for each database does not trust a process to forget.
            can_forget: terms.can_forget && reuse == Reuse::Any,
            isolates_max,
            // Its tenants can already see each other's data.
            lends_taught: reuse == Reuse::Any && !terms.isolates_functions,
            on_client_crash: section.on_client_crash.unwrap_or(defaults.on_client_crash),
            recycle: Recycle {
                max_uses: unless_zero(section.max_uses),
                max_age: unless_none(section.max_age),
                jitter_percent: section.jitter,
                memory_soft: unless_zero(section.max_memory),
                memory_hard: unless_zero(section.max_memory_hard),
            },
            cull: unless_none(section.cull_after).map(|after| Cull {
                after,
                interval: section.cull_interval,
            }),
            throttle: section.throttle(defaults.throttle),
            stress: section.stress,
            fairness: section.fairness,
            interactive_reserved: section.interactive_reserved,
        }
    }

    fn throttle(&self, default: Option<ThrottleSettings>) -> Option<ThrottleSettings> {
        let delay_max = self.throttle_delay_max;
        let delay = match self.throttle_delay {
            Some(delay) => delay,
            // A default never overrides an explicit setting.
            None => default?.delay.min(delay_max),
        };
        (!delay.is_zero()).then_some(ThrottleSettings { delay, delay_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::pool::OnClientCrash;

    const LIMITS: Limits = Limits {
        hard_limit: 100,
        soft_limit: 50,
        affinity_wait: Duration::ZERO,
    };

    fn settings(section: &PoolConfig, kind: PoolKind) -> PoolSettings {
        let terms = PoolTerms {
            limits: LIMITS,
            reuse: Reuse::Any,
            can_forget: false,
            isolates_max: 0,
            isolates_functions: false,
        };
        section.core_settings(kind, LanguageId(0), None, terms)
    }

    #[test]
    fn a_languages_own_pool_without_a_section_is_as_in_couchdb() {
        let settings = settings(&PoolConfig::default(), PoolKind::Language);
        let mut expected = PoolSettings::of_language(LanguageId(0), LIMITS);
        // Ignored without a maximum lifetime.
        expected.recycle.jitter_percent = 10;
        expected.lends_taught = true;
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_named_pool_replaces_after_a_crash_and_is_throttled_unless_its_section_says_otherwise() {
        let default = settings(&PoolConfig::default(), PoolKind::Named);
        assert_eq!(default.on_client_crash, OnClientCrash::Replace);
        let throttle = default.throttle.expect("a named pool is throttled");
        assert_eq!(throttle.delay, Duration::from_secs(60));
        assert_eq!(throttle.delay_max, Duration::from_secs(600));
        let section = PoolConfig {
            max: Some(7),
            on_client_crash: Some(OnClientCrash::Return),
            throttle_delay: Some(Duration::ZERO),
            max_uses: 3,
            ..PoolConfig::default()
        };
        let settings = settings(&section, PoolKind::Named);
        assert_eq!(settings.limits.hard_limit, 7);
        assert_eq!(settings.limits.soft_limit, 7);
        assert_eq!(settings.on_client_crash, OnClientCrash::Return);
        assert_eq!(settings.throttle, None);
        assert_eq!(settings.recycle.max_uses, Some(3));
    }

    #[test]
    fn a_short_throttle_delay_max_shortens_the_default_delay() {
        let section = PoolConfig {
            throttle_delay_max: Duration::from_secs(5),
            ..PoolConfig::default()
        };
        let throttle = settings(&section, PoolKind::Named).throttle;
        let throttle = throttle.expect("a named pool is throttled");
        assert_eq!(throttle.delay, Duration::from_secs(5));
    }
}
