//! Compares the page's views with the output of the commands for the same server.

use super::browser::Browser;
use super::{Process, Station, look, now_ms, open_table, shown};
use job_runner::journal::Journal;
use jobs::{Job, Operation};
use load::files::Files;
use serde_json::{Value, json};

/// Volume of [`probes`].
const PROBED: &str = "probe.fs1";

/// Two successful probes with an incident of two failed probes between them.
pub(super) fn probes() -> String {
    let line = |ago_ms, read_us: Option<u64>, total_us, error: Option<&str>| {
        json!({ "time_ms": now_ms() - ago_ms, "volume": PROBED, "server": "127.0.0.1", "locate_us": 100,
            "open_us": 200, "write_us": 5000, "read_us": read_us, "total_us": total_us,
            "step": error.map(|_| "read"), "error": error })
    };
    let lines = [
        line(400_000, Some(700), 6000, None),
        line(300_000, None, 5300, Some("the server does not answer")),
        line(200_000, None, 5300, Some("the server does not answer")),
        line(100_000, Some(900), 6200, None),
    ];
    lines.map(|line| format!("{line}\n")).concat()
}

fn open(browser: &mut Browser, view: &str, until: &str) {
    browser.evaluate(&format!("location.hash = '#/{view}'"));
    browser.wait_for(until);
}

/// Returns the cell texts of all rows of a table.
pub(super) fn table_rows(browser: &mut Browser, table: &str) -> Vec<Vec<String>> {
    let expression = format!(
        "[...document.querySelectorAll('table[data-table={table}] tbody tr')]\
         .map((row) => [...row.children].map((cell) => cell.textContent))"
    );
    serde_json::from_value(browser.evaluate(&expression)).unwrap()
}

/// Formats a time like the page; the browser's time zone is UTC.
fn day(seconds: &Value) -> String {
    let at = jiff::Timestamp::from_second(seconds.as_i64().unwrap()).unwrap();
    at.strftime("%F %T").to_string()
}

/// Every query changes the counters, so the page is read between two queries and must be between their
/// results.
pub(super) fn caches_and_locks_are_those_of_stat(browser: &mut Browser, cell: &Process) {
    let caches = ["entries", "limit", "hits", "misses", "evictions", "purged"];
    let of_caches =
        ["entries", "limit_bytes", "hits", "misses", "evictions", "purged"].map(|name| vec![name]);
    compare(browser, cell, "caches", "name", &caches, &of_caches);
    assert!(shown(browser, "status", "hits") >= 50, "the file's status was asked for so often");
    let of_locks = [vec!["waits"], vec!["wait_ns", "max"]];
    compare(browser, cell, "locks", "lock", &["waits", "wait max"], &of_locks);
    assert!(shown(browser, "lane", "waits") > 0, "threads of a server wait for its lanes");
}

/// Waits until the page has requested a document twice; the second one includes, and shows, everything
/// before.
pub(super) fn looks_twice(browser: &mut Browser, document: &str) {
    let looks = format!(
        "performance.getEntriesByType('resource').filter(({{ name }}) => name.endsWith('{document}')).length"
    );
    browser.evaluate("performance.clearResourceTimings()");
    browser.wait_for(&format!("{looks} >= 2"));
}

fn compare(
    browser: &mut Browser,
    cell: &Process,
    table: &str,
    label: &str,
    figures: &[&str],
    names: &[Vec<&str>],
) {
    open_table(browser, table);
    let before = cell.stat(table);
    looks_twice(browser, &format!("/tables/{table}"));
    let page: Vec<Vec<u64>> = before
        .iter()
        .map(|row| {
            figures.iter().map(|figure| shown(browser, row[label].as_str().unwrap(), figure)).collect()
        })
        .collect();
    let after = cell.stat(table);
    assert_eq!(table_rows(browser, table).len(), before.len());
    for (before, page) in before.iter().zip(page) {
        // Rows are sorted by their figures.
        let after = after.iter().find(|row| row[label] == before[label]).unwrap();
        for (names, page) in names.iter().zip(page) {
            let value = |row: &Value| names.iter().fold(row, |value, name| &value[name]).as_u64().unwrap();
            let (least, most) = (value(before).min(value(after)), value(before).max(value(after)));
            assert!((least..=most).contains(&page), "{table} {names:?}: {page} is not in {before}, {after}");
        }
    }
}

