//! Tests the web page of a real server in a real browser.

#[path = "browsing/browser.rs"]
mod browser;
#[path = "browsing/colours.rs"]
mod colours;
#[path = "browsing/contents.rs"]
mod contents;
#[path = "browsing/keyboard.rs"]
mod keyboard;
#[path = "browsing/measures.rs"]
mod measures;
#[path = "browsing/since.rs"]
mod since;
use crate::support::place::Place;
use crate::support::process::Process;
use crate::support::{Over, get, look, soon};
use browser::Browser;
use bytes::Bytes;
use load::files::Files;
use load::station::{FILE_SERVICE, Station};
use serde_json::json;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A name that would be a script if it were interpreted as markup.
const HOSTILE: &str = "<script>window.harmed=1</script><img src=x onerror=window.harmed=1>";

/// Starts the server and waits until its page has data.
fn start() -> Process {
    let place = Place::new("");
    let probe = json!({ "time_ms": now_ms(), "volume": HOSTILE, "server": "127.0.0.1", "locate_us": 90,
        "open_us": 200, "write_us": 3000, "read_us": 400, "total_us": 3690, "step": null, "error": null });
    std::fs::write(place.path("probes.jsonl"), format!("{probe}\n{}", contents::probes())).unwrap();
    // Choose the port before the server starts, so that `cellar web login` knows it.
    let address = place.address;
    let ports = [(); 2].map(|()| TcpListener::bind((address, 0)).unwrap());
    let [port, metrics] = ports.map(|free| free.local_addr().unwrap().port());
    place.configure(&format!(
        "[observe]\nslow_call_ms = 1\n\
         [web]\naddress = \"{address}\"\nport = {port}\nprobe_history = \"probes.jsonl\"\n\
         [metrics]\naddress = \"{address}\"\nport = {metrics}\n"
    ));
    let cell = Process::start(place);
    soon("the page is served", || {
        let about = get((address, port).into(), "/api/about");
        about.is_ok_and(|reply| reply.starts_with("HTTP/1.1 200 ")).then_some(())
    });
    cell
}

fn login_address(cell: &Process) -> String {
    cell.json(&["web", "login"])["url"].as_str().unwrap().to_owned()
}

/// Creates a volume and makes enough calls for figures to appear; returns the volume's number.
fn load(cell: &Process) -> String {
    let root = cell.volume("load");
    let station = Station::start().unwrap();
    let anonymous = cell.connect(&station);
    let files = Files::new(anonymous.clone());
    let fid = files.create(root, "a").unwrap();
    files.store(fid, &Bytes::from(vec![7; 300_000])).unwrap();
    (0..50).for_each(|_| look(&*anonymous, fid));
    root.volume.to_string()
}

fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Returns the exact value of a figure in the row with this label.
fn shown(browser: &mut Browser, label: &str, figure: &str) -> u64 {
    let expression = format!(
        "(() => {{ const rows = [...document.querySelectorAll('main tbody tr')];\
         const row = rows.find((row) => row.dataset.key.split('\\u0000').includes({}));\
         return Number(row?.querySelector('td[data-figure={}]')?.dataset.value ?? 0); }})()",
        json!(label),
        json!(figure)
    );
    browser.evaluate(&expression).as_u64().unwrap()
}

/// Opens a view and waits for its table.
fn open_table(browser: &mut Browser, name: &str) {
    browser.evaluate(&format!("location.hash = '#/table/{name}'"));
    browser.wait_for(&format!("document.querySelector('table[data-table={name}] tbody tr')"));
}

fn is_quiet(browser: &mut Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

fn no_wider_than_the_screen(browser: &mut Browser, view: &str) {
    let widths = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]");
    assert!(widths[0].as_u64() <= widths[1].as_u64(), "{view}: {widths}");
}

