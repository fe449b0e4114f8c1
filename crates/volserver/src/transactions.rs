//! Transactions: who has which volume, since when, and what for.
//!
//! One lock guards the table; nothing is waited for under it. A call that works on a transaction
//! holds a [`Use`] of it. When a transaction has been ended and its last use is over, it leaves the
//! table and gives its volume back.

use crate::digesting::Digesting;
use crate::server::FileService;
use afs_idl::vol::{TransDebugInfo, attach_mode, transaction_flags, volume_flags};
use base::{PartitionId, UnixTime, VolumeId, VolumeType};
use events::current;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use volume::{Volume, VolumeState};

/// After this time without a call a transaction is ended (OLDTRANSTIME), unless something else is
/// [set](crate::VolumeServer::with_idle_seconds_max).
pub const IDLE_SECONDS_MAX: u32 = 600;

/// Most transactions at a time.
pub const TRANSACTIONS_MAX: usize = 10_000;

/// Tells the time.
pub(crate) type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// All transactions.
pub(crate) struct Transactions {
    table: Mutex<Table>,
    file_service: Arc<dyn FileService>,
    clock: Clock,
}

struct Table {
    next: i32,
    open: BTreeMap<i32, Transaction>,
}

struct Transaction {
    /// The number that it was opened with, see [`volume::VolumeHeader::number`].
    volume_id: VolumeId,
    partition: PartitionId,
    created: UnixTime,
    last_used: UnixTime,
    /// Bits of `attach_mode`.
    attach: i32,
    /// Bits of `volume_flags`.
    flags: i32,
    /// Calls that work on it now.
    users: u32,
    /// No call may begin any more.
    is_ended: bool,
    /// The volume has gone to another server.
    has_moved: bool,
    last_procedure: &'static str,
    /// None until it is attached.
    volume: Option<Arc<Volume>>,
    /// How far the digest of its volume is.
    digesting: Option<Arc<Digesting>>,
}

/// Why there is no new transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is one on the volume.
    Busy,
    /// There are too many.
    TooMany,
}

/// A transaction that has timed out. It ends when this is dropped.
pub(crate) struct Expired<'a> {
    pub(crate) volume: Option<Arc<Volume>>,
    pub(crate) used: Use<'a>,
}

impl Transactions {
    /// No transactions. Numbers begin with one that depends on the time, so that a client which
    /// still has one from before a restart does not meet somebody else's.
    pub(crate) fn new(clock: Clock, file_service: Arc<dyn FileService>) -> Transactions {
        let next = ((clock().0 << 4) & 0x3fff_ffff) as i32 + 1;
        Transactions { table: Mutex::new(Table { next, open: BTreeMap::new() }), file_service, clock }
    }

