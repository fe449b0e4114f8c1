//! Transactions, each of which reserves a volume for a purpose.
//!
//! One lock guards the table; nothing blocks while holding it. A call that works on a transaction holds a
//! [`Use`] of it. When a transaction has been ended and its last use is dropped, it is removed from the table
//! and releases its volume.

use crate::digesting::Digesting;
use crate::server::FileService;
use afs_idl::vol::{TransDebugInfo, attach_mode, transaction_flags, volume_flags};
use base::{PartitionId, UnixTime, VolumeId, VolumeType};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use volume::{Import, Volume, VolumeState};

/// Idle time after which a transaction is ended (OLDTRANSTIME), unless
/// [configured](crate::VolumeServer::with_idle_seconds_max) otherwise.
pub const IDLE_SECONDS_MAX: u32 = 600;

/// Maximum number of open transactions.
pub const TRANSACTIONS_MAX: usize = 10_000;

/// Returns the current time.
pub(crate) type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// All transactions.
pub(crate) struct Transactions {
    table: Mutex<Table>,
    file_service: Arc<dyn FileService>,
    clock: Clock,
}

struct Table {
    next: i32,
    /// The last number of each partition whose transactions have numbers of their own.
    last: HashMap<PartitionId, i32>,
    open: BTreeMap<i32, Transaction>,
}

struct Transaction {
    /// Volume id used to open the transaction, see [`volume::VolumeHeader::number`].
    volume_id: VolumeId,
    partition: PartitionId,
    created: UnixTime,
    last_used: UnixTime,
    /// Bits of `attach_mode`.
    attach: i32,
    /// Bits of `volume_flags`.
    flags: i32,
    /// Number of calls in progress.
    users: u32,
    /// Whether it has been ended, so that no new call may start.
    is_ended: bool,
    /// Whether the volume has moved to another server.
    has_moved: bool,
    /// Whether the partition is no longer this server's.
    is_lost: bool,
    last_procedure: &'static str,
    /// `None` until the volume is attached.
    volume: Option<Arc<Volume>>,
    /// Progress of the volume's digest.
    digesting: Option<Arc<Digesting>>,
    /// Of what the next transfer takes chunks over.
    import: Option<Import>,
}

/// Why a transaction cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The volume has one already.
    Busy,
    /// There are too many transactions.
    TooMany,
}

/// A transaction that has timed out. It ends when this is dropped.
pub(crate) struct Expired<'a> {
    pub(crate) volume: Option<Arc<Volume>>,
    pub(crate) used: Use<'a>,
}

impl Transactions {
    /// Creates an empty table. The first number depends on the time, so that a client with a number from
    /// before a restart does not use another client's transaction.
    pub(crate) fn new(clock: Clock, file_service: Arc<dyn FileService>) -> Transactions {
        let next = ((clock().0 << 4) & 0x3fff_ffff) as i32 + 1;
        let table = Table { next, last: HashMap::new(), open: BTreeMap::new() };
        Transactions { table: Mutex::new(table), file_service, clock }
    }

