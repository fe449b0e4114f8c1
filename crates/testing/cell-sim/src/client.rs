//! Clients: a cache with callbacks, and a script that reads and writes through it.

use crate::hub::Hub;
use crate::machine::volume_name;
use crate::record::{Version, hash};
use crate::stream::Line;
use crate::tasks::{self, Crashed, Wait};
use crate::world::{FILE_SERVICE, LOCATION_SERVICE, Places};
use afs_idl::{CallStream, cb, fs, vl};
use base::{AbortCode, CallContext, Fid, HostUuid, Monotonic, VnodeId, VolumeId};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a file.
const FILE_BYTES_MAX: usize = 9000;

/// A promise of a server.
#[derive(Clone, Copy, Debug)]
struct Promise {
    expires: Monotonic,
    /// Entry in the record at which the call began that brought it.
    begun: u64,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    server: usize,
    version: Version,
    content: Option<u64>,
    promise: Option<Promise>,
}

#[derive(Debug, Default)]
struct Cache {
    vnodes: BTreeMap<Fid, Cached>,
    /// Number of breaks and resets received. What arrives together with one may be older than it.
    breaks: u64,
}

/// A client's cache and its callback service.
pub(crate) struct Station {
    pub(crate) number: usize,
    hub: Arc<Hub>,
    places: Arc<Places>,
    cache: Mutex<Cache>,
}

impl Station {
    pub(crate) fn new(number: usize, hub: Arc<Hub>, places: Arc<Places>) -> Station {
        Station { number, hub, places, cache: Mutex::default() }
    }

    fn uuid(&self) -> HostUuid {
        HostUuid([100 + self.number as u8; 16])
    }

    fn reset(&self, server: Option<usize>) {
        let mut cache = self.cache.lock();
        cache.breaks += 1;
        let is_meant = |cached: &Cached| server.is_none_or(|server| server == cached.server);
        for cached in cache.vnodes.values_mut().filter(|cached| is_meant(cached)) {
            cached.promise = None;
        }
        let mut record = self.hub.record();
        record.report.resets += 1;
        record.log(&format!("client {} is reset by server {server:?}", self.number));
    }
}

impl cb::Server for Station {
    fn call_back(
        &self,
        _: &CallContext<'_>,
        request: cb::CallBackRequest,
    ) -> Result<cb::CallBackReply, AbortCode> {
        let mut cache = self.cache.lock();
        cache.breaks += 1;
        let mut record = self.hub.record();
        record.report.breaks += 1;
        for fid in request.fids.into_iter().map(Fid::from) {
            record.log(&format!("client {} loses its promise on {fid}", self.number));
            let is_meant = |other: &Fid| {
                if fid.vnode == VnodeId(0) { other.volume == fid.volume } else { *other == fid }
            };
            for (_, cached) in cache.vnodes.iter_mut().filter(|(other, _)| is_meant(other)) {
                cached.promise = None;
            }
        }
        Ok(cb::CallBackReply)
    }

    fn init_call_back_state(
        &self,
        caller: &CallContext<'_>,
        _: cb::InitCallBackStateRequest,
    ) -> Result<cb::InitCallBackStateReply, AbortCode> {
        self.reset(self.places.server_at(caller.peer));
        Ok(cb::InitCallBackStateReply)
    }

    fn init_call_back_state3(
        &self,
        _: &CallContext<'_>,
        request: cb::InitCallBackState3Request,
    ) -> Result<cb::InitCallBackState3Reply, AbortCode> {
        self.reset(self.places.server_with(request.server_uuid));
        Ok(cb::InitCallBackState3Reply)
    }

    fn tell_me_about_yourself(
        &self,
        _: &CallContext<'_>,
        _: cb::TellMeAboutYourselfRequest,
    ) -> Result<cb::TellMeAboutYourselfReply, AbortCode> {
        let addresses = cb::InterfaceAddr::new(self.uuid(), &[]);
        Ok(cb::TellMeAboutYourselfReply {
            addresses,
            capabilities: vec![cb::client_capability::ERROR_TRANSLATION],
        })
    }

