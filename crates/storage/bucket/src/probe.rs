//! Whether a bucket does what Cellar relies on.

use crate::Bounded;
use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Attributes, Error, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions,
    PutOptions, UpdateVersion,
};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use thiserror::Error as ThisError;
use tokio::runtime::Builder;

/// Number of requests that compete for one object, and how often.
const RACERS: u8 = 8;
const RACES: u8 = 6;

/// Number of small objects that are created, read and listed.
const SMALL: u8 = 12;

/// Number of objects that are listed in several answers: a server gives at most 1,000 in one.
const MANY: u16 = 1100;

/// Number of requests at once that create or delete many objects.
const PARALLEL: usize = 16;

/// For how long one request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

/// Size of the largest object that Cellar creates by one request.
const LARGE_BYTES: usize = 8 << 20;

/// Smallest part but the last of an object that is created in parts, by S3's rules.
const PART_BYTES: usize = 5 << 20;

/// Name of the metadata by which SlateDB finds whether an object that exists is its own.
const METADATA: &str = "slatedbputid";

/// The version that answers name while a bucket keeps none, though it did before.
const NO_VERSION: &str = "null";

/// What it means that a bucket keeps [versions](ProbeReport::has_versions).
pub const VERSIONS_KEPT: &str = "the bucket keeps what is replaced and deleted (versioning is on): each server \
    adds a version of its lease every second; a lifecycle rule can delete versions that are not current";

/// What a bucket is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An object that was created is read at once, by one and by several requests.
    ReadAfterWrite,
    /// A part of an object is read.
    ReadRange,
    /// An object that exists is not created again (`If-None-Match: *`).
    CreateIfAbsent,
    /// Of several requests at once to create an object, exactly one succeeds.
    CreateRace,
    /// An object is replaced if it is the expected version (`If-Match`), and not otherwise.
    ReplaceIfMatch,
    /// Of several requests at once to replace the same version, exactly one succeeds.
    ReplaceRace,
    /// Metadata that an object was created with is in the answer to a read, unless the bucket says that it has none.
    Metadata,
    /// An object is created in several parts, as large tables are.
    CreateInParts,
    /// An object is copied by the server, as borrowed data is, unless that is refused.
    Copy,
    /// A list has every object that was created, and no other, also if that takes several answers.
    List,
    /// A list begins behind a given name.
    ListFrom,
    /// An object that was deleted is gone, also from lists.
    Delete,
}

impl Operation {
    /// All operations in the order in which they are tried.
    pub const ALL: [Operation; 12] = [
        Operation::ReadAfterWrite,
        Operation::ReadRange,
        Operation::CreateIfAbsent,
        Operation::CreateRace,
        Operation::ReplaceIfMatch,
        Operation::ReplaceRace,
        Operation::Metadata,
        Operation::CreateInParts,
        Operation::Copy,
        Operation::List,
        Operation::ListFrom,
        Operation::Delete,
    ];

    /// Returns the name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Operation::ReadAfterWrite => "read-after-write",
            Operation::ReadRange => "read-range",
            Operation::CreateIfAbsent => "create-if-absent",
            Operation::CreateRace => "create-race",
            Operation::ReplaceIfMatch => "replace-if-match",
            Operation::ReplaceRace => "replace-race",
            Operation::Metadata => "metadata",
            Operation::CreateInParts => "create-in-parts",
            Operation::Copy => "copy",
            Operation::List => "list",
            Operation::ListFrom => "list-from",
            Operation::Delete => "delete",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::ReadAfterWrite => "reading an object right after it was created",
            Operation::ReadRange => "reading a part of an object",
            Operation::CreateIfAbsent => "creating an object only if there is none (If-None-Match)",
            Operation::CreateRace => "creating an object by several requests at once, of which one succeeds",
            Operation::ReplaceIfMatch => "replacing an object only if it has not changed (If-Match)",
            Operation::ReplaceRace => {
                "replacing an object by several requests at once, of which one succeeds"
            }
            Operation::Metadata => "keeping the metadata that an object was created with",
            Operation::CreateInParts => "creating an object in several parts (multipart upload)",
            Operation::Copy => "copying an object (CopyObject)",
            Operation::List => "listing objects right after they were created",
            Operation::ListFrom => "listing objects from a name on",
            Operation::Delete => "deleting objects",
        })
    }
}