    /// Opens a transaction, with one of these numbers if the partition has its own, and enters it. The caller attaches the
    /// volume next.
    pub(crate) fn begin(
        &self,
        (volume_id, partition): (VolumeId, PartitionId),
        numbers: Option<RangeInclusive<i32>>,
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
        let id = table.new_id(partition, numbers).ok_or(Refusal::TooMany)?;
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
            is_lost: false,
            last_procedure: procedure,
            volume: None,
            digesting: None,
            import: None,
        };
        table.open.insert(id, transaction);
        Ok(Use { transactions: self, id, volume_id })
    }

    /// Enters the transaction with this number.
    pub(crate) fn enter(&self, id: i32, procedure: &'static str) -> Option<Use<'_>> {
        let now = (self.clock)();
        let mut table = self.table.lock();
        let transaction = table.open.get_mut(&id).filter(|transaction| !transaction.is_ended)?;
        transaction.users += 1;
        transaction.last_used = now;
        transaction.last_procedure = procedure;
        Some(Use { transactions: self, id, volume_id: transaction.volume_id })
    }

    /// Returns the flags and the volume of the transaction with this number without entering it, which would
    /// reset its idle time.
    pub(crate) fn observe(&self, id: i32) -> Option<(i32, Arc<Volume>)> {
        let table = self.table.lock();
        let transaction = table.open.get(&id).filter(|transaction| !transaction.is_ended)?;
        Some((transaction.flags, transaction.attached()?))
    }

    /// Returns the volumes that have transactions, with their partitions.
    pub(crate) fn volumes(&self) -> HashSet<(VolumeId, PartitionId)> {
        let table = self.table.lock();
        table
            .open
            .values()
            .filter(|transaction| !transaction.is_lost)
            .map(|transaction| (transaction.volume_id, transaction.partition))
            .collect()
    }

    /// Returns the volumes that have attached transactions, with their partitions. Those without a volume keep other
    /// transactions away, for moments or for work that restricts no client.
    pub(crate) fn attached(&self) -> HashSet<(VolumeId, PartitionId)> {
        let table = self.table.lock();
        let attached = table
            .open
            .values()
            .filter(|transaction| !transaction.is_lost && transaction.attached().is_some());
        attached.map(|transaction| (transaction.volume_id, transaction.partition)).collect()
    }

    /// Ends transactions that are not in use and have been idle for longer than `idle_seconds_max`.
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

    /// Ends the transactions on a partition that is no longer this server's. Returns how many there were. Calls in progress
    /// fail by themselves.
    pub(crate) fn lose(&self, partition: PartitionId) -> usize {
        let mut table = self.table.lock();
        let (mut count, mut idle) = (0, Vec::new());
        for (&id, transaction) in table.open.iter_mut().filter(|(_, open)| open.partition == partition) {
            count += usize::from(!transaction.is_lost);
            transaction.is_lost = true;
            transaction.is_ended = true;
            if transaction.users == 0 {
                idle.push(id);
            }
        }
        let ended: Vec<_> = idle.iter().filter_map(|id| table.open.remove(id)).collect();
        drop(table);
        drop(ended);
        count
    }

    /// Returns all transactions, newest first (AFSVolMonitor).
    pub(crate) fn monitor(&self) -> Vec<TransDebugInfo> {
        let table = self.table.lock();
        table.open.iter().rev().map(|(&id, transaction)| transaction.debug_info(id)).collect()
    }

    /// Ends a use of a transaction, and removes the transaction if it has been ended and this was the last
    /// use.
    fn leave(&self, id: i32) {
        let now = (self.clock)();
        let mut table = self.table.lock();
        let Some(transaction) = table.open.get_mut(&id) else { return };
        transaction.users -= 1;
        transaction.last_used = now;
        if !transaction.is_ended || transaction.users > 0 {
            return;
        }
        // Releases the volume before another transaction can take it.
        let may_have_changed = !transaction.is_lost && transaction.give_back();
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
        let is_on =
            |open: &Transaction| open.volume_id == volume && open.partition == partition && !open.is_lost;
        self.open.values().any(is_on)
    }

    /// Returns a free number, one of these if the partition has its own; `None` if there is none.
    fn new_id(&mut self, partition: PartitionId, numbers: Option<RangeInclusive<i32>>) -> Option<i32> {
        match numbers {
            None => Some(self.next_id()),
            Some(numbers) => self.new_id_among(partition, numbers),
        }
    }

    fn next_id(&mut self) -> i32 {
        loop {
            let id = self.next;
            self.next = id.checked_add(1).unwrap_or(1);
            if !self.open.contains_key(&id) {
                return id;
            }
        }
    }

    fn new_id_among(&mut self, partition: PartitionId, numbers: RangeInclusive<i32>) -> Option<i32> {
        let last = self.last.get(&partition).copied().filter(|last| numbers.contains(last));
        let after = last.map_or(*numbers.start(), |last| last.saturating_add(1));
        let mut in_turn = (after..=*numbers.end()).chain(*numbers.start()..after);
        let id = in_turn.find(|id| !self.open.contains_key(id))?;
        self.last.insert(partition, id);
        Some(id)
    }
}