pub(super) fn snapshots_are_those_of_the_command(browser: &mut Browser, cell: &Process, volume: &str) {
    for snapshot in [&["before-upgrade"][..], &["for-a-day", "--expires", "1d"]] {
        cell.run(&[&["volume", "snapshot", "create", "load"], snapshot].concat());
    }
    let snapshots = cell.json(&["volume", "snapshot", "list", "load"]);
    let rows = "document.querySelectorAll('table[data-table=snapshots] tbody tr').length === 2";
    open(browser, &format!("volume/{volume}"), rows);
    let page = table_rows(browser, "snapshots");
    for (row, reported) in page.iter().zip(snapshots.as_array().unwrap()) {
        let expires = if reported["expires"].is_null() { "never".into() } else { day(&reported["expires"]) };
        let name = reported["name"].as_str().unwrap();
        assert_eq!(row[..4], [name, &reported["volume"].to_string(), &day(&reported["made"]), &expires]);
    }
    assert!(page[1][3] != "never" && page[0][3] == "never", "{page:?}");
    let facts = browser.evaluate("document.querySelector('.facts').innerText.replace(/\\s+/g, ' ')");
    let listed = cell.json(&["volume", "list"]);
    let listed = listed.as_array().unwrap();
    let load = listed.iter().find(|row| row["id"] == volume.parse::<u64>().unwrap()).unwrap();
    for fact in [format!("Number {volume} "), format!("Files {} ", load["files"])] {
        assert!(facts.as_str().unwrap().to_lowercase().contains(&fact.to_lowercase()), "{fact}: {facts}");
    }

    open(browser, "volumes", "document.querySelector('table[data-table=inventory] tbody tr')");
    let page = table_rows(browser, "inventory");
    assert_eq!(page.len(), listed.len());
    for reported in listed {
        let number = reported["id"].to_string();
        let row = page.iter().find(|row| row[1] == number).unwrap();
        let state = if reported["online"] == true { "online" } else { "offline" };
        assert_eq!((&*row[0], row[4].trim()), (reported["name"].as_str().unwrap(), state));
        assert_eq!((&*row[7], &*row[8]), (&*reported["files"].to_string(), &*day(&reported["updated"])));
    }
}

/// One job that sends nothing, one that sends data, and one that fails.
pub(super) fn jobs_are_those_of_the_command(browser: &mut Browser, cell: &Process) {
    open(browser, "jobs", "document.querySelector('main').innerText.includes('No jobs')");
    cell.run(&["volume", "backup", "load"]);
    cell.run(&["volume", "copy", "load", "load.copy"]);
    let failing = cell.output(&["volume", "copy", "load", "load.bad", "--partition", "z"]);
    assert!(!failing.status.success(), "there is no such partition");
    let jobs = cell.json(&["volume", "jobs", "list"]);
    let jobs = jobs.as_array().unwrap();
    // They appear without a user action.
    let stages = "[...document.querySelectorAll('article.job .stage')].map((it) => it.textContent).join()";
    browser.wait_for(&format!("{stages} === 'failed,done,done'"));
    for job in jobs {
        let number = job["job"].to_string();
        let page = browser.evaluate(&format!(
            "(() => {{ const it = document.querySelector('article[data-job=\"{number}\"]'); const sent = it.querySelector('.sent');\
             const bar = it.querySelector('progress'); return {{ title: it.querySelector('h2').textContent,\
             stage: it.querySelector('.stage').textContent, words: it.querySelector('progress + p').textContent,\
             position: bar.position, steps: [...it.querySelectorAll('li')].map((step) => step.textContent),\
             sent: sent && {{ ...sent.dataset }}, said: sent?.textContent }}; }})()"
        ));
        let words = if job["trouble"].is_null() { &job["doing"] } else { &job["trouble"] };
        assert_eq!((&page["title"], &page["words"]), (&job["title"], words));
        assert_eq!((&page["stage"], &page["position"]), (&job["stage"], &json!(1)));
        let shown = cell.json(&["volume", "jobs", "show", &number]);
        let events = shown["events"].as_array().unwrap();
        let step = |event: &Value| format!("{} {}", day(&event["at"]), event["what"].as_str().unwrap());
        assert_eq!(page["steps"], events.iter().map(step).collect::<Value>());
        if job["total"] == 0 {
            assert_eq!(page["sent"], Value::Null);
            continue;
        }
        let [total, done, sent] = ["total", "done", "sent"].map(|name| job[name].to_string());
        assert_eq!(page["sent"], json!({ "total": total, "done": done, "sent": sent }));
        assert!(page["said"].as_str().unwrap().contains("KiB of "), "{page}");
    }
    assert!(jobs[1]["sent"].as_u64().unwrap() > 300_000, "the copy has the file: {}", jobs[1]);
}

