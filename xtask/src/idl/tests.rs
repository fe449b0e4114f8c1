use super::parser::parse;
use super::syntax::{Audit, AuditValue, Cost, Size, Split, Type};

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
fn facts_of_a_procedure_are_read() {
    let text = "procedure P = 1 { part other class fetch index 3 cost count fids\n\
                audit data \"EV\" keeps 8 [fid out.a.b[0], long c = out.d or d, own n = count l, id i = -1, pairs] }";
    let facts = parse("x".into(), text).unwrap().procedures.remove(0).facts;
    assert_eq!(facts.part.as_deref(), Some("other"));
    assert_eq!((facts.class.as_deref(), facts.index), (Some("fetch"), Some(3)));
    assert_eq!(facts.cost, Some(Cost::Elements("fids".into())));
    let Some(Audit::Event(event)) = facts.audit else { panic!("no event") };
    assert_eq!((event.class.as_str(), event.name.as_str(), event.keeps), ("data", "EV", Some(8)));
    let mut values = event.arguments.iter().map(|argument| argument.value.as_ref());
    let (label, AuditValue::Field(path)) = values.next().unwrap().unwrap() else { panic!("no field") };
    assert_eq!((label.as_str(), path.is_reply, path.fields.as_str()), ("b", true, "a.b[0]"));
    assert!(matches!(values.next().unwrap(), Some((_, AuditValue::Either(..)))));
    assert!(matches!(values.next().unwrap(), Some((_, AuditValue::Count(_)))));
    assert_eq!(values.next().unwrap(), Some(&("i".to_owned(), AuditValue::Number(-1))));
    assert_eq!(values.next().unwrap(), None);
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
        ("procedure P = 1 {\n audit data \"x }", "line 2"),
        ("procedure P = 1 {\n audit data [fid a b] }", "line 2"),
        ("procedure P = 1 {\n audit data [long a = b or c] }", "line 2"),
    ] {
        let error = format!("{:#}", parse("x".into(), text).unwrap_err());
        assert!(error.contains(line), "{text:?}: {error}");
    }
}
