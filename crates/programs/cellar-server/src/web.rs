//! The web page: its data from the server, and its port.

use super::observed::Observatory;
use ::jobs::Traffic;
use ::web::{About, Key, PERIOD, Server, Site, SiteSettings, Source};
use anyhow::{Context, Result};
use base::{UnixTime, VolumeId, VolumeType};
use cellar_config::Settings;
use cellar_config::web::WebSettings;
use job_runner::journal::Journal;
use job_runner::traffic;
use observe::Observed;
use rx::ports::{self, Transport};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use volserver::VolumeServer;
use volume::{Snapshot, VolumeHeader, Volumes};

/// Maximum number of volumes listed at a time.
const VOLUMES_MAX: usize = 500;
/// Maximum number of jobs displayed.
const JOBS_MAX: usize = 100;

/// The open port; dropping it closes the port.
pub struct Page {
    site: Arc<Site>,
    server: Server,
}

impl Page {
    /// Opens the port. Until [`Self::begin`] the page says that the server is starting.
    pub fn open(settings: &WebSettings) -> Result<Page> {
        let key = Key::load_or_make(&settings.key_path)?;
        let (names, tls_proxies) = (settings.names.clone(), settings.tls_proxies.clone());
        let site = Arc::new(Site::new(key, SiteSettings { names, tls_proxies }));
        let address = settings.address;
        let server = Server::open(address, site.clone())
            .map_err(|error| ports::name_holder(error, Transport::Tcp, address))
            .with_context(|| format!("cannot open TCP port {address} for the page (`web.port`)"))?;
        site.opened(server.address());
        tracing::info!(address = %server.address(), "web page");
        if !address.ip().is_loopback() {
            tracing::warn!(
                "the web page can be reached by other machines, unencrypted: they see totals of all calls, \
                and can only sign in through a proxy listed in `tls_proxies` (docs/guide/web.md)"
            );
        }
        Ok(Page { site, server })
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Starts displaying data, and takes a sample every two seconds until shutdown; to be called once all
    /// services answer.
    pub fn begin(
        &self,
        ending: &Arc<AtomicBool>,
        settings: &Arc<Settings>,
        observatory: &Arc<Observatory>,
        volumes: &Arc<Volumes>,
        volume_server: Option<Arc<VolumeServer>>,
    ) -> JoinHandle<()> {
        let cell = PageData {
            settings: settings.clone(),
            observatory: observatory.clone(),
            volumes: volumes.clone(),
            volume_server,
        };
        self.site.begin(Arc::new(cell));
        let (site, ending) = (self.site.clone(), ending.clone());
        crate::threads::thread("web-samples", move || {
            site.sample();
            while crate::threads::wait(&ending, PERIOD) {
                site.sample();
            }
        })
    }
}

/// Provides the server's data for the page.
struct PageData {
    settings: Arc<Settings>,
    observatory: Arc<Observatory>,
    volumes: Arc<Volumes>,
    volume_server: Option<Arc<VolumeServer>>,
}

impl Source for PageData {
    fn about(&self) -> About {
        let addresses: Vec<String> = self.settings.announce.iter().map(ToString::to_string).collect();
        About {
            cell: self.settings.cell.to_string(),
            server: addresses.join(", "),
            version: super::services::version(),
        }
    }

    fn observed(&self) -> &dyn Observed {
        &*self.observatory
    }

    fn volume_name(&self, id: u32) -> Option<String> {
        Some(self.volumes.get_at_hand(VolumeId(id))?.header().name.to_string())
    }

    fn volume(&self, id: u32) -> Option<Value> {
        let id = VolumeId(id);
        let volume = self.volumes.get_any_state(id).ok()?;
        let snapshots = self.volumes.snapshots(id).unwrap_or_default();
        let mut value = header(&volume.header());
        value["partition"] = json!(volume.partition().to_string());
        value["snapshots"] = snapshots.iter().map(|snapshot| self.snapshot(snapshot)).collect();
        Some(value)
    }

    fn volumes(&self, from: u32) -> Value {
        let (mut listed, mut more) = (Vec::new(), false);
        for partition in self.volumes.partitions() {
            let visited = self.volumes.list_headers(partition, &mut |found| {
                if found.header.id.0 < from {
                    return ControlFlow::Continue(());
                }
                if listed.len() >= VOLUMES_MAX {
                    more = true;
                    return ControlFlow::Break(());
                }
                let mut value = header(&found.header);
                value["partition"] = json!(partition.to_string());
                listed.push(value);
                ControlFlow::Continue(())
            });
            if let Err(error) = visited {
                tracing::error!(%partition, %error, "the volumes cannot be listed");
            }
        }
        json!({ "volumes": listed, "more": more })
    }

    fn jobs(&self) -> Result<Value, String> {
        let journal = Journal::open(self.settings.jobs_path()).map_err(|error| format!("{error:#}\n"))?;
        let mut jobs = journal.all().map_err(|error| format!("{error:#}\n"))?;
        jobs.reverse();
        let transfers = self.volume_server.as_ref().map_or_else(Vec::new, |server| server.sent());
        let traffic_of = traffic::of_server(&self.settings.announce, &transfers);
        let shown = jobs.iter().take(JOBS_MAX).map(|job| {
            let Traffic { total, done, sent } = traffic_of(job);
            json!({
                "job": job.id,
                "title": job.title(),
                "volume": job.volume(),
                "stage": job.stage(),
                "is_over": job.is_over(),
                "trouble": job.failure(),
                "total": total,
                "done": done,
                "sent": sent,
                "events": job.events.iter().map(|event| json!([event.at, event.what])).collect::<Vec<_>>(),
            })
        });
        Ok(shown.collect())
    }

    fn has_probes(&self) -> bool {
        self.settings.probe_history.is_some()
    }

    fn probes(&self) -> Result<Value, String> {
        let path = self.settings.probe_history.as_ref().ok_or("no history of probes is configured\n")?;
        probe_history::recent(path).map_err(|error| format!("{error:#}\n"))
    }
}

impl PageData {
    fn snapshot(&self, snapshot: &Snapshot) -> Value {
        let volume = self.volumes.get_any_state(snapshot.id).ok();
        let used_kib = volume.map(|volume| volume.header().used_kib);
        json!({
            "name": snapshot.of.name.to_string(),
            "id": snapshot.id.0,
            "made": snapshot.made.0,
            "expires": snapshot.expires.0,
            "used_kib": used_kib,
        })
    }
}

fn header(header: &VolumeHeader) -> Value {
    let UnixTime(updated) = header.updated;
    let kind = match header.kind {
        VolumeType::ReadWrite => "read-write",
        VolumeType::ReadOnly => "read-only",
        VolumeType::Backup => "backup",
    };
    json!({
        // A parked volume is identified by the number of the volume it belongs to, with its partition.
        "id": header.number().0,
        "is_apart": header.number() != header.id,
        "name": header.name.to_string(),
        "kind": kind,
        "parent": header.parent.0,
        "in_service": header.in_service && header.blessed,
        "offline_message": base::text::escape(&header.offline_message),
        "used_kib": header.used_kib,
        "quota_kib": header.quota_max_kib,
        "files": header.file_count,
        "directories": header.directory_count,
        "created": header.created.0,
        "updated": updated,
        "day_use": header.day_use,
    })
}
