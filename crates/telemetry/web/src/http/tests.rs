use super::*;

/// Echoes the request.
struct Echo;

impl Handler for Echo {
    fn answer(&self, request: &Request) -> Reply {
        let body = format!("{:?} {} {}", request.method, request.path, request.body.len());
        Reply::text("200 OK", &body).with("X-Test", "yes")
    }
}

fn ask(server: &Server, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request).unwrap();
    let mut reply = Vec::new();
    // Because of unread data, the system resets the connection after the reply.
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

#[test]
fn requests_are_answered_over_a_socket() {
    let server = Server::open(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::new(Echo)).unwrap();
    for (request, status, end) in [
        ("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "200", "\r\n\r\nGet /a 0"),
        ("GET /a?b HTTP/1.1\n\n", "200", "Get /a 0"),
        ("HEAD /a HTTP/1.1\r\n\r\n", "200", "X-Test: yes\r\n\r\n"),
        ("POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcdef", "200", "Post /b 3"),
        ("POST /b HTTP/1.1\r\nContent-Length: 5000\r\n\r\n", "413", "too long\n"),
        ("DELETE /b HTTP/1.1\r\n\r\n", "405", "only GET, HEAD and POST\n"),
    ] {
        let reply = ask(&server, request.as_bytes());
        let is_right = reply.starts_with(&format!("HTTP/1.1 {status} ")) && reply.ends_with(end);
        assert!(is_right && reply.contains("nosniff\r\n"), "{request:?}: {reply}");
    }
    let head = ask(&server, b"HEAD /a HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: 9\r\n"), "{head}");
}

#[test]
fn slow_clients_do_not_close_the_port_for_others() {
    let server = Server::open(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::new(Echo)).unwrap();
    // More clients than the maximum, all from one address that may have that many; none completes its
    // request.
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(b"GET /slow HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    let reply = ask(&server, b"GET /a HTTP/1.1\r\n\r\n");
    assert!(reply.ends_with("Get /a 0"), "{reply}");
    drop(slow);
}

/// A client that sends its bytes in pieces.
struct Pieces(Vec<Vec<u8>>);

impl ReadFor for Pieces {
    fn read_for(&mut self, buffer: &mut [u8], _: Duration) -> std::io::Result<usize> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let piece = self.0.remove(0);
        let count = piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&piece[..count]);
        Ok(count)
    }
}

#[test]
fn heads_are_bounded_and_split_from_the_body() {
    let later = Instant::now() + REQUEST_TIME;
    let long = vec![vec![b'x'; 1000]; 1000];
    assert_eq!(read_head(&mut Pieces(long), later).unwrap(), None);
    assert!(read_head(&mut Pieces(vec![b"GET / HT".to_vec()]), later).is_err());
    let pieces = vec![b"GET / HTTP/1.1\r\n\r".to_vec(), b"\nbody\n\n".to_vec()];
    let expected = (b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"body\n\n".to_vec());
    assert_eq!(read_head(&mut Pieces(pieces), later).unwrap(), Some(expected));
}
