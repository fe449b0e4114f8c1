//! Files of a cell: look-up, reading, writing, creation.

use super::describe::failed;
use super::location::Located;
use super::path::CellPath;
use super::patience::PatientConnection;
use super::{CellClient, Interface};
use afs_format::directory::DirectoryBlob;
use afs_idl::{CallStream, ClientConnection, common, fs};
use anyhow::{Context, Result, anyhow, bail};
use base::{AbortCode, Fid, VnodeId};
use bytes::Bytes;
use std::io::{Read, Seek, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// Length that means "to the end": file servers reject `i64::MAX` itself, which would overflow in them.
const FETCH_ALL: i64 = i64::MAX - 1;
/// Number of bytes read from a local file at a time.
const PIECE_BYTES: usize = 256 * 1024;
/// Maximum number of consecutive mount points in a path.
const MOUNTS_MAX: usize = 32;

/// Number of attempts to find a volume that is not where any location server says, because it moves or its
/// server is starting.
const LOOKUPS_MAX: u32 = 5;
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// A file, directory or link, and the server that has it.
#[derive(Clone)]
pub struct Node {
    /// FID of the node.
    pub fid: Fid,
    /// Status at the time of the look-up.
    pub status: fs::FetchStatus,
    server: Arc<PatientConnection>,
    address: Ipv4Addr,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name in the directory.
    pub name: Vec<u8>,
    /// Vnode number.
    pub vnode: VnodeId,
    /// Uniquifier.
    pub unique: u32,
}

/// Mode and modification time of a stored file.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Unix mode bits.
    pub mode: u32,
    /// Modification time in seconds since 1970.
    pub modified: u32,
}

/// Data to store, which is read again from its start if a call is repeated.
pub trait Input: Read {
    /// Goes back to the start.
    ///
    /// # Errors
    /// An error of the system.
    fn restart(&mut self) -> std::io::Result<()>;
}

impl<T: Read + Seek> Input for T {
    fn restart(&mut self) -> std::io::Result<()> {
        self.rewind()
    }
}

impl Attributes {
    fn to_wire(self) -> fs::StoreStatus {
        fs::StoreStatus {
            mask: fs::store_mask::MODE | fs::store_mask::MOD_TIME,
            client_mod_time: self.modified,
            unix_mode_bits: self.mode & 0o7777,
            ..fs::StoreStatus::default()
        }
    }
}

impl Node {
    /// Returns whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.status.file_type == fs::file_type::DIRECTORY
    }

    /// Returns whether it is a symbolic link (and no mount point).
    pub fn is_symlink(&self) -> bool {
        self.status.file_type == fs::file_type::SYMBOLIC_LINK && !self.is_mount_point()
    }

    /// Returns whether it is a mount point: a link without execute bits.
    pub fn is_mount_point(&self) -> bool {
        self.status.file_type == fs::file_type::SYMBOLIC_LINK && self.status.unix_mode_bits & 0o111 == 0
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        u64::from(self.status.length_high) << 32 | u64::from(self.status.length)
    }

    /// Returns the address of the file server that has it.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    pub(super) fn server(&self) -> &dyn ClientConnection {
        &*self.server
    }

    pub(super) fn sibling(&self, fid: Fid, status: fs::FetchStatus) -> Node {
        Node { fid, status, server: self.server.clone(), address: self.address }
    }
}

impl CellClient {
    /// Returns the root directory of a volume: the read-only or backup volume if the name says so, else the
    /// read-write volume, or a read-only one if there is no other.
    pub fn root_of(&self, volume: &str) -> Result<Node> {
        let (mut lookups, mut looked_at) = (1, Vec::new());
        let place_of =
            |located: &Located| located.readable_site(volume).ok().map(|(site, id)| (site.server, id));
        loop {
            let located = self.locate_unless(volume, |located| looked_at.contains(&place_of(located)))?;
            let place = place_of(&located);
            if looked_at.contains(&place) {
                // All location servers agree.
                lookups += 1;
                looked_at.clear();
                std::thread::sleep(LOOKUP_PAUSE);
            }
            match self.root_at(&located, volume)? {
                // Cellar's file servers also return VOFFLINE for a volume that has moved away
                // (`fileserver::moved`).
                Err(AbortCode::VMOVED | AbortCode::VNOVOL | AbortCode::VOFFLINE) if lookups < LOOKUPS_MAX => {
                    looked_at.push(place);
                }
                root => return root.map_err(failed(format!("read the status of the root of {volume}"))),
            }
        }
    }

    fn root_at(&self, located: &Located, named: &str) -> Result<Result<Node, AbortCode>> {
        let (site, volume) = located.readable_site(named)?;
        let server = self.patient(site.server, Interface::Files);
        let (fid, mut attempts) = (Fid::root(volume), server.attempts());
        loop {
            match status(&*attempts.connection(), fid) {
                // The caller looks for a volume that is offline elsewhere.
                Err(code) if code != AbortCode::VOFFLINE && attempts.wait(code) => {}
                status => {
                    return Ok(status.map(|status| Node { fid, status, server, address: site.server }));
                }
            }
        }
    }