impl Transaction {
    fn is_idle(&self, now: UnixTime, idle_seconds_max: u32) -> bool {
        self.users == 0 && now.0.saturating_sub(self.last_used.0) > idle_seconds_max
    }

    /// Returns the volume, unless it was deleted.
    fn attached(&self) -> Option<Arc<Volume>> {
        let is_deleted = self.flags & volume_flags::DELETED != 0;
        self.volume.clone().filter(|_| !is_deleted)
    }

    /// Returns the volume to file service; returns whether it was offline.
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
    /// Returns the transaction's number.
    pub(crate) fn id(&self) -> i32 {
        self.id
    }

    /// Returns the id of the transaction's volume, which a volume on another partition may share.
    pub(crate) fn volume_id(&self) -> VolumeId {
        self.volume_id
    }

    /// Returns the partition of the transaction's volume.
    pub(crate) fn partition(&self) -> PartitionId {
        self.with(|transaction| transaction.partition)
    }

    /// Returns the transaction's volume, unless it is not attached yet or was deleted.
    pub(crate) fn volume(&self) -> Option<Arc<Volume>> {
        self.with(|transaction| transaction.attached())
    }

    /// Attaches the volume and restricts its file service according to the transaction's attach mode.
    pub(crate) fn attach(&self, volume: &Arc<Volume>) {
        let attach = self.with(|transaction| {
            transaction.volume = Some(Arc::clone(volume));
            transaction.attach
        });
        volume.set_state(state_while(attach, volume.kind()));
    }

    /// Returns whether the transaction was ended meanwhile.
    pub(crate) fn is_ended(&self) -> bool {
        self.with(|transaction| transaction.is_ended)
    }

    /// Returns the bits of `attach_mode`.
    pub(crate) fn attach_flags(&self) -> i32 {
        self.with(|transaction| transaction.attach)
    }

    /// Returns the bits of `volume_flags`.
    pub(crate) fn flags(&self) -> i32 {
        self.with(|transaction| transaction.flags)
    }

    /// Sets the bits of `volume_flags`, except that the bit for a deleted volume cannot be cleared.
    pub(crate) fn set_flags(&self, flags: i32) {
        self.with(|transaction| transaction.flags = flags | (transaction.flags & volume_flags::DELETED));
    }

    /// Marks the volume as deleted.
    pub(crate) fn set_deleted(&self) {
        self.with(|transaction| transaction.flags |= volume_flags::DELETED);
    }

    /// Marks the volume as moved, and notifies the file service.
    pub(crate) fn set_moved(&self) {
        self.with(|transaction| transaction.has_moved = true);
        self.transactions.file_service.volume_moved(self.volume_id);
    }

    /// Returns the digest that is computed in the transaction; `begin` creates it on first use.
    pub(crate) fn digesting(&self, begin: impl FnOnce() -> Digesting) -> Arc<Digesting> {
        self.with(|transaction| Arc::clone(transaction.digesting.get_or_insert_with(|| Arc::new(begin()))))
    }

    /// Sets of what the next transfer takes chunks over. Nothing has been taken yet.
    pub(crate) fn set_import(&self, import: Option<Import>) {
        self.with(|transaction| transaction.import = import);
    }

    /// Returns of what this transfer takes chunks over.
    pub(crate) fn take_import(&self) -> Option<Import> {
        self.with(|transaction| transaction.import.take())
    }

    /// Ends the transaction as soon as its last use is dropped.
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

/// Returns the state of a volume during a transaction (VVolOpSetVBusy, VVolOpLeaveOnline). Cloning a volume
/// that cannot change does not restrict file service, and neither does reading.
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
