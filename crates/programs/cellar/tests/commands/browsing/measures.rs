//! Compares what the page draws with the server's counters: every table of figures, lines and heat maps.

use super::browser::Browser;
use super::contents::{looks_twice, table_rows};
use super::{Process, Station, look, open_table};
use crate::support::noise;
use events::{Declaration, Declared, Kind};
use load::files::Files;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Figures of a table by row (labels) and column.
type Figures = BTreeMap<Vec<String>, BTreeMap<String, u64>>;

/// Returns the page's figures of a table, for every column.
fn page(browser: &mut Browser, table: &str) -> Figures {
    let reported = browser.evaluate(&format!(
        "[...document.querySelectorAll('table[data-table={table}] tbody tr')].map((row) => [row.dataset.key.split('\\u0000'),\
         Object.fromEntries([...row.querySelectorAll('td.figure')].map(({{ dataset }}) => [dataset.figure, Number(dataset.value)]))])"
    ));
    let rows: Vec<(Vec<String>, BTreeMap<String, u64>)> = serde_json::from_value(reported).unwrap();
    rows.into_iter().filter(|(labels, _)| labels.iter().any(|label| !label.is_empty())).collect()
}

/// Returns the commands' figures of a table, with all parts of distributions.
fn reported(rows: &[Value], labels: &[&str], figures: &[Declaration]) -> Figures {
    let row = |row: &Value| {
        let label = |name: &&str| row[*name].as_str().map_or_else(|| row[*name].to_string(), str::to_owned);
        let mut reported = BTreeMap::new();
        for figure in figures {
            let unit = match figure.unit {
                events::Unit::Count => "",
                events::Unit::Bytes => "_bytes",
                events::Unit::Nanoseconds => "_ns",
            };
            let (name, value) = (figure.name.replace('_', " "), &row[format!("{}{unit}", figure.name)]);
            if let Value::Object(parts) = value {
                reported
                    .extend(parts.iter().map(|(part, it)| (format!("{name} {part}"), it.as_u64().unwrap())));
            } else {
                let number = value.as_u64().unwrap_or_else(|| panic!("{name} of {row}"));
                reported.insert(name, number);
            }
        }
        (labels.iter().map(label).collect::<Vec<_>>(), reported)
    };
    rows.iter().filter(|row| !row[labels[0]].is_null() && row[labels[0]] != "(others)").map(row).collect()
}

