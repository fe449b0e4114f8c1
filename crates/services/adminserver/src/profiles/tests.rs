//! Calls about profiles, made through the service's interface.

use super::*;
use crate::tests::{known, server};

fn start(seconds: u32, kind: u32) -> Result<u64, AbortCode> {
    let request = StartProfileRequest { kind, hz: 100, seconds };
    server().start_profile(&known("admin"), request).map(|reply| reply.profile)
}

#[test]
fn only_superusers_control_profiles() {
    let (server, admin, alice) = (server(), known("admin"), known("alice"));
    let request = StartProfileRequest { kind: profile_kinds::WAITS, hz: 0, seconds: 600 };
    assert_eq!(server.start_profile(&alice, request).unwrap_err(), AbortCode::UAEACCES);
    for (kind, hz, seconds) in [(0, 1, 1), (3, 1, 1), (1, 0, 1), (1, 1001, 1), (2, 0, 0), (2, 0, 601)] {
        let request = StartProfileRequest { kind, hz, seconds };
        assert_eq!(
            server.start_profile(&admin, request).unwrap_err(),
            AbortCode::UAEINVAL,
            "{kind} {hz} {seconds}"
        );
    }
    let profile = server.start_profile(&admin, request).unwrap().profile;
    assert_eq!(start(1, profile_kinds::CPU), Err(AbortCode::UAEBUSY));
    let get = GetProfileRequest { profile };
    let fetch = |document, offset| FetchProfileRequest { profile, document, offset };
    assert_eq!(server.get_profile(&alice, get).unwrap_err(), AbortCode::UAEACCES);
    assert_eq!(server.fetch_profile(&alice, fetch(1, 0)).unwrap_err(), AbortCode::UAEACCES);
    assert_eq!(server.stop_profile(&alice, StopProfileRequest { profile }).unwrap_err(), AbortCode::UAEACCES);
    assert_eq!(server.fetch_profile(&admin, fetch(1, 0)).unwrap_err(), AbortCode::UAEAGAIN);
    let other = StopProfileRequest { profile: profile ^ 2 };
    assert_eq!(server.stop_profile(&admin, other).unwrap_err(), AbortCode::UAENOENT);
    server.stop_profile(&admin, StopProfileRequest { profile }).unwrap();
    let state = loop {
        let state = server.get_profile(&admin, get).unwrap();
        if state.stage != profile_stages::RUNS {
            break state;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert_eq!((state.stage, state.error.to_string()), (profile_stages::DONE, String::new()));
    let locks = server.fetch_profile(&admin, fetch(3, 0)).unwrap();
    assert!(locks.piece.starts_with(b"lock\tholder\t") && locks.length == locks.piece.len() as u64);
    let tail = server.fetch_profile(&admin, fetch(3, locks.length - 1)).unwrap();
    assert_eq!(tail.piece, b"\n");
    for beyond in [locks.length, u64::MAX] {
        assert!(server.fetch_profile(&admin, fetch(3, beyond)).unwrap().piece.is_empty());
    }
    for unknown in [0, 5, u32::MAX] {
        assert_eq!(server.fetch_profile(&admin, fetch(unknown, 0)).unwrap_err(), AbortCode::UAEINVAL);
    }
}
