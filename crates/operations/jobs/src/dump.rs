//! Sends dump files to volumes.

use crate::distribution::SUFFIX;
use crate::engine::Run;
use crate::procedure::Procedure;
use crate::rpc::Step;
use crate::traffic::Traffic;
use crate::transaction::Transaction;
use crate::{Place, World};
use afs_idl::vol::{RestoreCookie, RestoreRequest, volume_flags, volume_type};

impl<P: Procedure, W: World> Run<'_, P, W> {
    pub(crate) fn restored_kind(&self) -> i32 {
        if self.request().is_read_only() { volume_type::READ_ONLY } else { volume_type::READ_WRITE }
    }

    /// Returns the restored volume's name on its server.
    pub(crate) fn restored_name(&self, name: &str) -> String {
        format!("{name}{}", if self.request().is_read_only() { SUFFIX } else { "" })
    }

    /// Sends a dump file to an open volume.
    pub(crate) fn send_dump(&mut self, open: Transaction, name: &str, file: &str, changes: bool) -> Step {
        let cookie = RestoreCookie {
            name: self.restored_name(name).as_str().into(),
            volume_type: self.restored_kind(),
            clone_id: 0,
            parent_id: self.volume(),
        };
        self.note(format!("sending {file}"));
        let request = RestoreRequest { transaction: open.id, flags: changes.into(), cookie };
        let bytes = self.cell.world.send_file(open.server, &request, file)?;
        self.count(open, Traffic { total: bytes, done: bytes, sent: bytes });
        Ok(())
    }
}

/// Returns the flags of a complete volume.
pub(crate) fn out_of_service(offline: bool) -> i32 {
    if offline { volume_flags::OUT_OF_SERVICE } else { 0 }
}

/// Formats a list of sites.
pub(crate) fn place_list(first: Place, further: &[Place]) -> String {
    let all: Vec<String> = std::iter::once(&first).chain(further).map(Place::to_string).collect();
    all.join(" and ")
}
