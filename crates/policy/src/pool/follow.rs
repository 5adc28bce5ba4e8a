//! How pools follow the configuration at the start and at a reload.
//!
//! SUMMARY   [`follow`] decides the fate of a name.
//! PROMISES  Pure. Operators' changes at run time persist until the configuration changes the same pool.
//! CALLED    By the ProcManager, which has the names, when it starts and at each reload.
//! SOURCE    pooler: reconfiguration of running pools.

use super::{PoolId, PoolKind};

/// A name's sections in the configuration, and its pool. `S` is a section.
#[derive(Clone, Copy, Debug)]
pub struct ConfiguredName<'a, S> {
    /// Whether this is the first configuration.
    pub is_first: bool,
    /// Whether a language has this name.
    pub is_language: bool,
    /// Its section in the previous configuration.
    pub before: Option<&'a S>,
    /// Its section in the new configuration.
    pub now: Option<&'a S>,
    /// Its existing pool, unless that is being removed.
    pub pool: Option<(PoolId, PoolKind)>,
    /// Whether that pool is kept out of its group.
    pub is_kept_out: bool,
}

/// The change to a name's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// There is no pool, and none is configured.
    Nothing,
    /// A pool is added.
    Add(PoolKind),
    /// The pool is removed.
    Remove(PoolId),
    /// The pool is removed, and one of another kind is added.
    Replace(PoolId, PoolKind),
    /// The pool gets the configured section.
    Change(PoolId),
    /// The pool keeps its section; settings for all pools may have changed.
    Keep(PoolId),
}

/// Decides the fate of a name.
pub fn follow<S: PartialEq>(name: &ConfiguredName<'_, S>) -> Follow {
    let is_news = name.is_first || name.before != name.now;
    let kind = if name.is_language {
        PoolKind::Language
    } else {
        PoolKind::Named
    };
    let is_asked_for = name.is_language || name.now.is_some();
    match name.pool {
        None if name.is_language || (is_asked_for && is_news) => Follow::Add(kind),
        // This includes a pool that an operator removed while its section is unchanged.
        None => Follow::Nothing,
        // A language's own pool is removed with it; one added by an operator stays.
        Some((pool, PoolKind::Language)) if !is_asked_for => Follow::Remove(pool),
        Some((pool, PoolKind::Named)) if !is_asked_for => match name.before {
            Some(_) => Follow::Remove(pool),
            None => Follow::Keep(pool),
        },
        Some((pool, there)) if there != kind => Follow::Replace(pool, kind),
        Some((pool, _)) if is_news || name.is_kept_out => Follow::Change(pool),
        Some((pool, _)) => Follow::Keep(pool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId(7);

    /// A name that is unknown to a reload.
    const UNKNOWN: ConfiguredName<'_, u32> = ConfiguredName {
        is_first: false,
        is_language: false,
        before: None,
        now: None,
        pool: None,
        is_kept_out: false,
    };
    const LANGUAGE: ConfiguredName<'_, u32> = ConfiguredName {
        is_language: true,
        pool: Some((POOL, PoolKind::Language)),
        ..UNKNOWN
    };
    const NAMED: ConfiguredName<'_, u32> = ConfiguredName {
        before: Some(&1),
        now: Some(&1),
        pool: Some((POOL, PoolKind::Named)),
        ..UNKNOWN
    };

    #[test]
    fn each_language_and_each_section_adds_a_pool() {
        for is_first in [true, false] {
            let language = ConfiguredName {
                is_first,
                pool: None,
                ..LANGUAGE
            };
            assert_eq!(follow(&language), Follow::Add(PoolKind::Language));
            let named = ConfiguredName {
                is_first,
                before: None,
                pool: None,
                ..NAMED
            };
            assert_eq!(follow(&named), Follow::Add(PoolKind::Named));
        }
        assert_eq!(follow(&UNKNOWN), Follow::Nothing);
    }

    #[test]
    fn an_operators_change_stays_until_the_configuration_changes() {
        let removed = ConfiguredName {
            pool: None,
            ..NAMED
        };
        assert_eq!(follow(&removed), Follow::Nothing);
        assert_eq!(follow(&NAMED), Follow::Keep(POOL));
        assert_eq!(follow(&LANGUAGE), Follow::Keep(POOL));
        let added = ConfiguredName {
            before: None,
            now: None,
            ..NAMED
        };
        assert_eq!(follow(&added), Follow::Keep(POOL));
        let said = Some(&2);
        assert_eq!(
            follow(&ConfiguredName {
                now: said,
                ..removed
            }),
            Follow::Add(PoolKind::Named)
        );
        for there in [NAMED, LANGUAGE, added] {
            assert_eq!(
                follow(&ConfiguredName { now: said, ..there }),
                Follow::Change(POOL)
            );
        }
    }

    #[test]
    fn a_named_pool_is_removed_with_its_section_and_a_languages_pool_with_the_language() {
        let without_section = ConfiguredName { now: None, ..NAMED };
        assert_eq!(follow(&without_section), Follow::Remove(POOL));
        let without_language = ConfiguredName {
            is_language: false,
            ..LANGUAGE
        };
        assert_eq!(follow(&without_language), Follow::Remove(POOL));
        let only_language = ConfiguredName {
            before: Some(&1),
            ..LANGUAGE
        };
        assert_eq!(follow(&only_language), Follow::Change(POOL));
    }

    #[test]
    fn a_pool_is_replaced_by_one_of_the_other_kind() {
        let language = ConfiguredName {
            is_language: true,
            ..NAMED
        };
        let other = Follow::Replace(POOL, PoolKind::Language);
        assert_eq!(follow(&language), other);
        let section = ConfiguredName {
            is_language: false,
            now: Some(&1),
            ..LANGUAGE
        };
        let other = Follow::Replace(POOL, PoolKind::Named);
        assert_eq!(follow(&section), other);
    }

    #[test]
    fn a_pool_that_was_kept_out_of_its_group_tries_again() {
        let kept_out = ConfiguredName {
            is_kept_out: true,
            ..NAMED
        };
        assert_eq!(follow(&kept_out), Follow::Change(POOL));
    }
}
