//! `cellar doctor` for OpenAFS's servers: it reports no problem of a healthy server, and finds one without
//! free threads.

use crate::Test;
use crate::tests::own_file;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use serde_json::Value;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "doctor-openafs", needs: &[Means::Netns], run: examine }]
}

/// Findings about the machine are ignored, since other tests run at the same time.
const OF_THE_MACHINE: [&str; 2] = ["datagrams-dropped-elsewhere", "processors-busy"];

/// Findings that a busy machine may cause. At least one examination must have none of them.
const PASSING: [&str; 2] = ["rx-packets-lost", "slow-calls"];
/// Maximum number of examinations.
const EXAMINATIONS: usize = 3;

/// Starts more calls than a server can have threads: StoreData (133), sending only the opcode, each on a new
/// connection. Packet headers have epoch, connection, call, sequence, serial (4 bytes each), type, the client
/// flag, no security, and the service (rx_packet.h). A file server counts a call as arrived once it knows
/// that the client can be reached: it sends an ACK of reason PING, which the second packet answers. The calls
/// end with the shell.
const BEGIN_CALLS: &str = r"
exec {udp}<>/dev/udp/$ADDR/7000
one='\x00\x00\x00\x01'
none='\x00\x00\x00\x00'
for high in 01 02 03 04 05 06; do
    for low in $(seq 0 4 252); do
        printf -v id '\\x%02x' $low
        connection='\x91\x92\x93\x94\x51\x52\x'$high$id
        service='\x01\x00\x00\x00\x00\x00\x01'
        printf $connection$one$one$one'\x01'$service'\x00\x00\x00\x85' >&$udp
        printf $connection$one$none$one'\x02'$service$none$one$none$none'\x07\x00\x00\x00\x00' >&$udp
    done
    sleep 0.05
done
sleep 1
";

fn examine() -> Result<()> {
    let cell = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    cell.open_volume(Server::OpenAfs, "work.1")?;
    let doctor = format!("cellar doctor --server {} --interval 2 --json", cell.address);
    let begin = BEGIN_CALLS.replace("$ADDR", cell.address);

    let (suites, scratch) = (own_file("suites"), cell.scratch()?);
    let examined = |number: usize| -> Result<_> {
        let work = format!(
            "cellar cp {}/ cell:work.1/suites.{number}/ && cellar cp cell:work.1/suites.{number}/ {}/back.{number}/",
            suites.display(),
            scratch.display()
        );
        let well =
            cell.shell(&format!("({work}) >/dev/null 2>&1 & {doctor}; status=$?; wait $! && exit $status"))?;
        let reported = of(&well.text)?;
        Ok((well, reported))
    };
    let (mut well, mut reported) = examined(1)?;
    for number in 2..=EXAMINATIONS {
        let passing = found(&reported, |problem| PASSING.contains(&problem));
        if passing.is_empty() {
            break;
        }
        println!("interop: doctor-openafs: {passing:?}; again");
        (well, reported) = examined(number)?;
    }
    let findings = found(&reported, |problem| !OF_THE_MACHINE.contains(&problem));
    ensure!(findings.is_empty(), "a server that is well has {findings:?}: {}", well.text);
    ensure!(reported["not_checked"].as_array().is_some_and(Vec::is_empty), "{}", reported["not_checked"]);
    let all = found(&reported, |_| true);
    ensure!(well.status == i32::from(!all.is_empty()), "exit status {} with {all:?}", well.status);

    let ill = cell.shell(&format!("{begin}\n{doctor}"))?;
    let reported = of(&ill.text)?;
    ensure!(ill.status == 1, "exit status {}: {}", ill.status, ill.text);
    let exhausted = found(&reported, |problem| problem == "rx-threads-exhausted");
    let [exhausted] = &exhausted[..] else { anyhow::bail!("no rx-threads-exhausted: {}", ill.text) };
    let evidence = exhausted["evidence"].to_string();
    ensure!(evidence.contains(&format!("fileserver ({}:7000): ", cell.address)), "{exhausted}");
    ensure!(evidence.contains(" calls waiting in both samples"), "{exhausted}");
    println!("interop: doctor-openafs: {evidence}");
    Ok(())
}

/// Parses the document, which errors may follow.
fn of(printed: &str) -> Result<Value> {
    let mut documents = serde_json::Deserializer::from_str(printed).into_iter();
    documents.next().context("nothing")?.with_context(|| printed.to_owned())
}

/// Returns the findings of the wanted problems.
fn found(reported: &Value, wanted: impl Fn(&str) -> bool) -> Vec<&Value> {
    let all = reported["findings"].as_array().into_iter().flatten();
    all.filter(|finding| finding["problem"].as_str().is_some_and(&wanted)).collect()
}