    fn probe(&self, _: &CallContext<'_>, _: cb::ProbeRequest) -> Result<cb::ProbeReply, AbortCode> {
        Ok(cb::ProbeReply)
    }

    fn probe_uuid(
        &self,
        _: &CallContext<'_>,
        request: cb::ProbeUuidRequest,
    ) -> Result<cb::ProbeUuidReply, AbortCode> {
        if request.client_uuid == self.uuid() { Ok(cb::ProbeUuidReply) } else { Err(AbortCode(1)) }
    }
}

/// The program of a client, on a thread of its own.
pub(crate) struct Script {
    hub: Arc<Hub>,
    station: Arc<Station>,
    places: Arc<Places>,
    /// The client's host in the world.
    host: usize,
    random: SmallRng,
    locations: BTreeMap<VolumeId, SocketAddr>,
    /// Fraction of pauses that last minutes or hours.
    long_pauses: f64,
    made: u32,
}

/// A call failed. After a crash of its own machine, the client ends.
type Outcome<T> = Result<T, AbortCode>;

fn version(status: &fs::FetchStatus) -> Version {
    u64::from(status.data_version_high) << 32 | u64::from(status.data_version)
}

/// Reads the data of FetchData64: its length, then the bytes.
fn receive(stream: &mut dyn CallStream) -> Result<Vec<u8>, AbortCode> {
    let mut length = [0; 8];
    read_exact(stream, &mut length)?;
    let mut data = vec![0; u64::from_be_bytes(length) as usize];
    read_exact(stream, &mut data)?;
    Ok(data)
}

fn read_exact(stream: &mut dyn CallStream, mut buf: &mut [u8]) -> Result<(), AbortCode> {
    while !buf.is_empty() {
        match stream.read(buf)? {
            0 => return Err(AbortCode::RXGEN_CC_UNMARSHAL),
            count => buf = &mut buf[count..],
        }
    }
    Ok(())
}

impl Script {
    pub(crate) fn new(
        hub: Arc<Hub>,
        station: Arc<Station>,
        places: Arc<Places>,
        host: usize,
        seed: u64,
        long_pauses: f64,
    ) -> Script {
        let random = SmallRng::seed_from_u64(seed);
        Script { hub, station, places, host, random, locations: BTreeMap::new(), long_pauses, made: 0 }
    }

    /// Does `steps` random things.
    pub(crate) fn run(mut self, steps: u32) {
        for _ in 0..steps {
            if self.pause().is_err() || self.hub.record().violation().is_some() {
                return;
            }
            let files = self.hub.record().files();
            let fid = files[self.random.random_range(0..files.len())];
            let (root, data) = (Fid::root(fid.volume), self.random.random());
            _ = match self.random.random_range(0..100) {
                0..45 => self.read(fid, data),
                45..60 => self.read(root, true),
                60..85 => self.store(fid),
                85..95 => self.create(root),
                _ => self.remove(root),
            };
        }
    }

    /// Reads everything, from the servers.
    pub(crate) fn audit(mut self) {
        let vnodes = self.hub.record().vnodes();
        for (fid, _) in vnodes {
            // The first call to a server after its restart may find it busy.
            let result = (0..9).find_map(|_| match self.fetch(fid, true) {
                Err(code) if code != AbortCode::VNOVNODE => {
                    _ = self.sleep(Duration::from_secs(20));
                    None
                }
                result => Some(result),
            });
            if result.is_none() && self.hub.record().violation().is_none() {
                self.hub.record().unreachable(fid);
            }
        }
    }

    fn sleep(&self, time: Duration) -> Result<(), Crashed> {
        tasks::wait(Wait::Until(self.hub.now() + time))
    }

