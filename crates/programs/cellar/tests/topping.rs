//! `cellar top` under a known load: in a terminal, with keys, and as JSON.

mod support;

use afs_idl::ClientConnection;
use bytes::Bytes;
use cell_client::Network;
use cell_client::network::AfsNetwork;
use load::files::{Fid, Files};
use load::station::{FILE_SERVICE, Station};
use observe::Table;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use support::cell::Cell;
use support::terminal::Terminal;
use support::{Over, look, soon};

/// Number of stores, and of status calls: by an anonymous caller and by a holder of the cell's key in one
/// volume, and by an anonymous caller in another.
const STORES: u64 = 3;
const LOOKS: [u64; 3] = [60, 21, 5];

/// Total number of status calls: creating a volume includes one for its root.
const ALL_LOOKS: u64 = LOOKS[0] + LOOKS[1] + LOOKS[2] + 2;

/// A cell after this load.
struct Loaded {
    unknown: Arc<dyn ClientConnection>,
    file: Fid,
    cell: Cell,
    _clients: (Station, AfsNetwork),
}

impl Loaded {
    fn start() -> Loaded {
        let cell = Cell::start("");
        let [root, other] = ["load", "other"].map(|name| cell.volume(name));
        let (station, known) = (Station::start().unwrap(), cell.network());
        let unknown = cell.connect(&station);
        let files = Files::new(unknown.clone());
        let file = files.create(root, "f").unwrap();
        (0..STORES).for_each(|_| files.store(file, &Bytes::from_static(b"some data")).unwrap());
        let admin = known.connect(cell.files_port(), FILE_SERVICE);
        (0..LOOKS[0]).for_each(|_| look(&*unknown, file));
        (0..LOOKS[1]).for_each(|_| look(&*admin, file));
        (0..LOOKS[2]).for_each(|_| look(&*unknown, other));
        Loaded { unknown, file, cell, _clients: (station, known) }
    }

    /// Does some work while status calls are made. Returns the result of the work and the number of calls.
    fn under_load<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let (is_over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
        let given = thread::scope(|scope| {
            let _over = Over(&is_over);
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    look(&*self.unknown, self.file);
                    calls.fetch_add(1, Relaxed);
                }
            });
            work()
        });
        (given, calls.load(Relaxed))
    }
}

/// Returns the calls in the row of this procedure.
fn of_procedure(document: &Value, procedure: &str) -> f64 {
    let rows = document["calls"].as_array().unwrap();
    let row = rows.iter().find(|row| row["procedure"] == procedure).unwrap_or_else(|| panic!("{rows:?}"));
    row["calls"].as_f64().unwrap()
}

/// Returns the number of status calls in a document of rates.
fn reported(document: &Value) -> u64 {
    let calls = of_procedure(document, "FetchStatus") * document["seconds"].as_f64().unwrap();
    // Rates have three decimals.
    assert!((calls - calls.round()).abs() < 0.1, "{calls} calls");
    calls.round() as u64
}

