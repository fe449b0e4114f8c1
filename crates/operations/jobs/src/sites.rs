//! Determines which read-only sites have the contents to be released.

use crate::Place;
use afs_idl::vol::{VolintInfo, VolserStatus, volume_state};

/// Seconds subtracted from dates, because a change in the same second may have happened later.
pub(crate) const CLOCK_SLACK_SECONDS: u32 = 2;

/// Creation time of a volume, and time and number of its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dates {
    pub(crate) made: u32,
    pub(crate) changed: u32,
    /// Update counter; 0 if unknown or not comparable.
    pub(crate) changes: u32,
}

impl From<&VolserStatus> for Dates {
    fn from(status: &VolserStatus) -> Dates {
        Dates { made: status.creation_date, changed: status.update_date, changes: 0 }
    }
}

impl From<&VolintInfo> for Dates {
    fn from(info: &VolintInfo) -> Dates {
        Dates { made: info.creation_date, changed: info.update_date, changes: info.spare2 as u32 }
    }
}

/// A read-only site of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// Index of the site in the entry.
    pub(crate) number: usize,
    pub(crate) place: Place,
    pub(crate) state: SiteState,
}

/// SiteState of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteState {
    /// It has the read-write volume's current contents.
    Current,
    /// It has earlier contents and lacks changes since this date; 0 if the date is unknown.
    Old(u32),
    /// It has no volume.
    Nothing,
    /// Its server does not respond.
    Unreachable,
}

impl Site {
    /// Marks a current site as old, because the read-write volume has changed since it was compared with
    /// `source`.
    pub(crate) fn becomes_old(&mut self, source: Dates) {
        if self.state == SiteState::Current {
            self.state = SiteState::Old(source.changed.saturating_sub(CLOCK_SLACK_SECONDS));
        }
    }

    /// Returns the date since which the site lacks changes; 0 if it needs everything.
    pub(crate) fn date(&self) -> u32 {
        if let SiteState::Old(date) = self.state { date } else { 0 }
    }
}

/// Maximum difference of dates that are treated as one date, in seconds, as in `vos release`.
const ONE_DATE_SECONDS: u32 = 15 * 60;

/// Splits the sites into batches that are sent to at the same time. A call sends the same data to all sites
/// of a batch, with one read: the changes since the earliest of their dates. Sites that lack little come
/// before those that lack more, so that they need not wait for them, and those that need everything come
/// last. A server that `takes_what_it_lacks` is not sent data that it has, so it may be in a batch with any
/// date; others are only batched with similar dates.
pub(crate) fn batches(sites: &[Site], takes_what_it_lacks: impl Fn(&Site) -> bool) -> Vec<Vec<Site>> {
    let (mut dated, whole): (Vec<Site>, Vec<Site>) = sites.iter().copied().partition(|site| site.date() > 0);
    dated.sort_by_key(|site| std::cmp::Reverse(site.date()));
    let mut batches: Vec<Vec<Site>> = Vec::new();
    for site in dated {
        let is_near = |other: &Site| other.date() - site.date() <= ONE_DATE_SECONDS;
        let may_join =
            |batch: &&mut Vec<Site>| batch.iter().all(|other| takes_what_it_lacks(other) || is_near(other));
        match batches.last_mut().filter(may_join) {
            Some(batch) => batch.push(site),
            None => batches.push(vec![site]),
        }
    }
    batches.extend((!whole.is_empty()).then_some(whole));
    batches
}

/// Returns the state of a site, by comparing its listing (`info`) with the read-write volume's dates.
/// `is_trusted` means that the entry does not mark the site as new or as left behind by a release.
///
/// A site is current if it was cloned from this very volume (which was not recreated since) after the
/// volume's last change, and has the same date of last change. Both dates are from the read-write server's
/// clock: a clone keeps them wherever it is sent. Within the slack for the resolution of one second, a site
/// counts as old.
///
/// If the clock of the read-write server was set back, the dates are not sufficient. So the update counters
/// must be equal as well if both are known, and a site with a later change than the volume itself needs
/// everything.
pub(crate) fn state(info: Option<&VolintInfo>, source: Dates, is_trusted: bool) -> SiteState {
    let Some(info) = info else { return SiteState::Nothing };
    let is_later = info.creation_date > source.changed.saturating_add(CLOCK_SLACK_SECONDS);
    let is_of_this_volume = source.made.saturating_add(CLOCK_SLACK_SECONDS) <= info.creation_date;
    // A transfer that was interrupted before the volume went into service cannot be built upon.
    let is_online = info.status == volume_state::OK && info.in_use != 0;
    let counters = [source.changes, info.spare2 as u32];
    let is_counted_equal = counters.contains(&0) || counters[0] == counters[1];
    let went_back = info.update_date > source.changed;
    if !is_trusted || !is_online || !is_of_this_volume || went_back {
        SiteState::Old(0)
    } else if is_later && info.update_date == source.changed {
        if is_counted_equal { SiteState::Current } else { SiteState::Old(0) }
    } else {
        SiteState::Old(info.update_date.saturating_sub(CLOCK_SLACK_SECONDS))
    }
}