/// A bucket that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("the bucket cannot be used, since this failed: {operation}: {what}")]
pub struct ProbeError {
    /// What it was asked to do.
    pub operation: Operation,
    /// What it did.
    pub what: String,
}

/// What a bucket that can be used did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// How long each operation took, all its requests together.
    pub times: Vec<(Operation, Duration)>,
    /// Competing requests that were answered with an error that says nothing about the competition.
    pub unclear: u32,
    /// Whether the bucket keeps an object's versions when it is replaced or deleted (versioning).
    pub has_versions: bool,
}

/// Probes a bucket on a runtime of its own, in a new folder below `prefix`. The client must not be used afterwards: its
/// connections belong to that runtime.
///
/// # Errors
/// As [`probe`].
pub fn probe_once(bucket: Arc<dyn ObjectStore>, prefix: &str) -> Result<ProbeReport, ProbeError> {
    let first = Operation::ALL[0];
    let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("probe").enable_all().build();
    let runtime = runtime.map_err(|error| failed(first, format!("cannot start threads: {error}")))?;
    let name = format!("probe-{:016x}", rand::random::<u64>());
    let parts = prefix.split('/').filter(|part| !part.is_empty());
    let folder: Path = parts.chain([name.as_str()]).collect();
    runtime.block_on(probe(&Bounded::new(bucket, REQUEST_LIMIT), &folder))
}

/// Tries everything that Cellar relies on, with some 2,500 requests in the folder `folder`, which must be empty and
/// is empty afterwards, unless deleting fails.
///
/// # Errors
/// The first operation that failed. One that was not carried out (no permission, no answer) has failed, too.
pub async fn probe(bucket: &dyn ObjectStore, folder: &Path) -> Result<ProbeReport, ProbeError> {
    let has_versions = AtomicBool::new(false);
    let mut probe = Probe { bucket, folder, unclear: 0, has_versions, has_late: false, has_many: false };
    let probed = probe.run().await;
    let cleaned = probe.clean().await;
    let times = probed?;
    cleaned.map_err(|error| failed(Operation::Delete, error))?;
    let (unclear, has_versions) = (probe.unclear, probe.has_versions.into_inner());
    Ok(ProbeReport { times, unclear, has_versions })
}

struct Probe<'a> {
    bucket: &'a dyn ObjectStore,
    folder: &'a Path,
    unclear: u32,
    /// Whether the answer to a creation named a version.
    has_versions: AtomicBool,
    /// Whether the object that was created between two lists exists.
    has_late: bool,
    /// Whether there may be objects that are listed in several answers.
    has_many: bool,
}

fn failed(operation: Operation, what: impl fmt::Display) -> ProbeError {
    ProbeError { operation, what: what.to_string() }
}

/// Contents of an object that are those of no other.
fn contents(name: u8, version: u8) -> Bytes {
    let bytes: Vec<u8> =
        (0..100 + u16::from(name)).map(|at| (at as u8) ^ name ^ version.rotate_left(4)).collect();
    Bytes::from([&bytes[..], &[name, version]].concat())
}

fn options(mode: PutMode) -> PutOptions {
    PutOptions { mode, ..PutOptions::default() }
}

fn metadata() -> (Attribute, AttributeValue) {
    (Attribute::Metadata(METADATA.into()), "01CELLARPROBE".into())
}

fn attributes() -> Attributes {
    Attributes::from_iter([metadata()])
}

/// Whether the answer says that a condition was not met.
fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. })
}

