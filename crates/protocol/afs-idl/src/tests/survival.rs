//! Every message survives decoding of arbitrary bytes, and stays the same after a round trip.

use super::{Check, words};
use crate::{bozo, cb, cellar, cluster, common, fs, pr, rxstats, vl, vol};
use proptest::prelude::*;

fn check_all(check: &mut dyn Check) {
    let services: [fn(&mut dyn Check); 9] = [
        vl::check_all,
        pr::check_all,
        fs::check_all,
        cb::check_all,
        vol::check_all,
        bozo::check_all,
        cellar::check_all,
        cluster::check_all,
        rxstats::check_all,
    ];
    for service in services {
        service(check);
    }
}

struct Same {
    input: Vec<u8>,
    decoded: usize,
    refused: Vec<String>,
}

impl Same {
    fn run(input: Vec<u8>) -> Same {
        let mut same = Same { input, decoded: 0, refused: Vec::new() };
        check_all(&mut same);
        same
    }
}

impl Check for Same {
    fn input(&mut self) -> Vec<u8> {
        self.input.clone()
    }

    fn outcome(&mut self, name: &str, consumed: Option<usize>) {
        match consumed {
            Some(_) => self.decoded += 1,
            None => self.refused.push(name.to_owned()),
        }
    }
}

#[test]
fn every_message_can_be_all_zeros() {
    let same = Same::run(vec![0; 8192]);
    assert_eq!(same.refused, Vec::<String>::new());
    assert!(same.decoded > 300, "only {} messages are listed", same.decoded);
}

#[test]
fn a_message_that_is_cut_off_is_refused() {
    struct Cut {
        length: usize,
        decoded: usize,
    }
    impl Check for Cut {
        fn input(&mut self) -> Vec<u8> {
            vec![0; self.length]
        }
        fn outcome(&mut self, name: &str, consumed: Option<usize>) {
            assert!(consumed.is_none_or(|consumed| consumed <= self.length), "{name}");
            self.decoded += usize::from(consumed.is_some());
        }
    }
    let mut last = 0;
    for length in [0, 4, 20, 84, 200] {
        let mut cut = Cut { length, decoded: 0 };
        check_all(&mut cut);
        assert!(cut.decoded > last, "{} messages fit into {length} bytes", cut.decoded);
        last = cut.decoded;
    }
}

/// Generates words that are often plausible lengths.
fn likely_words() -> impl Strategy<Value = Vec<u32>> {
    let word = prop_oneof![6 => 0..4_u32, 1 => 0..70_u32, 1 => any::<u32>()];
    prop::collection::vec(word, 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        Same::run(bytes);
    }

    #[test]
    fn likely_bytes_come_back(input in likely_words()) {
        Same::run(words(&input));
    }

    #[test]
    fn shared_structures_come_back(input in prop::collection::vec(any::<u32>(), 120)) {
        let mut same = Same { input: words(&input), decoded: 0, refused: Vec::new() };
        super::check::<common::Fid>(&mut same);
        super::check::<common::CallBack>(&mut same);
        super::check::<common::InterfaceAddr>(&mut same);
        prop_assert_eq!(same.decoded, 3);
    }
}