    fn pause(&mut self) -> Result<(), Crashed> {
        let seconds = if self.random.random_bool(self.long_pauses) {
            self.random.random_range(60.0..20_000.0)
        } else if self.random.random_bool(0.5) {
            self.random.random_range(0.0..0.2)
        } else {
            self.random.random_range(0.0..8.0)
        };
        self.sleep(Duration::from_secs_f64(seconds))
    }

    fn line(&self, to: SocketAddr, service: u16) -> Line {
        Line { hub: Arc::clone(&self.hub), from: self.host, to, service, patience: None, loss: None }
    }

    /// Returns the file server of a volume, as the location service reports it.
    fn locate(&mut self, volume: VolumeId) -> Outcome<SocketAddr> {
        if let Some(address) = self.locations.get(&volume) {
            return Ok(*address);
        }
        let begun = self.hub.record().begins(self.station.number, &format!("to locate volume {volume}"));
        let line = self.line(self.places.location_server(), LOCATION_SERVICE);
        let request = vl::GetEntryByNameNRequest { volume_name: volume_name(volume).as_str().into() };
        match vl::get_entry_by_name_n(&line, &request) {
            Ok(reply) => {
                let server = self.places.server_on(reply.entry.server_number[0].into());
                let is_right = server.is_some_and(|server| self.places.has(server, volume))
                    && reply.entry.volume_id[0] == volume.0;
                self.hub.record().located(self.station.number, volume.0, server, is_right);
                let address = server.map(|server| self.places.server(server)).ok_or(AbortCode::VNOVOL)?;
                self.locations.insert(volume, address);
                Ok(address)
            }
            Err(code) => {
                self.hub.record().failed(self.station.number, begun, code.0);
                Err(code)
            }
        }
    }

    /// Makes a call to the file server of a volume. Returns its entry in the record and the reply.
    fn call<T>(
        &mut self,
        fid: Fid,
        what: &str,
        call: impl FnOnce(&Line) -> Outcome<T>,
    ) -> Outcome<(u64, usize, T)> {
        let address = self.locate(fid.volume)?;
        let server = self.places.server_at(address).ok_or(AbortCode::VNOVOL)?;
        let number = self.station.number;
        let begun = self.hub.record().begins(number, &format!("{what} of {fid}"));
        match call(&self.line(address, FILE_SERVICE)) {
            Ok(reply) => {
                self.hub.record().completed(number, server, begun);
                Ok((begun, server, reply))
            }
            Err(code) => {
                // The volume may have moved.
                self.locations.remove(&fid.volume);
                let mut record = self.hub.record();
                record.failed(number, begun, code.0);
                if code == AbortCode::VNOVNODE {
                    record.missed(number, fid, begun);
                }
                Err(code)
            }
        }
    }

    /// Reads a vnode's status, or its data, from the cache if there is a promise.
    fn read(&mut self, fid: Fid, data: bool) -> Outcome<()> {
        let now = self.hub.now();
        let cached = self.station.cache.lock().vnodes.get(&fid).copied();
        if let Some(cached) = cached
            && let Some(promise) = cached.promise.filter(|promise| promise.expires > now)
            && (!data || cached.content.is_some())
        {
            self.hub.record().read_cached(self.station.number, fid, cached.version, promise.begun);
            return Ok(());
        }
        self.fetch(fid, data)
    }

