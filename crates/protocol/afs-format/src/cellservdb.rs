//! CellServDB, ThisCell and krb.conf.
//!
//! CellServDB(5): a line `>cell #comment` starts a cell, and each line `a.b.c.d #host` below it is one
//! database server. An address in brackets is a clone without a vote.

use base::CellName;
use std::net::Ipv4Addr;
use thiserror::Error;

/// A line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct LineError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl LineError {
    pub(crate) fn new(line: usize, what: impl Into<String>) -> LineError {
        LineError { line, what: what.into() }
    }
}

/// One database server of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellServer {
    /// Address of the server.
    pub address: Ipv4Addr,
    /// Host name, from the comment; may be empty.
    pub host: String,
    /// Whether the server is a clone, which has no vote in ubik elections.
    pub is_clone: bool,
}

/// One cell and its database servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Name of the cell.
    pub name: CellName,
    /// Servers in file order.
    pub servers: Vec<CellServer>,
}

/// Parses a CellServDB.
pub fn parse_cellservdb(text: &str) -> Result<Vec<Cell>, LineError> {
    let mut cells: Vec<Cell> = Vec::new();
    for (line, raw) in (1..).zip(text.lines()) {
        let (content, comment) = match raw.split_once('#') {
            Some((content, comment)) => (content.trim(), comment.trim()),
            None => (raw.trim(), ""),
        };
        if let Some(rest) = content.strip_prefix('>') {
            let name = rest.split_whitespace().next().unwrap_or_default();
            let name = name.parse().map_err(|error| LineError::new(line, format!("{error}")))?;
            cells.push(Cell { name, servers: Vec::new() });
        } else if !content.is_empty() {
            let server = parse_server(line, content, comment)?;
            let cell = cells.last_mut().ok_or_else(|| {
                LineError::new(line, "a server before the first cell; cells begin with `>name`")
            })?;
            cell.servers.push(server);
        }
    }
    Ok(cells)
}

fn parse_server(line: usize, content: &str, comment: &str) -> Result<CellServer, LineError> {
    let inner = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address =
        inner.unwrap_or(content).trim().parse().map_err(|_| {
            LineError::new(line, format!("`{content}` is not an IPv4 address like 192.0.2.1"))
        })?;
    Ok(CellServer { address, host: comment.into(), is_clone: inner.is_some() })
}

/// Parses ThisCell, which is the first word of the file.
pub fn parse_thiscell(text: &str) -> Result<CellName, LineError> {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse().map_err(|error: base::NameError| LineError::new(1, error.to_string()))
}

/// Parses krb.conf: the cell's local realms, by default the cell's name in upper case.
pub fn parse_krb_conf(text: &str, cell: &CellName) -> Vec<String> {
    let realms: Vec<String> =
        text.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    if realms.is_empty() { vec![cell.default_realm()] } else { realms }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_and_servers_are_read() {
        let text = ">test.example   #a test\n10.0.0.1 #db1\n[10.0.0.2]\t#db2.test.example\n\n>b.example\n";
        let cells = parse_cellservdb(text).unwrap();
        assert_eq!(cells.len(), 2);
        assert_eq!(cells[0].name.as_str(), "test.example");
        assert_eq!(cells[0].servers[0].host, "db1");
        assert!(cells[0].servers[1].is_clone);
        assert!(cells[1].servers.is_empty());
    }

    #[test]
    fn an_error_names_its_line() {
        assert_eq!(parse_cellservdb(">a\n10.0.0\n").unwrap_err().line, 2);
        assert_eq!(parse_cellservdb("\n10.0.0.1\n").unwrap_err().line, 2);
        assert_eq!(parse_thiscell("\n").unwrap_err().line, 1);
    }

    #[test]
    fn the_realm_defaults_to_the_cell_in_capitals() {
        let cell = "a.example".parse().unwrap();
        assert_eq!(parse_krb_conf("", &cell), ["A.EXAMPLE"]);
        assert_eq!(parse_krb_conf("R1 R2\nother\n", &cell), ["R1", "R2"]);
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_refused_or_read(text in "\\PC{0,200}|[>\\[\\]#0-9. \n]{0,200}") {
            let _ = parse_cellservdb(&text);
            let _ = parse_thiscell(&text);
        }
    }
}
