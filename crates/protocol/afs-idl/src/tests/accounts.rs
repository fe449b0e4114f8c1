//! Charges for a request's arguments while they arrive.

use crate::pr::{IDToNameRequest, NameToIDRequest};
use crate::{CallStream, MemoryStream, StreamSource};
use base::AbortCode;
use bytes::Bytes;
use xdr::Source;

/// A caller with a limit on held memory.
struct Account {
    stream: MemoryStream,
    left: usize,
    held: usize,
}

impl CallStream for Account {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.stream.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.stream.read_chunk(max)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.stream.write(data)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        self.left = self.left.checked_sub(bytes).ok_or(AbortCode::VBUSY)?;
        self.held += bytes;
        Ok(())
    }
}

fn account(wire: &[u8], left: usize) -> Account {
    Account { stream: MemoryStream::new(wire, 1412), left, held: 0 }
}

fn long_list() -> Vec<u8> {
    xdr::to_vec(&IDToNameRequest { ids: (0..500_000).collect() })
}

#[test]
fn a_long_list_is_refused_before_it_has_arrived() {
    let wire = long_list();
    let mut caller = account(&wire, 1 << 20);
    let refused = StreamSource::new(&mut caller).decode_request::<IDToNameRequest>();
    assert_eq!(refused, Err(AbortCode::VBUSY));
    assert!(caller.stream.read_chunk(1).is_ok_and(|rest| !rest.is_empty()), "most has not been read");
}

#[test]
fn a_long_list_is_charged_for_the_memory_it_takes() {
    let wire = long_list();
    let mut caller = account(&wire, 16 << 20);
    let request: IDToNameRequest = StreamSource::new(&mut caller).decode_request().unwrap();
    assert_eq!(request.ids.len(), 500_000);
    assert!(caller.held >= size_of_val(&*request.ids), "{}", caller.held);
}

#[test]
fn small_requests_and_data_are_not_charged() {
    let names = vec!["ann".into(); 100];
    let wire = xdr::to_vec(&NameToIDRequest { names });
    let mut caller = account(&wire, 0);
    StreamSource::new(&mut caller).decode_request::<NameToIDRequest>().unwrap();
    let data = vec![7; 1 << 20];
    let mut caller = account(&data, 0);
    let mut source = StreamSource::new(&mut caller);
    source.decode_request::<u32>().unwrap();
    source.read_exact(&mut vec![0; (1 << 20) - 4]).unwrap();
}
