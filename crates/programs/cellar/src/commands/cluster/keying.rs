//! Whether a node that joins has the key of the others. Its lease needs no key, so without it the node would be counted on, and could
//! do nothing for the others.

use super::moving::is_live;
use afs_idl::ClientConnection;
use afs_idl::cluster::{LocateVolumeRequest, Node, SERVICE_ID, locate_volume};
use anyhow::{Result, bail};
use base::{AbortCode, SecurityLevel};
use cell_client::describe::describe;
use cell_client::network::{AfsNetwork, local_authentication_at};
use cellar_config::Settings;
use cluster::NodeSeen;
use std::path::PathBuf;
use std::time::Duration;

/// For how long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a node says to an encrypted call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// It has the key.
    Known,
    /// It does not accept the key.
    Refused(AbortCode),
    /// It does not answer.
    Silent(AbortCode),
}

impl Answer {
    fn of(outcome: Result<(), AbortCode>) -> Answer {
        match outcome {
            Err(code) if code.is_of_rxkad() => Answer::Refused(code),
            Err(code) if code.is_of_rx() => Answer::Silent(code),
            // The cluster's service knows no node without a name. It has judged the call, so the key is good.
            Ok(()) | Err(_) => Answer::Known,
        }
    }
}

/// Tries this server's key with the nodes that run. Returns a note if none has answered.
///
/// # Errors
/// If a node does not accept the key.
pub(super) fn check_key(settings: &Settings, nodes: &[NodeSeen]) -> Result<Option<String>> {
    let network =
        AfsNetwork::start(Some(local_authentication_at(&settings.keys, SecurityLevel::Encrypted)?))?;
    let (mut why, mut is_known) = ("no node runs".to_owned(), false);
    for seen in nodes.iter().filter(|seen| is_live(seen)) {
        let node = &seen.record.node;
        for address in &seen.record.addresses {
            match Answer::of(ask(&*network.connect_within(*address, SERVICE_ID, PATIENCE))) {
                Answer::Known => {
                    is_known = true;
                    break;
                }
                Answer::Refused(code) => bail!(
                    "the node {node} at {address} does not accept the key of this server: {}. All nodes need the same keys of the \
                     cell, and clocks that agree within some minutes: compare {} with the file of {node}",
                    describe(code),
                    key_files(settings)
                ),
                Answer::Silent(code) => why = format!("{node} at {address}: {}", describe(code)),
            }
        }
    }
    Ok((!is_known).then(|| format!("the cell's key was not tried with another node: {why}")))
}

/// Makes a call that changes nothing, and is not executed.
fn ask(connection: &dyn ClientConnection) -> Result<(), AbortCode> {
    let node = Node { name: "".into(), ..Node::default() };
    let request = LocateVolumeRequest { node, ..LocateVolumeRequest::default() };
    locate_volume(connection, &request).map(drop)
}

/// Returns the paths of the key files.
fn key_files(settings: &Settings) -> String {
    let files = &settings.key_files;
    let paths = [&files.extended, &files.des, &files.keytab].into_iter().flatten();
    let present: Vec<String> =
        paths.filter(|path| path.exists()).map(|path: &PathBuf| path.display().to_string()).collect();
    if present.is_empty() { "the key files (`cell.keyfile`)".into() } else { present.join(" and ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_key_differ_from_others() {
        let of = |code: AbortCode| Answer::of(Err(code));
        for code in [AbortCode::RXKADUNKNOWNKEY, AbortCode::RXKADBADTICKET, AbortCode::RXKADSEALEDINCON] {
            assert_eq!(of(code), Answer::Refused(code));
        }
        for code in [AbortCode::RX_CALL_DEAD, AbortCode::RX_INVALID_OPERATION, AbortCode::RX_RESTARTING] {
            assert_eq!(of(code), Answer::Silent(code));
        }
        for code in [AbortCode::RXGEN_SS_UNMARSHAL, AbortCode::UAEINVAL] {
            assert_eq!(of(code), Answer::Known);
        }
    }
}
