use super::names::{screaming, snake};
use super::service::implementation;
use crate::idl::parser::parse;

#[test]
fn names_are_split_into_words() {
    for (camel, small) in [
        ("FetchStatus", "fetch_status"),
        ("FetchData64", "fetch_data64"),
        ("GetEntryByIDN", "get_entry_by_idn"),
        ("GetEntryByNameU", "get_entry_by_name_u"),
        ("IDToName", "id_to_name"),
        ("GetXStats", "get_x_stats"),
        ("GetCE64", "get_ce64"),
        ("INewEntry", "i_new_entry"),
        ("Link", "link"),
    ] {
        assert_eq!(snake(camel), small);
        assert_eq!(screaming(camel), small.to_uppercase());
    }
}

#[test]
fn parts_of_an_interface_are_implemented_separately() {
    let text = "service x id 1\n\
                procedure One = 1 { in a: u32 }\n\
                procedure Two = 2 split to_server { part other in a: u32 }\n\
                procedure Three = 3 streamed { out a: u32<9> }";
    let mut out = String::new();
    implementation(&mut out, &parse("x".into(), text).unwrap());
    let (other, rest) = out.split_once("($handler:ident $(<$lifetime:lifetime>)?) =>").unwrap();
    assert!(other.contains("$(<$lifetime:lifetime>)?: other) =>"), "{out}");
    let has = |part: &str| ["one", "two", "three"].map(|name| part.contains(&format!("fn {name}(")));
    assert_eq!((has(other), has(rest)), ([false, true, false], [true, false, true]), "{out}");
    assert!(
        other.contains("handler.two(caller, request, stream)") && other.contains("use $crate::CallStream;")
    );
    assert!(rest.contains(" three(self, caller, request, reply)") && !rest.contains("CallStream"));
}
