//! Parses the head of an HTTP/1 request.

use crate::http::Reply;
use std::net::IpAddr;

/// Maximum number of headers.
const HEADERS_MAX: usize = 64;

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads a resource.
    Get,
    /// Reads the headers of a resource.
    Head,
    /// Performs an action.
    Post,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method of the request.
    pub method: Method,
    /// Path as sent, without decoding.
    pub path: String,
    /// Text after the question mark.
    pub query: String,
    /// Headers, with names in lower case.
    headers: Vec<(String, String)>,
    /// Body of the request.
    pub body: Vec<u8>,
    /// Address of the client.
    pub peer: IpAddr,
}

impl Request {
    /// Parses the head of a request; the error is the reply to a malformed one.
    pub fn parse(head: &[u8], peer: IpAddr) -> Result<Request, Reply> {
        let bad = |what: &str| Reply::text("400 Bad Request", what);
        let text = std::str::from_utf8(head).map_err(|_| bad("not an HTTP/1 request\n"))?;
        let mut lines = text.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        let is_http = version.is_some_and(|version| version.starts_with("HTTP/1.")) && words.next().is_none();
        let (Some(method), Some(target), true) = (method, target, is_http) else {
            return Err(bad("not an HTTP/1 request\n"));
        };
        let method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            _ => return Err(Reply::text("405 Method Not Allowed", "only GET, HEAD and POST\n")),
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = Vec::new();
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or_else(|| bad("a header without a colon\n"))?;
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        if headers.len() > HEADERS_MAX {
            return Err(Reply::text("431 Request Header Fields Too Large", "too many headers\n"));
        }
        let (path, query) = (path.to_owned(), query.to_owned());
        Ok(Request { method, path, query, headers, body: Vec::new(), peer })
    }

    /// Returns the first header with this name, which must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns a parameter of the query as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(own, _)| *own == name)?.1.parse().ok()
    }

    /// Returns the cookie with this name.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let mut pairs = self.header("cookie")?.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Returns the length of the body; the error is the reply if it cannot be determined.
    pub(crate) fn body_length(&self) -> Result<usize, Reply> {
        if self.header("transfer-encoding").is_some() {
            return Err(Reply::text("411 Length Required", "Content-Length is required\n"));
        }
        let Some(length) = self.header("content-length") else { return Ok(0) };
        length.parse().map_err(|_| Reply::text("400 Bad Request", "Content-Length is not a number\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn parse(head: &[u8]) -> Result<Request, &'static str> {
        Request::parse(head, Ipv4Addr::LOCALHOST.into()).map_err(|reply| &reply.status[..3])
    }

    #[test]
    fn a_request_is_taken_apart() {
        let head = b"GET /api/x?after=7&b=c HTTP/1.1\r\nHost: a:1\r\nCOOKIE: x=1; cellar=abc=\r\n\r\n";
        let request = parse(head).unwrap();
        assert_eq!((request.method, &request.path[..]), (Method::Get, "/api/x"));
        assert_eq!(
            (request.number("after"), request.number("b"), request.number("c")),
            (Some(7), None, None)
        );
        assert_eq!((request.header("host"), request.cookie("cellar")), (Some("a:1"), Some("abc=")));
        assert_eq!((request.cookie("y"), request.body_length()), (None, Ok(0)));
    }

    #[test]
    fn invalid_requests_are_refused() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
        for (head, expected) in [
            ("\r\n\r\n", "400"),
            ("GET /\r\n\r\n", "400"),
            ("GET / HTTP/2.0 x\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nno header\r\n\r\n", "400"),
            ("PUT / HTTP/1.1\r\n\r\n", "405"),
            (&many, "431"),
        ] {
            assert_eq!(parse(head.as_bytes()), Err(expected), "{head:?}");
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1\r\n\r\n"), Err("400"));
    }

    #[test]
    fn bodies_have_a_length() {
        let length = |header: &str| {
            let request = parse(format!("POST / HTTP/1.1\r\n{header}\r\n\r\n").as_bytes()).unwrap();
            request.body_length().map_err(|reply| &reply.status[..3])
        };
        assert_eq!(length("Content-Length: 12"), Ok(12));
        assert_eq!(length("Content-Length: -1"), Err("400"));
        assert_eq!(length("Transfer-Encoding: chunked"), Err("411"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_refused(head in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(request) = parse(&head) {
                let _ = (request.body_length(), request.number("a"), request.cookie("a"));
            }
        }
    }
}
