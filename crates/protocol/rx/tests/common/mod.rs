//! A test service with several behaviours, and helpers for tests.
#![allow(dead_code, unreachable_pub, reason = "every test program uses some of it")]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use afs_idl::{CallStream, ClientCall, ClientConnection, StreamSource};
use base::{AbortCode, RecvBuffer};
use bytes::Bytes;
use parking_lot::Mutex;
use rx::{
    Client, ClientConfig, Server, ServerCall, ServerConfig, Service, ServiceConfig, ServiceEntry,
    SocketOptions,
};
use rx_security::Null;
use sha2::{Digest, Sha256};

pub const SERVICE: u16 = 77;

/// First byte of a request.
pub const ECHO: u8 = b'e';
pub const UPLOAD: u8 = b'u';
pub const LAND: u8 = b'l';
pub const DOWNLOAD: u8 = b'd';
pub const ABORT: u8 = b'a';
pub const PANIC: u8 = b'p';
pub const HOLD: u8 = b'h';
pub const CALL_BACK: u8 = b'c';

/// A service that acts by the first byte of the request; see [`Trick::serve`].
pub struct Trick {
    /// Notified when a call of HOLD starts, and with its result when it ends.
    held: Mutex<Sender<Option<AbortCode>>>,
}

impl Trick {
    pub fn new() -> (Arc<Trick>, Receiver<Option<AbortCode>>) {
        let (sender, receiver) = channel();
        (Arc::new(Trick { held: Mutex::new(sender) }), receiver)
    }

    /// Reads data that never comes, until the call fails.
    fn hold(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        self.held.lock().send(None).unwrap();
        let result = read_all(call).map(drop);
        self.held.lock().send(Some(result.err().unwrap_or(AbortCode(0)))).unwrap();
        result
    }
}

impl Service for Trick {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let trick = call.read_chunk(1)?;
        match trick[0] {
            ECHO => {
                let data = read_all(call)?;
                call.write(data)
            }
            UPLOAD => {
                let digest = hash_all(call)?;
                call.write(Bytes::from(digest))
            }
            LAND => {
                let digest = hash_filled(&mut StreamSource::new(call))?;
                call.write(Bytes::from(digest))
            }
            DOWNLOAD => {
                let wanted = read_all(call)?;
                let bytes = u64::from_be_bytes(wanted[..8].try_into().unwrap());
                write_pattern(call, bytes)
            }
            ABORT => Err(AbortCode(i32::from_be_bytes(read_all(call)?[..4].try_into().unwrap()))),
            PANIC => panic!("a test wanted this"),
            HOLD => self.hold(call),
            CALL_BACK => {
                let message = read_all(call)?;
                let back = call.connector().connect(call.caller().peer, SERVICE, None);
                let answer = ask(&*back, ECHO, &message)?;
                call.write(answer)
            }
            other => panic!("no such trick: {other}"),
        }
    }
}

pub fn entry(service: Arc<dyn Service>) -> ServiceEntry {
    let config = ServiceConfig { id: SERVICE, name: String::from("tricks"), security: vec![Arc::new(Null)] };
    ServiceEntry { config, service }
}

pub fn server_config(lanes: usize) -> ServerConfig {
    ServerConfig {
        addresses: vec![IpAddr::from([127, 0, 0, 1])],
        lanes,
        socket: sockets(),
        ..ServerConfig::default()
    }
}

pub fn sockets() -> SocketOptions {
    SocketOptions { buffer_bytes: 4 << 20, ..SocketOptions::default() }
}