    /// Returns the node at a path, following mount points; `None` if its last component is missing.
    pub fn find(&self, path: &CellPath) -> Result<Option<Node>> {
        let mut node = self.root_of(&path.volume)?;
        for (depth, name) in path.components.iter().enumerate() {
            let Some(next) = self.child(&node, name.as_bytes())? else {
                if depth + 1 == path.components.len() {
                    return Ok(None);
                }
                bail!("{path}: there is no {name}");
            };
            node = self.through_mounts(next)?;
        }
        Ok(Some(node))
    }

    fn through_mounts(&self, mut node: Node) -> Result<Node> {
        for _ in 0..MOUNTS_MAX {
            if !node.is_mount_point() {
                return Ok(node);
            }
            let target = base::text::escape(&self.read_link(&node)?);
            node = self.root_of(mounted_volume(&target).with_context(|| format!("mount point {target}"))?)?;
        }
        bail!("more than {MOUNTS_MAX} nested mount points")
    }

    /// Returns the node `name` in a directory.
    pub fn child(&self, directory: &Node, name: &[u8]) -> Result<Option<Node>> {
        let Some(entry) = self.list(directory)?.into_iter().find(|entry| entry.name == name) else {
            return Ok(None);
        };
        self.open_entry(directory, &entry).map(Some)
    }

    /// Returns the node of an entry in `directory`.
    pub fn open_entry(&self, directory: &Node, entry: &Entry) -> Result<Node> {
        let fid = Fid { volume: directory.fid.volume, vnode: entry.vnode, unique: entry.unique };
        let name = base::text::escape(&entry.name);
        let status = status(&*directory.server, fid).map_err(failed(format!("read the status of {name}")))?;
        Ok(directory.sibling(fid, status))
    }

    /// Returns the entries of a directory except `.` and `..`.
    pub fn list(&self, directory: &Node) -> Result<Vec<Entry>> {
        self.try_list(directory).map_err(failed(format!("fetch {}", directory.fid)))?
    }

    /// Returns the entries like [`list`](CellClient::list), or the code with which the call ended.
    ///
    /// # Errors
    /// The directory is damaged, or none.
    pub fn try_list(&self, directory: &Node) -> Result<Result<Vec<Entry>>, AbortCode> {
        if !directory.is_directory() {
            return Ok(Err(anyhow!("{} is not a directory", directory.fid)));
        }
        let blob = self.fetch_whole(directory)?;
        let parsed = match DirectoryBlob::parse(&blob.into()) {
            Ok(parsed) => parsed,
            Err(error) => return Ok(Err(error).context("the server sent a damaged directory")),
        };
        Ok(Ok(parsed
            .entries()
            .filter(|(name, _)| *name != b"." && *name != b"..")
            .map(|(name, target)| Entry { name: name.to_vec(), vnode: target.vnode, unique: target.unique })
            .collect()))
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, link: &Node) -> Result<Vec<u8>> {
        self.try_read_link(link).map_err(failed(format!("fetch {}", link.fid)))
    }

    /// Returns the target of a symbolic link, or the code with which the call ended.
    pub fn try_read_link(&self, link: &Node) -> Result<Vec<u8>, AbortCode> {
        self.fetch_whole(link)
    }

    fn fetch_whole(&self, node: &Node) -> Result<Vec<u8>, AbortCode> {
        let mut data = Vec::new();
        let fetched = self.try_fetch(node, &mut data, &mut |_| ());
        fetched.map_or(Err(AbortCode::RX_USER_ABORT), |answer| answer).map(|_| data)
    }

    /// Copies a file's data to `out`; `progress` is called with the size of each piece. A refused call is repeated
    /// as long as nothing was written to `out`.
    pub fn fetch(&self, file: &Node, out: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.try_fetch(file, out, progress)?.map(drop).map_err(failed(format!("fetch {}", file.fid)))
    }

    /// Fetches like [`fetch`](CellClient::fetch), and returns the status of the file whose data this is, or the code
    /// with which the call ended. `out` may then have a part of the data.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn try_fetch(
        &self,
        file: &Node,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Result<fs::FetchStatus, AbortCode>> {
        let request = fs::FetchData64Request { fid: file.fid.into(), position: 0, length: FETCH_ALL };
        let (mut local, mut received, mut attempts) = (None, 0, file.server.attempts());
        loop {
            let mut count = |bytes| {
                received += bytes;
                progress(bytes);
            };
            let answer = fs::fetch_data64(&*attempts.connection(), &request, |stream| {
                receive(stream, out, &mut count, &mut local)
            });
            match (local, answer) {
                (Some(error), _) => return Err(error).context("cannot write the fetched data"),
                (None, Err(code)) if received == 0 && attempts.wait(code) => local = None,
                (None, answer) => return Ok(answer.map(|reply| reply.status)),
            }
        }
    }

