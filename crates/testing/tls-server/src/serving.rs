//! Connections and requests, one thread for each connection.

use crate::{Fault, Shared};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// Longest body that is taken.
const BODY_BYTES_MAX: usize = 1 << 20;

pub(crate) fn accept(listener: &TcpListener, tls: Option<&Arc<ServerConfig>>, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        shared.arrived.lock().connections += 1;
        let (tls, shared) = (tls.cloned(), Arc::clone(shared));
        // A client that gives up is what tests are about.
        std::thread::spawn(move || match tls {
            Some(tls) => serve_tls(client, tls, &shared),
            None => serve_clear(client, &shared),
        });
    }
}

fn serve_tls(mut client: TcpStream, tls: Arc<ServerConfig>, shared: &Shared) -> Result<()> {
    let mut tls = ServerConnection::new(tls).map_err(Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut client)?;
    }
    shared.arrived.lock().handshakes += 1;
    let mut stream = BufReader::new(StreamOwned::new(tls, client));
    loop {
        let (head, body) = request(&mut stream)?;
        let fault = shared.faults.lock().pop_front();
        let answer = match fault {
            Some(Fault::Refused(status)) => message(status, "x", b"", false),
            _ => shared.answer(&head, body),
        };
        shared.arrived.lock().requests.push(head);
        let sent = match fault {
            Some(Fault::Lost) => 0,
            Some(Fault::CutShort) => {
                let body = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |end| end + 4);
                body.midpoint(answer.len())
            }
            _ => answer.len(),
        };
        stream.get_mut().write_all(&answer[..sent])?;
        stream.get_mut().flush()?;
        if sent < answer.len() {
            return Ok(());
        }
    }
}

/// Answers whatever arrives first as a server without TLS does.
fn serve_clear(mut client: TcpStream, shared: &Shared) -> Result<()> {
    let mut some = [0; 4096];
    let length = client.read(&mut some)?;
    shared.arrived.lock().clear.extend_from_slice(&some[..length]);
    client.write_all(&message("200 OK", "x", b"clear", false))?;
    // Whatever else the client sends arrives, too.
    let mut rest = Vec::new();
    let read = client.take(BODY_BYTES_MAX as u64).read_to_end(&mut rest);
    shared.arrived.lock().clear.extend_from_slice(&rest);
    read.map(drop)
}

/// Reads the head and the body of a request.
fn request(stream: &mut impl BufRead) -> Result<(String, Vec<u8>)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let begin = head.len();
        if stream.read_line(&mut head)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let line = head[begin..].trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(Error::other)?;
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}

impl Shared {
    fn answer(&self, head: &str, body: Vec<u8>) -> Vec<u8> {
        let mut words = head.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_head = method == "HEAD";
        if let Some((status, body)) = &*self.answer.lock() {
            return message(status, "x", body.as_bytes(), is_head);
        }
        let mut objects = self.objects.lock();
        match method {
            "PUT" if objects.contains_key(path) && header(head, "if-none-match").is_some() => {
                message("412 Precondition Failed", "x", b"", false)
            }
            "PUT" => {
                let tag = body.len().to_string();
                objects.insert(path.to_owned(), body);
                message("200 OK", &tag, b"", false)
            }
            "GET" | "HEAD" => match objects.get(path) {
                Some(object) => found(object, header(head, "range"), is_head),
                None => message("404 Not Found", "x", b"<Error><Code>NoSuchKey</Code></Error>", is_head),
            },
            _ => message("501 Not Implemented", "x", b"", false),
        }
    }
}

/// Returns the value of a header of a request.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The answer with an object, or with the range of it that was requested, like `bytes=0-99`.
fn found(object: &[u8], range: Option<&str>, is_head: bool) -> Vec<u8> {
    let (length, tag) = (object.len(), object.len().to_string());
    let ends = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let ends = ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let Some((first, last)): Option<(usize, usize)> = ends else {
        return message("200 OK", &tag, object, is_head);
    };
    let last = last.min(length.saturating_sub(1));
    match object.get(first..=last) {
        Some(part) => {
            let status = format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{length}");
            message(&status, &tag, part, is_head)
        }
        None => message("416 Range Not Satisfiable", &tag, b"", is_head),
    }
}

fn message(status: &str, tag: &str, body: &[u8], is_head: bool) -> Vec<u8> {
    let modified = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT";
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nETag: \"{tag}\"\r\n{modified}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), if is_head { b"" } else { body }].concat()
}
