//! The directories and files that a run uses, created before it and removed after it.

use super::Options;
use super::mix::{Group, Mix};
use super::step::SMALL_FILE_BYTES;
use crate::files::{Fid, Files};
use crate::station::{FILE_SERVICE, Station};
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The files of one client. Cheap to clone.
#[derive(Clone)]
pub(super) struct Place {
    /// Directory of the group in the client's volume.
    pub(super) directory: Fid,
    /// Files in the group's directory.
    pub(super) files: Arc<[Fid]>,
    /// The client's own directory, if it needs one.
    pub(super) own_directory: Fid,
    /// A file for each of its streams, if they write.
    pub(super) own_files: Vec<Fid>,
    /// Contents of the files.
    pub(super) contents: Bytes,
    /// Contents of small files.
    pub(super) small: Bytes,
}

/// All files and directories created.
pub(super) struct Plan {
    /// Clients of each group of the mix.
    pub(super) groups: Vec<Vec<Place>>,
    made: Vec<Made>,
}

/// A group's directory in one volume.
struct Made {
    volume: Fid,
    name: String,
    directory: Fid,
    files: Arc<[Fid]>,
    /// Numbers and directories of the clients with their own directories here.
    own: Vec<(usize, Fid)>,
    own_files: usize,
}

/// Number of clients that create and remove files concurrently.
const HANDS: usize = 8;

impl Plan {
    /// Creates all files.
    pub(super) fn make(mix: &Mix, options: &Options) -> Result<Plan> {
        let hands = Hands::new(options)?;
        let mut plan = Plan { groups: Vec::new(), made: Vec::new() };
        let run: u32 = rand::random();
        for group in &mix.groups {
            let name = format!("cellar-bench-{run:08x}-{}", group.name);
            let made = plan.make_group(group, &name, options, &hands);
            if let Err(error) = made {
                // Removes what has been created; only the first error is reported.
                let _ = plan.remove_with(&hands);
                return Err(error.context(format!("group {:?}", group.name)));
            }
        }
        hands.farewell();
        Ok(plan)
    }

    fn make_group(&mut self, group: &Group, name: &str, options: &Options, hands: &Hands) -> Result<()> {
        let volumes = &options.volumes[..group.volumes.min(options.volumes.len())];
        let contents = noise(group.file_size.0);
        let small = noise(SMALL_FILE_BYTES);
        let first = self.made.len();
        for volume in volumes {
            let directory = hands.files[0].make_directory(*volume, name).context("the group's directory")?;
            let own_files = if group.work.write > 0 { group.streams } else { 0 };
            let made = Made {
                volume: *volume,
                name: name.to_owned(),
                directory,
                files: Arc::new([]),
                own: Vec::new(),
                own_files,
            };
            self.made.push(made);
            let place = self.made.len() - 1;
            self.made[place].files = if group.work.needs_files() {
                let make = |files: &Files, number: usize| {
                    let fid = files.create(directory, &format!("f{number}"))?;
                    files.store(fid, &contents)?;
                    Ok(fid)
                };
                hands.all(group.files, make)?.into()
            } else {
                Arc::new([])
            };
        }
        let mut places = Vec::with_capacity(group.clients);
        let base = |client: usize| first + client % volumes.len();
        let make = |files: &Files, client: usize| make_own(files, group, &self.made[base(client)], client);
        let own = hands.all(group.clients, make)?;
        for (client, (own_directory, own_files)) in own.into_iter().enumerate() {
            let made = &mut self.made[base(client)];
            if let Some(directory) = own_directory {
                made.own.push((client, directory));
            }
            places.push(Place {
                directory: made.directory,
                files: Arc::clone(&made.files),
                own_directory: own_directory.unwrap_or_default(),
                own_files,
                contents: contents.clone(),
                small: small.clone(),
            });
        }
        self.groups.push(places);
        Ok(())
    }

    /// Removes all files.
    pub(super) fn remove(&self, options: &Options) -> Result<()> {
        self.remove_with(&Hands::new(options)?)
    }

    fn remove_with(&self, hands: &Hands) -> Result<()> {
        for made in &self.made {
            let remove = |files: &Files, number: usize| {
                let (client, directory) = made.own[number];
                (0..made.own_files).try_for_each(|stream| files.remove(directory, &format!("w{stream}")))?;
                files.remove_directory(made.directory, &format!("c{client}"))
            };
            hands.all(made.own.len(), remove)?;
            hands
                .all(made.files.len(), |files, number| files.remove(made.directory, &format!("f{number}")))?;
            hands.files[0].remove_directory(made.volume, &made.name)?;
        }
        hands.farewell();
        Ok(())
    }
}

/// Creates one client's directory, and the files that it writes.
fn make_own(files: &Files, group: &Group, made: &Made, client: usize) -> Result<(Option<Fid>, Vec<Fid>)> {
    if !group.work.needs_directory() {
        return Ok((None, Vec::new()));
    }
    let directory = files.make_directory(made.directory, &format!("c{client}"))?;
    let own = (0..made.own_files).map(|stream| files.create(directory, &format!("w{stream}")));
    Ok((Some(directory), own.collect::<Result<_>>()?))
}

/// Clients that create and remove files.
struct Hands {
    files: Vec<Files>,
    /// Answer callbacks while in use.
    _stations: Vec<Station>,
}

impl Hands {
    fn new(options: &Options) -> Result<Hands> {
        let stations = (0..HANDS).map(|_| Station::start()).collect::<Result<Vec<_>>>()?;
        let connect = |station: &Station| {
            Files::new(station.connect(options.server, FILE_SERVICE, options.security.clone()))
        };
        Ok(Hands { files: stations.iter().map(connect).collect(), _stations: stations })
    }

    /// Calls `work` for every number below `count`, with limited concurrency. Returns the results in order.
    fn all<T: Send>(&self, count: usize, work: impl Fn(&Files, usize) -> Result<T> + Sync) -> Result<Vec<T>> {
        let next = AtomicUsize::new(0);
        let take = |files: &Files| {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(done);
                }
                done.push((number, work(files, number)?));
            }
        };
        let results: Vec<Result<Vec<(usize, T)>>> = std::thread::scope(|scope| {
            let take = &take;
            let threads: Vec<_> =
                self.files.iter().take(count).map(|files| scope.spawn(move || take(files))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().map_err(|_| anyhow!("a thread panicked"))?
            };
            threads.into_iter().map(join).collect()
        });
        let mut all = Vec::with_capacity(count);
        for result in results {
            all.extend(result?);
        }
        all.sort_by_key(|(number, _)| *number);
        Ok(all.into_iter().map(|(_, value)| value).collect())
    }

    /// Gives up all promises, so that the server does not wait for absent clients.
    fn farewell(&self) {
        for files in &self.files {
            files.give_up_callbacks();
        }
    }
}

/// Returns incompressible bytes, the same in every run.
fn noise(bytes: u64) -> Bytes {
    let mut data = vec![0; bytes as usize];
    SmallRng::seed_from_u64(bytes).fill_bytes(&mut data);
    data.into()
}