    /// Opens a transaction and uses it. Attach the volume next.
    pub(crate) fn begin(
        &self,
        volume_id: VolumeId,
        partition: PartitionId,
        attach: i32,
        procedure: &'static str,
    ) -> Result<Use<'_>, Refusal> {
        let now = (self.clock)();
        let mut table = self.table.lock();
        if table.is_open_on(volume_id, partition) {
            return Err(Refusal::Busy);
        }
        if table.open.len() >= TRANSACTIONS_MAX {
            return Err(Refusal::TooMany);
        }
        let id = table.new_id();
        let transaction = Transaction {
            volume_id,
            partition,
            created: now,
            last_used: now,
            attach,
            flags: 0,
            users: 1,
            is_ended: false,
            has_moved: false,
            last_procedure: procedure,
            volume: None,
            digesting: None,
        };
        table.open.insert(id, transaction);
        current::volume(volume_id.0);
        Ok(Use { transactions: self, id, volume_id })
    }

    /// Uses the transaction of this number.
    pub(crate) fn enter(&self, id: i32, procedure: &'static str) -> Option<Use<'_>> {
        let now = (self.clock)();
        let mut table = self.table.lock();
        let transaction = table.open.get_mut(&id).filter(|transaction| !transaction.is_ended)?;
        transaction.users += 1;
        transaction.last_used = now;
        transaction.last_procedure = procedure;
        current::volume(transaction.volume_id.0);
        Some(Use { transactions: self, id, volume_id: transaction.volume_id })
    }

    /// The flags and the volume of the transaction of this number, without using it: its idle time goes on.
    pub(crate) fn observe(&self, id: i32) -> Option<(i32, Arc<Volume>)> {
        let table = self.table.lock();
        let transaction = table.open.get(&id).filter(|transaction| !transaction.is_ended)?;
        current::volume(transaction.volume_id.0);
        Some((transaction.flags, transaction.attached()?))
    }

    /// The volumes that have transactions, and where they are.
    pub(crate) fn volumes(&self) -> HashSet<(VolumeId, PartitionId)> {
        let table = self.table.lock();
        table.open.values().map(|transaction| (transaction.volume_id, transaction.partition)).collect()
    }

    /// Ends the transactions that nobody uses and has used for longer than `idle_seconds_max`.
    pub(crate) fn expire(&self, idle_seconds_max: u32) -> Vec<Expired<'_>> {
        let now = (self.clock)();
        let mut table = self.table.lock();
        let idle =
            table.open.iter_mut().filter(|(_, transaction)| transaction.is_idle(now, idle_seconds_max));
        idle.map(|(&id, transaction)| {
            transaction.users += 1;
            transaction.is_ended = true;
            let used = Use { transactions: self, id, volume_id: transaction.volume_id };
            Expired { volume: transaction.attached(), used }
        })
        .collect()
    }

    /// All transactions, the latest first (AFSVolMonitor).
    pub(crate) fn monitor(&self) -> Vec<TransDebugInfo> {
        let table = self.table.lock();
        table.open.iter().rev().map(|(&id, transaction)| transaction.debug_info(id)).collect()
    }

    /// Ends one use of a transaction, and the transaction if that was wanted and this was the last.
    fn leave(&self, id: i32) {
        let now = (self.clock)();
        let mut table = self.table.lock();
        let Some(transaction) = table.open.get_mut(&id) else { return };
        transaction.users -= 1;
        transaction.last_used = now;
        if !transaction.is_ended || transaction.users > 0 {
            return;
        }
        // The volume is given back before another transaction can take it.
        let may_have_changed = transaction.give_back();
        let volume_id = transaction.volume_id;
        let ended = table.open.remove(&id);
        drop(table);
        drop(ended);
        if may_have_changed {
            self.file_service.volume_changed(volume_id);
        }
    }
}

impl Table {
    fn is_open_on(&self, volume: VolumeId, partition: PartitionId) -> bool {
        let is_on = |open: &Transaction| open.volume_id == volume && open.partition == partition;
        self.open.values().any(is_on)
    }

