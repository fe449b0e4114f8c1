//! Converts the `Debug` output of a list, an option or a structure to JSON.

use serde_json::{Map, Value};
use std::fmt::Debug;

/// Maximum nesting depth of lists and structures.
const DEPTH_MAX: usize = 16;

/// Converts a value: a list or tuple to an array, a structure to an object, an option to its content, and
/// anything else to its text.
///
/// Values logged with `Display` are converted here too, and their text may look like anything. So only values
/// with parts are parsed; these are recognised by their different multi-line `Debug` output.
pub(super) fn of(value: &dyn Debug) -> Value {
    let text = format!("{value:?}");
    let has_parts = format!("{value:#?}") != text || text == "[]";
    let parsed = if has_parts { parse(&text) } else { quoted(&text) };
    parsed.unwrap_or(Value::String(text))
}

/// Parses a quoted text with nothing after it.
fn quoted(text: &str) -> Option<Value> {
    let mut rest = text;
    let string = string(&mut rest)?;
    rest.is_empty().then_some(Value::String(string))
}

fn parse(text: &str) -> Option<Value> {
    let mut rest = text;
    let value = value(&mut rest, 0)?;
    rest.is_empty().then_some(value)
}

fn value(rest: &mut &str, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    let whole = *rest;
    if rest.starts_with('"') {
        return string(rest).map(Value::String);
    }
    let word = word(rest);
    match (word, rest.chars().next()) {
        ("", Some('[')) => items(rest, ']', depth).map(Value::Array),
        ("", Some('(')) => items(rest, ')', depth).map(Value::Array),
        ("Some", Some('(')) => items(rest, ')', depth)?.pop(),
        (name, Some(' ')) if is_name(name) && rest.starts_with(" { ") => {
            fields(rest, depth).map(Value::Object)
        }
        // A tuple variant keeps its text.
        (name, Some('(')) if is_name(name) => {
            items(rest, ')', depth)?;
            Some(Value::from(&whole[..whole.len() - rest.len()]))
        }
        ("", _) => None,
        (word, _) => Some(scalar(word)),
    }
}

/// Takes the text up to the end of a nested value.
fn word<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find([',', ' ', '[', ']', '(', ')', '{', '}', '"']).unwrap_or(rest.len());
    let (word, behind) = rest.split_at(end);
    *rest = behind;
    word
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn scalar(word: &str) -> Value {
    match word {
        "None" => Value::Null,
        "true" | "false" => Value::Bool(word == "true"),
        _ => word.parse().map_or_else(|_| Value::from(word), Value::Number),
    }
}

/// Parses comma-separated values and the closing bracket.
fn items(rest: &mut &str, close: char, depth: usize) -> Option<Vec<Value>> {
    let mut items = Vec::new();
    *rest = rest.get(1..)?;
    while !skip(rest, close) {
        items.push(value(rest, depth + 1)?);
        if !skip(rest, ',') && !rest.starts_with(close) {
            return None;
        }
        skip(rest, ' ');
    }
    Some(items)
}

/// Parses named values and the closing brace.
fn fields(rest: &mut &str, depth: usize) -> Option<Map<String, Value>> {
    let mut fields = Map::new();
    *rest = rest.strip_prefix(" { ")?;
    loop {
        let (name, behind) = rest.split_once(": ")?;
        *rest = behind;
        let value = value(rest, depth + 1)?;
        fields.insert(name.to_owned(), value);
        if let Some(behind) = rest.strip_prefix(" }") {
            *rest = behind;
            return Some(fields);
        }
        *rest = rest.strip_prefix(", ")?;
    }
}

fn skip(rest: &mut &str, what: char) -> bool {
    rest.strip_prefix(what).inspect(|behind| *rest = behind).is_some()
}

/// Parses a quoted text and removes the backslashes of `Debug`.
fn string(rest: &mut &str) -> Option<String> {
    let mut letters = rest.strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match letters.next()? {
            '"' => {
                *rest = letters.as_str();
                return Some(text);
            }
            '\\' => text.push(escaped(&mut letters)?),
            letter => text.push(letter),
        }
    }
}

fn escaped(letters: &mut std::str::Chars<'_>) -> Option<char> {
    Some(match letters.next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        'u' => {
            let (code, behind) = letters.as_str().strip_prefix('{')?.split_once('}')?;
            *letters = behind.chars();
            char::from_u32(u32::from_str_radix(code, 16).ok()?)?
        }
        letter => letter,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::fmt::Display;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    /// Formats with `Display`, as `%` before a field does.
    struct AsDisplay<T>(T);

    impl<T: Display> Debug for AsDisplay<T> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            Display::fmt(&self.0, f)
        }
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "they are shown")]
    enum Printed {
        Nothing,
        Wrapped(u8, &'static str),
        Fields { name: &'static str, kept: Option<u64>, addresses: Vec<Ipv4Addr>, pause: Duration },
    }

    #[test]
    fn structured_values_are_split() {
        let empty: [u8; 0] = [];
        let fields = Printed::Fields {
            name: "a, \"b\" }",
            kept: None,
            addresses: vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
            pause: Duration::from_millis(1500),
        };
        for (shown, wanted) in [
            (&["fs", "vl"] as &dyn Debug, json!(["fs", "vl"])),
            (&[Ipv4Addr::LOCALHOST], json!(["127.0.0.1"])),
            (&empty, json!([])),
            (&Some(2), json!(2)),
            (&Some(Some(vec![-1.5])), json!([-1.5])),
            (&vec![None, Some(true)], json!([null, true])),
            (&(1, "x", [(); 0]), json!([1, "x", []])),
            (
                &fields,
                json!({"name": "a, \"b\" }", "kept": null, "addresses": ["10.0.0.1", "10.0.0.2"], "pause": "1.5s"}),
            ),
            (&Printed::Wrapped(1, "a"), json!("Wrapped(1, \"a\")")),
            (&Printed::Nothing, json!("Nothing")),
            (&Ok::<(), ()>(()), json!("Ok(())")),
            (&"a\n\"b\u{7f}\u{e9}", json!("a\n\"b\u{7f}\u{e9}")),
            (&7, json!("7")),
        ] {
            assert_eq!(of(shown), wanted, "{shown:?}");
        }
    }

    #[test]
    fn text_values_stay_text() {
        for text in
            ["", "None", "Some(2)", "[1, 2]", "true", "7", "\"a\" and \"b\"", "Volume { id: 7 }", "[1"]
        {
            assert_eq!(of(&AsDisplay(text)), json!(text));
            assert_eq!(of(&format_args!("{text}")), json!(text));
        }
        let error = anyhow::anyhow!("disk").context("cannot write");
        assert_eq!(of(&AsDisplay(error)), json!("cannot write"));
    }

    proptest! {
        #[test]
        fn any_text_is_logged(text in ".{0,80}") {
            prop_assert_eq!(of(&text), json!(text.clone()));
            prop_assert_eq!(of(&vec![text.clone()]), json!([text.clone()]));
            let _ = parse(&text);
        }
    }
}
