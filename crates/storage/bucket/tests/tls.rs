//! TLS to a bucket: a server that cannot prove who it is gets no request. Its answers by HTTP: refused, cut short, lost.
#![cfg(feature = "s3")]

use bucket::{Access, Bounded, Objects, ObjectsConfig, ReadCredentials, open};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use store::{Bucket, BucketError};
use tls_server::{Fault, Identity, TlsServer};
use tokio::runtime::{Builder, Runtime};
use zeroize::Zeroizing;

const ID: &str = "AKIDAKIDAKID";
const SECRET: &str = "s3cretS3cretS3cret";
const TOKEN: &str = "t0kenT0kenT0kenT0ken";

/// A client of a server, whose errors have what the log shows.
struct Client {
    runtime: Runtime,
    bucket: Bounded,
}

impl Client {
    /// Also trusts this authority, in addition to those of the system.
    fn new(server: &TlsServer, authority: Option<String>) -> Client {
        let file = format!(
            "aws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\naws_session_token = {TOKEN}\n"
        );
        let read: ReadCredentials = Arc::new(move || Ok(Zeroizing::new(file.clone().into_bytes())));
        let access = Access {
            endpoint: Some(server.endpoint()),
            authorities: authority.map(String::into_bytes),
            credentials: Some(read),
            ..Access::default()
        };
        let bucket = open(&"s3://b/p".parse().unwrap(), &access).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Client { runtime, bucket: Bounded::new(bucket, Duration::from_secs(20)) }
    }

    fn of(server: &TlsServer) -> Client {
        Client::new(server, Some(server.authority()))
    }

    /// Returns all that is shown of the failures of a read, a write and a list.
    fn failures(&self) -> String {
        let name = Path::from("p/x");
        let shown = self.runtime.block_on(async {
            let got = self.bucket.get(&name).await.unwrap_err();
            let put = self.bucket.put(&name, "contents".into()).await.unwrap_err();
            let list = self.bucket.list_with_delimiter(None).await.unwrap_err();
            [got, put, list].map(|error| format!("{error}\n{error:?}\n")).concat()
        });
        let shown = format!("{shown}{:?} {}", self.bucket, self.bucket);
        for secret in [ID, SECRET, TOKEN] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
        shown
    }
}

/// The client refuses the server with these words, in each of its three failures, and sends nothing but its part of the
/// handshake.
fn refuses(server: &TlsServer, client: &Client, words: &str) {
    let shown = client.failures();
    assert!(shown.matches(words).count() >= 3, "{shown}");
    let arrived = server.arrived();
    assert!(arrived.connections >= 3, "{arrived:?}");
    assert_eq!((arrived.handshakes, arrived.requests.len()), (0, 0), "{arrived:?}");
}

#[test]
fn a_server_of_an_unknown_authority_gets_nothing() {
    let server = TlsServer::start(Identity::Good);
    refuses(&server, &Client::new(&server, None), "UnknownIssuer");
    let other = TlsServer::start(Identity::Good);
    refuses(&server, &Client::new(&server, Some(other.authority())), "invalid peer certificate");
}

#[test]
fn a_server_with_another_name_gets_nothing() {
    let server = TlsServer::start(Identity::OtherName);
    refuses(&server, &Client::of(&server), "not valid for name");
}

#[test]
fn a_server_whose_certificate_expired_gets_nothing() {
    let server = TlsServer::start(Identity::Expired);
    refuses(&server, &Client::of(&server), "certificate expired");
}

#[test]
fn a_server_without_tls_gets_nothing() {
    let server = TlsServer::start(Identity::None);
    refuses(&server, &Client::of(&server), "InvalidContentType");
    let clear = String::from_utf8_lossy(&server.arrived().clear).into_owned();
    for words in ["HTTP/1", "GET ", "PUT ", "uthorization", ID, TOKEN] {
        assert!(!clear.contains(words), "{words} in {clear}");
    }
}

#[test]
fn a_server_of_a_known_authority_is_used() {
    let server = TlsServer::start(Identity::Good);
    let client = Client::of(&server);
    let name = Path::from("p/x");
    let read = client.runtime.block_on(async {
        client.bucket.put(&name, "contents".into()).await.unwrap();
        client.bucket.get(&name).await.unwrap().bytes().await.unwrap()
    });
    assert_eq!(read, "contents");
    let arrived = server.arrived();
    assert!(arrived.handshakes >= 1 && arrived.requests.len() == 2, "{arrived:?}");
    assert!(arrived.requests.iter().all(|head| head.contains(ID)), "requests are signed: {arrived:?}");
}