#[test]
fn the_page_agrees_with_cellar_stat() {
    let Some(chromium) = browser::find() else { return };
    let mut cell = start();
    let volume = load(&cell);
    let mut browser = Browser::start(&chromium);
    browser.resize(1280, 900);
    browser.prefer("light");
    browser.open(&cell.settings().web.as_ref().unwrap().url());
    browser.wait_for("document.querySelector('#state')?.dataset.state === 'live'");
    let background = "getComputedStyle(document.body).backgroundColor";
    let light = browser.evaluate(background);

    // Volumes are hidden until the user signs in.
    browser.evaluate("location.hash = '#/table/volumes'");
    browser.wait_for("document.querySelector('.locked')");
    // The browser itself logs the refused request.
    let refused = browser.complaints();
    assert!(refused.iter().all(|line| line.contains("401")), "{refused:#?}");

    calls_are_those_of_stat(&mut browser, &cell);
    sign_in(&mut browser, &cell);
    volumes_are_those_of_stat(&mut browser, &cell, &volume);
    is_quiet(&mut browser);
    contents::caches_and_locks_are_those_of_stat(&mut browser, &cell);
    contents::snapshots_are_those_of_the_command(&mut browser, &cell, &volume);
    contents::jobs_are_those_of_the_command(&mut browser, &cell);
    contents::the_bar_of_a_job_that_runs_moves(&mut browser, &cell);
    contents::probes_are_those_of_the_report(&mut browser, &cell);
    is_quiet(&mut browser);
    measures::tables_are_those_of_the_server(&mut browser, &cell);
    measures::slow_calls_are_those_of_the_command(&mut browser, &cell);
    measures::lines_and_heat_maps_are_of_the_load(&mut browser, &cell);
    since::greatest_are_those_of_the_commands(&mut browser);
    is_quiet(&mut browser);

    keys_lead_everywhere(&mut browser, &volume);
    keyboard::all_of_the_page_is_used(&mut browser, &volume);
    hostile_names_are_only_names(&mut browser);
    is_quiet(&mut browser);
    profiles_are_taken_and_shown(&mut browser, &cell);
    contents::functions_of_the_server_are_on_the_flame_graph(&mut browser, &cell, &volume);
    is_quiet(&mut browser);

    let of_volume = format!("#/volume/{volume}");
    colours::everything_can_be_read(&mut browser, &[&of_volume]);
    browser.prefer("dark");
    browser.wait_for(&format!("{background} !== {light}"));
    browser.evaluate("document.querySelector('#theme').click()");
    assert_eq!(browser.evaluate(background), light, "the page's own switch");
    is_quiet(&mut browser);

    every_view_fits_a_phone(&mut browser, &cell, &of_volume);
    is_quiet(&mut browser);
    the_page_reports_a_lost_server(&mut browser, &mut cell);
}

fn calls_are_those_of_stat(browser: &mut Browser, cell: &Process) {
    open_table(browser, "calls");
    browser.key("a");
    browser.wait_for("document.querySelector('.span').getAttribute('aria-pressed') === 'true'");
    for row in cell.stat("calls").iter().filter(|row| row["service"] == "AFS") {
        let name = row["procedure"].as_str().unwrap();
        for (figure, reported) in [
            ("calls", &row["calls"]),
            ("received", &row["received_bytes"]),
            ("sent", &row["sent_bytes"]),
            ("outcomes good", &row["outcomes"]["good"]),
            ("run p99", &row["run_ns"]["p99"]),
            ("run mean", &row["run_ns"]["mean"]),
            ("run max", &row["run_ns"]["max"]),
        ] {
            assert_eq!(shown(browser, name, figure), reported.as_u64().unwrap(), "{name} {figure}");
        }
    }
    let text = browser.evaluate(
        "[...document.querySelectorAll('main tbody tr')].find((row) => row.dataset.key.includes('FetchStatus'))\
         .querySelector('td[data-figure=calls] .digits').textContent",
    );
    let rows = cell.stat("calls");
    let row = rows.iter().find(|row| row["procedure"] == "FetchStatus").unwrap();
    assert_eq!(text, row["calls"].to_string());
    assert!(row["calls"].as_u64().unwrap() >= 50);
}

fn sign_in(browser: &mut Browser, cell: &Process) {
    let address = login_address(cell);
    browser.open(&address);
    browser.wait_for("!document.querySelector('#sign-out').hidden");
    assert_eq!(browser.evaluate("location.hash"), "#/", "the code goes from the address");
    assert_eq!(browser.evaluate("document.cookie"), "", "scripts do not see the cookie");
    // The same address cannot be used twice.
    browser.evaluate(&format!("location.hash = '#/{}'", address.split_once("#/").unwrap().1));
    browser.wait_for("document.querySelector('.warn')?.innerText.includes('already used')");
    assert!(browser.complaints().iter().all(|line| line.contains("401")));
}

