//! Creates many volumes in one partition of a volume server, or waits until one of them is served.

use afs_idl::{fs, vol};
use anyhow::{Context, Result, anyhow, bail};
use load::files::Fid;
use load::station::{FILE_SERVICE, Station, encrypted};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of a stage.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ManyVolumesOptions {
    /// The server's address
    #[arg(long)]
    address: IpAddr,
    /// The cell's keys
    #[arg(long)]
    key_file: PathBuf,
    /// Number of the partition; 0 is /vicepa
    #[arg(long)]
    partition: i32,
    /// Number of volumes
    #[arg(long)]
    volumes: u32,
    /// Wait until the last volume is served, instead of creating them
    #[arg(long)]
    wait: bool,
}

/// Id of the first volume: the location database does not assign it in a small cell.
const FIRST: u32 = 700_000_000;
/// Volumes created at the same time.
const MAKERS: u32 = 16;
/// Service id of the volume server.
const VOLUME_SERVICE: u16 = 4;
/// Ports of the file server and of the volume server.
const FILE_PORT: u16 = 7000;
const VOLUME_PORT: u16 = 7005;
/// Limit for the last volume to be served, and the pause between questions.
const LIMIT: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(20);

/// Performs a stage and prints its duration in seconds.
pub(crate) fn many_volumes(options: &ManyVolumesOptions) -> Result<()> {
    let begun = Instant::now();
    if options.wait {
        wait(options)?;
    } else {
        make(options)?;
    }
    println!("{}", begun.elapsed().as_secs_f64());
    Ok(())
}

fn make(options: &ManyVolumesOptions) -> Result<()> {
    std::thread::scope(|scope| {
        let makers = (0..MAKERS).map(|maker| scope.spawn(move || make_share(options, maker)));
        let threads: Vec<_> = makers.collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

fn make_share(options: &ManyVolumesOptions, maker: u32) -> Result<()> {
    let station = Station::start()?;
    let security = Some(encrypted(&options.key_file)?);
    let server = station.connect(SocketAddr::new(options.address, VOLUME_PORT), VOLUME_SERVICE, security);
    for number in (maker..options.volumes).step_by(MAKERS as usize) {
        let volume_id = FIRST + number;
        let name = format!("many.{number}");
        let create = vol::CreateVolumeRequest {
            partition: options.partition,
            name: name.as_str().into(),
            volume_type: vol::volume_type::READ_WRITE,
            parent_id: 0,
            volume_id,
        };
        let failed = |code| anyhow!("{code:?}");
        let transaction = vol::create_volume(&*server, &create).map_err(failed).context(name)?.transaction;
        vol::set_flags(&*server, &vol::SetFlagsRequest { transaction, flags: 0 }).map_err(failed)?;
        vol::end_trans(&*server, &vol::EndTransRequest { transaction }).map_err(failed)?;
    }
    Ok(())
}

/// Asks for the status of the root directory of the last volume until there is an answer.
fn wait(options: &ManyVolumesOptions) -> Result<()> {
    let station = Station::start()?;
    let security = Some(encrypted(&options.key_file)?);
    let server = station.connect(SocketAddr::new(options.address, FILE_PORT), FILE_SERVICE, security);
    let fid = Fid { volume: FIRST + options.volumes - 1, vnode: 1, unique: 1 };
    let begun = Instant::now();
    loop {
        match fs::fetch_status(&*server, &fs::FetchStatusRequest { fid }) {
            Ok(_) => return Ok(()),
            Err(code) if begun.elapsed() > LIMIT => bail!("the last volume is not served: {code:?}"),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
