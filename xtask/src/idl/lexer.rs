//! Splits an interface file into words, numbers and punctuation.

use anyhow::{Context, Result, bail};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Word(String),
    Number(i64),
    Sign(char),
    /// A text in double quotes.
    Text(String),
    /// A line of a doc comment.
    Doc(String),
}

/// A token and its line number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    pub(crate) token: Token,
    pub(crate) line: usize,
}

/// Splits `text` into tokens.
pub(crate) fn split(text: &str) -> Result<Vec<Placed>> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let placed = split_line(line).with_context(|| format!("line {line_number}"))?;
        tokens.extend(placed.into_iter().map(|token| Placed { token, line: line_number }));
    }
    Ok(tokens)
}

fn split_line(line: &str) -> Result<Vec<Token>> {
    if let Some(text) = line.trim_start().strip_prefix("///") {
        return Ok(vec![Token::Doc(text.trim().to_owned())]);
    }
    let mut rest = line.split("//").next().unwrap_or_default().trim_start();
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        if let Some(text) = rest.strip_prefix('"') {
            let (text, after) = text.split_once('"').context("a text has no closing quote")?;
            tokens.push(Token::Text(text.to_owned()));
            rest = after.trim_start();
            continue;
        }
        let length = if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { 1 };
        tokens.push(token(&rest[..length])?);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn token(text: &str) -> Result<Token> {
    let first = text.chars().next().context("an empty token")?;
    if first.is_ascii_digit() {
        return number(text).map(Token::Number);
    }
    match first {
        _ if is_word(first) => Ok(Token::Word(text.to_owned())),
        '=' | '{' | '}' | '[' | ']' | '<' | '>' | ':' | ',' | '.' | '-' => Ok(Token::Sign(first)),
        _ => bail!("`{text}` is not part of the language"),
    }
}

fn number(text: &str) -> Result<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .with_context(|| format!("`{text}` is not a number"))
}
