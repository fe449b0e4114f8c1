//! Who holds promises on one file.

use super::{BY_FILE, Table};
use crate::host::HostId;
use crate::numbers::ByNumber;
use chains::Chain;

/// More promises than this are not chained: each link leads to other memory.
const CHAINED: usize = 4;
/// More holders than this are kept in a table.
const FEW: usize = 16;

/// The places of the promises on a file; there is one. Most files have a holder or two, and a few have thousands.
#[derive(Debug)]
pub(super) enum Holders {
    /// The usual case takes no memory of its own, nor does the step from one to two.
    Chained(Chain),
    /// In no order.
    Few(Vec<(HostId, u32)>),
    /// By host.
    Many(Box<ByNumber<HostId, u32>>),
}

impl Holders {
    /// The first holder.
    pub(super) fn one(table: &mut Table, place: u32) -> Holders {
        let mut chain = Chain::default();
        table.push(BY_FILE, &mut chain, place);
        Holders::Chained(chain)
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        match self {
            Holders::Chained(chain) => chain.len(),
            Holders::Few(few) => few.len(),
            Holders::Many(many) => many.len(),
        }
    }

    /// Hosts and places.
    pub(super) fn all<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = (HostId, u32)> + 'a {
        let (chain, few, many) = match self {
            Holders::Chained(chain) => (Some(chain), &[][..], None),
            Holders::Few(few) => (None, few.as_slice(), None),
            Holders::Many(many) => (None, &[][..], Some(many)),
        };
        let chained = chain.into_iter().flat_map(|chain| chained(table, chain));
        let many = many.into_iter().flat_map(|many| many.iter().map(|(host, place)| (*host, *place)));
        chained.chain(few.iter().copied()).chain(many)
    }

    /// Where the promise to a host is.
    pub(super) fn find(&self, table: &Table, host: HostId) -> Option<u32> {
        match self {
            Holders::Chained(chain) => table.chained(BY_FILE, chain).find(|place| table[*place].host == host),
            Holders::Few(few) => few.iter().find(|(holder, _)| *holder == host).map(|(_, place)| *place),
            Holders::Many(many) => many.get(&host).copied(),
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
                *self = Holders::Many(Box::new(few.drain(..).chain([(host, place)]).collect()));
            }
            Holders::Many(many) => _ = many.insert(host, place),
        }
    }

    /// Takes out the promise to a host, which is here, and answers whether nobody is left.
    pub(super) fn remove(&mut self, table: &mut Table, host: HostId, place: u32) -> bool {
        // Not back at once: a number that goes up and down must not be moved to and fro.
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
        }
        false
    }
}

#[cfg(test)]
impl Holders {
    /// 1 to 3.
    pub(super) fn form(&self) -> u32 {
        match self {
            Holders::Chained(_) => 1,
            Holders::Few(_) => 2,
            Holders::Many(_) => 3,
        }
    }
}

fn chained<'a>(table: &'a Table, chain: &Chain) -> impl Iterator<Item = (HostId, u32)> + 'a {
    table.chained(BY_FILE, chain).map(|place| (table[place].host, place))
}
