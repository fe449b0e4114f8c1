//! Seeded random histories, compared step by step with a model that is a plain list.

use super::{Fixture, NOW, address, code};
use crate::{Filter, Location, NewLocation, NewSite, Update, VolumeQuery, release, site_flags};
use base::{AbortCode, UnixTime, VolumeId, VolumeType};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// An entry with addresses in place of server numbers.
#[derive(Clone, Debug, PartialEq)]
struct Volume {
    new: NewLocation,
    locked: bool,
}

#[derive(Clone, Default)]
struct Model(Vec<Volume>);

type Outcome = Result<(), AbortCode>;

impl Model {
    fn find(&self, id: VolumeId, kind: Option<VolumeType>) -> Result<usize, AbortCode> {
        let has = |v: &Volume| match kind {
            Some(kind) => v.new.ids[kind as usize] == id,
            None => v.new.ids.contains(&id),
        };
        if id.0 == 0 {
            return Err(AbortCode::VL_NOENT);
        }
        self.0.iter().position(has).ok_or(AbortCode::VL_NOENT)
    }

    fn uses(&self, id: VolumeId) -> bool {
        id.0 != 0 && self.0.iter().any(|v| v.new.ids.contains(&id))
    }

    fn named(&self, name: &[u8]) -> bool {
        self.0.iter().any(|v| v.new.name == name)
    }

    fn create(&mut self, new: &NewLocation) -> Outcome {
        if new.ids[0].0 == 0 {
            return Err(AbortCode::VL_BADENTRY);
        }
        if new.ids.iter().any(|&id| self.uses(id)) || shares(new) {
            return Err(AbortCode::VL_IDEXIST);
        }
        if self.named(&new.name) {
            return Err(AbortCode::VL_NAMEEXIST);
        }
        self.0.push(Volume { new: new.clone(), locked: false });
        Ok(())
    }

    fn replace(&mut self, id: VolumeId, new: &NewLocation) -> Outcome {
        let at = self.find(id, None)?;
        let old = self.0[at].clone();
        if new.ids[0].0 == 0 || new.ids[0] != old.new.ids[0] {
            return Err(AbortCode::VL_BADENTRY);
        }
        if new.ids.iter().any(|id| self.uses(*id) && !old.new.ids.contains(id)) {
            return Err(AbortCode::VL_IDEXIST);
        }
        if shares(new) {
            return Err(AbortCode::VL_BADENTRY);
        }
        if new.name != old.new.name && self.named(&new.name) {
            return Err(AbortCode::VL_NAMEEXIST);
        }
        self.0[at].new = new.clone();
        Ok(())
    }

    fn rename(&mut self, id: VolumeId, name: &str) -> Outcome {
        let at = self.find(id, None)?;
        if self.named(name.as_bytes()) {
            return Err(AbortCode::VL_NAMEEXIST);
        }
        self.0[at].new.name = name.into();
        Ok(())
    }
}

/// Whether two volumes of the entry would share an id.
fn shares(new: &NewLocation) -> bool {
    let [rw, ro, backup] = new.ids;
    let has_both = new.flags & 0x3000 == 0x3000;
    (backup.0 != 0 && [rw, ro].contains(&backup)) || (ro.0 != 0 && rw == ro && has_both)
}

/// An operation, built from small random numbers so that histories collide often.
#[derive(Clone, Debug)]
enum Deed {
    Create(NewLocation),
    Replace(VolumeId, NewLocation),
    Delete(VolumeId, Option<VolumeType>),
    Rename(VolumeId, String),
    Lock(VolumeId),
    Unlock(VolumeId),
}

fn some_id(rng: &mut StdRng) -> VolumeId {
    VolumeId(rng.random_range(0..30))
}

fn some_name(rng: &mut StdRng) -> String {
    format!("v{}", rng.random_range(0..8))
}

fn some_new(rng: &mut StdRng, rw: VolumeId) -> NewLocation {
    let site = |rng: &mut StdRng| NewSite {
        address: address(rng.random_range(1..5)),
        partition: rng.random_range(0..3),
        flags: i32::from(if rng.random() { site_flags::READ_WRITE } else { site_flags::READ_ONLY }),
    };
    let optional = |rng: &mut StdRng| if rng.random() { some_id(rng) } else { VolumeId(0) };
    NewLocation {
        name: some_name(rng).into(),
        ids: [rw, optional(rng), optional(rng)],
        clone: VolumeId(0),
        flags: if rng.random() { 0x1000 } else { [0x2000, 0x3000][rng.random_range(0..2)] },
        sites: (0..rng.random_range(1..4)).map(|_| site(rng)).collect(),
        form: crate::EntryForm::Current,
    }
}

