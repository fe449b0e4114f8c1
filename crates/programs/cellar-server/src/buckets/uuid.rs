//! The UUID of a server that has no partition on a local disk.

use super::opening::connect;
use crate::registration::{read_sysid, write_sysid};
use afs_format::sysid::SysId;
use anyhow::{Context, Result, bail};
use base::HostUuid;
use cellar_config::{BucketSettings, Settings};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::timeout;

/// The object with the sysid of the server, below the prefix of the partition or the cluster.
const NAME: &str = "server";

/// For how long the bucket may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest sysid: 15 addresses need less.
const BYTES_MAX: u64 = 4096;

/// Makes the sysid file that of the first partition.
pub(super) fn share(settings: &Settings) -> Result<()> {
    let Some(first) = super::shared(settings) else { return Ok(()) };
    let own = read_sysid(&settings.sysid_path)?;
    let wanted = own.unwrap_or_else(|| HostUuid(*uuid::Uuid::new_v4().as_bytes()));
    let shared = settle(first, wanted).with_context(|| format!("the server's UUID in {}", first.address))?;
    if own != Some(shared) {
        tracing::info!(uuid = %shared, bucket = %first.address, "this is the server that has the bucket's UUID");
        write_sysid(&settings.sysid_path, shared, &settings.announce)?;
    }
    Ok(())
}

/// Returns the UUID in the bucket, which becomes `wanted` if there is none.
fn settle(bucket: &BucketSettings, wanted: HostUuid) -> Result<HostUuid> {
    let client = connect(bucket)?;
    let parts = bucket.address.prefix().split('/').filter(|part| !part.is_empty());
    let name: Path = parts.chain([NAME]).collect();
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a thread")?;
    // A time limit needs the runtime's clock from its beginning.
    let settled = runtime.block_on(async { timeout(PATIENCE, settled(&*client, &name, wanted)).await });
    settled.with_context(|| format!("no answer within {PATIENCE:?}"))?
}

async fn settled(client: &dyn ObjectStore, name: &Path, wanted: HostUuid) -> Result<HostUuid> {
    loop {
        match client.get(name).await {
            Ok(found) if found.meta.size > BYTES_MAX => {
                bail!("{name} is damaged: it has {} bytes", found.meta.size)
            }
            Ok(found) => {
                let bytes = found.bytes().await?;
                return Ok(SysId::parse(&bytes).with_context(|| format!("{name} is damaged"))?.uuid);
            }
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let sysid = SysId { uuid: wanted, addresses: Vec::new() };
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match client.put_opts(name, sysid.to_bytes().into(), options).await {
            // Read again: the answer may be of an earlier request of another server.
            Ok(_) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    fn run(client: &InMemory, wanted: u8) -> Result<HostUuid> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(settled(client, &Path::from("p/server"), HostUuid([wanted; 16])))
    }

    #[test]
    fn the_first_uuid_stays() {
        let client = InMemory::new();
        assert_eq!(run(&client, 1).unwrap(), HostUuid([1; 16]));
        assert_eq!(run(&client, 2).unwrap(), HostUuid([1; 16]));
    }

    #[test]
    fn it_is_below_the_partition() {
        let folder = tempfile::tempdir().unwrap();
        let bucket = BucketSettings::of(format!("file://{}", folder.path().display()).parse().unwrap());
        assert_eq!(settle(&bucket, HostUuid([3; 16])).unwrap(), HostUuid([3; 16]));
        assert!(folder.path().join(NAME).exists());
    }

    #[test]
    fn a_damaged_one_is_not_replaced() {
        let client = InMemory::new();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let put =
            |bytes: Vec<u8>| runtime.block_on(client.put(&Path::from("p/server"), bytes.into())).unwrap();
        for bytes in [b"hello".to_vec(), vec![0; 5000]] {
            put(bytes);
            assert!(run(&client, 1).unwrap_err().to_string().contains("damaged"));
        }
    }
}