/// A running job at each of its stages. This test plays the running process, through the job's record in the
/// journal. The server itself reports the transfer, because it knows the transaction.
pub(super) fn the_bar_of_a_job_that_runs_moves(browser: &mut Browser, cell: &Process) {
    let journal = Journal::open(cell.settings().jobs_path()).unwrap();
    let copied = journal.all().unwrap().into_iter().find(|job| job.traffic().total > 0).unwrap();
    let sent = copied.traffic();
    let mut record = serde_json::to_value(&copied).unwrap();
    let begun = |number| {
        let (name, to) = ("copy".into(), copied.from);
        Job::new(number, Operation::Copy(jobs::Copy { name, to }), copied.volume(), &copied.name, copied.from)
    };
    let (job, _claim) = journal.begin(begun).unwrap();
    record["id"] = json!(job.id);
    let (operation, new_volume) = (record["operation"].clone(), record["new_volume"].clone());
    let transaction = record["sent"][0].clone();
    let mut show = |stage: &str, done: Option<u64>| {
        record["stage"] = json!(stage);
        // A copy has no stage `catching_up`, a release has.
        record["operation"] =
            if stage == "catching_up" { json!({ "release": { "all": false } }) } else { operation.clone() };
        let is_switching = stage == "switching";
        for field in ["clone_begun", "new_begun"] {
            record[field] = json!(is_switching);
        }
        record["clone"] = json!(u32::from(is_switching));
        record["new_volume"] = if stage == "beginning" { json!(0) } else { new_volume.clone() };
        record["events"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "at": 1, "what": format!("{stage}, {done:?}") }));
        record["transactions"] = json!([]);
        record["sent"] = json!([transaction]);
        if let Some(done) = done {
            record["sent"][0]["traffic"]["done"] = json!(done);
        } else {
            let (server, id) = (&transaction["server"], &transaction["transaction"]);
            record["transactions"] = json!([{ "server": server, "id": id, "volume": 0 }]);
            record["sent"] = json!([]);
        }
        journal.write(&serde_json::from_value(record.clone()).unwrap()).unwrap();
        record["events"].as_array().unwrap().len()
    };
    open(browser, "jobs", &format!("document.querySelector('article[data-job=\"{}\"]')", job.id));
    let of_it = |what: &str| format!("document.querySelector('article[data-job=\"{}\"]').{what}", job.id);
    browser.evaluate(&of_it("querySelector('summary').click()"));
    browser.evaluate(&of_it("querySelector('summary').focus()"));
    let half = sent.total / 2;
    for (stage, done, position) in [
        ("beginning", Some(0), 0.0),
        ("working", Some(0), 0.25),
        ("working", Some(half), 0.375),
        ("working", None, 0.5),
        ("switching", Some(sent.total), 0.5),
        ("cleaning", Some(sent.total), 0.75),
        // The duration of these stages is unknown.
        ("catching_up", Some(half), -1.0),
        ("undoing", Some(half), -1.0),
        ("done", Some(sent.total), 1.0),
    ] {
        let steps = show(stage, done);
        browser.wait_for(&of_it(&format!("querySelectorAll('li').length === {steps}")));
        let reported = browser.evaluate(&of_it("querySelector('progress').position")).as_f64().unwrap();
        // Half of an odd number of bytes is not exactly the middle.
        assert!((reported - position).abs() < 1e-4, "{stage} {done:?}: {reported}, not {position}");
        assert_eq!(browser.evaluate(&of_it("querySelector('.stage').textContent")), stage.replace('_', " "));
        let there = browser.evaluate(&of_it("querySelector('.sent').dataset.done"));
        assert_eq!(there, done.unwrap_or(sent.done).to_string(), "{stage}");
        let label = browser.evaluate(&of_it("querySelector('progress').getAttribute('aria-label')"));
        assert_eq!(label, format!("Job {}: {stage}", job.id));
        assert_eq!(browser.evaluate(&of_it("querySelector('details').open")), true, "it stays open");
        let focused = "document.activeElement.tagName + document.activeElement.parentElement.id";
        assert_eq!(browser.evaluate(focused), format!("SUMMARYjob-{}", job.id), "the keyboard stays there");
    }
}