    /// Replaces a file's data by the first `length` bytes of `input`. A refused call is repeated with the input
    /// from its start; `progress` counts each byte once.
    pub fn store(
        &self,
        file: &Node,
        attributes: Attributes,
        input: &mut dyn Input,
        length: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let stored = self.try_store(file, attributes, input, length, progress)?;
        stored.map_err(failed(format!("store {}", file.fid)))
    }

    /// Stores like [`store`](CellClient::store), and returns the code with which the call ended.
    ///
    /// # Errors
    /// Errors of `input`, which include its end before `length` bytes.
    pub fn try_store(
        &self,
        file: &Node,
        attributes: Attributes,
        input: &mut dyn Input,
        length: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Result<(), AbortCode>> {
        let status = attributes.to_wire();
        let fid = file.fid.into();
        let request = fs::StoreData64Request { fid, status, position: 0, length, file_length: length };
        let (mut local, mut furthest, mut attempts) = (None, 0, file.server.attempts());
        loop {
            input.restart().context("cannot read the data to store")?;
            let mut sent = 0;
            let mut count = |bytes| {
                sent += bytes;
                if sent > furthest {
                    progress(sent - furthest);
                    furthest = sent;
                }
            };
            let answer = fs::store_data64(&*attempts.connection(), &request, |stream| {
                send(stream, input, length, &mut count, &mut local)
            });
            match (local, answer) {
                (Some(error), _) => return Err(error).context("cannot read the data to store"),
                (None, Err(code)) if attempts.wait(code) => local = None,
                (None, answer) => return Ok(answer.map(drop)),
            }
        }
    }

    /// Creates an empty file.
    pub fn create(&self, directory: &Node, name: &[u8], attributes: Attributes) -> Result<Node, AbortCode> {
        let status = attributes.to_wire();
        let request = fs::CreateFileRequest { directory: directory.fid.into(), name: name.into(), status };
        let reply = fs::create_file(&*directory.server, &request)?;
        Ok(directory.sibling(reply.fid.into(), reply.file_status))
    }

    /// Creates a directory.
    pub fn make_directory(
        &self,
        parent: &Node,
        name: &[u8],
        attributes: Attributes,
    ) -> Result<Node, AbortCode> {
        let status = attributes.to_wire();
        let request = fs::MakeDirRequest { directory: parent.fid.into(), name: name.into(), status };
        let reply = fs::make_dir(&*parent.server, &request)?;
        Ok(parent.sibling(reply.fid.into(), reply.file_status))
    }

    /// Creates a symbolic link, or with mode 0644 a mount point.
    pub fn symlink(
        &self,
        directory: &Node,
        name: &[u8],
        target: &[u8],
        attributes: Attributes,
    ) -> Result<(), AbortCode> {
        let request = fs::SymlinkRequest {
            directory: directory.fid.into(),
            name: name.into(),
            contents: target.into(),
            status: attributes.to_wire(),
        };
        fs::symlink(&*directory.server, &request).map(drop)
    }

    /// Removes a file or link.
    pub fn remove(&self, directory: &Node, name: &[u8]) -> Result<(), AbortCode> {
        let request = fs::RemoveFileRequest { directory: directory.fid.into(), name: name.into() };
        fs::remove_file(&*directory.server, &request).map(drop)
    }

    /// Sets mode and modification time of a node.
    pub fn set_attributes(&self, node: &Node, attributes: Attributes) -> Result<(), AbortCode> {
        let request = fs::StoreStatusRequest { fid: node.fid.into(), status: attributes.to_wire() };
        fs::store_status(&*node.server, &request).map(drop)
    }

    /// Sets the owner of a node to this user or group.
    pub fn set_owner(&self, node: &Node, owner: i32) -> Result<(), AbortCode> {
        let status = fs::StoreStatus {
            mask: fs::store_mask::OWNER,
            owner: owner.cast_unsigned(),
            ..Default::default()
        };
        let request = fs::StoreStatusRequest { fid: node.fid.into(), status };
        fs::store_status(&*node.server, &request).map(drop)
    }

    /// Returns the ACL of a directory in the server's text format.
    pub fn acl(&self, directory: &Node) -> Result<Vec<u8>, AbortCode> {
        let request = fs::FetchACLRequest { fid: directory.fid.into() };
        fs::fetch_acl(&*directory.server, &request).map(|reply| reply.access_list)
    }

    /// Sets the ACL of a directory.
    pub fn set_acl(&self, directory: &Node, text: &[u8]) -> Result<(), AbortCode> {
        store_acl(&*directory.server, directory.fid, text)
    }
}

/// Calls StoreACL, by its old opcode if the server does not know the new one (OpenAFS up to at least 1.8).
/// The text ends with a zero byte, without which OpenAFS rejects it.
fn store_acl(server: &dyn ClientConnection, fid: Fid, text: &[u8]) -> Result<(), AbortCode> {
    let access_list = [text, b"\0"].concat();
    let request = fs::StoreACLRequest { fid: fid.into(), access_list: access_list.clone() };
    match fs::store_acl(server, &request) {
        Err(AbortCode::RXGEN_OPCODE) => {
            let request = fs::OldStoreACLRequest { fid: fid.into(), access_list };
            fs::old_store_acl(server, &request).map(drop)
        }
        other => other.map(drop),
    }
}

fn status(server: &dyn ClientConnection, fid: Fid) -> Result<fs::FetchStatus, AbortCode> {
    let request = fs::FetchStatusRequest { fid: common::Fid::from(fid) };
    fs::fetch_status(server, &request).map(|reply| reply.status)
}

/// Returns the volume named by a mount point's contents: `#volume.` or `%volume.`.
fn mounted_volume(contents: &str) -> Result<&str> {
    let inner = contents.strip_prefix(['#', '%']).and_then(|rest| rest.strip_suffix('.'));
    match inner {
        Some(volume) if volume.contains(':') => bail!("leads to another cell"),
        Some(volume) => Ok(volume),
        None => bail!("is malformed"),
    }
}

/// Receives the data of FetchData64: its length in eight bytes, then that number of bytes.
fn receive(
    stream: &mut dyn CallStream,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
    local: &mut Option<std::io::Error>,
) -> Result<(), AbortCode> {
    let mut length = [0; 8];
    let mut filled = 0;
    while filled < length.len() {
        match stream.read(&mut length[filled..])? {
            0 => return Err(AbortCode::RX_EOF),
            got => filled += got,
        }
    }
    let mut left = u64::from_be_bytes(length);
    while left > 0 {
        let piece = stream.read_chunk(PIECE_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX)))?;
        if piece.is_empty() {
            return Err(AbortCode::RX_EOF);
        }
        if let Err(error) = out.write_all(&piece) {
            *local = Some(error);
            return Err(AbortCode::RX_USER_ABORT);
        }
        left -= piece.len() as u64;
        progress(piece.len() as u64);
    }
    Ok(())
}