fn volumes_are_those_of_stat(browser: &mut Browser, cell: &Process, volume: &str) {
    open_table(browser, "volumes");
    let rows = cell.stat("volumes");
    let row = rows.iter().find(|row| row["volume"] == volume).unwrap();
    // The previous selection applies to every table.
    assert_eq!(browser.evaluate("document.querySelector('.span').getAttribute('aria-pressed')"), "true");
    browser.wait_for("document.querySelector('main').innerText.includes('load')");
    for (figure, reported) in [
        ("calls", &row["calls"]),
        ("classes store", &row["classes"]["store"]),
        ("received", &row["received_bytes"]),
        ("longest", &row["longest_ns"]),
    ] {
        assert_eq!(shown(browser, volume, figure), reported.as_u64().unwrap(), "{figure}");
    }
}

fn keys_lead_everywhere(browser: &mut Browser, volume: &str) {
    browser.key("?");
    browser.wait_for("document.querySelector('#keys').open");
    browser.key("Escape");
    browser.wait_for("!document.querySelector('#keys').open");
    browser.key("3");
    browser.wait_for("document.querySelector('table[data-table=volumes] tbody tr')");
    browser.key("/");
    browser.wait_for("document.activeElement.type === 'search'");
    for letter in volume.chars() {
        browser.key(&letter.to_string());
    }
    browser.wait_for("document.querySelectorAll('main tbody tr').length === 1");
    browser.evaluate("document.activeElement.blur()");
    browser.key("ArrowDown");
    browser.wait_for("document.activeElement.tagName === 'TR'");
    browser.key("Enter");
    browser.wait_for(&format!("location.hash === '#/volume/{volume}'"));
    browser.wait_for("document.querySelector('table[data-table=clients] tbody tr')");
    browser.wait_for("document.querySelector('.facts')?.innerText.includes('read-write')");
    browser.key("Escape");
    browser.wait_for("location.hash === '#/table/volumes'");
    browser.key("1");
    browser.wait_for("document.querySelector('.heat canvas')");
    // The first stop of the Tab key is the link that skips the navigation.
    browser.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)");
    let first = browser.evaluate("document.querySelector('a, button, [tabindex]').className");
    assert_eq!(first, "skip");
}

fn hostile_names_are_only_names(browser: &mut Browser) {
    browser.evaluate("location.hash = '#/probes'");
    browser.wait_for(&format!("document.querySelector('main').textContent.includes({})", json!(HOSTILE)));
    // Volume names cannot contain markup, user names can; the page trusts neither.
    browser.evaluate(&format!(
        "window.realFetch ??= window.fetch; window.fetch = async (path, options) => {{\
         const reply = await window.realFetch(path, options);\
         if (!/tables\\/(volumes|clients)/.test(path)) return reply;\
         const told = await reply.json(); for (const row of told.rows) row[0] = row[0].map(() => {});\
         return new Response(JSON.stringify(told)); }}",
        json!(HOSTILE)
    ));
    for table in ["volumes", "clients"] {
        open_table(browser, table);
        browser.wait_for(&format!("document.querySelector('main').textContent.includes({})", json!(HOSTILE)));
    }
    browser.evaluate("window.fetch = window.realFetch");
    assert_eq!(browser.evaluate("document.querySelectorAll('main script, main img').length"), 0);
    assert_eq!(browser.evaluate("window.harmed ?? 0"), 0);
}

