//! The holders of promises on one file.

use super::array::Array;
use super::{BY_FILE, Renewal, Table};
use crate::host::HostId;
use crate::numbers::ByNumber;
use chains::Chain;

/// Maximum number of promises in a chain, since each link is a separate memory access.
const CHAINED: usize = 4;
/// Maximum number of holders in a list; more are kept in an array or a hash table.
const FEW: usize = 16;

type ByHost = ByNumber<HostId, u32>;

/// The slots of the promises on a file, at least one. Most files have one or two holders, and a few have
/// thousands.
#[derive(Debug)]
pub(super) enum Holders {
    /// The usual case, which allocates nothing.
    Chained(Chain),
    /// An unordered list.
    Few(Vec<(HostId, u32)>),
    /// A hash table by host.
    Many(Box<ByHost>),
    /// An array by host, when the holders are a large share of all hosts.
    Most(Box<Array>),
}

impl Holders {
    /// Creates a set of one holder.
    pub(super) fn one(table: &mut Table, place: u32) -> Holders {
        let mut chain = Chain::default();
        table.push(BY_FILE, &mut chain, place);
        Holders::Chained(chain)
    }

    /// Returns the number of holders.
    pub(super) fn len(&self) -> usize {
        match self {
            Holders::Chained(chain) => chain.len(),
            Holders::Few(few) => few.len(),
            Holders::Many(many) => many.len(),
            Holders::Most(most) => most.len(),
        }
    }

    /// Returns all holders with their slots.
    pub(super) fn all<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = (HostId, u32)> + 'a {
        let (chain, few, many, most) = match self {
            Holders::Chained(chain) => (Some(chain), &[][..], None, None),
            Holders::Few(few) => (None, few.as_slice(), None, None),
            Holders::Many(many) => (None, &[][..], Some(many), None),
            Holders::Most(most) => (None, &[][..], None, Some(most)),
        };
        let chained = chain.into_iter().flat_map(|chain| chained(table, chain));
        let many = many.into_iter().flat_map(|many| many.iter().map(|(host, place)| (*host, *place)));
        let most = most.into_iter().flat_map(|most| most.all().map(|place| (table[place].host, place)));
        chained.chain(few.iter().copied()).chain(many).chain(most)
    }

    /// Returns the slot of the promise to a host.
    pub(super) fn find(&self, table: &Table, host: HostId) -> Option<u32> {
        match self {
            Holders::Chained(chain) => table.chained(BY_FILE, chain).find(|place| table[*place].host == host),
            Holders::Few(few) => few.iter().find(|(holder, _)| *holder == host).map(|(_, place)| *place),
            Holders::Many(many) => many.get(&host).copied(),
            Holders::Most(most) => most.find(table, host),
        }
    }

    /// See [`super::Promises::look`].
    pub(super) fn look(&self, table: &Table, host: HostId) -> Option<u64> {
        match self {
            Holders::Most(most) => most.sequence(host),
            _ => self.find(table, host).map(|place| table[place].sequence),
        }
    }

    /// Renews the promise to a host, if there is one. The caller must prolong it until `step` on
    /// [`Renewal::Later`].
    pub(super) fn renew(&mut self, table: &mut Table, host: HostId, sequence: u64, step: u32) -> Renewal {
        if let Holders::Most(most) = self {
            return most.renew(table, host, sequence, step);
        }
        let Some(place) = self.find(table, host) else { return Renewal::Unknown };
        let promise = &mut table[place];
        promise.sequence = sequence;
        if step > promise.step { Renewal::Later(place) } else { Renewal::Done }
    }

    /// Returns the sequence number of the promise in a slot.
    pub(super) fn sequence(&self, table: &Table, place: u32) -> u64 {
        let promise = &table[place];
        match self {
            Holders::Most(most) => most.sequence(promise.host).unwrap_or(promise.sequence),
            _ => promise.sequence,
        }
    }

    /// Adds the promise to a host that has none.
    pub(super) fn add(&mut self, table: &mut Table, host: HostId, place: u32) {
        match self {
            Holders::Chained(chain) if chain.len() < CHAINED => table.push(BY_FILE, chain, place),
            Holders::Chained(chain) => {
                let mut few = Vec::with_capacity(2 * CHAINED);
                few.extend(chained(table, chain));
                few.push((host, place));
                *self = Holders::Few(few);
            }
            Holders::Few(few) if few.len() < FEW => few.push((host, place)),
            Holders::Few(few) => {
                few.push((host, place));
                *self = match Array::of(table, few.iter().copied()) {
                    Some(most) => Holders::Most(Box::new(most)),
                    None => Holders::many(few.drain(..)),
                };
            }
            Holders::Many(many) => {
                many.insert(host, place);
                let holders = many.iter().map(|(host, place)| (*host, *place));
                let is_time = is_time_to_look(many.len());
                if let Some(most) = is_time.then(|| Array::of(table, holders)).flatten() {
                    *self = Holders::Most(Box::new(most));
                }
            }
            Holders::Most(most) => {
                if !most.add(table, host, place) {
                    let mut holders = most.hand_over(table);
                    holders.push((host, place));
                    *self = Holders::many(holders);
                }
            }
        }
    }

    fn many(holders: impl IntoIterator<Item = (HostId, u32)>) -> Holders {
        Holders::Many(Box::new(holders.into_iter().collect()))
    }

    /// Removes the promise to a host, which must exist. Returns whether no holder is left.
    pub(super) fn remove(&mut self, table: &mut Table, host: HostId, place: u32) -> bool {
        // The thresholds have hysteresis, so that a fluctuating number of holders is not converted back and
        // forth.
        match self {
            Holders::Chained(chain) => {
                table.unlink(BY_FILE, chain, place);
                return chain.is_empty();
            }
            Holders::Few(few) => {
                few.retain(|(holder, _)| *holder != host);
                if few.len() <= CHAINED / 2 {
                    let mut chain = Chain::default();
                    for (_, place) in &*few {
                        table.push(BY_FILE, &mut chain, *place);
                    }
                    *self = Holders::Chained(chain);
                }
            }
            Holders::Many(many) => {
                many.remove(&host);
                if many.len() <= FEW / 2 {
                    *self = Holders::Few(many.iter().map(|(host, place)| (*host, *place)).collect());
                }
            }
            Holders::Most(most) => {
                most.remove(host);
                if most.len() <= FEW / 2 {
                    *self = Holders::Few(most.hand_over(table));
                } else if most.is_sparse() {
                    *self = Holders::many(most.hand_over(table));
                }
            }
        }
        false
    }
}

/// Whether to check now if this number of holders is a large share of all hosts. The check is made eight
/// times per doubling, so that its cost is at most 16 holders for each one added.
fn is_time_to_look(holders: usize) -> bool {
    holders.is_multiple_of(1 << holders.ilog2().saturating_sub(3))
}

#[cfg(test)]
impl Holders {
    /// Returns the number of the variant, 1 to 4.
    pub(super) fn form(&self) -> u32 {
        match self {
            Holders::Chained(_) => 1,
            Holders::Few(_) => 2,
            Holders::Many(_) => 3,
            Holders::Most(_) => 4,
        }
    }
}

fn chained<'a>(table: &'a Table, chain: &Chain) -> impl Iterator<Item = (HostId, u32)> + 'a {
    table.chained(BY_FILE, chain).map(|place| (table[place].host, place))
}
