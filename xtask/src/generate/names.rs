//! Names and doc comments in generated code.

use std::fmt::Write as _;

/// Converts `GetEntryByIDN` to `get_entry_by_idn`. A word starts at a capital that follows a lower-case
/// letter or digit, or that precedes a lower-case letter.
pub(crate) fn snake(camel: &str) -> String {
    let letters: Vec<char> = camel.chars().collect();
    let mut out = String::new();
    for (index, &letter) in letters.iter().enumerate() {
        let after_small = index > 0 && !letters[index - 1].is_uppercase();
        let before_small = index > 0 && letters.get(index + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_small || before_small) {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Converts `GetEntryByIDN` to `GET_ENTRY_BY_IDN`.
pub(crate) fn screaming(camel: &str) -> String {
    snake(camel).to_ascii_uppercase()
}

/// Writes doc comments.
pub(crate) fn docs(out: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(out, "/// {line}");
    }
}
