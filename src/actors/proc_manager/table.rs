//! The actor's table of pools: names, languages, groups, and the starters of processes.
//!
//! SUMMARY   Each identity assigned by the core has a slot, which is found by name, group or language. A group outlives
//!           its last pool for a while.
//! PROMISES  A name denotes at most one pool that is not being removed. A slot is free as soon as the core reports
//!           that its pool is gone. Group numbers are never reused: a waiter of a group that is gone is not mistaken
//!           for one of another group, whose pools may have another language.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::config::{Around, PoolConfig, PoolTerms};
use crate::messages::proc_manager::{GetProcError, Lender, TakeFrom, Want};
use crate::metrics::PoolMetrics;
use crate::query_server::abilities::Abilities;
use crate::query_server::child_log::PoolLog;
use crate::query_server::language::LanguageName;
use crate::query_server::tried_cell::TriedCell;
use child::cell::terms::CellTerms;
use policy::exchange::ExchangeWatch;
use policy::pool::{GroupId, LanguageId, PoolId, PoolKind, PoolSettings, Target};

/// The actor's part of a pool's state; the core has the rest.
pub(super) struct Pool {
    pub(super) name: Arc<str>,
    pub(super) language: LanguageName,
    pub(super) kind: PoolKind,
    /// Its section, or an equivalent one.
    pub(super) section: Arc<PoolConfig>,
    /// The command that starts its processes, for display.
    pub(super) command: Arc<str>,
    /// Abilities of the currently configured language.
    pub(super) abilities: Arc<Abilities>,
    pub(super) metrics: Arc<PoolMetrics>,
    /// Terms of its processes' cells.
    pub(super) cell_terms: Arc<CellTerms>,
    /// The cell of its processes, if they have any.
    pub(super) cell: Option<Arc<TriedCell>>,
    /// The log of its processes.
    pub(super) log: Arc<PoolLog>,
    /// Tracks whether its databases take processes from each other.
    pub(super) exchanges: ExchangeWatch,
    /// Shared by all borrowers of its processes; created for the first one.
    pub(super) lender: Option<Arc<Lender>>,
    /// The last failed start: command, exit, last output.
    pub(super) failure: Option<Arc<str>>,
    /// Whether its group excludes it, so that it is in no group despite its section.
    pub(super) is_kept_out: bool,
    /// Whether it is being removed.
    pub(super) is_going: bool,
}

/// Pools that serve each other's requests.
pub(super) struct Group {
    /// The core's number for it.
    pub(super) number: GroupId,
    /// Its pools that are not being removed, in the order of joining.
    pub(super) members: Vec<PoolId>,
}

/// All groups.
#[derive(Default)]
pub(super) struct Groups {
    by_name: FxHashMap<Arc<str>, Group>,
    /// The number of the next group.
    next: u32,
}

/// All pools.
#[derive(Default)]
pub(super) struct PoolTable {
    /// Pool number -> pool.
    slots: Vec<Option<Pool>>,
    /// Name -> the pool that is not being removed.
    by_name: FxHashMap<Arc<str>, PoolId>,
    /// Currently configured language -> its own pool.
    own: FxHashMap<LanguageName, PoolId>,
    /// Number of a language -> its name.
    languages: Vec<LanguageName>,
    groups: Groups,
}

impl PoolTable {
    /// Returns the pool with this identity, which the core assigned.
    pub(super) fn at(&self, id: PoolId) -> &Pool {
        let slot = self.slots.get(id.0 as usize).and_then(Option::as_ref);
        slot.expect("PM-1: the core names pools that it was given")
    }