#[test]
fn documents_by_second_come_a_line_each_until_they_are_enough() {
    let loaded = Loaded::start();
    let cell = &loaded.cell;
    // On a busy machine, a call may take seconds.
    let arguments = ["top", "--json", "--interval", "5", "--count", "2"];
    let (printed, came) = loaded.under_load(|| cell.run(&arguments));
    let documents: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(documents.len(), 2, "{printed}");
    let workers = cell.stat("workers");
    for document in &documents {
        let mut shown = Table::ALL.iter().filter(|table| !table.is_of_cluster());
        assert!(shown.all(|table| document[table.name()].is_array()), "{document}");
        assert!(of_procedure(document, "StoreData64") < 0.001, "they came before");
        assert_eq!(document["workers"][0]["limit"], workers[0]["limit"], "what there is has no rate");
    }
    let sum: u64 = documents.iter().map(reported).sum();
    assert!((1..=came).contains(&sum), "{sum} of {came}");
    // An interval of two samples is shorter than the whole run.
    let all = cell.json(&["top"]);
    assert_eq!(of_procedure(&all, "FetchStatus").round() as u64, ALL_LOOKS + came);
    assert_eq!(all["seconds"], Value::Null);

    // Closing the output ends the command.
    let mut top = cell.command(&["top", "--json", "--interval", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    assert!(serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap().is_object());
    drop(lines);
    soon("what nobody reads ends", || top.try_wait().unwrap());
}

#[test]
fn once_with_an_interval_shows_its_changes() {
    let loaded = Loaded::start();
    let cell = &loaded.cell;
    // On a busy machine, perhaps no call ends within the interval.
    let (document, came) = soon("calls are reported", || {
        let (document, came) = loaded.under_load(|| cell.json(&["top", "--once", "--interval", "1"]));
        (reported(&document) >= 1).then_some((document, came))
    });
    assert!(reported(&document) <= came, "{document}");
    assert!(document["seconds"].as_f64().unwrap() >= 1.0, "{document}");
    assert!(of_procedure(&document, "StoreData64") < 0.001, "they came before");
    let text = cell.run(&["top", "--once", "--interval", "1"]);
    let row = |text: &str| {
        let line = text.lines().find(|line| line.contains(" StoreData64 ")).unwrap().to_owned();
        line.split_whitespace().nth(2).unwrap().to_owned()
    };
    assert!(text.starts_with("CALLS, by second\n") && row(&text) == "0", "{text}");
    let text = cell.run(&["top", "--once"]);
    assert!(text.starts_with("CALLS\n") && row(&text) == STORES.to_string(), "{text}");

    for (arguments, why) in [
        (&["top", "--interval", "1", "--count", "2"][..], "`--count` is for `--json`"),
        (&["top", "--once", "--interval", "1", "--count", "2"], "--count"),
    ] {
        let output = cell.output(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
}

/// Returns the rows of the screen, between the headings and the help.
fn rows(screen: &[String]) -> Vec<Vec<String>> {
    let rows = screen[3..screen.len() - 1].iter().filter(|line| !line.is_empty());
    rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Returns the cells of the row with these labels.
fn row<'a>(rows: &'a [Vec<String>], labels: &[&str]) -> Option<&'a [String]> {
    rows.iter()
        .find(|row| row.starts_with(&labels.iter().map(|of| (*of).to_owned()).collect::<Vec<_>>()))
        .map(|row| &row[labels.len()..])
}

/// Waits until the row with these labels starts with this number.
fn wait_for_row(terminal: &Terminal, labels: &[&str], number: u64) {
    terminal.wait_for(&format!("{labels:?} with {number}"), |screen| {
        row(&rows(screen), labels).is_some_and(|cells| cells[0] == number.to_string())
    });
}

/// Returns the volume names in the order of the screen.
fn names(screen: &[String]) -> Vec<String> {
    rows(screen).into_iter().filter_map(|row| row.get(1).cloned()).collect()
}

#[test]
fn keys_lead_through_the_tables_of_a_known_load() {
    let loaded = Loaded::start();
    let cell = &loaded.cell;
    let mut terminal = Terminal::start(&cell.command(&["top", "--interval", "1"]), 40, 220);
    let about = format!("cellar top: {} every 1 s, by second", cell.address);
    terminal.wait_for("rates", |screen| screen[0] == about && screen[2].starts_with("SERVICE"));
    assert!(terminal.screen()[1].starts_with(" 1 calls "), "{:?}", terminal.screen());

    // Totals since the start are known exactly.
    terminal.press("a");
    terminal.wait_for("all", |screen| screen[0].ends_with("since the start"));
    wait_for_row(&terminal, &["AFS", "StoreData64"], STORES);
    terminal.press("/hstat");
    terminal.wait_for("the filter", |screen| screen.last().unwrap().starts_with("filter: hstat_"));
    terminal.press("\r");
    wait_for_row(&terminal, &["AFS", "FetchStatus"], ALL_LOOKS);
    terminal.wait_for("nothing else", |screen| rows(screen).len() == 1);
    terminal.press("\x1b");
    terminal.wait_for("no filter", |screen| rows(screen).len() > 1);

    // The two volumes, without the calls that use no volume, in both orders.
    terminal.press("2");
    terminal.wait_for("volumes", |screen| screen[2].starts_with("VOLUME") && screen[2].contains("CALLSv"));
    terminal.press("/5368\r");
    terminal.wait_for("the busier first", |screen| names(screen) == ["load", "other"]);
    terminal.press("r");
    let is_upward = |screen: &[String]| screen[2].contains("CALLS^") && names(screen) == ["other", "load"];
    terminal.wait_for("reverse the order", is_upward);
    terminal.press("r\x1b[C\x1b[C");
    let by_store = |screen: &[String]| screen[2].contains("STOREv") && names(screen) == ["load", "other"];
    terminal.wait_for("by what was stored", by_store);

    // From the volume to its clients, on to the calls of one of them, and back.
    let volume = loaded.file.volume;
    terminal.press("\r");
    let about = format!("clients of volume {volume} load");
    terminal.wait_for("its clients", |screen| screen[0].contains(&about) && screen[2].starts_with("HOST"));
    terminal.wait_for("both of them", |screen| {
        let rows = rows(screen);
        let has = |user: &str| row(&rows, &["127.0.0.1", user]).is_some();
        has("anonymous") && has("afs")
    });
    terminal.press("/anon\r");
    terminal.wait_for("one of them", |screen| rows(screen).len() == 1);
    terminal.press("\r");
    let about = format!("calls of anonymous at 127.0.0.1 in volume {volume} load");
    terminal.wait_for("its calls", |screen| screen[0].contains(&about) && screen[2].starts_with("SERVICE"));
    wait_for_row(&terminal, &["AFS", "FetchStatus"], LOOKS[0]);
    wait_for_row(&terminal, &["AFS", "StoreData64"], STORES);
    wait_for_row(&terminal, &["AFS", "CreateFile"], 1);
    terminal.press("\x1b");
    terminal.wait_for("its clients again", |screen| screen[2].starts_with("HOST") && rows(screen).len() > 1);
    terminal.press("\x1b");
    terminal.wait_for("volumes again", |screen| screen[2].starts_with("VOLUME"));

    // A table without a digit, the last one.
    terminal.press("0\t");
    terminal.wait_for("callbacks", |screen| screen[2].contains("PROMISES"));
    terminal.press("1\x1b[Z");
    terminal.wait_for("events", |screen| screen[2].contains("DROPPED"));
    terminal.press(" ");
    terminal.wait_for("a pause", |screen| screen[0].contains("paused"));
    terminal.press("?");
    terminal.wait_for("all keys", |screen| screen.iter().any(|line| line.contains("choose the column")));
    terminal.press("x");
    terminal.wait_for("the table", |screen| screen[2].contains("DROPPED"));
    assert!(terminal.end("q").contains("\x1b[?1049l"), "the terminal is given back");
}
