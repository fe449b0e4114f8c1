//! The cell's keys in a running server. They follow their files, so that a new key takes no restart: neither for those
//! who come with it nor for this server where it is a client of others.

use super::{thread, wait};
use crate::client::CellClient;
use crate::config::keys::{self, KeyFiles, KeyStamp, Keys};
use crate::config::security::SecuritySettings;
use crate::network::check_keys;
use anyhow::Result;
use bosserver::KeyList;
use parking_lot::Mutex;
use rx_security::{KeyRing, KeySet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the files are looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// The keys in use.
pub struct CellKeys {
    files: KeyFiles,
    security: SecuritySettings,
    ring: Arc<KeyRing>,
    read: Mutex<Read>,
}

/// What was read last.
struct Read {
    stamp: KeyStamp,
    des: KeyList,
}

impl CellKeys {
    /// Reads them.
    ///
    /// # Errors
    /// A file cannot be read, or there is no key.
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

    /// The keys, for those who look at them with each handshake.
    pub fn ring(&self) -> Arc<KeyRing> {
        self.ring.clone()
    }

    /// What `bos listkeys` shows: the single DES keys.
    pub fn des(&self) -> KeyList {
        self.read.lock().des.clone()
    }

    /// Reads the files if they have changed since. If that fails the keys stay as they are. Connections whose keys were
    /// removed begin no more calls.
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
            tracing::error!(%error, "the cell's new keys make no ticket for this server");
        }
        let versions: Vec<String> =
            keys.versions().map(|(kvno, enctype)| format!("{kvno} ({})", enctype.number())).collect();
        tracing::info!(versions = versions.join(", "), "the cell's keys have changed");
        self.ring.replace(keys);
        client.forget_connections();
    }
}

/// Looks at the files from time to time.
pub fn follow(ending: &Arc<AtomicBool>, keys: &Arc<CellKeys>, client: &Arc<CellClient>) -> JoinHandle<()> {
    let (ending, keys, client) = (ending.clone(), keys.clone(), client.clone());
    thread("keys", move || {
        while wait(&ending, PERIOD) {
            keys.look(&client);
        }
    })
}