fn send(
    stream: &mut dyn CallStream,
    input: &mut dyn Input,
    length: u64,
    progress: &mut dyn FnMut(u64),
    local: &mut Option<std::io::Error>,
) -> Result<(), AbortCode> {
    let mut left = length;
    while left > 0 {
        let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX))];
        if let Err(error) = input.read_exact(&mut piece) {
            *local = Some(error);
            return Err(AbortCode::RX_USER_ABORT);
        }
        left -= piece.len() as u64;
        progress(piece.len() as u64);
        stream.write(Bytes::from(piece))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::MemoryConnection;
    use base::{CallContext, Caller, Identity, SecurityLevel, VolumeId};
    use parking_lot::Mutex;
    use std::net::SocketAddr;

    /// A file server that knows only the old opcode of StoreACL.
    #[derive(Default)]
    struct Older(Mutex<Vec<Vec<u8>>>);

    impl fs::Server for Older {
        fn old_store_acl(
            &self,
            _: &CallContext<'_>,
            request: fs::OldStoreACLRequest,
        ) -> Result<fs::OldStoreACLReply, AbortCode> {
            self.0.lock().push(request.access_list);
            Ok(fs::OldStoreACLReply::default())
        }
    }

    #[test]
    fn an_access_list_reaches_servers_that_know_the_old_number_only() {
        let older = Arc::new(Older::default());
        let peer: SocketAddr = "10.0.0.1:7000".parse().unwrap();
        let (identity, level) = (Identity::Anonymous, SecurityLevel::Clear);
        let caller = Caller { identity, level, peer, local: peer.ip(), connection: base::Connection::new() };
        let server = older.clone();
        let connection = MemoryConnection::new(peer, 1444, move |stream| {
            fs::dispatch(&*server, &CallContext::new(&caller), stream)
        });
        assert_eq!(store_acl(&connection, Fid::root(VolumeId(5)), b"1\n0\n"), Ok(()));
        assert_eq!(*older.0.lock(), [b"1\n0\n\0"]);
    }

    #[test]
    fn mount_points_name_their_volume() {
        assert_eq!(mounted_volume("#root.cell.").unwrap(), "root.cell");
        assert_eq!(mounted_volume("%user.ann.").unwrap(), "user.ann");
        assert!(mounted_volume("#other.example:root.cell.").is_err());
        assert!(mounted_volume("root.cell").is_err());
    }
}
