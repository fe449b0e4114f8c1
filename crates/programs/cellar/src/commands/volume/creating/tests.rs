//! Tests of a creation in which each call in turn fails, before or after its execution.

use super::*;
use afs_idl::{MemoryStream, fs, pr};
use base::{CallContext, Caller, Identity, SecurityLevel};
use cell_client::fakes::{Fakes, server};
use parking_lot::Mutex;
use std::collections::BTreeSet;

const FIRST_ID: u32 = 536_870_912;
const TRANSACTION: i32 = 5;

/// What the cell has: volumes, those in service, entries, and volumes whose access list was set.
#[derive(Default)]
struct State {
    ids: u32,
    volumes: BTreeSet<u32>,
    entries: Vec<vl::NVldbEntry>,
    protected: BTreeSet<u32>,
    /// The volume of the open transaction.
    open: Option<u32>,
}

/// Which call fails, and how.
#[derive(Clone, Copy, Debug)]
struct Fault {
    call: usize,
    is_executed: bool,
    code: AbortCode,
}

#[derive(Default)]
struct Services {
    state: Mutex<State>,
    fault: Mutex<Option<Fault>>,
    calls: Mutex<usize>,
}

impl vl::Server for Services {
    fn get_entry_by_name_n(
        &self,
        _: &CallContext<'_>,
        request: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let wanted = request.volume_name.to_string();
        let is_it = |entry: &&vl::NVldbEntry| {
            entry.name.to_string() == wanted || entry.volume_id[0].to_string() == wanted
        };
        let state = self.state.lock();
        let entry = state.entries.iter().find(is_it).cloned().ok_or(AbortCode::VL_NOENT)?;
        Ok(vl::GetEntryByNameNReply { entry })
    }

    fn get_new_volume_id(
        &self,
        _: &CallContext<'_>,
        request: vl::GetNewVolumeIdRequest,
    ) -> Result<vl::GetNewVolumeIdReply, AbortCode> {
        let mut state = self.state.lock();
        let new_volume_id = FIRST_ID + state.ids;
        state.ids += request.bump_count;
        Ok(vl::GetNewVolumeIdReply { new_volume_id })
    }

    fn create_entry_n(
        &self,
        _: &CallContext<'_>,
        request: vl::CreateEntryNRequest,
    ) -> Result<vl::CreateEntryNReply, AbortCode> {
        self.state.lock().entries.push(request.new_entry);
        Ok(vl::CreateEntryNReply)
    }

    fn delete_entry(
        &self,
        _: &CallContext<'_>,
        request: vl::DeleteEntryRequest,
    ) -> Result<vl::DeleteEntryReply, AbortCode> {
        self.state.lock().entries.retain(|entry| entry.volume_id[0] != request.volume_id);
        Ok(vl::DeleteEntryReply)
    }
}

impl vol::Server for Services {
    fn x_list_partitions(
        &self,
        _: &CallContext<'_>,
        _: vol::XListPartitionsRequest,
    ) -> Result<vol::XListPartitionsReply, AbortCode> {
        Ok(vol::XListPartitionsReply { partitions: vec![0] })
    }

    fn create_volume(
        &self,
        _: &CallContext<'_>,
        request: vol::CreateVolumeRequest,
    ) -> Result<vol::CreateVolumeReply, AbortCode> {
        let mut state = self.state.lock();
        state.volumes.insert(request.volume_id);
        state.open = Some(request.volume_id);
        Ok(vol::CreateVolumeReply { volume_id: request.volume_id, transaction: TRANSACTION })
    }

    fn set_info(&self, _: &CallContext<'_>, _: vol::SetInfoRequest) -> Result<vol::SetInfoReply, AbortCode> {
        Ok(vol::SetInfoReply)
    }

    fn set_flags(
        &self,
        _: &CallContext<'_>,
        _: vol::SetFlagsRequest,
    ) -> Result<vol::SetFlagsReply, AbortCode> {
        Ok(vol::SetFlagsReply)
    }

    fn end_trans(
        &self,
        _: &CallContext<'_>,
        _: vol::EndTransRequest,
    ) -> Result<vol::EndTransReply, AbortCode> {
        self.state.lock().open.take().map(|_| vol::EndTransReply { code: 0 }).ok_or(AbortCode(2))
    }

    fn nuke_volume(
        &self,
        _: &CallContext<'_>,
        request: vol::NukeVolumeRequest,
    ) -> Result<vol::NukeVolumeReply, AbortCode> {
        let is_there = self.state.lock().volumes.remove(&request.volume_id);
        if is_there { Ok(vol::NukeVolumeReply) } else { Err(AbortCode(2)) }
    }
}

impl fs::Server for Services {
    fn fetch_status(
        &self,
        _: &CallContext<'_>,
        _: fs::FetchStatusRequest,
    ) -> Result<fs::FetchStatusReply, AbortCode> {
        Ok(fs::FetchStatusReply::default())
    }

