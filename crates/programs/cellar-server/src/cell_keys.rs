//! The cell's keys in a running server. They follow their files, so that a new key takes effect without a
//! restart, both for callers that use it and for this server's own calls to others.

use crate::threads::{thread, wait};
use anyhow::Result;
use bosserver::KeyList;
use cell_client::CellClient;
use cell_client::network::check_keys;
use cellar_config::keys::{self, KeyFiles, KeyStamp, Keys};
use cellar_config::security::SecuritySettings;
use parking_lot::Mutex;
use rx_security::{KeyRing, KeySet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which the files are checked.
const PERIOD: Duration = Duration::from_secs(5);

/// The keys in use.
pub struct CellKeys {
    files: KeyFiles,
    security: SecuritySettings,
    ring: Arc<KeyRing>,
    read: Mutex<Read>,
}

/// The files as last read.
struct Read {
    stamp: KeyStamp,
    des: KeyList,
}

impl CellKeys {
    /// Reads the keys.
    ///
    /// # Errors
    /// If a file cannot be read, or there is no key.
    pub fn read(files: KeyFiles, security: SecuritySettings) -> Result<CellKeys> {
        let stamp = files.stamp();
        let Keys { set, des, .. } = keys::load(&files, &security)?;
        Ok(CellKeys {
            files,
            security,
            ring: Arc::new(KeyRing::new(set)),
            read: Mutex::new(Read { stamp, des }),
        })
    }

    /// Returns the key ring, which is consulted for each handshake.
    pub fn ring(&self) -> Arc<KeyRing> {
        self.ring.clone()
    }

    /// Returns the single DES keys, as shown by `bos listkeys`.
    pub fn des(&self) -> KeyList {
        self.read.lock().des.clone()
    }

    /// Reads the files again if they have changed. On failure the keys stay the same. Connections with
    /// removed keys begin no more calls.
    pub fn look(&self, client: &CellClient) {
        let stamp = self.files.stamp();
        let mut read = self.read.lock();
        if read.stamp == stamp {
            return;
        }
        read.stamp = stamp;
        match keys::load(&self.files, &self.security) {
            Ok(keys) => {
                read.des = keys.des;
                drop(read);
                keys.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                self.take(keys.set, client);
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "the cell's keys have changed and cannot be read; the old ones stay");
            }
        }
    }

    fn take(&self, keys: KeySet, client: &CellClient) {
        if keys == *self.ring.current() {
            return;
        }
        if let Err(error) = check_keys(&keys) {
            tracing::error!(%error, "the cell's new keys cannot encrypt a ticket for this server");
        }
        let versions: Vec<String> =
            keys.versions().map(|(kvno, enctype)| format!("{kvno} ({})", enctype.number())).collect();
        tracing::info!(versions = versions.join(", "), "the cell's keys have changed");
        self.ring.replace(keys);
        client.forget_connections();
    }
}

/// Checks the files periodically.
pub fn follow(ending: &Arc<AtomicBool>, keys: &Arc<CellKeys>, client: &Arc<CellClient>) -> JoinHandle<()> {
    let (ending, keys, client) = (ending.clone(), keys.clone(), client.clone());
    thread("keys", move || {
        while wait(&ending, PERIOD) {
            keys.look(&client);
        }
    })
}