    pub(super) fn at_mut(&mut self, id: PoolId) -> &mut Pool {
        let slot = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut);
        slot.expect("PM-1: the core names pools that it was given")
    }

    /// Stores a pool in the slot assigned by the core.
    pub(super) fn put(&mut self, id: PoolId, pool: Pool) {
        let index = id.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        if pool.kind == PoolKind::Language {
            self.own.insert(pool.language.clone(), id);
        }
        self.by_name.insert(Arc::clone(&pool.name), id);
        let group = pool.section.group.clone();
        self.slots[index] = Some(pool);
        self.join(id, group.as_deref());
    }

    /// Changes a pool's section, and possibly its group.
    pub(super) fn set_section(&mut self, id: PoolId, section: Arc<PoolConfig>) {
        let (before, now) = (self.at(id).section.group.clone(), section.group.clone());
        self.leave(id, before.as_deref());
        let pool = self.at_mut(id);
        pool.section = section;
        pool.is_kept_out = false;
        // Later loans follow the new section.
        pool.lender = None;
        self.join(id, now.as_deref());
    }

    fn join(&mut self, id: PoolId, group: Option<&str>) {
        if let Some(name) = group {
            self.groups.join(name, id);
        }
    }

    fn leave(&mut self, id: PoolId, group: Option<&str>) {
        if let Some(name) = group {
            self.groups.leave(name, id);
        }
    }

    /// Begins the removal of a pool: its name is free at once.
    pub(super) fn begin_removal(&mut self, id: PoolId) {
        let pool = self.at_mut(id);
        pool.is_going = true;
        let name = Arc::clone(&pool.name);
        let group = pool.section.group.clone();
        self.leave(id, group.as_deref());
        if self.by_name.get(&name) == Some(&id) {
            self.by_name.remove(&name);
        }
    }

    /// Removes a pool that is gone, and returns its name.
    pub(super) fn forget(&mut self, id: PoolId) -> Option<Arc<str>> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        slot.take().map(|pool| pool.name)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// All pools with their identities, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        let slots = (0..).map(PoolId).zip(&self.slots);
        slots.filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.slots.iter_mut().flatten()
    }

    /// All pools that are not being removed, by identity.
    pub(super) fn ids(&self) -> Vec<PoolId> {
        let staying = self.iter().filter(|(_, pool)| !pool.is_going);
        staying.map(|(id, _)| id).collect()
    }

    /// Finds a pool by name.
    pub(super) fn find(&self, name: &str) -> Option<PoolId> {
        self.by_name.get(name).copied()
    }

    /// Finds, by its name, a pool that is being removed.
    pub(super) fn find_going(&self, name: &str) -> Option<PoolId> {
        let mut going = self.iter().filter(|(_, pool)| pool.is_going);
        going
            .find(|(_, pool)| *pool.name == *name)
            .map(|(id, _)| id)
    }

    /// Finds a language's own pool.
    pub(super) fn own(&self, language: &LanguageName) -> Option<PoolId> {
        self.own.get(language).copied()
    }

    /// Forgets which pools are languages' own.
    pub(super) fn clear_own(&mut self) {
        self.own.clear();
    }

    pub(super) fn set_own(&mut self, language: &LanguageName, id: PoolId) {
        self.own.insert(language.clone(), id);
    }

    /// Returns the number of a language.
    pub(super) fn language(&mut self, name: &LanguageName) -> LanguageId {
        let known = self.languages.iter().position(|known| known == name);
        LanguageId(known.unwrap_or_else(|| {
            self.languages.push(name.clone());
            self.languages.len() - 1
        }) as u32)
    }

    /// Returns the core's settings for a pool.
    pub(super) fn settings(
        &mut self,
        section: &PoolConfig,
        (kind, language): (PoolKind, &LanguageName),
        terms: PoolTerms,
    ) -> PoolSettings {
        let group = section
            .group
            .as_deref()
            .map(|name| self.groups.number(name));
        let language = self.language(language);
        let around = Around {
            kind,
            language,
            group,
            terms,
        };
        section.core_settings(around)
    }

    /// Returns a pool of a section's group, other than `except`.
    pub(super) fn other_of_group(
        &self,
        section: &PoolConfig,
        except: Option<PoolId>,
    ) -> Option<&Pool> {
        let members = &self.groups.find(section.group.as_deref()?)?.members;
        let other = members.iter().find(|id| Some(**id) != except)?;
        Some(self.at(*other))
    }

    /// Finds the pools that may serve a request, and one of them, for properties that all share.
    pub(super) fn resolve(&self, want: &Want) -> Result<(Target, PoolId), GetProcError> {
        let spoken = want.spoken();
        match &want.from {
            TakeFrom::Own | TakeFrom::Any => {
                let Some(language) = spoken else {
                    let reason = "neither a language nor a pool is named".to_owned();
                    return Err(GetProcError::NoSuchPool(reason));
                };
                let Some(own) = self.own(language) else {
                    return Err(GetProcError::UnknownQueryLanguage(language.to_string()));
                };
                if want.from == TakeFrom::Own {
                    return Ok((Target::Pool(own), own));
                }
                let number = self.languages.iter().position(|known| known == language);
                let number = number.expect("PM-1: a language with a pool has a number");
                Ok((Target::Any(LanguageId(number as u32)), own))
            }
            TakeFrom::Pool(name) => {
                let found = self.find(name).map(|id| (Target::Pool(id), id));
                self.require_spoken(found, "pool", name, spoken)
            }
            TakeFrom::Group(name) => {
                let group = self.groups.find(name);
                let found = group.and_then(|group| {
                    let first = *group.members.first()?;
                    Some((Target::Group(group.number), first))
                });
                self.require_spoken(found, "group of pools", name, spoken)
            }
        }
    }

    /// Requires that a named pool or group exists and has the requested language.
    fn require_spoken(
        &self,
        found: Option<(Target, PoolId)>,
        what: &str,
        name: &str,
        spoken: Option<&LanguageName>,
    ) -> Result<(Target, PoolId), GetProcError> {
        let missing = || format!("there is no {what} named '{name}'");
        match (found, spoken) {
            (None, _) => Err(GetProcError::NoSuchPool(missing())),
            (Some((_, id)), Some(spoken)) if *spoken != self.at(id).language => {
                let reason = format!("{} for the language '{spoken}'", missing());
                Err(GetProcError::NoSuchPool(reason))
            }
            (Some(found), _) => Ok(found),
        }
    }

    /// Returns all pools that may serve a request.
    pub(super) fn members_of(&self, target: Target) -> Vec<PoolId> {
        match target {
            Target::Pool(id) => vec![id],
            Target::Group(group) => {
                let found = self.groups.by_number(group);
                found.map_or_else(Vec::new, |(_, group)| group.members.clone())
            }
            Target::Any(language) => {
                let name = self.languages.get(language.0 as usize);
                let speaks = |pool: &Pool| !pool.is_going && Some(&pool.language) == name;
                let all = self.iter().filter(|(_, pool)| speaks(pool));
                all.map(|(id, _)| id).collect()
            }
        }
    }

    /// Returns the pool that represents those that could have served a request.
    pub(super) fn of_target(&self, target: Target) -> Option<PoolId> {
        match target {
            Target::Pool(id) => self.slots.get(id.0 as usize)?.as_ref().map(|_| id),
            Target::Group(group) => self.groups.by_number(group)?.1.members.first().copied(),
            Target::Any(language) => self.own(self.languages.get(language.0 as usize)?),
        }
    }

    /// Returns the name of a target's pool, group or language; `(gone)` if it no longer exists.
    pub(super) fn label(&self, target: Target) -> Arc<str> {
        let label = match target {
            Target::Pool(id) => {
                let slot = self.slots.get(id.0 as usize).and_then(Option::as_ref);
                slot.map(|pool| Arc::clone(&pool.name))
            }
            Target::Group(group) => self
                .groups
                .by_number(group)
                .map(|(name, _)| Arc::clone(name)),
            Target::Any(language) => {
                let name = self.languages.get(language.0 as usize);
                name.map(|name| Arc::from(name.as_str()))
            }
        };
        label.unwrap_or_else(|| Arc::from("(gone)"))
    }
}

