use super::*;
use proptest::prelude::*;

fn entry(id: i32, rights: u32) -> AclEntry {
    AclEntry { id: UserId(id), rights: Rights::from_bits(rights) }
}

#[test]
fn the_text_of_fs_listacl_is_read_and_written() {
    let text =
        AclText::parse(b"2\n1\nsystem:administrators\t127\nsystem:anyuser\t9\nmallory\t127\n").unwrap();
    assert_eq!(text.positive[1], AclLine { name: b"system:anyuser".to_vec(), rights: Rights::from_bits(9) });
    assert_eq!(text.negative[0].name, b"mallory");
    assert_eq!(text.to_bytes(), b"2\n1\nsystem:administrators\t127\nsystem:anyuser\t9\nmallory\t127\n\0");
    assert_eq!(AclText::parse(&text.to_bytes()), Ok(text));
}

#[test]
fn invalid_acls_are_refused() {
    for text in
        ["", "1", "1\n", "x\n0\n", "1\n0\n", "1\n0\nname\n", "1\n0\nname\tx\n", "1\n0\na b 7\n", "-1\n0\n"]
    {
        assert!(matches!(AclText::parse(text.as_bytes()), Err(AclError::Line { .. })), "{text:?}");
    }
    assert_eq!(AclText::parse(b"11\n10\n"), Err(AclError::TooMany { got: 21 }));
    assert_eq!(AclText::parse(&[b'1'; 1025]), Err(AclError::TooLong { got: 1025 }));
    assert!(AclText::parse(b"0\n0").is_ok());
}

#[test]
fn a_negative_entry_wins_over_any_positive_one() {
    let acl = Acl::new(&[entry(-101, 9), entry(7, 127)], &[entry(-300, 1)]).unwrap();
    assert_eq!(acl.rights_of(&[UserId(7), UserId(-101), UserId(-300)]).bits(), 126);
    assert_eq!(acl.rights_of(&[UserId(8), UserId(-101)]).bits(), 9);
    assert_eq!(acl.rights_of(&[]), Rights::NONE);
}

#[test]
fn ids_are_unique_and_empty_rights_vanish() {
    let acl = Acl::new(&[entry(7, 1), entry(7, 3), entry(8, 0)], &[]).unwrap();
    assert_eq!(acl.positive(), &[entry(7, 3)]);
    let many: Vec<AclEntry> = (1..=21).map(|id| entry(id, 1)).collect();
    assert_eq!(Acl::new(&many, &[]), Err(AclError::TooMany { got: 21 }));
    assert_eq!(Acl::new(&many[..20], &[]).unwrap().positive().len(), 20);
}

#[test]
fn entries_are_in_the_order_of_ids_whatever_order_they_come_in() {
    let (positive, negative) =
        ([entry(-204, 127), entry(7, 1), entry(-206, 9)], [entry(9, 1), entry(-300, 2)]);
    let acl = Acl::new(&positive, &negative).unwrap();
    assert_eq!(acl.positive(), [entry(-206, 9), entry(-204, 127), entry(7, 1)]);
    assert_eq!(acl.negative(), [entry(-300, 2), entry(9, 1)]);
    assert_eq!(Acl::new(acl.positive(), acl.negative()), Ok(acl));
}

#[test]
fn rights_defined_by_the_site_survive() {
    let text = AclText {
        positive: vec![AclLine { name: b"a".to_vec(), rights: Rights::USER_DEFINED }],
        negative: vec![],
    };
    assert_eq!(AclText::parse(&text.to_bytes()), Ok(text));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = AclText::parse(&bytes);
    }

    #[test]
    fn parsing_a_written_acl_returns_it(text in "[0-3]\n[0-3]\n([a-z:]{1,9}\t[0-9]{1,3}\n){0,6}") {
        if let Ok(parsed) = AclText::parse(text.as_bytes()) {
            prop_assert_eq!(AclText::parse(&parsed.to_bytes()), Ok(parsed));
        }
    }
}