pub fn start(config: &ServerConfig) -> (Server, SocketAddr) {
    let server = Server::start(config, vec![entry(Trick::new().0)]).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

pub fn client() -> Client {
    Client::start(&ClientConfig { socket: sockets(), ..ClientConfig::default() }).unwrap()
}

/// Makes a call and returns the reply.
pub fn ask(connection: &dyn ClientConnection, trick: u8, message: &[u8]) -> Result<Bytes, AbortCode> {
    let mut call = begin(connection, trick)?;
    call.write(Bytes::copy_from_slice(message))?;
    call.end_request()?;
    let reply = read_all(&mut *call)?;
    call.finish()?;
    Ok(reply)
}

pub fn begin(connection: &dyn ClientConnection, trick: u8) -> Result<Box<dyn ClientCall>, AbortCode> {
    let mut call = connection.begin()?;
    call.write(Bytes::copy_from_slice(&[trick]))?;
    Ok(call)
}

/// Sends the pattern and returns the server's digest.
pub fn upload(connection: &dyn ClientConnection, bytes: u64) -> Result<Vec<u8>, AbortCode> {
    send_pattern(begin(connection, UPLOAD)?, bytes)
}

/// Sends the pattern to a server that receives it into its own buffers.
pub fn upload_to_rooms(connection: &dyn ClientConnection, bytes: u64) -> Result<Vec<u8>, AbortCode> {
    let mut call = begin(connection, LAND)?;
    call.write(Bytes::copy_from_slice(&bytes.to_be_bytes()))?;
    send_pattern(call, bytes)
}

fn send_pattern(mut call: Box<dyn ClientCall>, bytes: u64) -> Result<Vec<u8>, AbortCode> {
    write_pattern(&mut *call, bytes)?;
    call.end_request()?;
    let digest = read_all(&mut *call)?;
    call.finish()?;
    Ok(digest.to_vec())
}

/// Requests the pattern and returns the digest of the received data.
pub fn download(connection: &dyn ClientConnection, bytes: u64) -> Result<Vec<u8>, AbortCode> {
    let mut call = begin(connection, DOWNLOAD)?;
    call.write(Bytes::copy_from_slice(&bytes.to_be_bytes()))?;
    call.end_request()?;
    let digest = hash_all(&mut *call)?;
    call.finish()?;
    Ok(digest)
}

pub fn read_all(stream: &mut dyn CallStream) -> Result<Bytes, AbortCode> {
    let mut all = Vec::new();
    loop {
        let piece = stream.read_chunk(usize::MAX)?;
        if piece.is_empty() {
            return Ok(all.into());
        }
        all.extend_from_slice(&piece);
    }
}

fn hash_all(stream: &mut dyn CallStream) -> Result<Vec<u8>, AbortCode> {
    let mut digest = Sha256::new();
    loop {
        let piece = stream.read_chunk(usize::MAX)?;
        if piece.is_empty() {
            return Ok(digest.finalize().to_vec());
        }
        digest.update(&piece);
    }
}

/// Reads a length, and lends buffers for this number of bytes: of all lengths up to several packets, two at a
/// time, sometimes after a pause so that arriving data has to wait.
fn hash_filled(stream: &mut StreamSource<'_>) -> Result<Vec<u8>, AbortCode> {
    let mut digest = Sha256::new();
    let mut length = Vec::new();
    while length.len() < 8 {
        length.extend_from_slice(&stream.read_chunk(8 - length.len())?);
    }
    let mut left = u64::from_be_bytes(length.try_into().unwrap()) as usize;
    let (mut rooms, mut open) = (VecDeque::new(), 0);
    for turn in 1usize.. {
        while open < 2 && left > 0 {
            let bytes = left.min(turn * 7919 % 65_536);
            rooms.push_back(RecvBuffer::new(vec![0; 70_000], 13..13 + bytes));
            left -= bytes;
            open += 1;
        }
        if open == 0 {
            break;
        }
        let room = stream.fill(&mut rooms)?;
        open -= 1;
        assert_eq!(room.left(), 0);
        digest.update(room.filled());
        if turn.is_multiple_of(50) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(digest.finalize().to_vec())
}

/// Returns this number of bytes without repetition, in pieces of irregular sizes.
pub fn pattern(bytes: u64) -> impl Iterator<Item = Bytes> {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut left = bytes;
    std::iter::from_fn(move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = left.min(1 + (seed >> 40) % 200_000);
        left -= length;
        let piece: Vec<u8> = (0..length).map(|at| (at.wrapping_mul(seed | 1) >> 24) as u8).collect();
        (length > 0).then(|| Bytes::from(piece))
    })
}

fn write_pattern(stream: &mut dyn CallStream, bytes: u64) -> Result<(), AbortCode> {
    pattern(bytes).try_for_each(|piece| stream.write(piece))
}

pub fn pattern_digest(bytes: u64) -> Vec<u8> {
    let mut digest = Sha256::new();
    pattern(bytes).for_each(|piece| digest.update(&piece));
    digest.finalize().to_vec()
}