impl Probe<'_> {
    fn name(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    fn small(&self, number: u8) -> Path {
        self.name(&format!("small-{number:03}"))
    }

    fn late(&self) -> Path {
        self.name("late")
    }

    /// Names of the objects that are listed in several answers.
    fn many(&self) -> impl Iterator<Item = Path> {
        (0..MANY).map(|number| self.name(&format!("many-{number:04}")))
    }

    async fn run(&mut self) -> Result<Vec<(Operation, Duration)>, ProbeError> {
        let mut times = Vec::new();
        for operation in Operation::ALL {
            let begun = Instant::now();
            let done = match operation {
                Operation::ReadAfterWrite => self.read_after_write().await,
                Operation::ReadRange => self.read_range().await,
                Operation::CreateIfAbsent => self.create_if_absent().await,
                Operation::CreateRace => self.create_race().await,
                Operation::ReplaceIfMatch => self.replace_if_match().await,
                Operation::ReplaceRace => self.replace_race().await,
                Operation::Metadata => self.metadata().await,
                Operation::CreateInParts => self.create_in_parts().await,
                Operation::Copy => self.copy().await,
                Operation::List => self.list().await,
                Operation::ListFrom => self.list_from().await,
                Operation::Delete => self.delete().await,
            };
            done.map_err(|what| failed(operation, what))?;
            times.push((operation, begun.elapsed()));
        }
        Ok(times)
    }

    async fn create(&self, name: &Path, contents: Bytes) -> Result<(), String> {
        let created = self.bucket.put_opts(name, contents.into(), options(PutMode::Create)).await;
        let created = created.map_err(|error| format!("{name} is not created: {error}"))?;
        if created.version.is_some_and(|version| version != NO_VERSION) {
            self.has_versions.store(true, Relaxed);
        }
        Ok(())
    }

    async fn read(&self, name: &Path) -> Result<Bytes, String> {
        let read = async { self.bucket.get(name).await?.bytes().await };
        read.await.map_err(|error| format!("{name} cannot be read: {error}"))
    }

    async fn expect(&self, name: &Path, expected: &Bytes) -> Result<(), String> {
        let found = self.read(name).await?;
        if found == *expected {
            return Ok(());
        }
        Err(format!("{name} has other contents than were written last"))
    }

    async fn read_after_write(&self) -> Result<(), String> {
        for number in 0..SMALL {
            let (name, contents) = (self.small(number), contents(number, 0));
            self.create(&name, contents.clone()).await?;
            self.expect(&name, &contents).await?;
            let reads = (0..RACERS).map(|_| self.expect(&name, &contents));
            join_all(reads).await.into_iter().collect::<Result<Vec<()>, String>>()?;
        }
        Ok(())
    }

    async fn read_range(&self) -> Result<(), String> {
        let whole: Bytes = (0..LARGE_BYTES).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
        let name = self.name("large");
        self.create(&name, whole.clone()).await?;
        let most = LARGE_BYTES as u64;
        for range in [0..100, 4000..300_000, most - 5..most, 0..most] {
            let found = self.bucket.get_range(&name, range.clone()).await;
            let found = found.map_err(|error| format!("{name} cannot be read: {error}"))?;
            if found != whole[range.start as usize..range.end as usize] {
                let bytes = found.len();
                return Err(format!("asked for the bytes {range:?} of {name}, got {bytes} other bytes"));
            }
        }
        Ok(())
    }

    async fn create_if_absent(&self) -> Result<(), String> {
        let (name, first) = (self.small(0), contents(0, 0));
        for version in 1..4 {
            let again =
                self.bucket.put_opts(&name, contents(0, version).into(), options(PutMode::Create)).await;
            match again {
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(format!("{name} exists, and the answer does not say so: {error}")),
                Ok(_) => return Err(format!("{name} exists and was replaced")),
            }
            self.expect(&name, &first).await?;
        }
        Ok(())
    }

    /// Checks the results of competing requests: one succeeded, and the object has its contents.
    async fn check_race(&mut self, name: &Path, results: Vec<Result<Bytes, Error>>) -> Result<(), String> {
        let mut won = Vec::new();
        let mut unclear = 0;
        for result in results {
            match result {
                Ok(contents) => won.push(contents),
                Err(error) if is_conflict(&error) => {}
                Err(error) if crate::is_refusal(&error) => return Err(error.to_string()),
                // Such a request may have been done or not.
                Err(_) => unclear += 1,
            }
        }
        self.unclear += unclear;
        let found = self.read(name).await?;
        match &won[..] {
            [one] if *one == found => Ok(()),
            [_] => Err(format!("the contents of {name} are not those of the request that succeeded")),
            [] if unclear > 0 => Ok(()),
            [] => Err(format!("{RACERS} requests at once for {name}: none succeeded")),
            several => Err(format!("{RACERS} requests at once for {name}: {} succeeded", several.len())),
        }
    }

    async fn create_race(&mut self) -> Result<(), String> {
        for race in 0..RACES {
            let (name, bucket) = (self.name(&format!("race-{race}")), self.bucket);
            let racers = (0..RACERS).map(|racer| {
                let (name, contents) = (&name, contents(race, racer));
                async move {
                    let mode = options(PutMode::Create);
                    bucket.put_opts(name, contents.clone().into(), mode).await.map(|_| contents)
                }
            });
            let results = join_all(racers).await;
            self.check_race(&name, results).await?;
        }
        Ok(())
    }

    async fn version(&self, name: &Path) -> Result<UpdateVersion, String> {
        let meta = self.bucket.head(name).await.map_err(|error| error.to_string())?;
        if meta.e_tag.is_none() {
            return Err(format!("the answer for {name} has no ETag"));
        }
        Ok(UpdateVersion { e_tag: meta.e_tag, version: meta.version })
    }

    async fn replace(&self, name: &Path, new: Bytes, version: UpdateVersion) -> Result<(), Error> {
        self.bucket.put_opts(name, new.into(), options(PutMode::Update(version))).await.map(drop)
    }

    async fn replace_if_match(&self) -> Result<(), String> {
        let name = self.small(1);
        let first = self.version(&name).await?;
        let replaced = self.replace(&name, contents(1, 1), first.clone()).await;
        replaced.map_err(|error| format!("{name} is unchanged and was not replaced: {error}"))?;
        self.expect(&name, &contents(1, 1)).await?;
        match self.replace(&name, contents(1, 2), first).await {
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(format!("{name} has changed, and the answer does not say so: {error}")),
            Ok(()) => return Err(format!("{name} has changed and was replaced")),
        }
        self.expect(&name, &contents(1, 1)).await
    }

    async fn replace_race(&mut self) -> Result<(), String> {
        let name = self.small(2);
        for race in 0..RACES {
            let version = self.version(&name).await?;
            let this = &*self;
            let racers = (0..RACERS).map(|racer| {
                let (name, version) = (&name, version.clone());
                let contents = contents(100 + race, racer);
                async move { this.replace(name, contents.clone(), version).await.map(|()| contents) }
            });
            let results = join_all(racers).await;
            self.check_race(&name, results).await?;
        }
        Ok(())
    }

    fn tagged(&self) -> Path {
        self.name("tagged")
    }

    fn in_parts(&self) -> Path {
        self.name("parts")
    }

    fn copied(&self) -> Path {
        self.name("copy")
    }

    async fn metadata(&self) -> Result<(), String> {
        let (name, put) = (self.tagged(), options(PutMode::Create));
        let with = PutOptions { attributes: attributes(), ..put.clone() };
        match self.bucket.put_opts(&name, contents(0, 0).into(), with).await {
            Ok(_) => self.expect_metadata(&name).await,
            // SlateDB then does without.
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                self.create(&name, contents(0, 0)).await
            }
            Err(error) => Err(format!("{name} is not created: {error}")),
        }
    }

    async fn expect_metadata(&self, name: &Path) -> Result<(), String> {
        let found = self.bucket.get(name).await.map_err(|error| format!("{name} cannot be read: {error}"))?;
        let (key, expected) = metadata();
        match found.attributes.get(&key) {
            Some(value) if *value == expected => Ok(()),
            Some(_) => Err(format!("the metadata `{METADATA}` of {name} has changed")),
            None => Err(format!("{name} has lost its metadata `{METADATA}`")),
        }
    }

    async fn create_in_parts(&self) -> Result<(), String> {
        let (name, failed) = (self.in_parts(), |error: Error| error.to_string());
        let with = PutMultipartOptions { attributes: attributes(), ..PutMultipartOptions::default() };
        let begun = self.bucket.put_multipart_opts(&name, with).await;
        let has_metadata = begun.is_ok();
        let mut upload = match begun {
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                self.bucket.put_multipart_opts(&name, PutMultipartOptions::default()).await.map_err(failed)?
            }
            begun => begun.map_err(failed)?,
        };
        let whole: Bytes = (0..PART_BYTES + 1000).map(|at| (at ^ at >> 7 ^ at >> 17) as u8).collect();
        for part in [whole.slice(..PART_BYTES), whole.slice(PART_BYTES..)] {
            if let Err(error) = upload.put_part(part.into()).await {
                _ = upload.abort().await;
                return Err(error.to_string());
            }
        }
        if let Err(error) = upload.complete().await {
            _ = upload.abort().await;
            return Err(error.to_string());
        }
        self.expect(&name, &whole).await?;
        if has_metadata { self.expect_metadata(&name).await } else { Ok(()) }
    }

    async fn copy(&self) -> Result<(), String> {
        let (from, to) = (self.in_parts(), self.copied());
        let expected = self.read(&from).await?;
        // Also a copy over one that a request without an answer has made.
        for _ in 0..2 {
            match self.bucket.copy(&from, &to).await {
                Ok(()) => self.expect(&to, &expected).await?,
                // The data is then read and written.
                Err(error) if crate::is_refusal(&error) => {
                    let put = self.bucket.put(&to, expected.clone().into()).await;
                    put.map_err(|error| format!("{to} is not created: {error}"))?;
                }
                Err(error) => return Err(format!("{from} is not copied: {error}")),
            }
        }
        Ok(())
    }

    async fn names(&self, after: Option<&Path>) -> Result<Vec<Path>, String> {
        let list = match after {
            Some(after) => self.bucket.list_with_offset(Some(self.folder), after),
            None => self.bucket.list(Some(self.folder)),
        };
        let mut names: Vec<Path> =
            list.map_ok(|object| object.location).try_collect().await.map_err(|error| error.to_string())?;
        names.sort_unstable();
        Ok(names)
    }

    /// Names of all objects of the probe.
    fn expected(&self) -> Vec<Path> {
        let races = (0..RACES).map(|race| self.name(&format!("race-{race}")));
        let mut names: Vec<Path> = (0..SMALL).map(|number| self.small(number)).chain(races).collect();
        names.extend([self.name("large"), self.tagged(), self.in_parts(), self.copied()]);
        names.extend(self.has_late.then(|| self.late()));
        names.extend(self.has_many.then(|| self.many()).into_iter().flatten());
        names.sort_unstable();
        names
    }

    async fn list(&mut self) -> Result<(), String> {
        compare(&self.expected(), &self.names(None).await?)?;
        self.create(&self.late(), contents(1, 9)).await?;
        self.has_late = true;
        compare(&self.expected(), &self.names(None).await?)?;
        // Before they are created: a request that fails may have been done.
        self.has_many = true;
        let this = &*self;
        let created = stream::iter(this.many())
            .map(|name| async move { this.create(&name, contents(0, 0)).await })
            .buffer_unordered(PARALLEL);
        created.try_collect::<()>().await?;
        compare(&self.expected(), &self.names(None).await?)
    }

    async fn remove_all(&self, names: impl IntoIterator<Item = Path>) -> Result<(), String> {
        let removed = stream::iter(names)
            .map(|name| async move { self.remove(&name).await })
            .buffer_unordered(PARALLEL);
        removed.try_collect().await
    }

    async fn list_from(&self) -> Result<(), String> {
        let expected = self.expected();
        for index in [0, 5, expected.len() - 1] {
            compare(&expected[index + 1..], &self.names(Some(&expected[index])).await?)?;
        }
        Ok(())
    }

    async fn remove(&self, name: &Path) -> Result<(), String> {
        match self.bucket.delete(name).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(format!("{name} is not deleted: {error}")),
        }
    }

    async fn delete(&mut self) -> Result<(), String> {
        let name = self.small(3);
        self.remove(&name).await?;
        match self.bucket.get(&name).await {
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(format!("{name} was deleted, and the answer does not say so: {error}")),
            Ok(_) => return Err(format!("{name} was deleted and can still be read")),
        }
        self.remove_all(self.many()).await?;
        self.has_many = false;
        let mut expected = self.expected();
        expected.retain(|other| *other != name);
        compare(&expected, &self.names(None).await?)?;
        self.create(&name, contents(3, 1)).await?;
        self.expect(&name, &contents(3, 1)).await
    }

    /// Deletes everything in the folder, also what a list lacks.
    async fn clean(&self) -> Result<(), String> {
        let listed = self.names(None).await;
        let names: BTreeSet<Path> =
            self.expected().into_iter().chain(listed.iter().flatten().cloned()).collect();
        self.remove_all(names).await?;
        listed.map(drop)
    }
}

fn compare(expected: &[Path], found: &[Path]) -> Result<(), String> {
    if let Some(missing) = expected.iter().find(|name| found.binary_search(name).is_err()) {
        return Err(format!("{missing} is missing in a list of {} objects", found.len()));
    }
    match found.iter().find(|name| expected.binary_search(name).is_err()) {
        Some(other) => Err(format!("the list has {other}, which it should not have")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