    fn new_id(&mut self) -> i32 {
        loop {
            let id = self.next;
            self.next = id.checked_add(1).unwrap_or(1);
            if !self.open.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Transaction {
    fn is_idle(&self, now: UnixTime, idle_seconds_max: u32) -> bool {
        self.users == 0 && now.0.saturating_sub(self.last_used.0) > idle_seconds_max
    }

    /// The volume, unless it was deleted.
    fn attached(&self) -> Option<Arc<Volume>> {
        let is_deleted = self.flags & volume_flags::DELETED != 0;
        self.volume.clone().filter(|_| !is_deleted)
    }

    /// Gives the volume back to file service; says whether it was offline.
    fn give_back(&self) -> bool {
        let Some(volume) = self.attached() else { return false };
        let was_offline = volume.state() == VolumeState::Offline;
        if !self.has_moved {
            volume.set_state(VolumeState::Online);
        }
        was_offline
    }

    fn debug_info(&self, id: i32) -> TransDebugInfo {
        TransDebugInfo {
            transaction: id,
            time: self.last_used.0,
            creation_time: self.created.0,
            volume_id: self.volume_id.0,
            partition: self.partition.index() as i32,
            attach_flags: self.attach,
            volume_flags: self.flags as u32,
            transaction_flags: if self.is_ended { transaction_flags::DELETED } else { 0 },
            last_procedure: self.last_procedure.into(),
            ..TransDebugInfo::default()
        }
    }
}

/// The use of a transaction by one call.
pub(crate) struct Use<'a> {
    transactions: &'a Transactions,
    id: i32,
    volume_id: VolumeId,
}

impl Use<'_> {
    /// The transaction's number.
    pub(crate) fn id(&self) -> i32 {
        self.id
    }

    /// The number of the transaction's volume, which another one on another partition may have too.
    pub(crate) fn volume_id(&self) -> VolumeId {
        self.volume_id
    }

    /// Where the transaction's volume is.
    pub(crate) fn partition(&self) -> PartitionId {
        self.with(|transaction| transaction.partition)
    }

    /// The transaction's volume, unless there is none yet or no more.
    pub(crate) fn volume(&self) -> Option<Arc<Volume>> {
        self.with(|transaction| transaction.attached())
    }

    /// Takes the volume from file service in the measure of the transaction's attach mode.
    pub(crate) fn attach(&self, volume: &Arc<Volume>) {
        let attach = self.with(|transaction| {
            transaction.volume = Some(Arc::clone(volume));
            transaction.attach
        });
        volume.set_state(state_while(attach, volume.kind()));
    }

    /// Whether somebody has ended it meanwhile.
    pub(crate) fn is_ended(&self) -> bool {
        self.with(|transaction| transaction.is_ended)
    }

    /// Bits of `attach_mode`.
    pub(crate) fn attach_flags(&self) -> i32 {
        self.with(|transaction| transaction.attach)
    }

    /// Bits of `volume_flags`.
    pub(crate) fn flags(&self) -> i32 {
        self.with(|transaction| transaction.flags)
    }

    /// Sets the bits of `volume_flags`; once a volume is deleted it stays so.
    pub(crate) fn set_flags(&self, flags: i32) {
        self.with(|transaction| transaction.flags = flags | (transaction.flags & volume_flags::DELETED));
    }

    /// The volume is deleted.
    pub(crate) fn set_deleted(&self) {
        self.with(|transaction| transaction.flags |= volume_flags::DELETED);
    }

    /// The volume has moved.
    pub(crate) fn set_moved(&self) {
        self.with(|transaction| transaction.has_moved = true);
        self.transactions.file_service.volume_moved(self.volume_id);
    }

    /// The digest that is computed within the transaction; `begin` begins the first.
    pub(crate) fn digesting(&self, begin: impl FnOnce() -> Digesting) -> Arc<Digesting> {
        self.with(|transaction| Arc::clone(transaction.digesting.get_or_insert_with(|| Arc::new(begin()))))
    }

    /// Ends the transaction as soon as its last use is over.
    pub(crate) fn end(self) {
        self.with(|transaction| transaction.is_ended = true);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Transaction) -> T) -> T {
        let mut table = self.transactions.table.lock();
        let transaction = table.open.get_mut(&self.id);
        work(transaction.expect("a transaction in use stays in the table"))
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.transactions.leave(self.id);
    }
}

/// What file service is told of a volume while a transaction has it (VVolOpSetVBusy,
/// VVolOpLeaveOnline): clones of what cannot change do not disturb, neither does reading.
fn state_while(attach: i32, kind: VolumeType) -> VolumeState {
    let has = |bit| attach & bit != 0;
    if has(attach_mode::CREATE) {
        VolumeState::Offline
    } else if has(attach_mode::BUSY) {
        if kind == VolumeType::ReadWrite { VolumeState::Busy } else { VolumeState::Online }
    } else if has(attach_mode::READ_ONLY) {
        VolumeState::Online
    } else {
        VolumeState::Offline
    }
}