/// Profiles the server's waits, which occur reliably: calls are made while the profile is taken.
fn profiles_are_taken_and_shown(browser: &mut Browser, cell: &Process) {
    browser.evaluate("location.hash = '#/profile'");
    browser.wait_for("document.querySelector('button[data-kind=waits]')");
    browser.evaluate("document.querySelector('input.seconds').value = '600'");
    browser.evaluate("document.querySelector('button[data-kind=waits]').click()");
    browser.wait_for("!document.querySelector('button[data-act=end]').disabled");
    assert_eq!(browser.evaluate("document.querySelector('button[data-kind=cpu]').disabled"), true);
    let waits = |browser: &mut Browser| {
        let words = browser.evaluate("document.querySelector('main [role=status]').textContent");
        let words = words.as_str().unwrap().to_owned();
        words.split(", ").nth(1).and_then(|words| words.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    for number in 0.. {
        cell.volume(&format!("p.{number}"));
        if waits(browser) >= 20 {
            break;
        }
    }
    // The profile continues while another view is open.
    browser.evaluate("location.hash = '#/slow'");
    browser.wait_for("document.querySelector('main h1')?.textContent === 'Slow calls'");
    browser.evaluate("location.hash = '#/profile'");
    browser.wait_for("document.querySelector('button[data-act=end]')");
    browser.evaluate("document.querySelector('button[data-act=end]').click()");
    browser.wait_for("document.querySelector('svg.flame .box')");
    flames_can_be_walked_through(browser);

    // The root's children are all waits, and the table of functions agrees.
    let rows = "document.querySelectorAll('table[data-table=functions] tbody tr').length";
    assert!(browser.evaluate(rows).as_u64().unwrap() > 5);
    let calls = "document.querySelector('table[data-table=latencies]').textContent.includes('CreateVolume')";
    browser.wait_for(calls);
    let saved = "fetch(document.querySelector('main a[download]').href).then((reply) => reply.text())";
    let saved = browser.evaluate(saved);
    let saved = saved.as_str().unwrap();
    assert!(saved.contains("<svg") && saved.contains("CreateVolume"), "{saved}");
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let colours = browser.evaluate(
            "['.box rect', '.box text'].map((name) => getComputedStyle(document.querySelector('.flame ' + name)).fill)",
        );
        assert_ne!(colours[0], colours[1], "{scheme}");
    }
    browser.prefer("light");
    browser.resize(390, 844);
    no_wider_than_the_screen(browser, "a flame graph");
    browser.resize(1280, 900);
}

fn flames_can_be_walked_through(browser: &mut Browser) {
    let reported = "document.querySelector('.flame-told').textContent";
    browser.evaluate("document.querySelector('svg.flame').focus()");
    assert!(browser.evaluate(reported).as_str().unwrap().starts_with("all: "));
    browser.key("ArrowDown");
    browser.key("ArrowDown");
    browser.wait_for(&format!("!{reported}.startsWith('all: ')"));
    let second = browser.evaluate(reported);
    assert_eq!(browser.evaluate("document.querySelectorAll('.flame .current').length"), 1);
    browser.key("Enter");
    browser.wait_for("document.querySelectorAll('.flame .box text')[0].textContent !== 'all'");
    assert_eq!(browser.evaluate(reported), second, "its time is the same, only the picture is of less");
    browser.key("Backspace");
    browser.wait_for("document.querySelectorAll('.flame .box text')[0].textContent === 'all'");
    browser.key("/");
    browser.wait_for("document.activeElement.type === 'search'");
    for letter in "volume".chars() {
        browser.key(&letter.to_string());
    }
    browser.wait_for("document.querySelectorAll('.flame .found').length > 0");
    browser.key("Escape");
}

/// Every view in the navigation, and that of a volume.
fn every_view_fits_a_phone(browser: &mut Browser, cell: &Process, of_volume: &str) {
    browser.resize(390, 844);
    let views =
        browser.evaluate("[...document.querySelectorAll('#nav a')].map((link) => link.getAttribute('href'))");
    let views: Vec<String> = serde_json::from_value(views).unwrap();
    assert!(views.len() >= 10, "{views:?}");
    for view in views.iter().map(String::as_str).chain([of_volume]) {
        browser.evaluate(&format!("location.hash = '{view}'"));
        browser.wait_for("document.querySelector('main').innerText.length > 20");
        no_wider_than_the_screen(browser, view);
        // The controls above a table form one line, starting at the left edge.
        let places = "[...document.querySelectorAll('.title:has(> .span) > input, .title:has(> .span) > button')].map((it) => it.getBoundingClientRect()).map(({ left, top, bottom }) => [left, (top + bottom) / 2])";
        let places: Vec<[f64; 2]> = serde_json::from_value(browser.evaluate(places)).unwrap();
        assert!(places.iter().all(|place| (place[1] - places[0][1]).abs() < 4.0), "{view}: {places:?}");
        assert!(places.first().is_none_or(|place| place[0] < 20.0), "{view}: {places:?}");
        let cut = "[...document.querySelectorAll('.plain .short')].filter((it) => it.scrollWidth > it.clientWidth).map((it) => it.textContent)";
        assert_eq!(browser.evaluate(cut), json!([]), "{view}: cut texts");
    }
    contents::a_scrolled_table_stays_so(browser, cell);
    browser.evaluate("document.querySelector('#menu').click()");
    browser.wait_for("document.querySelector('#nav').offsetHeight > 100");
    browser.key("Escape");
    browser.wait_for("document.querySelector('#nav').offsetHeight === 0");
    browser.resize(1280, 900);
}

fn the_page_reports_a_lost_server(browser: &mut Browser, cell: &mut Process) {
    browser.evaluate("location.hash = '#/'");
    browser.wait_for("document.querySelector('.heat canvas')");
    cell.kill();
    browser.wait_for("!document.querySelector('#down').hidden");
    let reported = browser.evaluate("document.querySelector('#down').innerText");
    assert!(reported.as_str().unwrap().contains("does not answer"), "{reported}");
    cell.restart();
    browser.wait_for("document.querySelector('#down').hidden");
    browser.wait_for("document.querySelector('#state').dataset.state === 'live'");
    // Sessions end with the server.
    browser.wait_for("document.querySelector('#sign-out').hidden");
}

/// Duration of the load before pictures are taken.
const PICTURE_LOAD: Duration = Duration::from_secs(110);

/// Takes the pictures for docs/guide/web.md; `CELLAR_PICTURES` names the directory.
#[test]
#[ignore = "takes minutes and changes the documentation"]
fn pictures() {
    let folder = PathBuf::from(std::env::var_os("CELLAR_PICTURES").expect("CELLAR_PICTURES names a folder"));
    let chromium = browser::find().expect("Chromium takes the pictures");
    let cell = start();
    let names = ["home.ann", "home.bob", "projects", "software", "web.content"];
    for name in names {
        cell.volume(name);
    }
    let mut browser = Browser::start(&chromium);
    browser.resize(1280, 960);
    browser.open(&login_address(&cell));
    browser.wait_for("document.querySelector('#sign-out')?.hidden === false");
    let (is_busy, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (number, name) in names.into_iter().enumerate() {
            let (cell, is_busy, is_over) = (&cell, &is_busy, &is_over);
            scope.spawn(move || use_for_pictures(cell, name, number as u64, is_busy, is_over));
        }
        // Whatever fails, the other threads end.
        let _over = Over(&is_over);
        std::thread::sleep(PICTURE_LOAD);
        for (name, scheme, width, height, view) in [
            ("web-overview-light", "light", 1280, 960, "#/"),
            ("web-overview-dark", "dark", 1280, 960, "#/"),
            ("web-phone-dark", "dark", 390, 844, "#/"),
            ("web-volumes-light", "light", 1280, 560, "#/table/volumes"),
            ("web-calls-dark", "dark", 1280, 560, "#/table/calls"),
            ("web-profile-light", "light", 1280, 900, "#/profile"),
            ("web-profile-dark", "dark", 1280, 760, "#/profile"),
        ] {
            browser.resize(width, height);
            browser.prefer(scheme);
            browser.evaluate(&format!("location.hash = '{view}'"));
            // Recent history of each row is kept only from the first display of the table on.
            std::thread::sleep(Duration::from_secs(if view.starts_with("#/table/") { 60 } else { 5 }));
            if view == "#/profile" {
                is_busy.store(true, Relaxed);
                let kind = if scheme == "dark" { "waits" } else { "cpu" };
                browser.evaluate(&format!("document.querySelector('button[data-kind={kind}]').click()"));
                browser.wait_for("!document.querySelector('svg.flame .box')");
                browser.wait_for("document.querySelectorAll('svg.flame .box').length > 9");
                let frames = browser.evaluate("document.querySelector('svg.flame').textContent");
                assert!(frames.as_str().unwrap().contains("::"), "functions have no names: {frames}");
            }
            let bytes = unbase64(&browser.picture());
            std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
            is_busy.store(false, Relaxed);
        }
    });
}

