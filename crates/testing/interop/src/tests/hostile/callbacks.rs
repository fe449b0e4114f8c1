//! A client that claims another client's UUID receives none of its callback breaks, and cannot give up its
//! promises.

use crate::tests::wait_for;
use afs_idl::fs::{self, FetchStatusRequest, GiveUpAllCallBacksRequest, GiveUpCallBacksRequest};
use afs_idl::{ClientConnection, common};
use anyhow::{Context, Result, anyhow};
use base::AbortCode;
use cell_client::files::{Attributes, Node};
use cell_client::{CellClient, Network};
use interop::cell::Server;
use interop::hostile::{Client, SERVER, Target, uuid};
use std::io::Cursor;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 201);
const THIEF: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 202);
const WRITER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 203);
const BREAK_MAX: Duration = Duration::from_secs(10);
const ATTRIBUTES: Attributes = Attributes { mode: 0o644, modified: 1_000_000_000 };

/// Actions of a thief after a call with the victim's UUID.
type Theft = fn(&dyn ClientConnection, common::Fid) -> Result<(), AbortCode>;
const THEFTS: [(&str, Theft); 4] = [
    ("a call", |_, _| Ok(())),
    ("GiveUpAllCallBacks", |files, _| {
        fs::give_up_all_call_backs(files, &GiveUpAllCallBacksRequest).map(drop)
    }),
    ("GiveUpCallBacks", |files, fid| {
        let call_backs = vec![common::CallBack::default()];
        fs::give_up_call_backs(files, &GiveUpCallBacksRequest { fids: vec![fid], call_backs }).map(drop)
    }),
    ("GiveUpCallBacks of all", |files, _| {
        fs::give_up_call_backs(files, &GiveUpCallBacksRequest::default()).map(drop)
    }),
];

pub(super) fn callbacks() -> Result<()> {
    let target = Target::start()?;
    target.cell.open_volume(Server::Cellar, "work.1")?;
    [VICTIM, THIEF, WRITER].iter().try_for_each(|address| target.add_address(*address))?;
    let of_victim = uuid();
    let victim = Client::anonymous(VICTIM, of_victim)?;
    let writer = Arc::new(Client::anonymous(WRITER, uuid())?).of_cell(SERVER)?;
    let root = writer.root_of("work.1")?;
    // First without a thief.
    let file = create(&writer, &root, "before")?;
    look(&victim, file.fid.into())?;
    store(&writer, &file)?;
    wait_for(BREAK_MAX, || Ok(victim.broken().contains(&file.fid.into()))).context("without a thief")?;
    for (number, (name, theft)) in THEFTS.into_iter().enumerate() {
        let file = create(&writer, &root, &format!("file-{number}"))?;
        let fid = common::Fid::from(file.fid);
        look(&victim, fid).context("the victim")?;
        let thief = Client::anonymous(THIEF, of_victim)?;
        look(&thief, fid).context("the thief")?;
        // The server may reject the call, or pretend to have executed it.
        let answer = theft(&*thief.connect((SERVER, 7000).into(), 1), fid);
        store(&writer, &file)?;
        wait_for(BREAK_MAX, || Ok(victim.broken().contains(&fid)))
            .with_context(|| format!("the victim was told of no change after {name} ({answer:?})"))?;
    }
    Ok(())
}

fn look(client: &Client, fid: common::Fid) -> Result<()> {
    let files = client.connect((SERVER, 7000).into(), 1);
    let answer = fs::fetch_status(&*files, &FetchStatusRequest { fid });
    answer.map(drop).map_err(|code| anyhow!("FetchStatus: {code:?}"))
}

fn create(writer: &CellClient, directory: &Node, name: &str) -> Result<Node> {
    let made = writer.create(directory, name.as_bytes(), ATTRIBUTES);
    made.map_err(|code| anyhow!("CreateFile: {code:?}"))
}

fn store(writer: &CellClient, file: &Node) -> Result<()> {
    writer.store(file, ATTRIBUTES, &mut Cursor::new(b"changed"), 7, &mut |_| ())
}
