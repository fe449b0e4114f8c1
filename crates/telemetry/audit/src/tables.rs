//! What is recorded for each service's procedures. Names and arguments are those of OpenAFS 1.8
//! (src/audit/audit.h, and the calls of `osi_auditU` in its servers).

use crate::event::Event;
use crate::generated::{bozo, cellar, fs, pr, vl, vol};

/// Returns the events of a service, given the name that its calls are counted under.
pub(crate) fn events(service: &str) -> &'static [Event] {
    match service {
        "AFS" => fs::EVENTS,
        "PR" => pr::EVENTS,
        "VL" => vl::EVENTS,
        "AFSVol" => vol::EVENTS,
        "BOZO" => bozo::EVENTS,
        "CELLAR" => cellar::EVENTS,
        _ => &[],
    }
}
