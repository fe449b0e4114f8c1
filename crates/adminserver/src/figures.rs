//! What the server counts.

use crate::AdminServer;
use afs_idl::cellar::{FigureRow, FigureText, FigureValue, GetFiguresReply, GetFiguresRequest};
use base::{AbortCode, Caller, VolumeId};
use events::Declared;
use events::catalogue::UsageFigures;
use observe::{Sheet, SheetRow};

/// Numbers of tables, as `idl/cellar.idl` tells them.
pub mod tables {
    /// Calls by service and procedure.
    pub const CALLS: u32 = 1;
    /// Volumes.
    pub const VOLUMES: u32 = 2;
    /// Clients by host and user.
    pub const CLIENTS: u32 = 3;
    /// The clients of one volume.
    pub const CLIENTS_OF_VOLUME: u32 = 4;
    /// Disks by partition and kind of access.
    pub const DISKS: u32 = 5;
    /// Lanes by port and number.
    pub const LANES: u32 = 6;
    /// Workers by port.
    pub const WORKERS: u32 = 7;
    /// Caches by name.
    pub const CACHES: u32 = 8;
    /// Locks by name.
    pub const LOCKS: u32 = 12;
    /// Lines of events in the log, by event.
    pub const EVENT_LINES: u32 = 14;
    /// What clients are told of changes.
    pub const CALLBACKS: u32 = 20;
    /// Partitions.
    pub const PARTITIONS: u32 = 21;
    /// The process.
    pub const PROCESS: u32 = 22;
    /// Sinks of the audit by name.
    pub const AUDIT: u32 = 9;
    /// Peers by port and address.
    pub const PEERS: u32 = 10;
    /// Hosts, with their connections.
    pub const HOSTS: u32 = 11;
    /// What the clients of one volume called, by procedure.
    pub const CALLS_OF_VOLUME: u32 = 13;
}

impl AdminServer {
    /// GetFigures (500). Who looks every second is not noted for the audit, who may not look is.
    pub(crate) fn figures(
        &self,
        caller: &Caller,
        request: GetFiguresRequest,
    ) -> Result<GetFiguresReply, AbortCode> {
        let tells_who = matches!(
            request.table,
            tables::VOLUMES
                | tables::CLIENTS
                | tables::CLIENTS_OF_VOLUME
                | tables::CALLS_OF_VOLUME
                | tables::HOSTS
                | tables::PEERS
        );
        if tells_who && !self.parts.authority.is_superuser(caller) {
            self.administer(caller, "GetFigures")?;
        }
        let observed = &self.parts.observed;
        Ok(match request.table {
            tables::CALLS => reply(&observed.snapshot().call_sheet()),
            tables::VOLUMES => reply(&self.volume_sheet()),
            tables::CLIENTS => reply(&observed.snapshot().client_sheet()),
            tables::CLIENTS_OF_VOLUME => reply(&observed.snapshot().clients_of(request.volume)),
            tables::CALLS_OF_VOLUME => reply(&observed.snapshot().calls_of(request.volume)),
            tables::HOSTS => reply(&observed.hosts()),
            tables::DISKS => reply(&observed.disks()),
            tables::LANES => reply(&observed.lanes()),
            tables::WORKERS => reply(&observed.workers()),
            tables::CACHES => reply(&observed.caches()),
            tables::LOCKS => reply(&observed.locks()),
            tables::EVENT_LINES => reply(&observed.event_lines()),
            tables::CALLBACKS => reply(&observed.callbacks()),
            tables::PARTITIONS => reply(&observed.partitions()),
            tables::PROCESS => reply(&observed.process()),
            tables::AUDIT => reply(&observed.audit()),
            tables::PEERS => reply(&observed.peers()),
            _ => return Err(AbortCode::UAEINVAL),
        })
    }
}

impl AdminServer {
    /// Volumes with their names, as far as they are in memory: asking must not load them.
    fn volume_sheet(&self) -> Sheet<UsageFigures> {
        let mut sheet = self.parts.observed.snapshot().volume_sheet();
        for row in &mut sheet.rows {
            let Some(Ok(id)) = row.labels.first().map(|label| label.parse()) else { continue };
            let volume = self.parts.volumes.get_at_hand(VolumeId(id));
            row.labels.push(volume.map(|volume| volume.header().name.to_string()).unwrap_or_default());
        }
        sheet.labels = &["volume", "name"];
        sheet
    }
}

fn reply<F: Declared>(sheet: &Sheet<F>) -> GetFiguresReply {
    GetFiguresReply {
        names: Sheet::<F>::names().map(text).collect(),
        rows: sheet.rows.iter().map(row).collect(),
    }
}

fn text(text: &str) -> FigureText {
    FigureText { text: text.into() }
}

fn row<F: Declared>(row: &SheetRow<F>) -> FigureRow {
    FigureRow {
        labels: row.labels.iter().map(|label| text(label)).collect(),
        values: row.figures.values().iter().map(|value| FigureValue { numbers: value.numbers() }).collect(),
    }
}
