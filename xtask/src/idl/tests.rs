use super::parser::parse;
use super::syntax::{Size, Split, Type};

const SAMPLE: &str = "
// not seen
service pt id 73 port 7002
const MAX = 0x10
/// Kinds.
enum Kind: i32 { ONE = 1 }
type Names = chars[64]<MAX>
struct Entry { id: u32 names: Names tail: chain Entry<7> }
/// Does it.
procedure Do as DoIt = 500 split to_server { in a: u32 inout b: uuid out c: opaque[4] }
";

#[test]
fn a_sample_is_read() {
    let interface = parse("pr".into(), SAMPLE).unwrap();
    assert_eq!(interface.service.unwrap().port, Some(7002));
    assert_eq!(interface.constants[0].value, 16);
    assert_eq!(interface.enums[0].docs, ["Kinds."]);
    let names = Type::List(Type::Chars(Size::Number(64)).into(), Size::Constant("MAX".into()));
    assert_eq!(interface.aliases[0].target, names);
    let tail = Type::Chain(Type::Named("Entry".into()).into(), Size::Number(7));
    assert_eq!(interface.structs[0].fields[2].kind, tail);
    let procedure = &interface.procedures[0];
    assert_eq!((procedure.rust_name.as_str(), procedure.split), ("DoIt", Some(Split::ToServer)));
    let names = |fields: &[super::syntax::Field]| fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&procedure.request), ["a", "b"]);
    assert_eq!(names(&procedure.reply), ["b", "c"]);
}

#[test]
fn mistakes_name_their_line() {
    for (text, line) in [
        ("service x id y", "line 1"),
        ("\nconst A 5", "line 2"),
        ("struct E { }", "line 1"),
        ("procedure P = 1 {\n over a: u32 }", "line 2"),
        ("type T = chain u32", "line 1"),
        ("type T = u32;", "line 1"),
        ("struct S { a: u32", "line 1"),
    ] {
        let error = format!("{:#}", parse("x".into(), text).unwrap_err());
        assert!(error.contains(line), "{text:?}: {error}");
    }
}