/// On a phone, a scrolled table stays in place when the view is redrawn, and its rows are single lines.
pub(super) fn a_scrolled_table_stays_so(browser: &mut Browser, cell: &Process) {
    let row =
        |number: u32| format!("document.querySelector('main').textContent.includes('scrolled.{number}')");
    cell.run(&["volume", "create", "scrolled.1"]);
    open(browser, "volumes", &row(1));
    let table = "document.querySelector('main .scroll')";
    browser.evaluate(&format!("{table}.scrollLeft = 60"));
    cell.run(&["volume", "create", "scrolled.2"]);
    browser.wait_for(&row(2));
    assert_eq!(browser.evaluate(&format!("{table}.scrollLeft")), 60);
    let highest = browser.evaluate(
        "Math.max(...[...document.querySelectorAll('main tbody tr')].map((row) => row.offsetHeight))",
    );
    assert!(highest.as_u64().unwrap() < 40, "a row is {highest} high");
}

pub(super) fn probes_are_those_of_the_report(browser: &mut Browser, cell: &Process) {
    let history = cell.path("probes.jsonl");
    let report = cell.json(&["probe", "report", "--history", history.to_str().unwrap(), "--hours", "24"]);
    open(browser, "probes", "document.querySelector('table[data-table=probes] tbody tr')");
    let us = |value: &Value| match value.as_u64().unwrap() {
        us @ 0..1000 => format!("{us}µs"),
        us => format!("{}.{:02}ms", us / 1000, us % 1000 / 10),
    };
    let page = table_rows(browser, "probes");
    for reported in report["volumes"].as_array().unwrap() {
        let row = page.iter().find(|row| row[0] == reported["volume"].as_str().unwrap()).unwrap();
        assert_eq!(row[3..5], [reported["probes"].to_string(), reported["failures"].to_string()]);
        let [read, write, total] = ["read", "write", "total"].map(|name| &reported[name]);
        let times =
            [&read["median_us"], &read["p99_us"], &write["median_us"], &write["p99_us"], &total["max_us"]];
        assert_eq!(row[5..].iter().map(|cell| cell.replace(".0µs", "µs")).collect::<Vec<_>>(), times.map(us));
    }
    let probed = page.iter().find(|row| row[0] == PROBED).unwrap();
    assert_eq!(probed[3..5], ["4", "2"]);
    let incidents = table_rows(browser, "incidents");
    let reported = report["incidents"].as_array().unwrap();
    assert_eq!((incidents.len(), reported.len()), (1, 1));
    let lasted = reported[0]["end_ms"].as_u64().unwrap() - reported[0]["start_ms"].as_u64().unwrap();
    assert_eq!(incidents[0][1], PROBED);
    assert_eq!(incidents[0][3], format!("{} min", (lasted + 30_000) / 60_000));
    assert_eq!(incidents[0][4..], ["2", "read: the server does not answer"]);
    let bars = "[...document.querySelectorAll('main tbody tr')].find((row) => row.textContent.includes('probe.fs1')).querySelectorAll('.strip i.failed').length";
    assert_eq!(browser.evaluate(bars), 2);
}

/// Profiles the processors; calls are made until there are enough samples.
pub(super) fn functions_of_the_server_are_on_the_flame_graph(
    browser: &mut Browser,
    cell: &Process,
    volume: &str,
) {
    open(browser, "profile", "document.querySelector('button[data-kind=cpu]:not(:disabled)')");
    browser.evaluate("document.querySelector('input.seconds').value = '600'");
    browser.evaluate("document.querySelector('button[data-kind=cpu]').click()");
    browser.wait_for("!document.querySelector('button[data-act=end]').disabled");
    let root = cell.root("load");
    assert_eq!(root.volume.to_string(), volume);
    let station = Station::start().unwrap();
    let anonymous = cell.connect(&station);
    let fid = Files::new(anonymous.clone()).create(root, "looked-at").unwrap();
    let samples =
        "Number(/(\\d+) samples/.exec(document.querySelector('main [role=status]').textContent)?.[1] ?? 0)";
    while browser.evaluate(samples).as_u64().unwrap() < 100 {
        let is_running = browser.evaluate("!document.querySelector('button[data-act=end]').disabled");
        assert_eq!(is_running, true, "the profile ended before it had 100 samples");
        (0..500).for_each(|_| look(&*anonymous, fid));
    }
    browser.evaluate("document.querySelector('button[data-act=end]').click()");
    browser.wait_for("document.querySelectorAll('svg.flame .box').length > 20");
    let boxes = browser.evaluate("document.querySelector('svg.flame').textContent");
    let functions = table_rows(browser, "functions");
    // In a program without function names, the program's name is shown.
    let is_own = |name: &str| ["rx::", "rx_proto::", "[cellar]"].iter().any(|part| name.contains(part));
    for name in [is_own, |name: &str| name.contains("sendm")] {
        assert!(functions.iter().any(|row| name(&row[0])), "{functions:#?}");
        assert!(name(boxes.as_str().unwrap()), "{boxes}");
    }
}
