use super::names::{screaming, snake};

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
