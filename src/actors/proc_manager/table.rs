//! The actor's table of pools: names, languages, groups, and the starters of processes.
//!
//! SUMMARY   Each identity assigned by the core has a slot, which is found by name, group or language. A group outlives
//!           its last pool for a while.
//! PROMISES  A name denotes at most one pool that is not being removed. A slot is free as soon as the core reports
//!           that its pool is gone. Group numbers are never reused: a waiter of a group that is gone is not mistaken
//!           for one of another group, whose pools may have another language.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::news::Told;
use crate::config::{PoolConfig, PoolTerms};
use crate::messages::proc_manager::{GetProcError, Lender, TakeFrom, Want};
use crate::metrics::PoolMetrics;
use crate::query_server::abilities::Abilities;
use crate::query_server::child_log::PoolLog;
use crate::query_server::language::LanguageName;
use crate::query_server::tried_cell::TriedCell;
use child::cell::terms::CellTerms;
use policy::pool::{GroupId, LanguageId, PoolId, PoolKind, PoolSettings, Target};

/// The actor's part of a pool's state; the core has the rest.
pub(super) struct Pool {
    pub name: Arc<str>,
    pub language: LanguageName,
    pub kind: PoolKind,
    /// Its section, or an equivalent one.
    pub section: Arc<PoolConfig>,
    /// The command that starts its processes, for display.
    pub command: Arc<str>,
    /// Abilities of the currently configured language.
    pub abilities: Arc<Abilities>,
    pub metrics: Arc<PoolMetrics>,
    /// Terms of its processes' cells.
    pub cell_terms: Arc<CellTerms>,
    /// The cell of its processes, if they have any.
    pub cell: Option<Arc<TriedCell>>,
    /// The log of its processes.
    pub log: Arc<PoolLog>,
    /// Limits its log records.
    pub told: Told,
    /// Shared by all borrowers of its processes; created for the first one.
    pub lender: Option<Arc<Lender>>,
    /// The last failed start: command, exit, last output.
    pub failure: Option<Arc<str>>,
    /// Whether its group excludes it, so that it is in no group despite its section.
    pub is_kept_out: bool,
    /// Whether it is being removed.
    pub is_going: bool,
}

/// Pools that serve each other's requests.
pub(super) struct Group {
    /// The core's number for it.
    pub number: GroupId,
    /// Its pools that are not being removed, in the order of joining.
    pub members: Vec<PoolId>,
}

/// All groups.
#[derive(Default)]
pub(super) struct Groups {
    /// Name -> group, even without pools.
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
    pub own: FxHashMap<LanguageName, PoolId>,
    /// Number of a language -> its name.
    languages: Vec<LanguageName>,
    groups: Groups,
}

impl PoolTable {
    fn get(&self, id: PoolId) -> Option<&Pool> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Returns the pool with this identity, which the core assigned.
    pub fn at(&self, id: PoolId) -> &Pool {
        self.get(id)
            .expect("PM-1: the core names pools that it was given")
    }

    pub fn at_mut(&mut self, id: PoolId) -> &mut Pool {
        self.slots
            .get_mut(id.0 as usize)
            .and_then(Option::as_mut)
            .expect("PM-1: the core names pools that it was given")
    }

    /// Stores a pool in the slot assigned by the core.
    pub fn put(&mut self, id: PoolId, pool: Pool) {
        let index = id.0 as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        if pool.kind == PoolKind::Language {
            self.own.insert(pool.language.clone(), id);
        }
        self.by_name.insert(Arc::clone(&pool.name), id);
        if let Some(group) = &pool.section.group {
            self.groups.join(group, id);
        }
        self.slots[index] = Some(pool);
    }

    /// Changes a pool's section, and possibly its group.
    pub fn set_section(&mut self, id: PoolId, section: Arc<PoolConfig>) {
        self.leave_group(id);
        if let Some(group) = &section.group {
            self.groups.join(group, id);
        }
        let pool = self.at_mut(id);
        pool.section = section;
        pool.is_kept_out = false;
        // Later loans follow the new section.
        pool.lender = None;
    }

    fn leave_group(&mut self, id: PoolId) {
        let section = Arc::clone(&self.at(id).section);
        if let Some(group) = &section.group {
            self.groups.leave(group, id);
        }
    }

    /// Begins the removal of a pool: its name is free at once.
    pub fn begin_removal(&mut self, id: PoolId) {
        let pool = self.at_mut(id);
        pool.is_going = true;
        let name = Arc::clone(&pool.name);
        self.leave_group(id);
        if self.by_name.get(&name) == Some(&id) {
            self.by_name.remove(&name);
        }
    }

