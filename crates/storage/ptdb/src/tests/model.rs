//! Seeded random histories, compared step by step with a model in plain maps.

use super::{Fixture, NOW, code};
use crate::{Actor, Change, Kind};
use base::{AbortCode, UserId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq)]
struct Thing {
    name: String,
    owner: i32,
    creator: i32,
    quota: i32,
    /// Members of a group; empty for a user.
    members: BTreeSet<i32>,
}

/// Users and groups, all with the default access bits.
#[derive(Clone, Default)]
struct Model {
    things: BTreeMap<i32, Thing>,
    max_user: i32,
    max_group: i32,
}

const ADMINS: i32 = -204;
type Outcome = Result<(), AbortCode>;

impl Model {
    fn of(f: &Fixture) -> Model {
        let (entries, _) = f.db.list(&Actor::cell(), 0, usize::MAX, &|_| true).unwrap();
        let thing = |entry: &crate::Entry| Thing {
            name: String::from_utf8(entry.name.clone()).unwrap(),
            owner: entry.owner.0,
            creator: entry.creator.0,
            quota: entry.group_quota,
            members: if entry.is_group() {
                f.db.elements(&Actor::cell(), entry.id).unwrap().into_iter().map(|id| id.0).collect()
            } else {
                BTreeSet::new()
            },
        };
        let totals = f.db.totals().unwrap();
        Model {
            things: entries.iter().map(|entry| (entry.id.0, thing(entry))).collect(),
            max_user: totals.max_user.0,
            max_group: totals.max_group.0,
        }
    }

    fn is_in(&self, id: i32, group: i32) -> bool {
        self.is_within(id, group, 5)
    }

    fn is_within(&self, id: i32, group: i32, depth: u32) -> bool {
        let members = self.things.get(&group).map(|thing| &thing.members);
        depth > 0
            && members.is_some_and(|members| {
                members.contains(&id) || members.iter().any(|&inner| self.is_within(id, inner, depth - 1))
            })
    }

    fn is_admin(&self, id: i32) -> bool {
        self.is_in(id, ADMINS)
    }

    fn controls(&self, id: i32, owner: i32) -> bool {
        (owner != 0 && (id == owner || self.is_in(id, owner))) || self.is_admin(id)
    }

    fn taken(&self, name: &str) -> bool {
        self.things.values().any(|thing| thing.name == name)
    }

    fn insert(&mut self, id: i32, name: &str, owner: i32, creator: i32) {
        let quota = if id > 0 { 20 } else { 0 };
        let thing = Thing { name: name.into(), owner, creator, quota, members: BTreeSet::new() };
        self.things.insert(id, thing);
    }

    fn create_user(&mut self, actor: i32, name: &str) -> Outcome {
        if !self.is_admin(actor) {
            return Err(AbortCode::PRPERM);
        }
        if self.taken(name) {
            return Err(AbortCode::PREXIST);
        }
        self.max_user += 1;
        self.insert(self.max_user, name, ADMINS, actor);
        Ok(())
    }

    /// Returns the prefix of groups that `owner` owns.
    fn prefix(&self, owner: i32, admin: bool) -> Result<String, AbortCode> {
        let thing = self.things.get(&owner).ok_or(AbortCode::PRNOENT)?;
        if owner < 0 && thing.members.is_empty() && !admin && owner != ADMINS {
            return Err(AbortCode::PRGROUPEMPTY);
        }
        let prefix = thing.name.split(':').next().unwrap().to_owned();
        if prefix == "system" && !admin { Err(AbortCode::PRPERM) } else { Ok(prefix) }
    }

    fn corrected(&self, name: &str, owner: i32, admin: bool) -> Result<String, AbortCode> {
        let prefix = self.prefix(owner, admin)?;
        match name.split_once(':') {
            Some((_, rest)) => Ok(format!("{prefix}:{rest}")),
            None if admin => Ok(name.into()),
            None => Err(AbortCode::PRBADNAM),
        }
    }