/// As servers do that describe why they refuse a request, with or without names of elements that are known.
#[test]
fn a_server_that_repeats_the_key_does_not_reveal_it() {
    let server = TlsServer::start(Identity::Good);
    let client = Client::of(&server);
    let elements = format!("<AWSAccessKeyId>{ID}</AWSAccessKeyId><Token-0>{TOKEN}</Token-0>");
    let words = format!("<Message>{ID}, {SECRET} and {TOKEN} are of no use</Message>");
    for status in ["400 Bad Request", "403 Forbidden", "404 Not Found", "500 Internal Server Error"] {
        server.always_answer(status, &format!("<Error><Code>ExpiredToken</Code>{elements}{words}</Error>"));
        let shown = client.failures();
        assert!(shown.contains("ExpiredToken") && shown.contains("are of no use"), "{shown}");
    }
}

/// Objects in a bucket of this server.
fn objects(server: &TlsServer) -> Objects {
    let Client { bucket, .. } = Client::of(server);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = ObjectsConfig { patience: Duration::from_secs(30), request_limit: Duration::from_secs(10) };
    Objects::new(Arc::new(runtime), Arc::new(bucket), "p/chunks", config)
}

/// A read or write that a server slows down, cuts short or does not answer is repeated until it is whole.
#[test]
fn a_request_without_a_whole_answer_is_repeated() {
    let server = TlsServer::start(Identity::Good);
    let objects = objects(&server);
    let contents = Bytes::from(vec![7; 100_000]);
    server.fail_next([
        Fault::Refused("429 Too Many Requests"),
        Fault::Refused("503 Slow Down"),
        Fault::Lost,
        Fault::CutShort,
    ]);
    objects.begin("x", &contents);
    objects.finish(&["x".to_owned()]).unwrap();
    server.fail_next([
        Fault::CutShort,
        Fault::Refused("429 Too Many Requests"),
        Fault::Lost,
        Fault::CutShort,
        Fault::Refused("500 Internal Server Error"),
    ]);
    let read = objects.read("x", 0..200_000).unwrap();
    assert_eq!((read.bytes, read.object_bytes), (contents, 100_000));
    assert!(server.arrived().requests.len() >= 9 + 2);
}

/// A key that has expired is an error, and the same client goes on once it is valid again.
#[test]
fn a_request_succeeds_again_after_a_refusal() {
    let server = TlsServer::start(Identity::Good);
    let objects = objects(&server);
    let contents = Bytes::from_static(b"contents");
    let names = ["x".to_owned()];
    server.fail_next([Fault::Refused("403 Forbidden")]);
    objects.begin("x", &contents);
    let error = objects.finish(&names).unwrap_err();
    assert!(matches!(&error, BucketError::Refused(what) if what.contains("403")), "{error}");
    objects.begin("x", &contents);
    objects.finish(&names).unwrap();
    server.fail_next([Fault::Refused("403 Forbidden"), Fault::Refused("404 Not Found")]);
    assert!(matches!(objects.read("x", 0..8), Err(BucketError::Refused(_))));
    assert!(matches!(objects.read("x", 0..8), Err(BucketError::Missing { name }) if name == "x"));
    assert_eq!(objects.read("x", 0..8).unwrap().bytes, contents);
}

/// A redirection to a server without TLS is not followed.
#[test]
fn a_redirection_does_not_lead_out_of_tls() {
    let (server, clear) = (TlsServer::start(Identity::Good), TlsServer::start(Identity::None));
    let elsewhere = clear.endpoint().replace("https:", "http:");
    server.always_answer(&format!("307 Temporary Redirect\r\nLocation: {elsewhere}/b/p/x"), "");
    Client::of(&server).failures();
    let arrived = clear.arrived();
    assert_eq!((arrived.connections, arrived.clear.len()), (0, 0), "{arrived:?}");
}

/// The same refusals, in a process with variables that ask for less.
#[test]
fn the_environment_does_not_weaken_tls() {
    const INSIDE: &str = "CELLAR_TLS_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.env(INSIDE, "1").env("SSLKEYLOGFILE", "/dev/full");
    for name in ["ALLOW_HTTP", "ALLOW_INVALID_CERTIFICATES", "SKIP_SIGNATURE"] {
        tests.env(format!("AWS_{name}"), "true");
        tests.env(format!("AWS_{}", name.to_lowercase()), "true");
    }
    let output = tests.arg("a_server").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" 6 passed"), "{said}");
}
