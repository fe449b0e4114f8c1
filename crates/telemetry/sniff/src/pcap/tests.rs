use super::*;
use crate::frame::{Frame, decode};
use proptest::prelude::*;

/// Returns all packets of a file, as time, link and bytes.
fn packets(file: &[u8]) -> Result<Vec<(u64, Link, Vec<u8>)>, PcapError> {
    let mut reader = Reader::new(file)?;
    let mut all = Vec::new();
    while let Some(packet) = reader.packet()? {
        all.push((packet.time_ns, packet.link, packet.data.to_vec()));
    }
    Ok(all)
}

fn block(kind: u32, content: &[u8]) -> Vec<u8> {
    let padded = content.len().next_multiple_of(4);
    let length = ((padded + 12) as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, content, &vec![0; padded - content.len()], &length].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, 0xffff_ffff, 0xffff_ffff]))
}

#[test]
fn written_values_are_read_back() {
    let (from, to) = ("10.0.0.1:7001".parse().unwrap(), "10.0.0.2:7000".parse().unwrap());
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.datagram(1_700_000_000_123_456_789, from, to, b"one", 3).unwrap();
    writer.datagram(1_700_000_001_000_000_001, to, from, b"cut", 900).unwrap();
    let file = writer.finish().unwrap();
    let read = packets(&file).unwrap();
    let times: Vec<u64> = read.iter().map(|packet| packet.0).collect();
    assert_eq!(times, [1_700_000_000_123_456_789, 1_700_000_001_000_000_001]);
    let Frame::Udp(cut) = decode(read[1].1, &read[1].2) else { panic!("no datagram") };
    assert_eq!((cut.source, cut.payload, cut.payload_bytes), (to, &b"cut"[..], 900));
    assert_eq!(packets(&file[..file.len() - 1]).unwrap().len(), 1, "the writer was ended");
}

#[test]
fn both_byte_orders_and_units() {
    for (magic, ns) in [(0xa1b2_c3d4_u32, 5_000), (0xa1b2_3c4d, 5)] {
        for is_little in [true, false] {
            let numbers = [magic, 0x0002_0004, 0, 0, 65535, 1, 9, 5, 2, 60];
            let bytes = numbers.map(|it| if is_little { it.to_le_bytes() } else { it.to_be_bytes() });
            let file = [&bytes.concat()[..], &[7, 8]].concat();
            let expected = vec![(9_000_000_000 + ns, Link::Ethernet, vec![7, 8])];
            assert_eq!(packets(&file).unwrap(), expected, "{magic:x} {is_little}");
        }
    }
}

#[test]
fn blocks_of_several_interfaces() {
    // The second interface has nanosecond times and an offset of 10 s.
    let fine =
        [&words(&[113, 0, 0x0001_0009, 9, 0x0008_000e])[..], &10u64.to_le_bytes(), &words(&[0])].concat();
    let file = [
        section(),
        block(1, &words(&[1, 0])),
        block(1, &fine),
        block(5, &[0; 20]),
        block(6, &[&words(&[0, 0, 7, 3, 3])[..], &[1, 2, 3]].concat()),
        block(6, &[&words(&[1, 1, 7, 3, 3])[..], &[4, 5, 6]].concat()),
        block(3, &[&words(&[2])[..], &[8, 9]].concat()),
        section(),
        block(1, &words(&[101, 0])),
        block(2, &[&words(&[0, 0, 1, 1, 1])[..], &[1]].concat()),
    ]
    .concat();
    let second = 10_000_000_000 + (1 << 32) + 7;
    let expected = vec![
        (7_000, Link::Ethernet, vec![1, 2, 3]),
        (second, Link::Cooked, vec![4, 5, 6]),
        (second, Link::Ethernet, vec![8, 9]),
        (1_000, Link::Raw, vec![1]),
    ];
    assert_eq!(packets(&file).unwrap(), expected);
}

#[test]
fn errors_are_described() {
    let message = |file: &[u8]| packets(file).unwrap_err().to_string();
    assert_eq!(message(b"#!/bin/sh"), "neither a pcap nor a pcapng file: it begins with [23, 21, 2f, 62]");
    assert!(message(b"").starts_with("cannot read the capture"));
    let huge = [words(&[0xa1b2_c3d4, 0, 0, 0, 0, 1]), words(&[0, 0, 0x7fff_ffff, 0])].concat();
    assert!(message(&huge).contains("2147483647 bytes, at most 262144"), "{}", message(&huge));
    let nowhere = [section(), block(6, &words(&[3, 0, 0, 0, 0]))].concat();
    assert!(message(&nowhere).contains("an undeclared interface"));
    let short = [section(), words(&[6, 4])].concat();
    assert!(message(&short).contains("shorter than its frame"));
}

proptest! {
    #[test]
    fn survives_anything(kind in 0usize..4, rest in proptest::collection::vec(any::<u8>(), 0..400)) {
        let head = [words(&[0xa1b2_c3d4]), words(&[0xa1b2_3c4d]), section(), vec![]];
        let _ = packets(&[&head[kind][..], &rest].concat());
    }

    #[test]
    fn survives_damage(at in 0usize..120, value: u8) {
        let mut file = [
            section(),
            block(1, &words(&[1, 0, 0x0001_0009, 9, 0])),
            block(6, &[&words(&[0, 0, 7, 3, 3])[..], &[1, 2, 3]].concat()),
        ].concat();
        let at = at % file.len();
        file[at] = value;
        let _ = packets(&file);
    }
}