/// Reads and writes in bursts, or without pauses.
fn use_for_pictures(cell: &Process, name: &str, number: u64, is_busy: &AtomicBool, is_over: &AtomicBool) {
    let root = cell.root(name);
    let station = Station::start().unwrap();
    let security = (number % 2 == 1).then(|| cell.security());
    let connection = station.connect(cell.files_port(), FILE_SERVICE, security);
    let files = Files::new(connection.clone());
    let fid = files.create(root, "a").unwrap();
    let data = Bytes::from(vec![7; 40_000 * (1 + number as usize)]);
    let mut round = number * 7;
    while !is_over.load(Relaxed) {
        round += 1;
        let lively = 2 + round % 23 + 20 * u64::from(round / 40 % 3 == number % 3);
        (0..lively).for_each(|_| look(&*connection, fid));
        if round.is_multiple_of(2 + number) {
            files.store(fid, &data).unwrap();
            files.fetch_and_compare(fid, &data, 100_000).unwrap();
        }
        if !is_busy.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(150 + 40 * (round % 5)));
        }
    }
}

/// Decodes base64.
fn unbase64(text: &str) -> Vec<u8> {
    let value = |letter: u8| -> u32 {
        let place = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        place.into()
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').collect();
    let group = |group: &[u8]| {
        let bits = group
            .iter()
            .enumerate()
            .fold(0, |bits, (place, letter)| bits | value(*letter) << (18 - 6 * place));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    letters.chunks(4).flat_map(group).collect()
}
