//! The server's figures.

use crate::AdminServer;
use afs_idl::cellar::{FigureRow, FigureText, FigureValue, GetFiguresReply, GetFiguresRequest};
use base::{AbortCode, Caller};
use events::{Declared, Figures};
use observe::{Sheet, SheetRow, Table, Taker};

/// Number of the table of a volume's clients. The numbers of all other tables except [`CALLS_OF_VOLUME`] are
/// [`Table`]'s.
pub const CLIENTS_OF_VOLUME: u32 = 4;
/// Number of the table of calls on a volume, by procedure.
pub const CALLS_OF_VOLUME: u32 = 13;

impl AdminServer {
    /// GetFigures (opcode 500). Since programs poll it, the audit log only records rejected callers.
    pub(crate) fn get_figures(
        &self,
        caller: &Caller,
        request: GetFiguresRequest,
    ) -> Result<GetFiguresReply, AbortCode> {
        self.check_verified(caller)?;
        let table = Table::of_number(request.table);
        let of_volume = || matches!(request.table, CLIENTS_OF_VOLUME | CALLS_OF_VOLUME);
        if table.map_or_else(of_volume, Table::is_private) && !self.parts.authority.is_superuser(caller) {
            self.administer(caller, "GetFigures")?;
        }
        let observed = &self.parts.observed;
        Ok(match (table, request.table) {
            (Some(table), _) => table.read(&**observed, Replying),
            (None, CLIENTS_OF_VOLUME) => reply(&observed.snapshot().clients_of(request.volume)),
            (None, CALLS_OF_VOLUME) => reply(&observed.snapshot().calls_of(request.volume)),
            _ => return Err(AbortCode::UAEINVAL),
        })
    }
}

/// Converts a table to a reply.
struct Replying;

impl Taker for Replying {
    type Made = GetFiguresReply;

    fn take<F: Declared + Figures>(self, sheet: &Sheet<F>) -> GetFiguresReply {
        reply(sheet)
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
