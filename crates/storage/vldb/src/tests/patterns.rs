//! Patterns for volume names.

use super::code;
use crate::NamePattern;
use base::AbortCode;
use proptest::prelude::*;

#[test]
fn patterns_agree_with_regcomp() {
    let table: &[(&str, &[&str], &[&str])] = &[
        ("abc", &["abc"], &["abcd", "xabc", "ab"]),
        ("a.c", &["abc", "a.c"], &["ac", "abbc"]),
        ("a\\.c", &["a.c"], &["abc"]),
        ("user\\..*", &["user.x", "user."], &["userx", "auser.x"]),
        ("ab*", &["a", "abbb"], &["abab"]),
        ("*a", &["*a"], &["a"]),
        ("a\\(*b\\)", &["a*b"], &["ab"]),
        ("a+", &["a+"], &["aa", "a"]),
        ("a?", &["a?"], &["a", ""]),
        ("a\\+", &["a", "aa"], &["", "a+"]),
        ("ba\\?", &["b", "ba"], &["baa"]),
        ("a|b", &["a|b"], &["a", "b"]),
        ("(a)", &["(a)"], &["a"]),
        ("\\(ab\\)*c", &["c", "abc", "ababc"], &["abac"]),
        ("a{2}", &["a{2}"], &["aa"]),
        ("a\\{2\\}", &["aa"], &["a", "aaa"]),
        ("a\\{1,2\\}b", &["ab", "aab"], &["b", "aaab"]),
        ("a\\{,2\\}b", &["b", "aab"], &["aaab"]),
        ("[ab]c", &["ac", "bc"], &["cc"]),
        ("[^ab]c", &["cc"], &["ac"]),
        ("[]a]c", &["]c", "ac"], &["bc"]),
        ("[a-c]x", &["bx"], &["dx", "-x"]),
        ("[a-]x", &["-x", "ax"], &["bx"]),
        ("[-a]x", &["-x", "ax"], &["bx"]),
        ("[a\\]x", &["\\x", "ax"], &["]x"]),
        ("[[:digit:]]*", &["123", ""], &["12a"]),
        ("a&&b", &["a&&b"], &["ab"]),
        ("[a&&b]", &["&", "a"], &["c"]),
        // Each half of the alternation gets one of the anchors added around the pattern.
        ("a\\|b", &["a", "b", "ax", "xb"], &["xa", "bx"]),
        ("a\\", &["a$"], &["a", "a\\"]),
        ("a^b$c", &["a^b$c"], &["abc"]),
    ];
    for (pattern, matching, others) in table {
        let compiled = NamePattern::parse(pattern.as_bytes()).unwrap().unwrap();
        for name in *matching {
            assert!(compiled.matches(name), "{pattern} should match {name}");
        }
        for name in *others {
            assert!(!compiled.matches(name), "{pattern} should not match {name}");
        }
    }
}

#[test]
fn some_patterns_are_refused_and_some_match_all() {
    for all in ["", ".*"] {
        assert!(NamePattern::parse(all.as_bytes()).unwrap().is_none());
    }
    let long = "a".repeat(66);
    for bad in [
        "[a",
        "\\(a",
        "a\\)",
        "a\\{2",
        "a\\{x\\}",
        "a\\{2,1\\}",
        "\\(a\\)\\1",
        "[[:what:]]",
        "\u{e9}",
        "\\(\\(a\\{255\\}\\)\\{255\\}\\)\\{255\\}",
        &long,
    ] {
        let outcome = NamePattern::parse(bad.as_bytes()).map(|p| p.is_some()).map_err(code);
        assert_eq!(outcome, Err(AbortCode::VL_BADNAME), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_pattern_makes_the_compiler_panic(pattern in prop::collection::vec(any::<u8>(), 0..70)) {
        let _ = NamePattern::parse(&pattern);
    }

    #[test]
    fn no_likely_pattern_does_either(pattern in "[ab.*\\[\\]\\\\(){}^$|+?:,0-9-]{0,30}", name in "[ab0-9.-]{0,31}") {
        if let Ok(Some(compiled)) = NamePattern::parse(pattern.as_bytes()) {
            compiled.matches(&name);
        }
    }

    #[test]
    fn a_literal_matches_itself_alone(name in "[a-z0-9_-]{1,31}", other in "[a-z0-9_-]{1,31}") {
        let compiled = NamePattern::parse(name.as_bytes()).unwrap().unwrap();
        prop_assert!(compiled.matches(&name));
        prop_assert_eq!(compiled.matches(&other), name == other);
    }
}
