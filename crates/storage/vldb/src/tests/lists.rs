//! Lists by server, partition, flags and name.

use super::{Fixture, address, code, site, volume};
use crate::{EntryNumber, Filter, NamePattern, NewLocation, Step, entry_flags, site_flags};
use base::AbortCode;

const RW: u8 = site_flags::READ_WRITE;
const RO: u8 = site_flags::READ_ONLY;
const BK: u8 = site_flags::BACKUP;

/// Three volumes on servers 1 to 3.
fn fixture() -> Fixture {
    let f = Fixture::new();
    let flags = entry_flags::RW_EXISTS | entry_flags::RO_EXISTS | entry_flags::BACKUP_EXISTS;
    let sites = vec![site(1, 0, RO), site(1, 1, RW), site(2, 0, RO)];
    f.create(&NewLocation { flags, sites, ..volume("all", 100) }).unwrap();
    f.create(&NewLocation { sites: vec![site(2, 0, RW)], ..volume("plain", 200) }).unwrap();
    let sites = vec![site(2, 0, RO), site(3, 5, RO)];
    f.create(&NewLocation { flags: entry_flags::RO_EXISTS, sites, ..volume("copies", 300) }).unwrap();
    f
}

fn filter(server: Option<u8>, partition: Option<i32>, flags: Option<u32>) -> Filter {
    Filter { server: server.map(address), partition, flags }
}

#[test]
fn lists_narrow_by_server_partition_and_flags() {
    let f = fixture();
    let names = |filter: Filter| -> Vec<String> {
        f.db.list(&filter).unwrap().iter().map(|location| location.name.to_string()).collect()
    };
    assert_eq!(names(Filter::default()), ["all", "plain", "copies"]);
    assert_eq!(names(filter(Some(1), None, None)), ["all"]);
    assert_eq!(names(filter(Some(2), None, None)), ["all", "plain", "copies"]);
    assert_eq!(names(filter(Some(9), None, None)), Vec::<String>::new());
    assert_eq!(names(filter(Some(1), Some(1), None)), ["all"]);
    assert_eq!(names(filter(Some(2), Some(1), None)), Vec::<String>::new());
    assert_eq!(names(filter(None, Some(5), None)), ["copies"]);
    assert_eq!(names(filter(None, None, Some(entry_flags::RO_EXISTS))), ["all", "copies"]);
    assert_eq!(names(filter(Some(2), None, Some(entry_flags::BACKUP_EXISTS))), ["all"]);
}

#[test]
fn matches_say_which_volume_and_site() {
    let f = fixture();
    let matches = |filter: Filter, pattern: &str| -> Vec<(String, u8, usize)> {
        let pattern = NamePattern::parse(pattern.as_bytes()).unwrap();
        let step = f.db.list_matching(&filter, pattern.as_ref(), EntryNumber(0), 100).unwrap();
        assert_eq!(step.next, None);
        step.matches.iter().map(|m| (m.location.name.to_string(), m.kind, m.site)).collect()
    };
    let found = |name: &str, kind, site| (name.to_owned(), kind, site);
    let any = Filter::default();
    assert_eq!(matches(any, ""), [found("all", RW, 1), found("plain", RW, 0), found("copies", RO, 1)]);
    assert_eq!(matches(any, "all"), [found("all", RW, 1)]);
    assert_eq!(matches(any, "all\\.backup"), [found("all", BK, 1)]);
    assert_eq!(matches(any, ".*\\.backup"), [found("all", BK, 1)]);
    assert_eq!(matches(any, ".*\\.readonly"), [found("all", RO, 0), found("copies", RO, 1)]);
    assert_eq!(matches(any, "copies"), []);
    assert_eq!(
        matches(filter(Some(2), None, None), ""),
        [found("all", RO, 2), found("plain", RW, 0), found("copies", RO, 0)]
    );
    assert_eq!(matches(filter(Some(1), Some(0), None), ""), [found("all", RO, 0)]);
    assert_eq!(matches(filter(None, None, Some(entry_flags::BACKUP_EXISTS)), ""), [found("all", RW, 1)]);
    assert_eq!(matches(filter(Some(9), None, None), ""), []);
}

#[test]
fn steps_neither_repeat_nor_miss() {
    let f = Fixture::new();
    for n in 0..25 {
        f.create(&volume(&format!("v{n}"), 1000 + n * 10)).unwrap();
    }
    let mut names = Vec::new();
    let mut previous = EntryNumber(0);
    loop {
        let Step { matches, next } = f.db.list_matching(&Filter::default(), None, previous, 4).unwrap();
        assert!(matches.len() <= 4);
        names.extend(matches.iter().map(|m| m.location.name.to_string()));
        let Some(next) = next else { break };
        // The listing continues correctly after the last entry of a step is deleted.
        f.db.delete(matches.last().unwrap().location.ids[0], None).unwrap();
        previous = next;
    }
    assert_eq!(names, (0..25).map(|n| format!("v{n}")).collect::<Vec<_>>());
}

#[test]
fn entries_are_walked_one_by_one() {
    let f = fixture();
    f.db.delete(base::VolumeId(200), None).unwrap();
    let mut seen = Vec::new();
    let mut previous = EntryNumber(0);
    while let Some((number, location, rest)) = f.db.next(previous).unwrap() {
        seen.push((location.name.to_string(), rest));
        previous = number;
    }
    assert_eq!(seen, [("all".to_owned(), 2), ("copies".to_owned(), 0)]);
    assert!(f.db.is_listable(EntryNumber(3)) && !f.db.is_listable(EntryNumber(4)));
    assert_eq!(
        f.db.find(&crate::VolumeQuery::Id(base::VolumeId(200)), None).map_err(code),
        Err(AbortCode::VL_NOENT)
    );
}