    fn create_group(&mut self, actor: i32, name: &str, owner: i32) -> Outcome {
        let admin = self.is_admin(actor);
        let owner = if owner == 0 { actor } else { owner };
        if admin && !self.things.contains_key(&owner) {
            // An administrator may choose any name, but the owner must exist or be the new group itself.
            if self.taken(name) {
                return Err(AbortCode::PREXIST);
            }
            if owner != self.max_group - 1 {
                return Err(AbortCode::PRNOENT);
            }
        } else if self.corrected(name, owner, admin)? != name {
            return Err(AbortCode::PRBADNAM);
        }
        if self.taken(name) {
            return Err(AbortCode::PREXIST);
        }
        let paying = self.things.get_mut(&actor).unwrap();
        if !admin {
            if paying.quota <= 0 {
                return Err(AbortCode::PRNOMORE);
            }
            paying.quota -= 1;
        }
        self.max_group -= 1;
        self.insert(self.max_group, name, owner, actor);
        Ok(())
    }

    fn check_pair(&self, actor: i32, id: i32, group: i32) -> Outcome {
        if !self.things.contains_key(&id) || !self.things.contains_key(&group) {
            return Err(AbortCode::PRNOENT);
        }
        if group > 0 {
            return Err(AbortCode::PRNOTGROUP);
        }
        if self.controls(actor, self.things[&group].owner) { Ok(()) } else { Err(AbortCode::PRPERM) }
    }

    fn add(&mut self, actor: i32, id: i32, group: i32) -> Outcome {
        self.check_pair(actor, id, group)?;
        if id == group {
            return Err(AbortCode::PRINCONSISTENT);
        }
        let new = self.things.get_mut(&group).unwrap().members.insert(id);
        if new { Ok(()) } else { Err(AbortCode::PRIDEXIST) }
    }

    fn remove(&mut self, actor: i32, id: i32, group: i32) -> Outcome {
        self.check_pair(actor, id, group)?;
        if id == group {
            return Err(AbortCode::PRINCONSISTENT);
        }
        let was = self.things.get_mut(&group).unwrap().members.remove(&id);
        if was { Ok(()) } else { Err(AbortCode::PRNOENT) }
    }

    fn delete(&mut self, actor: i32, id: i32) -> Outcome {
        let thing = self.things.get(&id).ok_or(AbortCode::PRNOENT)?.clone();
        if !self.controls(actor, thing.owner) {
            return Err(AbortCode::PRPERM);
        }
        self.things.remove(&id);
        for other in self.things.values_mut() {
            other.members.remove(&id);
            if other.owner == id {
                other.owner = 0;
            }
        }
        if id < 0 {
            let admin = self.is_admin(thing.creator);
            if let Some(creator) = self.things.get_mut(&thing.creator)
                && !(admin && creator.quota >= 20)
            {
                creator.quota += 1;
            }
        }
        Ok(())
    }

    fn change(&mut self, actor: i32, id: i32, name: &str, owner: i32) -> Outcome {
        let old = self.things.get(&id).ok_or(AbortCode::PRNOENT)?.clone();
        if !self.controls(actor, old.owner) {
            return Err(AbortCode::PRPERM);
        }
        let admin = self.is_admin(actor);
        let mut new = old.clone();
        if owner != 0 && owner != old.owner {
            if id > 0 {
                return Err(AbortCode::PRPERM);
            }
            if !self.things.contains_key(&owner) {
                return Err(AbortCode::PRNOENT);
            }
            new.owner = owner;
            if name.is_empty() {
                new.name = self.corrected(&old.name, owner, admin)?;
            }
        }
        if !name.is_empty() && name != old.name {
            if id < 0 {
                new.owner = if new.owner == 0 { actor } else { new.owner };
                if self.corrected(name, new.owner, admin)? != name {
                    return Err(AbortCode::PRBADNAM);
                }
            } else if name.contains(':') {
                return Err(AbortCode::PRBADNAM);
            }
            new.name = name.into();
        }
        if new.name != old.name && self.taken(&new.name) {
            return Err(AbortCode::PREXIST);
        }
        self.things.insert(id, new);
        Ok(())
    }