/// Compares figures: a counter must be between the two samples, and other figures must be near them.
fn agree(table: &str, figures: &[Declaration], before: &Figures, page: &Figures, after: &Figures) {
    assert_eq!(page.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{table}");
    let grows = |column: &str| {
        let named = |figure: &&Declaration| {
            let rest = column.strip_prefix(&figure.name.replace('_', " "));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let figure = figures.iter().filter(named).max_by_key(|figure| figure.name.len());
        matches!(figure.map(|figure| figure.kind), Some(Kind::Counter | Kind::Highest))
            || column.ends_with(" max")
    };
    for (labels, row) in page {
        let [before, after] =
            [before, after].map(|reported| reported.get(labels).cloned().unwrap_or_default());
        // Parts of a distribution other than its maximum cannot be compared while it changes.
        let is_same = |column: &str| {
            let count = column.rsplit_once(' ').map(|(name, _)| format!("{name} count"));
            count.is_none_or(|count| before.get(&count) == after.get(&count))
        };
        for (column, value) in row {
            let [least, most] = [&before, &after].map(|reported| reported.get(column).copied().unwrap_or(0));
            let (least, most) = (least.min(most), least.max(most));
            let (least, most) = match (grows(column), is_same(column)) {
                (true, _) => (least, most),
                (false, true) => (least.saturating_sub(2 + least / 10), most + 2 + most / 10),
                (false, false) => continue,
            };
            assert!(
                (least..=most).contains(value),
                "{table} {labels:?} {column}: {value}, not {least} to {most}"
            );
        }
    }
    let something = page.values().flat_map(BTreeMap::values).filter(|value| **value > 0).count();
    assert!(something > 0, "{table} has nothing but zeros");
}

pub(super) fn tables_are_those_of_the_server(browser: &mut Browser, cell: &Process) {
    let of_stat: [(&str, &[&str], &[Declaration]); 7] = [
        ("clients", &["host", "user"], events::catalogue::UsageFigures::DECLARATIONS),
        ("hosts", &["host"], events::catalogue::HostFigures::DECLARATIONS),
        ("disk", &["partition", "access"], events::catalogue::DiskFigures::DECLARATIONS),
        ("lanes", &["port", "lane"], events::catalogue::LaneFigures::DECLARATIONS),
        ("workers", &["port"], events::catalogue::WorkerFigures::DECLARATIONS),
        ("callbacks", &["port"], events::catalogue::CallbackFigures::DECLARATIONS),
        ("partitions", &["partition"], events::catalogue::PartitionFigures::DECLARATIONS),
    ];
    for (table, labels, figures) in of_stat {
        open_table(browser, table);
        browser.evaluate("[...document.querySelectorAll('button[aria-pressed=false]')].find((it) => it.textContent === 'All columns')?.click()");
        let ask = || reported(&cell.stat(table), labels, figures);
        let before = ask();
        looks_twice(browser, &format!("/tables/{table}"));
        let page = page(browser, table);
        agree(table, figures, &before, &page, &ask());
    }
    process_is_that_of_stat(browser, cell);
}

/// A single row without a name.
fn process_is_that_of_stat(browser: &mut Browser, cell: &Process) {
    open_table(browser, "process");
    let reported = &cell.stat("process")[0]["volumes_loaded"];
    let shown = browser
        .evaluate("Number(document.querySelector('main td[data-figure=\"volumes loaded\"]').dataset.value)");
    assert!(reported.is_u64() && shown == *reported, "{shown}, not {reported}");
}

pub(super) fn slow_calls_are_those_of_the_command(browser: &mut Browser, cell: &Process) {
    let calls = || cell.rows(&["slow"]);
    browser.evaluate("location.hash = '#/slow'");
    browser.wait_for("document.querySelector('table[data-table=slow] tbody tr')");
    let before = calls();
    looks_twice(browser, "/slow");
    let shown = table_rows(browser, "slow");
    let all = [before.clone(), calls()].concat();
    assert!(
        !before.is_empty() && shown.len() >= before.len().min(200),
        "{} of {}",
        shown.len(),
        before.len()
    );
    // The page's own formatting of times.
    let words = |browser: &mut Browser, of: &str| -> Vec<String> {
        let expression = format!(
            "import('/format.js').then(({{ day, time }}) => {}.map((call) => {of}))",
            Value::Array(all.clone())
        );
        serde_json::from_value(browser.evaluate(&expression)).unwrap()
    };
    let ended = words(browser, "day(call.ended)");
    let took = words(browser, "time(call.total_ns).join('')");
    let parts = words(
        browser,
        "Object.entries(call.parts_ns).filter(([, ns]) => ns * 100 >= call.total_ns && ns > 0).map(([name, ns]) => `${name} ${time(ns).join(' ').trim()}`).join()",
    );
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let known: Vec<([String; 4], &str)> = (0..all.len())
        .map(|at| {
            let call = &all[at];
            let who = format!("{} at {}", text(&call["user"]), text(&call["host"]));
            let what = format!("{} {}", text(&call["service"]), text(&call["procedure"]));
            ([ended[at].clone(), what, who, took[at].clone()], parts[at].as_str())
        })
        .collect();
    for row in &shown {
        is_known(row, &known);
    }
}

/// Checks a row against the calls that the command returns, with the parts of their times. Two calls can have the same
/// second and the same printed duration.
fn is_known(row: &[String], known: &[([String; 4], &str)]) {
    let [ended, what, _, who, took, why, ..] = row else { panic!("{row:?}") };
    let call = [ended, what, who, took].map(Clone::clone);
    let alike: Vec<&str> =
        known.iter().filter(|(known, _)| *known == call).map(|(_, parts)| *parts).collect();
    assert!(!alike.is_empty(), "{row:?} is none of {known:#?}");
    let shows = |parts: &&str| parts.split(',').all(|part| why.contains(part));
    assert!(alike.iter().any(shows), "{row:?}: none of {alike:?}");
}

/// Sums over some periods: by chart line and by heat map.
#[derive(Debug, Default)]
struct Came {
    lines: BTreeMap<String, u64>,
    heats: BTreeMap<String, u64>,
}

/// Returns the samples that the page draws.
fn samples(browser: &mut Browser) -> Vec<Value> {
    let reported = browser.evaluate("fetch('/api/history?after=0').then((reply) => reply.json())");
    reported.as_array().unwrap().clone()
}

/// Waits until everything so far is in a sample, and returns that sample's number.
fn settled(browser: &mut Browser) -> u64 {
    let last =
        |browser: &mut Browser| samples(browser).last().map_or(0, |sample| sample[0].as_u64().unwrap());
    let then = last(browser);
    while last(browser) < then + 2 {
        std::thread::sleep(Duration::from_millis(300));
    }
    last(browser)
}

fn came(samples: &[Value], history: &Value, after: u64, until: u64) -> Came {
    let names = |key: &str| history[key].as_array().unwrap().clone();
    let lines = names("charts").into_iter().flat_map(|chart| chart["lines"].as_array().unwrap().clone());
    let (lines, heats): (Vec<Value>, Vec<Value>) = (lines.collect(), names("heats"));
    let mut came = Came::default();
    let number = |value: &Value| value.as_u64().unwrap();
    for sample in samples.iter().filter(|sample| (after + 1..=until).contains(&number(&sample[0]))) {
        for (line, value) in lines.iter().zip(sample[3].as_array().unwrap()) {
            *came.lines.entry(line["name"].as_str().unwrap().into()).or_default() += number(value);
        }
        for (heat, pairs) in heats.iter().zip(sample[4].as_array().unwrap()) {
            let counts = pairs.as_array().unwrap().iter().skip(1).step_by(2);
            *came.heats.entry(heat["name"].as_str().unwrap().into()).or_default() +=
                counts.map(number).sum::<u64>();
        }
    }
    came
}

/// Under a known load, the samples add up to the figures of `cellar stat`, and the page draws the samples.
pub(super) fn lines_and_heat_maps_are_of_the_load(browser: &mut Browser, cell: &Process) {
    let root = cell.root("load");
    let station = Station::start().unwrap();
    let anonymous = cell.connect(&station);
    let files = Files::new(anonymous.clone());
    let fid = files.create(root, "drawn").unwrap();
    let data = noise(300_000);
    browser.evaluate("location.hash = '#/'");
    browser.wait_for("document.querySelector('.heat canvas')");

    let (calls, disk) = (cell.stat("calls"), cell.stat("disk"));
    let first = settled(browser);
    (0..400).for_each(|_| look(&*anonymous, fid));
    (0..3).for_each(|_| files.store(fid, &data).unwrap());
    files.fetch_and_compare(fid, &data, 1 << 20).unwrap();
    let last = settled(browser);
    let (calls, disk) = ([calls, cell.stat("calls")], [disk, cell.stat("disk")]);

    let about = browser.evaluate("fetch('/api/about').then((reply) => reply.json())");
    let came = came(&samples(browser), &about["history"], first, last);
    let sum = |rows: &[Value], path: &[&str], of: &dyn Fn(&Value) -> bool| -> u64 {
        let value = |row: &Value| path.iter().fold(row, |value, name| &value[*name]).as_u64().unwrap();
        rows.iter().filter(|row| of(row)).map(value).sum()
    };
    let of_files = |path: &[&str]| {
        let of = |row: &Value| row["service"] == "AFS";
        sum(&calls[1], path, &of) - sum(&calls[0], path, &of)
    };
    let [all, good, fast_path] = [&["calls"][..], &["outcomes", "good"], &["fast_path"]].map(of_files);
    assert!(all >= 404, "{all} calls");
    let expected = [
        ("calls", all),
        ("failed", all - good),
        ("sent", of_files(&["sent_bytes"])),
        ("received", of_files(&["received_bytes"])),
    ];
    for (line, number) in expected {
        assert_eq!(came.lines[line], number, "{line}: {came:?}");
    }
    assert_eq!((came.heats["run"], came.heats["wait"]), (all, all - fast_path), "{came:?}");
    let of_disk = |path: &[&str], access: &str| {
        let of = |row: &Value| access.is_empty() || row["access"] == access;
        sum(&disk[1], path, &of) - sum(&disk[0], path, &of)
    };
    // The server's own background work happens at any time.
    let (written, reported) = (came.lines["disk_written"], of_disk(&["moved_bytes"], "write"));
    assert!((900_000..=reported).contains(&written), "{written} of {reported} bytes");
    let (accesses, reported) = (came.heats["disk"], of_disk(&["accesses"], ""));
    assert!(accesses > 0 && accesses <= reported, "{accesses} of {reported} accesses");

    browser.evaluate("document.activeElement.blur(); scrollTo(0, 0)");
    browser.evaluate("performance.clearResourceTimings()");
    browser.wait_for(&format!(
        "performance.getEntriesByType('resource').some(({{ name }}) => Number(/after=(\\d+)/.exec(name)?.[1] ?? 0) >= {last})"
    ));
    browser.key("p");
    browser.wait_for("document.querySelector('#state').dataset.state === 'paused'");
    let drawn = json!({ "samples": samples(browser), "history": about["history"] });
    browser.evaluate(&format!("window.drawn = {drawn}; {DRAWN}"));
    the_cross_hair_shows_numbers(browser);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        pictures_are_of_the_samples(browser, scheme);
    }
    browser.prefer("light");
    browser.key("p");
    browser.wait_for("document.querySelector('#state').dataset.state === 'live'");
}

/// Computes independently what the page must draw. Chart 0 shows calls, heat map 0 the time to serve them.
const DRAWN: &str = r"
window.clockOf = (ms) => new Date(ms).toISOString().slice(11, 19);
window.expected = async () => {
  const { text, exact } = await import('/format.js');
  const { samples, history } = window.drawn;
  const within = (pairs, sum, share) => {
    let seen = 0;
    for (let at = 0; at < pairs.length; at += 2) { seen += pairs[at + 1]; if (seen >= share * sum) return text(history.heat_bounds_ns[pairs[at]], 'ns'); }
  };
  return Object.fromEntries(samples.map(([, at, span, lines, heats]) => {
    const pairs = heats[0];
    const sum = pairs.reduce((all, count, place) => all + (place % 2 ? count : 0), 0);
    const rates = [0, 1].map((line) => `${text((lines[line] * 1000) / span, 'count', true)}/s`);
    return [clockOf(at), { rates, heat: sum ? `${exact(sum)[0]}, half within ${within(pairs, sum, 0.5)}, 99 % within ${within(pairs, sum, 0.99)}` : 'none', calls: lines[0] }];
  }));
};
window.rgb = (words) => words.match(/[\d.]+/g).slice(0, 3).map(Number);
window.pixels = (canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
window.colours = (image) => new Set(Array.from({ length: image.data.length / 4 }, (_, at) => image.data.slice(4 * at, 4 * at + 4).join())).size;
window.span = async (canvas) => {
  const { spanOf } = await import('/chart.js');
  // The page may not have the newest of these samples.
  const { samples } = window.drawn;
  const last = samples.findLast(([, at]) => clockOf(at) === window.lastDrawn);
  const to = last[1];
  const from = to - spanOf(samples[0][1], to);
  const [left, right] = [52, canvas.clientWidth - 4];
  const step = ((right - left) * 2000) / (to - from);
  return { to, step, samples: samples.filter(([, at]) => at >= from && at <= to), x: (at) => left + ((right - left) * (at - from)) / (to - from) };
};
window.chartPicture = async () => {
  const canvas = document.querySelector('.chart canvas');
  const image = pixels(canvas);
  const line = rgb(getComputedStyle(document.querySelector('.chart .key-1 i')).backgroundColor);
  const isLine = (place) => image.data[place + 3] > 200 && line.every((channel, at) => Math.abs(channel - image.data[place + at]) < 40);
  const { samples, x } = await span(canvas);
  const peak = samples.reduce((best, sample) => (sample[3][0] / sample[2] > best[3][0] / best[2] ? sample : best));
  let top = -1;
  for (let place = 0; place < image.data.length && top < 0; place += 4) if (isLine(place)) top = (place / 4) % canvas.width;
  return { colours: colours(image), top, peak: x(peak[1]) };
};
window.heatPicture = async () => {
  const section = document.querySelector('.heat');
  const canvas = section.querySelector('canvas.plot');
  const image = pixels(canvas);
  const scale = pixels(section.querySelector('canvas.scale'));
  const { samples, x, step } = await span(canvas);
  const all = samples.flatMap(([, at, , , heats]) => heats[0].flatMap((row, place, pairs) => (place % 2 ? [] : [{ at, row, count: pairs[place + 1] }])));
  let [least, most] = [Math.min(...all.map(({ row }) => row)), Math.max(...all.map(({ row }) => row))];
  while (most - least < 9) { if (least > 0) least -= 1; if (most < window.drawn.history.heat_bounds_ns.length - 1) most += 1; }
  const greatest = Math.max(...all.map(({ count }) => count));
  const [top, bottom] = [4, canvas.clientHeight - 20];
  const height = (bottom - top) / (most - least + 1);
  // The middle of a cell; the first ones may be cut off.
  const column = (cell) => Math.floor(x(cell.at) - step / 2);
  const cells = all.filter((cell) => column(cell) > 54);
  const at = (cell) => {
    const place = 4 * (Math.floor(bottom - height * (cell.row - least + 0.5)) * canvas.width + column(cell));
    return [...image.data.slice(place, place + 4)];
  };
  const scaleColours = Array.from({ length: scale.width }, (_, step) => [...scale.data.slice(4 * step, 4 * step + 4)].join());
  const wanted = (count) => Math.round((greatest > 1 ? Math.log(count) / Math.log(greatest) : 1) * (scale.width - 1));
  const wrong = cells.filter((cell) => scaleColours[wanted(cell.count)] !== at(cell).join());
  return { colours: colours(image), cells: cells.length, wrong: wrong.map((cell) => ({ ...cell, is: at(cell).join(), wanted: scaleColours[wanted(cell.count)] })), greatest, told: section.querySelector('.scale-key .number').textContent };
};";

/// The arrow keys step through the samples, and the numbers beside a picture are those of the selected
/// sample.
fn the_cross_hair_shows_numbers(browser: &mut Browser) {
    let expected = browser.evaluate("expected()");
    let most =
        expected.as_object().unwrap().values().map(|reported| reported["calls"].as_u64().unwrap()).max();
    let mut seen = Vec::new();
    browser.evaluate("document.querySelector('.chart canvas').focus()");
    for key in ["ArrowRight"].iter().chain(&["ArrowLeft"; 12]) {
        browser.key(key);
        let reported = browser.evaluate(
            "(({ children }) => [children[children.length - 1].textContent, [...document.querySelector('.chart .legend').querySelectorAll('b')].map((it) => it.textContent)])(document.querySelector('.chart .legend'))",
        );
        let clock = reported[0].as_str().unwrap().strip_prefix("at ").unwrap().to_owned();
        if *key == "ArrowRight" {
            browser.evaluate(&format!("window.lastDrawn = '{clock}'"));
        }
        assert_eq!(reported[1], expected[&clock]["rates"], "{clock}");
        seen.push(expected[&clock]["calls"].as_u64());
    }
    assert!(seen.contains(&most), "the load was not among {seen:?}");
    browser.evaluate("document.querySelector('.heat canvas.plot').focus()");
    for _ in 0..12 {
        browser.key("ArrowLeft");
        let reported = browser.evaluate("document.querySelector('.heat .readout').textContent");
        let (clock, words) = reported.as_str().unwrap().split_once(": ").unwrap();
        assert_eq!(expected[clock]["heat"], words, "{clock}");
    }
    browser.evaluate("document.activeElement.blur()");
}

fn pictures_are_of_the_samples(browser: &mut Browser, scheme: &str) {
    // It is redrawn in other colours a moment later.
    let frames =
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
    browser.evaluate(frames);
    let chart = browser.evaluate("chartPicture()");
    let [top, peak] = ["top", "peak"].map(|key| chart[key].as_f64().unwrap());
    assert!(chart["colours"].as_u64() > Some(20), "{scheme}: {chart}");
    assert!((top - peak).abs() < 9.0, "{scheme}: the line is highest at {top}, the load was at {peak}");
    let heat = browser.evaluate("heatPicture()");
    assert!(heat["colours"].as_u64() > Some(5) && heat["cells"].as_u64() > Some(3), "{scheme}: {heat}");
    assert_eq!(heat["wrong"], json!([]), "{scheme}: {heat}");
    let reported = heat["told"].as_str().unwrap().replace(',', "");
    assert_eq!(reported, heat["greatest"].to_string(), "{scheme}");
}
