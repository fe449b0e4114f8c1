//! Connections and requests, one thread for each connection.

use crate::Shared;
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
        let answer = shared.answer(&head, body);
        shared.arrived.lock().requests.push(head);
        stream.get_mut().write_all(&answer)?;
        stream.get_mut().flush()?;
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
            "PUT" => {
                let tag = body.len().to_string();
                objects.insert(path.to_owned(), body);
                message("200 OK", &tag, b"", false)
            }
            "GET" | "HEAD" => match objects.get(path) {
                Some(object) => message("200 OK", &object.len().to_string(), object, is_head),
                None => message("404 Not Found", "x", b"<Error><Code>NoSuchKey</Code></Error>", is_head),
            },
            _ => message("501 Not Implemented", "x", b"", false),
        }
    }
}

fn message(status: &str, tag: &str, body: &[u8], is_head: bool) -> Vec<u8> {
    let modified = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT";
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nETag: \"{tag}\"\r\n{modified}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), if is_head { b"" } else { body }].concat()
}