impl Groups {
    /// Finds a group, even without pools.
    pub(super) fn find(&self, name: &str) -> Option<&Group> {
        self.by_name.get(name)
    }

    /// Finds a group by its number, with its name.
    fn by_number(&self, number: GroupId) -> Option<(&Arc<str>, &Group)> {
        let mut groups = self.by_name.iter();
        groups.find(|(_, group)| group.number == number)
    }

    /// Returns a group's number. Creates a missing group, after dropping groups without pools.
    pub(super) fn number(&mut self, name: &str) -> GroupId {
        self.find_or_make(name).number
    }

    /// Adds a pool to a group.
    pub(super) fn join(&mut self, name: &str, pool: PoolId) {
        self.find_or_make(name).members.push(pool);
    }

    /// Removes a pool from a group.
    fn leave(&mut self, name: &str, pool: PoolId) {
        if let Some(group) = self.by_name.get_mut(name) {
            group.members.retain(|member| *member != pool);
        }
    }

    fn find_or_make(&mut self, name: &str) -> &mut Group {
        if !self.by_name.contains_key(name) {
            self.by_name.retain(|_, group| !group.members.is_empty());
        }
        let next = &mut self.next;
        self.by_name.entry(Arc::from(name)).or_insert_with(|| {
            let number = GroupId(*next);
            *next = next
                .checked_add(1)
                .expect("PM-1: fewer groups than numbers");
            Group {
                number,
                members: Vec::new(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId(7);

    #[test]
    fn the_number_of_a_group_that_is_gone_is_not_given_to_another() {
        let mut groups = Groups::default();
        groups.join("fast", POOL);
        let first = groups.number("fast");
        groups.leave("fast", POOL);
        let second = groups.number("slow");
        assert_ne!(second, first);
        assert!(groups.by_number(first).is_none());
        let again = groups.number("fast");
        assert!(again != first && again != second, "{again:?}");
    }

    #[test]
    fn a_group_keeps_its_number_while_it_has_pools() {
        let mut groups = Groups::default();
        groups.join("fast", POOL);
        let number = groups.number("fast");
        groups.join("slow", PoolId(8));
        assert_eq!(groups.number("fast"), number);
        let (name, group) = groups.by_number(number).unwrap();
        assert_eq!((&**name, &*group.members), ("fast", &[POOL][..]));
    }
}