    /// Returns the protection set, found by walking five levels upwards, which is the default depth.
    fn set(&self, id: i32) -> BTreeSet<i32> {
        let above = |ids: &BTreeSet<i32>| -> BTreeSet<i32> {
            let holds = |thing: &Thing| !thing.members.is_disjoint(ids);
            self.things.iter().filter(|(_, thing)| holds(thing)).map(|(&id, _)| id).collect()
        };
        let mut set = if id > 0 { above(&BTreeSet::from([id])) } else { BTreeSet::new() };
        for _ in 0..5 {
            let more = above(&set);
            set.extend(more);
        }
        set.extend([-101, -102, id]);
        set
    }
}

/// An operation, built from small random numbers so that histories collide often.
#[derive(Clone, Debug)]
enum Deed {
    User(String),
    Group(String, i32),
    Add(i32, i32),
    Remove(i32, i32),
    Delete(i32),
    Change(i32, String, i32),
}

/// Returns an existing user or group, and occasionally a nonexistent one.
fn some_id(rng: &mut StdRng, model: &Model) -> i32 {
    if rng.random_bool(0.5) { some_user(rng, model) } else { some_group(rng, model) }
}

fn some_user(rng: &mut StdRng, model: &Model) -> i32 {
    some_of(rng, model, 1..32000).unwrap_or(4711)
}

fn some_group(rng: &mut StdRng, model: &Model) -> i32 {
    some_of(rng, model, -9000..-205).unwrap_or(-4711)
}

fn some_of(rng: &mut StdRng, model: &Model, range: std::ops::Range<i32>) -> Option<i32> {
    let there: Vec<_> = model.things.range(range).map(|(&id, _)| id).collect();
    there.get(rng.random_range(0..=there.len())).copied()
}

fn user_name(rng: &mut StdRng) -> String {
    format!("u{}", rng.random_range(0..8))
}

fn group_name(rng: &mut StdRng) -> String {
    match rng.random_range(0..8) {
        0 => format!("g{}", rng.random_range(0..4)),
        1 => format!("g{}:x{}", rng.random_range(0..4), rng.random_range(0..4)),
        2 => format!("system:x{}", rng.random_range(0..2)),
        _ => format!("{}:x{}", user_name(rng), rng.random_range(0..4)),
    }
}

fn some_deed(rng: &mut StdRng, model: &Model) -> Deed {
    match rng.random_range(0..20) {
        0..3 => Deed::User(user_name(rng)),
        3..7 => Deed::Group(group_name(rng), if rng.random_bool(0.5) { 0 } else { some_id(rng, model) }),
        7..13 => {
            Deed::Add(some_id(rng, model), if rng.random_bool(0.1) { ADMINS } else { some_group(rng, model) })
        }
        13..15 => Deed::Remove(some_id(rng, model), some_group(rng, model)),
        // The administrator is never deleted, or most operations would fail.
        15..17 => Deed::Delete(match some_id(rng, model) {
            1 => 4711,
            id => id,
        }),
        17 => Deed::Change(some_group(rng, model), String::new(), some_id(rng, model)),
        18 => Deed::Change(some_group(rng, model), group_name(rng), 0),
        _ => Deed::Change(some_user(rng, model), user_name(rng), 0),
    }
}

fn expect(model: &mut Model, actor: i32, deed: &Deed) -> Outcome {
    let mut next = model.clone();
    let outcome = match deed {
        Deed::User(name) => next.create_user(actor, name),
        Deed::Group(name, owner) => next.create_group(actor, name, *owner),
        Deed::Add(id, group) => next.add(actor, *id, *group),
        Deed::Remove(id, group) => next.remove(actor, *id, *group),
        Deed::Delete(id) => next.delete(actor, *id),
        Deed::Change(id, name, owner) => next.change(actor, *id, name, *owner),
    };
    if outcome.is_ok() {
        *model = next;
    }
    outcome
}

