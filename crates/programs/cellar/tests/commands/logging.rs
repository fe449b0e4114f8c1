//! Compares the event lines in the log of a running server with its counters.

use crate::support::place::Place;
use crate::support::process::Process;
use crate::support::{get, look, noise, soon};
use afs_idl::cellar::{PurgeVolumeCacheRequest, purge_volume_cache};
use afs_idl::fs as rxafs;
use bytes::Bytes;
use cell_client::Interface;
use load::files::{Fid, Files};
use load::station::Station;
use serde_json::Value;
use std::collections::BTreeMap;

/// A server in a separate process, with a log.
struct Logging(Process);

impl Logging {
    fn start(observe: &str) -> Logging {
        let place = Place::new(&format!("[metrics]\nport = 0\n{observe}"));
        // Event lines are logged regardless of other filters.
        let environment = [("CELLAR_LOG", "warn,cellar=info"), ("CELLAR_LOG_FORMAT", "json")];
        let server = Logging(Process::begin(place, &environment));
        soon("the server serves", || {
            server.log().iter().any(|line| line["message"] == "serving").then_some(())
        });
        server
    }

    fn log(&self) -> Vec<Value> {
        self.0.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn events(&self) -> Vec<Value> {
        self.log().into_iter().filter(|line| line["target"] == "event").collect()
    }

    /// Returns all metrics: names with labels, and numbers as written.
    fn metrics(&self) -> BTreeMap<String, String> {
        let log = self.log();
        let address = log.iter().find(|line| line["message"] == "metrics").unwrap()["address"].clone();
        let reply = get(address.as_str().unwrap().parse().unwrap(), "/metrics").unwrap();
        let numbers =
            reply.lines().filter(|line| line.starts_with("cellar_")).filter_map(|line| line.rsplit_once(' '));
        numbers.map(|(name, number)| (name.to_owned(), number.to_owned())).collect()
    }

    /// Stores files while other clients read them and receive callback breaks.
    fn load(&self) {
        let root = self.0.volume("load");
        let stations = [(); 3].map(|()| Station::start().unwrap());
        let [writer, readers @ ..] = stations.each_ref().map(|station| self.0.connect(station));
        let fid = Files::new(writer.clone()).create(root, "f").unwrap();
        for _ in 0..5 {
            for reader in &readers {
                look(&**reader, fid);
            }
            // Incompressible data.
            let data = noise(100_000);
            let length = data.len() as u64;
            let request =
                rxafs::StoreData64Request { fid, length, file_length: length, ..Default::default() };
            rxafs::store_data64(&*writer, &request, |stream| stream.write(data.clone())).unwrap();
        }
        // More than the cache can hold, read twice.
        let files = Files::new(writer.clone());
        let stored: Vec<(Fid, Bytes)> = (0..20)
            .map(|number| (files.create(root, &format!("f{number}")).unwrap(), noise(100_000)))
            .collect();
        for (fid, data) in &stored {
            files.store(*fid, data).unwrap();
        }
        for (fid, data) in stored.iter().chain(&stored) {
            files.fetch_and_compare(*fid, data, 1 << 20).unwrap();
        }
        let purge = PurgeVolumeCacheRequest { volume: root.volume };
        let client = self.0.client();
        let own = client.connection(self.0.address, Interface::Cellar);
        purge_volume_cache(&*own, &purge).unwrap();
        let nothing = rxafs::FetchStatusRequest { fid: Fid { vnode: 99_999, ..fid } };
        rxafs::fetch_status(&*readers[0], &nothing).unwrap_err();
    }
}

/// Sums by subject, like `disk write moved_bytes`.
type Sums = BTreeMap<String, u64>;

/// Sums up the lines.
fn of_lines(lines: &[Value]) -> Sums {
    let mut sums = Sums::new();
    for line in lines {
        let text =
            |name: &str| line[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned();
        let (what, numbers): (String, &[&str]) = match line["message"].as_str().unwrap() {
            "call" => {
                let what = format!("call {} {}", text("service"), text("procedure"));
                *sums.entry(format!("{what} {}", text("outcome"))).or_default() += 1;
                (what, &["fast_path", "received_bytes", "sent_bytes", "run_ns"])
            }
            "disk" => (format!("disk {}", text("access")), &["failed", "buffered", "moved_bytes", "time_ns"]),
            "lock" => (format!("lock {}", text("lock")), &["wait_ns"]),
            "callback" => (format!("callback {}", text("outcome")), &[]),
            "cache" => {
                let what = format!("cache {}", text("cache"));
                for name in ["misses", "evictions", "purged"] {
                    *sums.entry(format!("{what} {name}")).or_default() += line[name].as_u64().unwrap();
                }
                continue;
            }
            other => panic!("`{other}` was not asked for: {line}"),
        };
        *sums.entry(what.clone()).or_default() += 1;
        for name in numbers {
            *sums.entry(format!("{what} {name}")).or_default() += line[*name].as_u64().unwrap();
        }
    }
    sums.retain(|_, sum| *sum > 0);
    sums
}

/// Returns the corresponding metrics.
fn of_metrics(metrics: &BTreeMap<String, String>) -> Sums {
    let mut sums = Sums::new();
    for (name, number) in metrics {
        let (name, labels) =
            name.strip_suffix('}').and_then(|name| name.split_once('{')).unwrap_or((name, ""));
        let label = |wanted: &str| {
            let of = labels.split(',').find_map(|label| label.strip_prefix(wanted)?.strip_prefix("=\""));
            of.map_or("", |value| value.trim_end_matches('"')).to_owned()
        };
        let call = || format!("call {} {}", label("service"), label("procedure"));
        let what = match name {
            "cellar_call_calls_total" => call(),
            "cellar_call_outcomes_total" => format!("{} {}", call(), label("outcome")),
            "cellar_call_fast_path_total" => format!("{} fast_path", call()),
            "cellar_call_received_bytes_total" => format!("{} received_bytes", call()),
            "cellar_call_sent_bytes_total" => format!("{} sent_bytes", call()),
            "cellar_call_run_seconds_sum" => format!("{} run_ns", call()),
            "cellar_disk_accesses_total" => format!("disk {}", label("access")),
            "cellar_disk_failed_total" => format!("disk {} failed", label("access")),
            "cellar_disk_buffered_total" => format!("disk {} buffered", label("access")),
            "cellar_disk_moved_bytes_total" => format!("disk {} moved_bytes", label("access")),
            "cellar_disk_time_seconds_sum" => format!("disk {} time_ns", label("access")),
            "cellar_lock_waits_total" => format!("lock {}", label("lock")),
            "cellar_lock_wait_seconds_sum" => format!("lock {} wait_ns", label("lock")),
            "cellar_callbacks_delivered_total" => "callback delivered".to_owned(),
            "cellar_callbacks_unanswered_total" => "callback unanswered".to_owned(),
            "cellar_cache_misses_total" => format!("cache {} misses", label("cache")),
            "cellar_cache_evictions_total" => format!("cache {} evictions", label("cache")),
            "cellar_cache_purged_total" => format!("cache {} purged", label("cache")),
            _ => continue,
        };
        // Seconds have nine decimals: nanoseconds without the point.
        let digits: String = number.chars().filter(|c| *c != '.').collect();
        *sums.entry(what).or_default() += digits.parse::<u64>().unwrap();
    }
    sums.retain(|_, sum| *sum > 0);
    sums
}

#[test]
fn event_lines_add_up_to_the_counters() {
    let cell = Logging::start(
        "[observe]\nlog_events = [\"call\", \"disk\", \"lock\", \"callback\", \"cache\"]\nlog_events_per_second = 1000000\n\
         [store]\nchunk_cache_mb = 1\n",
    );
    cell.load();
    // The server writes lines shortly after it has counted an event, and also makes calls to itself.
    let mut last = None;
    let sums = soon("lines and counters are equal", || {
        let metrics = of_metrics(&cell.metrics());
        let lines = of_lines(&cell.events());
        let is_equal = lines == metrics;
        last = Some((lines, metrics));
        is_equal.then(|| last.take().unwrap().0)
    });
    let number = |name: &str| sums.get(name).copied().unwrap_or_else(|| panic!("no {name} in {sums:#?}"));
    assert_eq!((number("call AFS StoreData64"), number("call AFS StoreData64 good")), (25, 25));
    let looks = ["good", "missing"].map(|outcome| number(&format!("call AFS FetchStatus {outcome}")));
    assert!(looks[0] >= 10 && looks[1] == 1 && looks.iter().sum::<u64>() == number("call AFS FetchStatus"));
    assert!(number("callback delivered") >= 10, "each of two readers was told of each change: {sums:#?}");
    assert!(number("disk write moved_bytes") >= 5 * 100_000, "{sums:#?}");
    assert!(number("cache chunks evictions") >= 10, "two megabytes went through one: {sums:#?}");
    assert!(number("cache chunks misses") >= 10 && number("cache chunks purged") >= 1, "{sums:#?}");

    let lines = cell.events();
    let of_chunks = |line: &&Value| line["message"] == "cache" && line["cache"] == "chunks";
    let evicted = lines.iter().filter(of_chunks).find(|line| line["evictions"] == 1).unwrap();
    assert!(evicted["freed_bytes"].as_u64() > Some(0) && evicted["age_ns"].is_u64(), "{evicted}");
    let missed = lines.iter().filter(of_chunks).find(|line| line["procedure"] == "FetchData64").unwrap();
    let purged = lines.iter().filter(of_chunks).find(|line| line["purged"] != 0).unwrap();
    assert_eq!(
        (&missed["misses"], &purged["procedure"]),
        (&1.into(), &"PurgeVolumeCache".into()),
        "{missed} {purged}"
    );
    let store =
        lines.iter().find(|line| line["procedure"] == "StoreData64" && line["message"] == "call").unwrap();
    assert_eq!((&store["user"], &store["code"]), (&"anonymous".into(), &0.into()));
    let write =
        lines.iter().find(|line| line["access"] == "write" && line["procedure"] == "StoreData64").unwrap();
    assert_eq!(write["volume"], store["volume"], "whose call it was: {write}");
}

#[test]
fn excess_and_quick_lines_are_omitted_and_counted() {
    let cell =
        Logging::start("[observe]\nlog_events = [\"call\", \"disk=100s\"]\nlog_events_per_second = 3\n");
    cell.load();
    let calls = soon("lines and what was left out are all calls", || {
        let (metrics, lines) = (cell.metrics(), cell.events());
        let of = |name: &str| {
            metrics[&format!("cellar_event_lines_{name}{{event=\"call\"}}")].parse::<u64>().unwrap()
        };
        let calls = metrics.iter().filter(|(name, _)| name.starts_with("cellar_call_calls_total"));
        let calls: u64 = calls.map(|(_, number)| number.parse::<u64>().unwrap()).sum();
        let written = lines.iter().filter(|line| line["message"] == "call").count() as u64;
        let left_out: u64 = lines.iter().filter_map(|line| line["lines"].as_u64()).sum();
        let is_equal = (written, left_out, calls)
            == (of("written_total"), of("dropped_total"), of("written_total") + of("dropped_total"));
        (is_equal && written > 0 && left_out > 0).then_some(calls)
    });
    assert!(calls > 20, "{calls}");
    let metrics = cell.metrics();
    let disk = ["on", "from_seconds", "written_total", "dropped_total"]
        .map(|name| metrics[&format!("cellar_event_lines_{name}{{event=\"disk\"}}")].as_str());
    assert_eq!(disk, ["1", "100.000000000", "0", "0"], "what took less is not left out");
    let lock = &metrics["cellar_event_lines_on{event=\"lock\"}"];
    assert_eq!(lock, "0");
}

#[test]
fn log_filters_change_at_run_time() {
    let cell = Logging::start("");
    cell.0.run(&["server", "log-events", "call", "lock=1us", "--per-second", "50"]);
    // The call that selected the events ends after the selection.
    soon("calls are logged", || cell.events().iter().any(|line| line["message"] == "call").then_some(()));
    let table = cell.0.stat("events");
    let on = |row: &&Value| row["on"] == 1;
    // Rows are sorted by the number of lines, which depends on the threads.
    let mut chosen: Vec<(&str, &Value)> =
        table.iter().filter(on).map(|row| (row["event"].as_str().unwrap(), &row["from_ns"])).collect();
    chosen.sort_by_key(|row| row.0);
    assert_eq!(chosen, [("call", &0.into()), ("lock", &1000.into())], "{table:?}");
    cell.0.run(&["server", "log-events"]);
    let written =
        || cell.0.stat("events").iter().find(|row| row["event"] == "call").unwrap()["written"].clone();
    let before = written();
    assert_eq!((written(), before.as_u64() > Some(0)), (before, true), "to ask is a call");
}

#[test]
fn each_thread_of_a_server_has_a_name() {
    let cell = Logging::start("[observe]\nlog_events = [\"call=10s\"]\n");
    let tasks = format!("/proc/{}/task", cell.0.id());
    let names = || -> Vec<String> {
        let tasks = std::fs::read_dir(&tasks).unwrap().flatten();
        let names = tasks.flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.map(|name| name.trim_end().to_owned()).collect()
    };
    // The last thread that a server starts.
    soon("registering", || names().contains(&"register".to_owned()).then_some(()));
    // The main thread and RocksDB's timer have no name; others get theirs as soon as they run.
    let nameless = || names().iter().filter(|name| *name == "cellar").count();
    soon("named threads", || (nameless() <= 2).then_some(()));
    let names = names();
    for name in ["compact /vicepa", "scrub /vicepa", "purge", "maintain", "snapshots", "jobs"] {
        assert!(names.iter().any(|thread| thread == name), "no {name}: {names:?}");
    }
}
