//! Patterns for volume names: POSIX basic regular expressions in the dialect of the GNU C library, which must
//! match the whole name (VL_ListAttributesN2).
//!
//! Patterns come from callers, so they are translated for a regex engine that takes linear time.
//! Back-references, which need exponential time, are rejected.

use crate::error::LocationError;
use regex::bytes::{Regex, RegexBuilder};
use std::iter::Peekable;
use std::str::Chars;

/// Maximum length of a pattern in bytes (VL_MAXNAMELEN).
const PATTERN_BYTES_MAX: usize = 65;
/// Maximum size of a compiled pattern in bytes; repetitions make it grow.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct NamePattern(Regex);

impl NamePattern {
    /// Compiles `pattern`; returns `None` for patterns that match everything (empty, `.*`).
    pub fn parse(pattern: &[u8]) -> Result<Option<NamePattern>, LocationError> {
        if pattern.is_empty() || pattern == b".*" {
            return Ok(None);
        }
        compile(pattern)
            .map(|regex| Some(NamePattern(regex)))
            .ok_or_else(|| LocationError::BadName(base::text::escape(pattern)))
    }

    /// Whether the name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name.as_bytes())
    }
}

fn compile(pattern: &[u8]) -> Option<Regex> {
    if pattern.len() > PATTERN_BYTES_MAX || !pattern.is_ascii() {
        return None;
    }
    let text = std::str::from_utf8(pattern).ok()?;
    // The anchors are translated together with the pattern: in `^a\|b$` each half has one anchor.
    let translated = translate(&format!("^{text}$"))?;
    RegexBuilder::new(&translated)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .build()
        .ok()
}

/// Translates a basic regular expression into the engine's syntax.
fn translate(basic: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = basic.chars().peekable();
    // At the start of an expression, `*` and `^` have a different meaning.
    let mut at_start = true;
    while let Some(c) = rest.next() {
        let starts_next = match c {
            '\\' => escaped(rest.next()?, &mut rest, &mut out)?,
            '[' => {
                bracket(&mut rest, &mut out)?;
                false
            }
            '*' if !at_start => {
                out.push('*');
                false
            }
            '^' if at_start => {
                out.push('^');
                true
            }
            '$' if ends(&rest) => {
                out.push('$');
                false
            }
            '.' => {
                out.push('.');
                false
            }
            literal => {
                push_literal(literal, &mut out);
                false
            }
        };
        at_start = starts_next;
    }
    Some(out)
}

/// Whether an expression ends here, so that `$` is an anchor.
fn ends(rest: &Peekable<Chars<'_>>) -> bool {
    let rest: String = rest.clone().take(2).collect();
    rest.is_empty() || rest == "\\)" || rest == "\\|"
}

fn push_literal(literal: char, out: &mut String) {
    if literal.is_ascii_punctuation() {
        out.push('\\');
    }
    out.push(literal);
}

/// Translates the character after a backslash; returns whether a new expression starts after it.
fn escaped(c: char, rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Option<bool> {
    match c {
        '(' | '|' => {
            out.push(c);
            return Some(true);
        }
        ')' | '+' | '?' => out.push(c),
        '{' => interval(rest, out)?,
        'w' => out.push_str("[A-Za-z0-9_]"),
        'W' => out.push_str("[^A-Za-z0-9_]"),
        '1'..='9' => return None,
        literal => push_literal(literal, out),
    }
    Some(false)
}

/// Translates `\{m,n\}` after its opening.
fn interval(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Option<()> {
    out.push('{');
    if rest.peek() == Some(&',') {
        out.push('0');
    }
    loop {
        match rest.next()? {
            '\\' => {
                out.push('}');
                return (rest.next()? == '}').then_some(());
            }
            c if c.is_ascii_digit() || c == ',' => out.push(c),
            _ => return None,
        }
    }
}

/// Translates a bracket expression, in which backslashes are literal, after its `[`.
fn bracket(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Option<()> {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        match rest.next()? {
            ']' if !first => {
                out.push(']');
                return Some(());
            }
            '[' if rest.peek() == Some(&':') => class(rest, out)?,
            '-' if !first && rest.peek() != Some(&']') => out.push('-'),
            c => push_literal(c, out),
        }
        first = false;
    }
}

/// POSIX character classes.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
    "xdigit",
];

/// Translates a class such as `[:alpha:]` after its `[`.
fn class(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Option<()> {
    rest.next();
    let name: String = std::iter::from_fn(|| rest.next_if(char::is_ascii_lowercase)).collect();
    if !CLASSES.contains(&name.as_str()) {
        return None;
    }
    out.push_str("[:");
    out.push_str(&name);
    out.push_str(":]");
    (rest.next()? == ':' && rest.next()? == ']').then_some(())
}