fn perform(f: &Fixture, actor: i32, deed: &Deed) -> Outcome {
    let actor = Actor::user(UserId(actor));
    let id = UserId;
    match deed {
        Deed::User(name) => f.create(&actor, name, Kind::User).map(drop),
        Deed::Group(name, owner) => f.create_owned(&actor, name, Kind::Group, *owner).map(drop),
        Deed::Add(one, group) => f.db.add_to_group(&actor, id(*one), id(*group), NOW).map_err(code),
        Deed::Remove(one, group) => f.db.remove_from_group(&actor, id(*one), id(*group), NOW).map_err(code),
        Deed::Delete(one) => f.db.delete(&actor, id(*one), NOW).map_err(code),
        Deed::Change(one, name, owner) => {
            let change = Change { name: name.clone().into(), owner: id(*owner), new_id: UserId(0) };
            f.db.change(&actor, id(*one), &change, NOW).map_err(code)
        }
    }
}

fn check(f: &Fixture, model: &Model, context: &str) {
    let seen = Model::of(f);
    assert_eq!(seen.things, model.things, "{context}");
    assert_eq!((seen.max_user, seen.max_group), (model.max_user, model.max_group), "{context}");
    for (&id, thing) in &model.things {
        assert_eq!(f.db.id_of_name(thing.name.as_bytes()).unwrap(), Some(UserId(id)), "{context}");
        let entry = f.entry(UserId(id));
        let groups: Vec<_> = model
            .things
            .iter()
            .filter(|(_, t)| t.members.contains(&id))
            .map(|(&group, _)| UserId(group))
            .collect();
        if id < 0 {
            assert_eq!(f.db.supergroups(&Actor::cell(), entry.id).unwrap(), groups, "{context}");
            assert_eq!(entry.supergroup_count as usize, groups.len(), "{context}");
            assert_eq!(entry.count as usize, thing.members.len(), "{context}");
        } else {
            assert_eq!(entry.count as usize, groups.len(), "{context}");
            if id != UserId::ANONYMOUS.0 {
                let set: Vec<_> = model.set(id).into_iter().map(UserId).collect();
                assert_eq!(f.db.protection_set(entry.id).unwrap(), set, "{context}");
            }
        }
        let owned: Vec<_> =
            model.things.iter().filter(|(g, t)| **g < 0 && t.owner == id).map(|(&g, _)| UserId(g)).collect();
        assert_eq!(f.db.owned(&Actor::cell(), entry.id, None, 99).unwrap(), owned, "{context}");
    }
}

fn run(seed: u64, steps: usize) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut f = Fixture::new();
    for n in 0..4 {
        f.user(&format!("u{n}"));
    }
    f.add(UserId(1), UserId::ADMINISTRATORS);
    let mut model = Model::of(&f);
    let mut done = 0;
    for step in 0..steps {
        let users: Vec<_> = model.things.keys().copied().filter(|&id| id > 0 && id < 32000).collect();
        let Some(&actor) = users.get(rng.random_range(0..users.len().max(1))) else {
            break;
        };
        // User 1 is the administrator.
        let actor = if users.contains(&1) && rng.random_bool(0.5) { 1 } else { actor };
        let deed = some_deed(&mut rng, &model);
        let context = format!("seed {seed} step {step}: {actor} does {deed:?}");
        let expected = expect(&mut model, actor, &deed);
        assert_eq!(perform(&f, actor, &deed), expected, "{context}");
        done += usize::from(expected.is_ok());
        if rng.random_ratio(1, 40) {
            f = f.crashed();
            check(&f, &model, &context);
        }
    }
    check(&f, &model, &format!("seed {seed} at the end"));
    done
}

#[test]
fn histories_go_as_in_the_model() {
    let done: usize = (0..60).map(|seed| run(seed, 600)).sum();
    // A good part of the operations must succeed.
    assert!(done > 4000, "only {done} deeds succeeded");
}