#[cfg(test)]
mod tests {
    use super::SiteState::{Nothing, Old, Unreachable};
    use super::*;

    #[test]
    fn sites_with_similar_contents_are_served_together() {
        let site = |(number, state)| Site {
            number,
            place: Place { server: [10, 0, 0, 1].into(), partition: 0 },
            state,
        };
        let numbers = |states: &[SiteState], is_cellars: bool| -> Vec<Vec<usize>> {
            let sites: Vec<Site> = states.iter().copied().enumerate().map(site).collect();
            let batches = batches(&sites, |_| is_cellars);
            batches.iter().map(|batch| batch.iter().map(|site| site.number).collect()).collect()
        };
        for is_cellars in [false, true] {
            assert_eq!(numbers(&[Nothing, Old(0), Unreachable], is_cellars), [[0, 1, 2]], "everything");
            assert_eq!(numbers(&[Old(5000), Old(5900), Old(5300)], is_cellars), [[1, 2, 0]], "one date");
            assert_eq!(numbers(&[Nothing, Old(5000)], is_cellars), [[1], [0]], "little before everything");
            assert!(numbers(&[], is_cellars).is_empty());
        }
        let dates = [Old(100), Old(5000), Old(0), Old(5901)];
        assert_eq!(numbers(&dates, false), [[3], [1], [0], [2]], "dumps, each from its date");
        assert_eq!(numbers(&dates, true), [vec![3, 1, 0], vec![2]], "existing data is not sent");
    }

    #[test]
    fn a_site_is_current_only_if_cloned_after_the_last_change() {
        let state_of = |made: u32, site_made: u32, updated: u32, site_updated: u32, is_trusted| {
            let source = Dates { made, changed: updated, changes: 0 };
            let site = VolintInfo {
                creation_date: site_made,
                update_date: site_updated,
                status: volume_state::OK,
                in_use: 1,
                ..VolintInfo::default()
            };
            state(Some(&site), source, is_trusted)
        };
        assert_eq!(state_of(10, 1000, 900, 900, true), SiteState::Current);
        assert_eq!(state_of(10, 902, 900, 900, true), SiteState::Old(898), "changed in the same moment");
        assert_eq!(state_of(10, 1000, 1100, 900, true), SiteState::Old(898), "changed since");
        assert_eq!(state_of(10, 1000, 900, 890, true), SiteState::Old(888), "of another time");
        assert_eq!(state_of(10, 1000, 900, 900, false), SiteState::Old(0), "a release was cut off");
        assert_eq!(state_of(1001, 1000, 900, 900, true), SiteState::Old(0), "the volume was made anew");
        assert_eq!(state_of(1000, 1000, 900, 900, true), SiteState::Old(0), "in the same moment");
        assert_eq!(state_of(998, 1000, 900, 900, true), SiteState::Current);
        let counted = |changes, site_changes| {
            let source = Dates { made: 10, changed: 900, changes };
            let site = VolintInfo {
                creation_date: 1000,
                update_date: 900,
                status: volume_state::OK,
                in_use: 1,
                spare2: site_changes,
                ..VolintInfo::default()
            };
            state(Some(&site), source, true)
        };
        assert_eq!(counted(7, 7), SiteState::Current);
        assert_eq!(counted(8, 7), SiteState::Old(0), "changed under the same date");
        assert_eq!([counted(0, 7), counted(7, 0)], [SiteState::Current; 2], "one of them does not count");
        assert_eq!(state_of(10, 1000, 900, 950, true), SiteState::Old(0), "the clock was set back");
        let offline = VolintInfo { creation_date: 1000, status: volume_state::OK, ..VolintInfo::default() };
        assert_eq!(state(Some(&offline), Dates::default(), true), SiteState::Old(0), "not in service");
        assert_eq!(state(None, Dates::default(), true), SiteState::Nothing);
    }
}
