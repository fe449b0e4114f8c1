//! Who holds promises on one file, and in which slots of the table.

use crate::host::HostId;
use crate::numbers::ByNumber;

/// More holders than this are kept in a table.
const FEW: usize = 16;

/// One slot of each host that holds a promise; somebody does. Most files have a holder or two, and a few have
/// thousands.
#[derive(Debug)]
pub(super) enum Holders {
    /// The usual case takes no memory of its own.
    One((HostId, u32)),
    /// In no order.
    Few(Vec<(HostId, u32)>),
    /// By host.
    Many(ByNumber<HostId, u32>),
}

impl Holders {
    /// How many.
    pub(super) fn len(&self) -> usize {
        match self {
            Holders::One(_) => 1,
            Holders::Few(few) => few.len(),
            Holders::Many(many) => many.len(),
        }
    }

    /// Hosts and slots.
    pub(super) fn all(&self) -> impl Iterator<Item = (HostId, u32)> + '_ {
        let (few, many) = match self {
            Holders::One(holder) => (std::slice::from_ref(holder), None),
            Holders::Few(few) => (few.as_slice(), None),
            Holders::Many(many) => (&[][..], Some(many)),
        };
        let many = many.into_iter().flatten().map(|(host, slot)| (*host, *slot));
        few.iter().copied().chain(many)
    }

    /// A host's slot.
    pub(super) fn find(&self, host: HostId) -> Option<u32> {
        match self {
            Holders::One((holder, slot)) => (*holder == host).then_some(*slot),
            Holders::Few(few) => few.iter().find(|(holder, _)| *holder == host).map(|(_, slot)| *slot),
            Holders::Many(many) => many.get(&host).copied(),
        }
    }

    /// Adds a host that is not among them.
    pub(super) fn add(&mut self, host: HostId, slot: u32) {
        match self {
            Holders::One(first) => *self = Holders::Few(vec![*first, (host, slot)]),
            Holders::Few(few) if few.len() < FEW => few.push((host, slot)),
            Holders::Few(few) => {
                *self = Holders::Many(few.drain(..).chain([(host, slot)]).collect());
            }
            Holders::Many(many) => _ = many.insert(host, slot),
        }
    }

    /// Takes one of them out, and answers whether nobody is left: then it still stands here.
    pub(super) fn remove(&mut self, host: HostId) -> bool {
        match self {
            Holders::One(_) => return true,
            Holders::Few(few) => {
                few.retain(|(holder, _)| *holder != host);
                if let [last] = few[..] {
                    *self = Holders::One(last);
                }
            }
            Holders::Many(many) => {
                many.remove(&host);
                // Not at once: a number that goes up and down must not be moved to and fro.
                if many.len() <= FEW / 2 {
                    *self = Holders::Few(many.iter().map(|(host, slot)| (*host, *slot)).collect());
                }
            }
        }
        false
    }
}
