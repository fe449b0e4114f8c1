//! Creates a version of the volume in the source cell.

use super::cells::{Cells, clone_name};
use super::config::Config;
use super::journal::Journal;
use super::volumes::{OFFLINE, Volumes};
use afs_idl::vl;
use afs_idl::vol::attach_mode;
use anyhow::{Context as _, Result, anyhow};
use cell_client::location::Located;
use cell_client::network::now;
use cell_client::{CellClient, Interface};
use jobs::Place;
use promote::{Held, Manifest, PromotionError, Record};

fn describe(trouble: PromotionError) -> anyhow::Error {
    match trouble {
        PromotionError::Passing(why) | PromotionError::Lasting(why) | PromotionError::Changed(why) => {
            anyhow!(why)
        }
    }
}

/// Locates the volume in the source cell.
pub fn locate(config: &Config, cells: &Cells<'_>, volume: &str) -> Result<Located> {
    let client = cells.client(&config.source).map_err(describe)?;
    client.locate_newest(volume).with_context(|| format!("in {}", config.source))
}

/// Creates and signs a version of the volume's present contents and returns its number. Without changes since
/// the last version, returns the last version.
pub fn freeze(
    config: &Config,
    cells: &Cells<'_>,
    journal: &Journal,
    record: &mut Record,
    located: &Located,
) -> Result<(u32, bool)> {
    let key = config.signing_key()?;
    let client = cells.client(&config.source).map_err(describe)?;
    let volumes = Volumes { cell: &client, stop: cells.stop() };
    let site = located.read_write_site()?;
    let place = Place { server: site.server, partition: site.partition.index() as i32 };
    let held = Held { place, volume: number(&client)? };
    record.loose.push(held);
    journal.write(record)?;
    let cloned_at = clone(&volumes, located, held).map_err(describe)?;
    let contents = volumes.digest(held.place, held.volume).map_err(describe)?;
    let latest = record.versions.get(&record.latest).map(|signed| signed.manifest.contents);
    if latest == Some(contents) && record.holds.contains_key(&record.latest) {
        return Ok((record.latest, false));
    }
    let version = record.latest + 1;
    let manifest = Manifest {
        volume: record.volume.clone(),
        cell: config.source.clone(),
        volume_id: located.read_write().0,
        version,
        promoted_at: now().0,
        cloned_at,
        contents,
        signer: config.signer.clone(),
    };
    record.add_version(key.sign(manifest), held);
    journal.write(record)?;
    Ok((version, true))
}

fn number(client: &CellClient) -> Result<u32> {
    let request = vl::GetNewVolumeIdRequest { bump_count: 1 };
    let reply = client.database(Interface::Locations, |vl| vl::get_new_volume_id(vl, &request));
    Ok(reply.map_err(cell_client::describe::failed("get a volume number"))?.new_volume_id)
}

/// Clones the volume, which stays in use. Returns the date of the clone by its server's clock.
fn clone(volumes: &Volumes<'_>, located: &Located, held: Held) -> Result<u32, PromotionError> {
    let source = volumes.open_of_others(held.place, located.read_write().0, attach_mode::BUSY)?;
    source.clone_as(&clone_name(&located.name, held.volume), held.volume)?;
    source.end()?;
    let made = volumes.open(held.place, held.volume, attach_mode::OFFLINE)?;
    made.set_flags(OFFLINE)?;
    let cloned_at = made.status()?.creation_date;
    made.end()?;
    Ok(cloned_at)
}

/// Removes clones that are no longer needed. Failures are retried next time.
pub fn tidy(config: &Config, cells: &Cells<'_>, journal: &Journal, record: &mut Record) -> Result<()> {
    record.forget(config.options.keep);
    if record.loose.is_empty() {
        return Ok(());
    }
    let Ok(client) = cells.client(&config.source) else { return Ok(()) };
    let volumes = Volumes { cell: &client, stop: cells.stop() };
    record.loose.retain(|held| volumes.remove(held.place, held.volume).is_err());
    journal.write(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_client::fakes::{behind, server};
    use std::sync::Arc;

    #[test]
    fn the_sync_site_locates_the_source() {
        let (fakes, asked) = behind::cell();
        let config = Config::for_tests("a.example");
        let cells =
            Cells::new(&config, "moved", Arc::default(), false).ask_through("a.example", fakes.cell(3));
        assert_eq!(locate(&config, &cells, "moved").unwrap().sites[0].server, behind::NEW);
        assert_eq!(*asked.lock(), [server(3)]);
        fakes.fail(server(3), Some(base::AbortCode::RX_CALL_DEAD));
        locate(&config, &cells, "moved").unwrap_err();
    }
}