fn some_deed(rng: &mut StdRng, model: &Model) -> Deed {
    let there = (!model.0.is_empty()).then(|| model.0[rng.random_range(0..model.0.len())].new.ids[0]);
    let id = there.filter(|_| rng.random_bool(0.8)).unwrap_or_else(|| some_id(rng));
    match rng.random_range(0..12) {
        0..4 => {
            let rw = some_id(rng);
            Deed::Create(some_new(rng, rw))
        }
        4..7 => Deed::Replace(id, some_new(rng, id)),
        7 => Deed::Delete(id, rng.random_bool(0.5).then_some(VolumeType::ReadWrite)),
        8 => Deed::Rename(id, some_name(rng)),
        9 | 10 => Deed::Lock(id),
        _ => Deed::Unlock(id),
    }
}

fn expect(model: &mut Model, deed: &Deed) -> Outcome {
    match deed {
        Deed::Create(new) => model.create(new),
        Deed::Replace(id, new) => model.replace(*id, new),
        Deed::Delete(id, kind) => model.find(*id, *kind).map(|at| drop(model.0.remove(at))),
        Deed::Rename(id, name) => model.rename(*id, name),
        Deed::Lock(id) => {
            let at = model.find(*id, None)?;
            if model.0[at].locked {
                return Err(AbortCode::VL_ENTRYLOCKED);
            }
            model.0[at].locked = true;
            model.0[at].new.flags |= 0x10;
            Ok(())
        }
        Deed::Unlock(id) => {
            let at = model.find(*id, None)?;
            model.0[at].locked = false;
            model.0[at].new.flags &= !0x10;
            Ok(())
        }
    }
}

fn perform(f: &Fixture, deed: &Deed) -> Outcome {
    let outcome = match deed {
        Deed::Create(new) => f.db.create(new).map(drop),
        Deed::Replace(id, new) => f.db.replace(*id, None, new, 0),
        Deed::Delete(id, kind) => f.db.delete(*id, *kind),
        Deed::Rename(id, name) => {
            let update = Update { name: Some(name.clone().into()), ..Update::default() };
            f.db.update(&VolumeQuery::Id(*id), None, &update, 0)
        }
        Deed::Lock(id) => f.db.lock(*id, None, 0x10, NOW),
        Deed::Unlock(id) => f.db.unlock(*id, None, release::TIMESTAMP | release::OPERATION),
    };
    outcome.map_err(code)
}

fn seen(f: &Fixture, location: &Location) -> Volume {
    let servers = f.db.servers();
    let site = |site: &crate::Site| NewSite {
        address: servers.get(site.server).unwrap().first_address(),
        partition: site.partition.into(),
        flags: site.flags.into(),
    };
    Volume {
        new: NewLocation {
            name: location.name.as_str().into(),
            ids: location.ids,
            clone: location.clone,
            flags: location.flags,
            sites: location.sites.iter().map(site).collect(),
            form: crate::EntryForm::Current,
        },
        locked: location.locked != UnixTime(0),
    }
}

fn check(f: &Fixture, model: &Model, context: &str) {
    let list = |filter: Filter| -> Vec<_> {
        f.db.list(&filter).unwrap().iter().map(|location| seen(f, location)).collect()
    };
    assert_eq!(list(Filter::default()), model.0, "{context}");
    for id in 0..30 {
        let found = f.db.find(&VolumeQuery::Id(VolumeId(id)), None).map(|location| seen(f, &location));
        let expected = model.find(VolumeId(id), None).map(|at| model.0[at].clone());
        assert_eq!(found.map_err(code), expected, "{context}: id {id}");
    }
    for name in 0..8 {
        let name = format!("v{name}");
        let found = f.db.find_by_name(&name.parse().unwrap()).is_ok();
        assert_eq!(found, model.named(name.as_bytes()), "{context}: {name}");
    }
    for server in 1..5 {
        let on = |v: &&Volume| v.new.sites.iter().any(|site| site.address == address(server));
        let expected: Vec<_> = model.0.iter().filter(on).cloned().collect();
        assert_eq!(
            list(Filter { server: Some(address(server)), ..Filter::default() }),
            expected,
            "{context}"
        );
    }
    let count = |kind: usize| model.0.iter().filter(|v| v.new.ids[kind].0 != 0).count() as u32;
    assert_eq!(f.db.totals().volumes, [count(0), count(1), count(2)], "{context}");
}

fn run(seed: u64, steps: usize) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut f, mut model) = (Fixture::new(), Model::default());
    let mut done = 0;
    for step in 0..steps {
        let deed = some_deed(&mut rng, &model);
        let context = format!("seed {seed} step {step}: {deed:?}");
        let expected = expect(&mut model, &deed);
        assert_eq!(perform(&f, &deed), expected, "{context}");
        done += usize::from(expected.is_ok());
        if rng.random_ratio(1, 30) {
            f = f.crashed();
            check(&f, &model, &context);
        }
    }
    check(&f, &model, &format!("seed {seed} at the end"));
    done
}

#[test]
fn histories_go_as_in_the_model() {
    let done: usize = (0..60).map(|seed| run(seed, 300)).sum();
    assert!(done > 5000, "only {done} deeds succeeded");
}