    fn fetch(&mut self, fid: Fid, data: bool) -> Outcome<()> {
        let (now, breaks) = (self.hub.now(), self.station.cache.lock().breaks);
        let (begun, server, (status, promise, content)) = if data {
            let request = fs::FetchData64Request { fid: fid.into(), position: 0, length: 1 << 30 };
            self.call(fid, "a fetch", |line| {
                let mut bytes = Vec::new();
                let reply = fs::fetch_data64(line, &request, |stream| {
                    bytes = receive(stream)?;
                    Ok(())
                })?;
                Ok((reply.status, reply.call_back, Some(hash(&bytes))))
            })?
        } else {
            let request = fs::FetchStatusRequest { fid: fid.into() };
            self.call(fid, "the status", |line| {
                let reply = fs::fetch_status(line, &request)?;
                Ok((reply.status, reply.call_back, None))
            })?
        };
        let version = version(&status);
        self.hub.record().fetched(self.station.number, fid, version, content, begun);
        let mut cache = self.station.cache.lock();
        let old = cache.vnodes.get(&fid).copied();
        // Data of the same version are the same data.
        let kept = old.filter(|old| old.version == version).and_then(|old| old.content);
        if let (Some(kept), Some(_)) = (kept, content) {
            self.hub.record().has_content(begun, fid, version, kept);
        }
        let expires = now + Duration::from_secs(promise.expiration_time.into());
        let promise = (cache.breaks == breaks).then_some(Promise { expires, begun });
        cache.vnodes.insert(fid, Cached { server, version, content: content.or(kept), promise });
        Ok(())
    }

    fn store(&mut self, fid: Fid) -> Outcome<()> {
        let data = self.contents();
        let content = hash(&data);
        self.hub.record().tries(fid, content);
        let breaks = self.station.cache.lock().breaks;
        let length = data.len() as u64;
        let request = fs::StoreData64Request {
            fid: fid.into(),
            status: fs::StoreStatus::default(),
            position: 0,
            length,
            file_length: length,
        };
        let result =
            self.call(fid, "a store", |line| fs::store_data64(line, &request, |stream| stream.write(data)));
        let mut cache = self.station.cache.lock();
        let old = cache.vnodes.remove(&fid);
        let (begun, server, reply) = result?;
        let version = version(&reply.new_status);
        let mut record = self.hub.record();
        record.report.stores += 1;
        record.log(&format!("client {} stored {fid} {version} {content:016x}", self.station.number));
        record.has_content(begun, fid, version, content);
        let promise = old.and_then(|old| old.promise).filter(|_| cache.breaks == breaks);
        cache.vnodes.insert(fid, Cached { server, version, content: Some(content), promise });
        Ok(())
    }

    /// Returns contents that no other store has.
    fn contents(&mut self) -> Bytes {
        self.made += 1;
        let tag = (self.station.number as u64 + 1) << 32 | u64::from(self.made);
        let length = if self.random.random() { 40 } else { self.random.random_range(0..FILE_BYTES_MAX) };
        [Bytes::copy_from_slice(&tag.to_be_bytes()), sim::pattern::stretch(tag, 0, length)].concat().into()
    }

    fn create(&mut self, directory: Fid) -> Outcome<()> {
        self.made += 1;
        let name = format!("c{}-{}", self.station.number, self.made);
        let request = fs::CreateFileRequest {
            directory: directory.into(),
            name: name.as_str().into(),
            status: fs::StoreStatus::default(),
        };
        let result = self.call(directory, "a creation", |line| fs::create_file(line, &request));
        self.station.cache.lock().vnodes.remove(&directory);
        let (_, server, reply) = result?;
        let (fid, version) = (Fid::from(reply.fid), version(&reply.file_status));
        let mut record = self.hub.record();
        record.report.entries += 1;
        record.add(server, fid, version, Some(hash(&[])));
        record.named(fid, name);
        Ok(())
    }

    fn remove(&mut self, directory: Fid) -> Outcome<()> {
        let Some((fid, name)) = self.hub.record().removable(directory.volume) else { return Ok(()) };
        self.hub.record().removes(fid);
        let request = fs::RemoveFileRequest { directory: directory.into(), name: name.as_str().into() };
        let result =
            self.call(directory, &format!("the removal of {name}"), |line| fs::remove_file(line, &request));
        self.station.cache.lock().vnodes.remove(&directory);
        result?;
        let mut record = self.hub.record();
        record.report.entries += 1;
        record.removed(fid);
        Ok(())
    }
}