    fn store_acl(
        &self,
        _: &CallContext<'_>,
        request: fs::StoreACLRequest,
    ) -> Result<fs::StoreACLReply, AbortCode> {
        self.state.lock().protected.insert(request.fid.volume);
        Ok(fs::StoreACLReply::default())
    }

    fn give_up_all_call_backs(
        &self,
        _: &CallContext<'_>,
        _: fs::GiveUpAllCallBacksRequest,
    ) -> Result<fs::GiveUpAllCallBacksReply, AbortCode> {
        Ok(fs::GiveUpAllCallBacksReply)
    }
}

impl pr::Server for Services {
    fn name_to_id(
        &self,
        _: &CallContext<'_>,
        _: pr::NameToIDRequest,
    ) -> Result<pr::NameToIDReply, AbortCode> {
        Ok(pr::NameToIDReply { ids: vec![-101] })
    }
}

impl Services {
    fn serve(&self, service: u16, stream: &mut MemoryStream) -> Result<(), AbortCode> {
        let number = {
            let mut calls = self.calls.lock();
            *calls += 1;
            *calls
        };
        let fault = self.fault.lock().filter(|fault| fault.call == number);
        if let Some(Fault { is_executed: false, code, .. }) = fault {
            return Err(code);
        }
        let (identity, level, address) = (Identity::Anonymous, SecurityLevel::Clear, server(1));
        let (peer, local) = ((address, 7000).into(), address.into());
        let caller = Caller { identity, level, peer, local, connection: base::Connection::new() };
        let context = CallContext::new(&caller);
        match service {
            52 => vl::dispatch(self, &context, stream),
            73 => pr::dispatch(self, &context, stream),
            vol::SERVICE_ID => vol::dispatch(self, &context, stream),
            _ => fs::dispatch(self, &context, stream),
        }?;
        fault.map_or(Ok(()), |fault| Err(fault.code))
    }

    /// Checks that there is one whole volume, or nothing.
    fn check(&self, is_made: bool, about: &str) {
        let state = self.state.lock();
        let registered: Vec<u32> = state.entries.iter().map(|entry| entry.volume_id[0]).collect();
        let volumes: Vec<u32> = state.volumes.iter().copied().collect();
        assert_eq!((registered.len(), &registered), (usize::from(is_made), &volumes), "{about}");
        assert!(volumes.iter().all(|id| state.protected.contains(id)), "{about}");
    }
}

/// Creates a volume in a cell in which one call fails. Returns the result, the services, and the servers.
fn attempt(fault: Option<Fault>) -> (Result<Made>, Arc<Services>, Arc<Fakes>) {
    let services = Arc::new(Services::default());
    *services.fault.lock() = fault;
    let serving = Arc::clone(&services);
    let fakes = Fakes::new(move |_, service, stream| serving.serve(service, stream));
    (create(&fakes), services, fakes)
}

/// Runs the command.
fn create(fakes: &Arc<Fakes>) -> Result<Made> {
    create_volume(&fakes.cell(1), &Create::with_acl("v".parse().unwrap(), 0, &["system:anyuser=rl"]))
}

#[test]
fn a_creation_that_fails_leaves_nothing() {
    let (made, services, _) = attempt(None);
    made.unwrap();
    services.check(true, "without a fault");
    let count = *services.calls.lock();
    assert!(count > 8, "{count} calls");
    let mut failures = 0;
    for call in 1..=count {
        for (is_executed, code) in
            [(false, AbortCode::VBUSY), (false, AbortCode::RX_CALL_DEAD), (true, AbortCode::RX_CALL_DEAD)]
        {
            let fault = Fault { call, is_executed, code };
            let about = format!("{fault:?}");
            let (made, services, fakes) = attempt(Some(fault));
            failures += usize::from(made.is_err());
            // A location server that did not answer is not asked again for a while, not even to remove the entry.
            if made.as_ref().is_err_and(|error| format!("{error:#}").contains("left are its entry")) {
                continue;
            }
            services.check(made.is_ok(), &about);
            if made.is_err() {
                create(&fakes).expect("the repetition succeeds");
                services.check(true, &about);
            }
        }
    }
    assert!(failures > 2 * count, "{failures} failures");
}

/// What cannot be removed is named.
#[test]
fn leftovers_are_named() {
    let (_, services, _) = attempt(None);
    let calls = *services.calls.lock();
    let mut left = 0;
    // The last call only gives up callbacks.
    for call in 1..calls {
        let services = Arc::new(Services::default());
        let serving = Arc::clone(&services);
        // The network is cut after a call was executed.
        let fakes = Fakes::new(move |_, service, stream| {
            let answer = serving.serve(service, stream);
            if *serving.calls.lock() >= call { Err(AbortCode::RX_CALL_DEAD) } else { answer }
        });
        let Err(error) = create(&fakes) else { panic!("call {call} failed") };
        let text = format!("{error:#}");
        if text.contains("left are") {
            left += 1;
            assert!(text.contains("vos zap 10.0.0.1 /vicepa 536870912"), "{text}");
        }
    }
    assert!(left > 4, "{left}");
}
