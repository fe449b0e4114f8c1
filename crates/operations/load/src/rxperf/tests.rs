use super::client::try_call;
use super::request::LIST_ENTRIES_MAX;
use super::server::answer;
use super::*;
use afs_idl::{MemoryStream, StreamSource};
use base::AbortCode;
use proptest::prelude::*;
use xdr::Encode;

fn request(work: Work) -> Request {
    Request { read_bytes: 0x0008_0000, write_bytes: 0x0001_0000, work }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The expected words are those that OpenAFS's client sends for these options.
#[test]
fn requests_on_the_wire() {
    for (work, tail) in [
        (Work::Send(1_048_576), &[0, 0x8_0000, 0x1_0000, 1_048_576][..]),
        (Work::Receive(5), &[1, 0x8_0000, 0x1_0000, 5]),
        (Work::Rpc(3, 30), &[3, 0x8_0000, 0x1_0000, 3, 30]),
        (Work::File(vec![2, 0, 7]), &[4, 0x8_0000, 0x1_0000, 3, 2, 0, 7]),
    ] {
        let request = request(work);
        let wire = [&words(&[3])[..], &words(tail)].concat();
        assert_eq!(xdr::to_vec(&request), wire, "{request:?}");
        assert_eq!(Request::read(&mut StreamSource::new(&mut MemoryStream::new(&wire, 7))), Ok(request));
    }
}

#[test]
fn requests_that_are_refused() {
    for bad in [
        &[2, 0, 1, 1, 1][..],
        &[3, 2, 1, 1, 1],
        &[3, 5, 1, 1, 1],
        &[3, 0xffff_ffff, 1, 1, 1],
        &[3, 0, 0x8_0001, 1, 1],
        &[3, 0, 1, 0x8_0001, 1],
        &[3, 4, 1, 1, LIST_ENTRIES_MAX + 1],
        &[3, 4, 1, 1, 2, 1],
        &[3, 3, 1, 1, 2],
        &[],
    ] {
        let mut stream = MemoryStream::new(&words(bad), 7);
        assert_eq!(answer(&mut stream), Err(AbortCode(-1)), "{bad:?}");
        assert!(stream.outgoing.is_empty());
    }
}

fn answered(work: Work, data: usize) -> Result<Vec<u8>, AbortCode> {
    let incoming = [xdr::to_vec(&request(work)), vec![9; data]].concat();
    let mut stream = MemoryStream::new(&incoming, 1412);
    answer(&mut stream).map(|()| stream.outgoing)
}

#[test]
fn answers() {
    let cookie = words(&[0x4711]);
    assert_eq!(answered(Work::Send(10_000), 10_000), Ok(cookie.clone()));
    assert_eq!(answered(Work::Send(10_000), 9_999), Err(AbortCode(-1)));
    assert_eq!(answered(Work::Send(0x8000_0000), 0), Ok(cookie.clone()), "sizes are signed");
    assert_eq!(answered(Work::Receive(0), 0), Ok(cookie.clone()));
    let received = answered(Work::Receive(100_000), 0).unwrap();
    assert_eq!((received.len(), &received[100_000..]), (100_004, &cookie[..]));
    assert_eq!(answered(Work::Rpc(3, 30), 3).unwrap().len(), 34);
    assert_eq!(answered(Work::File(vec![2, 3, 0, 5]), 20).unwrap(), [0; 20]);
}

#[test]
fn lists() {
    assert_eq!(parse_list("16\n0x10\n010\n\n7\n").unwrap(), [16, 16, 8, 0, 7]);
    assert_eq!(parse_list("").unwrap(), []);
    for (bad, why) in [("1\nx", "line 2"), ("0x", "line 1"), ("-1", "line 1"), ("600000000", "2 GB")] {
        assert!(format!("{:#}", parse_list(bad).unwrap_err()).contains(why), "{bad:?}");
    }
    assert!(parse_list("1\n\n2\n\n3").unwrap_err().to_string().contains("switches back"));
    assert!(parse_list(&"1\n".repeat(LIST_ENTRIES_MAX as usize + 1)).is_err());
}

#[test]
fn rates_have_four_digits_at_most() {
    for (rate, text) in [
        (954.23e6, "954.2 Mbit/s"),
        (1.25e9, "1.25 Gbit/s"),
        (12_345_678_900.0, "12.35 Gbit/s"),
        (1620.0, "1.62 kbit/s"),
        (1e6, "1000 kbit/s"),
        (0.0, "0 kbit/s"),
    ] {
        assert_eq!(super::result::rate(rate), text);
    }
}

fn options(server: std::net::SocketAddr, work: Work) -> ClientOptions {
    ClientOptions {
        server,
        request: request(work),
        threads: 6,
        times: 5,
        server_pid: None,
        tuning: Tuning {
            buffer_bytes: Some(1 << 20),
            window_packets: Some(64),
            mtu_bytes: Some(1000),
            no_merging: true,
        },
    }
}

#[test]
fn our_client_and_our_server() {
    let tuning = Tuning::default();
    let server =
        serve(&ServerOptions { port: 0, threads_min: 2, threads_max: 20, lanes: Some(2), tuning }).unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.addresses()[0].port()));
    for work in [
        Work::Send(300_000),
        Work::Receive(300_000),
        Work::Rpc(3, 30),
        Work::File(vec![100, 20, 0, 10_000, 1]),
    ] {
        let options = options(address, work);
        let outcome = run(&options).unwrap();
        assert_eq!((outcome.calls, outcome.bytes), (30, 30 * options.request.work.bytes()));
        let text = outcome.text(&options.request, "list");
        assert!(text.contains("threads\t6, times\t5, "), "{text}");
        assert!(text.contains("limit: "), "{text}");
    }
    assert_eq!(server.statistics().calls.succeeded, 120);
}

#[test]
fn a_refusal_is_an_error() {
    let tuning = Tuning::default();
    let server =
        serve(&ServerOptions { port: 0, threads_min: 1, threads_max: 1, lanes: Some(1), tuning }).unwrap();
    let client = rx::Client::start(&rx::ClientConfig::default()).unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.addresses()[0].port()));
    let connection = client.connect(address, SERVICE, None);
    let bad = Request { read_bytes: PIECE_BYTES_MAX + 1, ..request(Work::Send(1)) };
    assert_eq!(try_call(&*connection, &bad), Err(AbortCode(-1)));
    assert_eq!(try_call(&*connection, &request(Work::Send(1))), Ok(0x4711));
}

proptest! {
    #[test]
    fn any_bytes_are_answered_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), command in 0u32..6) {
        let _ = answer(&mut MemoryStream::new(&bytes, 5));
        let mut begun = words(&[3, command, 1000, 1000]);
        begun.extend_from_slice(&bytes);
        let mut limited = begun.clone();
        // Limits sizes, which could otherwise demand gigabytes of reply.
        for word in limited[16..].chunks_mut(4) {
            word[0] = 0;
            if let Some(second) = word.get_mut(1) {
                *second = 0;
            }
        }
        let _ = answer(&mut MemoryStream::new(&limited, 5));
    }

    #[test]
    fn requests_survive_the_wire(list in prop::collection::vec(any::<u32>(), 0..50)) {
        let request = request(Work::File(list));
        let mut wire = Vec::new();
        request.encode(&mut wire);
        prop_assert_eq!(Request::read(&mut StreamSource::new(&mut MemoryStream::new(&wire, 7))), Ok(request));
    }
}
