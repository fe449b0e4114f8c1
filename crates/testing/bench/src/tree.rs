//! Many files in many directories, created and listed as by `find -ls`: the names in each directory and the
//! status of every file.

use afs_format::directory::{DirectoryBlob, EntryTarget};
use afs_idl::{CallStream, fs};
use anyhow::{Context, Result, anyhow, ensure};
use base::AbortCode;
use bytes::Bytes;
use load::files::{Fid, Files, patiently, read_exact, volume_root};
use load::station::{FILE_SERVICE, Station};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Number of files per directory.
const DIRECTORY_FILES: u32 = 1000;
/// Size of each file.
const FILE_BYTES: usize = 1024;
/// Number of FIDs per call; file servers accept no more.
const BULK: usize = 50;
/// Maximum size of a directory in bytes.
const DIRECTORY_BYTES_MAX: u64 = 4 << 20;

/// Options of a stage.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TreeOptions {
    /// The server's address
    #[arg(long)]
    address: IpAddr,
    /// The location server's address, if it is another one
    #[arg(long)]
    locations: Option<IpAddr>,
    /// A volume that anyone may write to
    #[arg(long)]
    volume: String,
    /// Number of files
    #[arg(long)]
    files: u32,
    /// List the files instead of creating them
    #[arg(long)]
    list: bool,
    /// Number of threads that create files, each with its own client
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    makers: u32,
}

/// Performs a stage and prints its duration in seconds.
pub(crate) fn run(options: &TreeOptions) -> Result<()> {
    let seconds = if options.list { list(options)? } else { make(options)? };
    println!("{seconds}");
    Ok(())
}

/// Returns the total size of the contents of `files` files.
pub(crate) fn bytes(files: u32) -> f64 {
    f64::from(files) * FILE_BYTES as f64
}

fn connect(options: &TreeOptions, station: &Station) -> Result<(Files, Fid)> {
    let locations =
        station.connect(SocketAddr::new(options.locations.unwrap_or(options.address), 7003), 52, None);
    let root = volume_root(&*locations, &options.volume)?;
    Ok((Files::new(station.connect(SocketAddr::new(options.address, 7000), FILE_SERVICE, None)), root))
}

fn make(options: &TreeOptions) -> Result<f64> {
    let stations = (0..options.makers).map(|_| Station::start()).collect::<Result<Vec<_>>>()?;
    let clients = stations.iter().map(|station| connect(options, station)).collect::<Result<Vec<_>>>()?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let make = |(number, (files, root)): (u32, &(Files, Fid))| {
            let (files, root) = (files.clone(), *root);
            scope.spawn(move || make_share(&files, root, number, options))
        };
        let threads: Vec<_> = (0..).zip(&clients).map(make).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Creates the directories of one of the makers.
fn make_share(files: &Files, root: Fid, maker: u32, options: &TreeOptions) -> Result<()> {
    let total = options.files;
    let data = Bytes::from(vec![b'x'; FILE_BYTES]);
    for directory in (maker..total.div_ceil(DIRECTORY_FILES)).step_by(options.makers as usize) {
        let inside = files.make_directory(root, &format!("directory-{directory}"))?;
        let first = directory * DIRECTORY_FILES;
        for file in first..total.min(first + DIRECTORY_FILES) {
            let made = files.create(inside, &format!("file-{file}"))?;
            files.store(made, &data)?;
        }
    }
    Ok(())
}

/// Lists the files with one client, one call at a time.
fn list(options: &TreeOptions) -> Result<f64> {
    let station = Station::start()?;
    let (files, root) = connect(options, &station)?;
    let begin = Instant::now();
    let mut found = 0;
    for directory in statuses(&files, root)? {
        found += statuses(&files, directory)?.len();
    }
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(found == options.files as usize, "the listing has {found} files instead of {}", options.files);
    Ok(seconds)
}

/// Reads a directory and fetches the status of everything in it, [`BULK`] at a time.
pub(crate) fn statuses(files: &Files, directory: Fid) -> Result<Vec<Fid>> {
    let fids = entries(files, directory)?;
    for some in fids.chunks(BULK) {
        let request = fs::InlineBulkStatusRequest { fids: some.to_vec() };
        let reply = patiently("InlineBulkStatus", || fs::inline_bulk_status(files.connection(), &request))?;
        let is_whole =
            reply.statuses.len() == some.len() && reply.statuses.iter().all(|one| one.error_code == 0);
        ensure!(is_whole, "InlineBulkStatus did not return all statuses");
    }
    Ok(fids)
}

fn entries(files: &Files, directory: Fid) -> Result<Vec<Fid>> {
    let request = fs::FetchData64Request { fid: directory, position: 0, length: DIRECTORY_BYTES_MAX as i64 };
    let mut blob = Vec::new();
    patiently("FetchData64", || {
        fs::fetch_data64(files.connection(), &request, |stream| {
            blob = receive(stream)?;
            Ok(())
        })
    })?;
    let blob = DirectoryBlob::parse(&blob.into()).context("a damaged directory")?;
    let mut entries = blob.placed_entries();
    // The order in which clients read a directory and ask for statuses.
    entries.sort_unstable_by_key(|entry| entry.slot);
    let entries = entries.into_iter().filter(|entry| !matches!(&entry.name[..], b"." | b".."));
    let fid =
        |target: EntryTarget| Fid { volume: directory.volume, vnode: target.vnode.0, unique: target.unique };
    Ok(entries.map(|entry| fid(entry.target)).collect())
}

fn receive(stream: &mut dyn CallStream) -> Result<Vec<u8>, AbortCode> {
    let mut length = [0; 8];
    read_exact(stream, &mut length)?;
    let length = u64::from_be_bytes(length);
    if length > DIRECTORY_BYTES_MAX {
        return Err(AbortCode::RXGEN_CC_UNMARSHAL);
    }
    let mut data = vec![0; length as usize];
    read_exact(stream, &mut data)?;
    Ok(data)
}