    /// Removes a pool that is gone.
    pub fn forget(&mut self, id: PoolId) {
        self.slots[id.0 as usize] = None;
    }

    pub fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// All pools with their identities, in order.
    pub fn iter(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        (0..)
            .map(PoolId)
            .zip(&self.slots)
            .filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.slots.iter_mut().flatten()
    }

    /// All pools that are not being removed, by identity.
    pub fn ids(&self) -> Vec<PoolId> {
        self.iter()
            .filter(|(_, pool)| !pool.is_going)
            .map(|(id, _)| id)
            .collect()
    }

    /// Finds a pool by name.
    pub fn find(&self, name: &str) -> Option<PoolId> {
        self.by_name.get(name).copied()
    }

    /// Finds a language's own pool.
    pub fn own(&self, language: &LanguageName) -> Option<PoolId> {
        self.own.get(language).copied()
    }

    /// Returns the core's settings for a pool.
    pub fn settings(
        &mut self,
        section: &PoolConfig,
        (kind, language): (PoolKind, &LanguageName),
        terms: PoolTerms,
    ) -> PoolSettings {
        let group = section
            .group
            .as_deref()
            .map(|name| self.groups.number(name));
        let known = self.languages.iter().position(|known| known == language);
        let number = known.unwrap_or_else(|| {
            self.languages.push(language.clone());
            self.languages.len() - 1
        });
        section.core_settings(kind, LanguageId(number as u32), group, terms)
    }

    /// Returns a pool of a section's group, other than `except`.
    pub fn other_of_group(&self, section: &PoolConfig, except: Option<PoolId>) -> Option<&Pool> {
        let group = self.groups.by_name.get(section.group.as_deref()?)?;
        let other = group.members.iter().find(|id| Some(**id) != except)?;
        Some(self.at(*other))
    }

    /// Finds the pools that may serve a request, and one of them, for properties that all share.
    pub fn resolve(&self, want: &Want) -> Result<(Target, PoolId), GetProcError> {
        let spoken = want.spoken();
        let (found, what, name) = match &want.from {
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
                let number = self
                    .languages
                    .iter()
                    .position(|known| known == language)
                    .expect("PM-1: a language with a pool has a number");
                return Ok((Target::Any(LanguageId(number as u32)), own));
            }
            TakeFrom::Pool(name) => {
                let found = self.find(name).map(|id| (Target::Pool(id), id));
                (found, "pool", name)
            }
            TakeFrom::Group(name) => {
                let group = self.groups.by_name.get(name);
                let found = group.and_then(|group| {
                    let first = *group.members.first()?;
                    Some((Target::Group(group.number), first))
                });
                (found, "group of pools", name)
            }
        };
        // A named pool or group must exist and have the requested language.
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
    pub fn members_of(&self, target: Target) -> Vec<PoolId> {
        match target {
            Target::Pool(id) => vec![id],
            Target::Group(group) => self
                .groups
                .by_number(group)
                .map_or_else(Vec::new, |(_, group)| group.members.clone()),
            Target::Any(language) => {
                let name = self.languages.get(language.0 as usize);
                let speaks = |pool: &Pool| !pool.is_going && Some(&pool.language) == name;
                self.iter()
                    .filter(|(_, pool)| speaks(pool))
                    .map(|(id, _)| id)
                    .collect()
            }
        }
    }

    /// Returns the pool that represents those that could have served a request.
    pub fn of_target(&self, target: Target) -> Option<PoolId> {
        match target {
            Target::Pool(id) => self.get(id).map(|_| id),
            Target::Group(group) => self.groups.by_number(group)?.1.members.first().copied(),
            Target::Any(language) => self.own(self.languages.get(language.0 as usize)?),
        }
    }

    /// Returns the name of a target's pool, group or language; `(gone)` if it no longer exists.
    pub fn label(&self, target: Target) -> Arc<str> {
        let label = match target {
            Target::Pool(id) => self.get(id).map(|pool| Arc::clone(&pool.name)),
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
    /// Finds a group by its number, with its name.
    fn by_number(&self, number: GroupId) -> Option<(&Arc<str>, &Group)> {
        self.by_name
            .iter()
            .find(|(_, group)| group.number == number)
    }

    /// Returns a group's number. Creates a missing group, after dropping groups without pools.
    pub fn number(&mut self, name: &str) -> GroupId {
        self.find_or_make(name).number
    }

    /// Adds a pool to a group.
    pub fn join(&mut self, name: &str, pool: PoolId) {
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
