//! The text satisfies Prometheus's linter, and the installed rules and dashboards use only existing metrics.

use super::*;
use crate::{Ended, Recorder, SlowCall, Snapshot};
use base::{AbortCode, CallFacts, Caller, Identity, SecurityLevel, UnixTime};
use events::catalogue::{
    CacheCounts, Class, ClusterFigures, DiskFigures, LaneFigures, NodeFigures, ProcessFigures, WorkerFigures,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// A server that has served a few calls. It is a node of a cluster.
struct Sample(Arc<Recorder>);

/// The same server without a cluster.
struct Plain(Sample);

impl Sample {
    fn new() -> Sample {
        let recorder = Arc::new(Recorder::default());
        let meter = recorder.service("AFS", &[(130, "FetchData"), (132, "FetchStatus")], |_| Class::Fetch);
        let caller = Caller {
            identity: Identity::Anonymous,
            level: SecurityLevel::Clear,
            peer: SocketAddr::from(([10, 0, 0, 1], 7001)),
            local: IpAddr::V4(Ipv4Addr::LOCALHOST),
            connection: base::Connection::new(),
        };
        for call in 0..100 {
            let result = if call % 10 == 0 { Err(AbortCode::VBUSY) } else { Ok(()) };
            let ended = Ended {
                opcode: 132,
                result,
                fast_path: false,
                received: 20,
                sent: 100,
                wait_ns: 500,
                run_ns: 1 << (call % 40),
                parts_ns: Default::default(),
            };
            meter.ended(&caller, &CallFacts { volume: 7, ..CallFacts::default() }, &ended, || UnixTime(0));
        }
        Sample(recorder)
    }
}

fn one<F: Declared + Default>(labels: &'static [&'static str]) -> Sheet<F> {
    let mut sheet = Sheet::new(labels);
    sheet.push(labels.iter().map(|label| format!("a \"{label}\" \\ \n")), F::default());
    sheet
}

impl Observed for Sample {
    fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    fn slow(&self) -> (u64, Vec<(u64, SlowCall)>) {
        (0, Vec::new())
    }

    fn lanes(&self) -> Sheet<LaneFigures> {
        one(&["port", "lane"])
    }

    fn workers(&self) -> Sheet<WorkerFigures> {
        one(&["port"])
    }

    fn disks(&self) -> Sheet<DiskFigures> {
        one(&["partition", "access"])
    }

    fn caches(&self) -> Sheet<CacheCounts> {
        one(&["cache"])
    }

    fn process(&self) -> Sheet<ProcessFigures> {
        one(&[])
    }

    fn is_node(&self) -> bool {
        true
    }

    fn cluster(&self) -> Sheet<ClusterFigures> {
        one(Table::Cluster.labels())
    }

    fn nodes(&self) -> Sheet<NodeFigures> {
        one(Table::Nodes.labels())
    }
}

impl Observed for Plain {
    fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    fn slow(&self) -> (u64, Vec<(u64, SlowCall)>) {
        self.0.slow()
    }

    fn lanes(&self) -> Sheet<LaneFigures> {
        self.0.lanes()
    }

    fn workers(&self) -> Sheet<WorkerFigures> {
        self.0.workers()
    }

    fn disks(&self) -> Sheet<DiskFigures> {
        self.0.disks()
    }

    fn caches(&self) -> Sheet<CacheCounts> {
        self.0.caches()
    }

    fn process(&self) -> Sheet<ProcessFigures> {
        self.0.process()
    }
}

/// Returns the names of all metrics.
fn metric_names() -> BTreeSet<String> {
    metrics().iter().map(Declaration::metric).collect()
}

/// Returns the family that a sample belongs to.
fn family<'a>(name: &'a str, types: &BTreeMap<String, String>) -> &'a str {
    let of =
        |end| name.strip_suffix(end).filter(|stem| types.get(*stem).is_some_and(|kind| kind == "histogram"));
    ["_bucket", "_sum", "_count"].into_iter().find_map(of).unwrap_or(name)
}

#[test]
fn the_text_is_well_formed() {
    let text = exposition(&Sample::new());
    let (mut helped, mut types, mut series) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, what) = rest.split_once(' ').unwrap();
            assert!(what.ends_with('.') && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(helped.contains(name), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else {
            let (key, value) = line.rsplit_once(' ').unwrap();
            let name = key.split('{').next().unwrap();
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            assert!(types.contains_key(family(name, &types)), "{line}");
            assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
            assert!(series.insert(key.to_owned()), "{line}");
        }
    }
    let names: BTreeSet<String> = metric_names();
    assert_eq!(names, types.into_keys().collect());
}

#[test]
fn only_nodes_have_metrics_of_the_cluster() {
    let [node, plain] = [exposition(&Sample::new()), exposition(&Plain(Sample::new()))];
    for name in ["cellar_cluster_renewals_total", "cellar_node_round_trip_seconds"] {
        assert!(node.contains(&format!("# TYPE {name} ")) && !plain.contains(name), "{name}");
    }
    assert!(!node.contains("cellar_takeover_"), "an event of the past is no time series");
    assert!(plain.contains("cellar_call_calls_total{"));
}

#[test]
fn buckets_add_up_and_units_are_seconds() {
    let text = exposition(&Sample::new());
    let of = |start: &str| -> Vec<f64> {
        let values = text.lines().filter_map(|line| line.strip_prefix(start));
        values.filter_map(|rest| rest.rsplit_once(' ')?.1.parse().ok()).collect()
    };
    let buckets = of("cellar_call_run_seconds_bucket{");
    assert!(buckets.is_sorted(), "{buckets:?}");
    assert_eq!(
        (buckets.len(), buckets.first(), buckets.last()),
        (BOUND_POWERS.len() + 1, Some(&30.0), Some(&100.0))
    );
    assert_eq!(of("cellar_call_run_seconds_count{"), [100.0]);
    assert_eq!(of("cellar_call_wait_seconds_sum{"), [0.000_05]);
    assert!(text.contains(
        "cellar_call_outcomes_total{service=\"AFS\",procedure=\"FetchStatus\",outcome=\"retry\"} 10\n"
    ));
    assert!(text.contains(r#"cellar_workers_busy{port="a \"port\" \\ \n"} 0"#));
}

#[test]
fn dashboard_and_alerts_ask_for_metrics_that_there_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib/observe");
    let names: BTreeSet<String> = metric_names();
    let types: BTreeMap<String, String> =
        names.iter().map(|name| (name.clone(), "histogram".to_owned())).collect();
    for (file, least) in [("grafana-dashboard.json", 12), ("prometheus-alerts.yml", 8)] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        let used: BTreeSet<&str> =
            words.filter(|word| word.starts_with("cellar_")).map(|word| family(word, &types)).collect();
        assert!(used.len() >= least, "{file} uses {used:?}");
        for name in used {
            assert!(names.contains(name), "{file} asks for {name}, which is not declared");
        }
    }
}

/// Returns the rows that docs/reference/metrics.md must have.
fn documented() -> Vec<String> {
    let labels = |labels: &[&str]| labels.join(", ");
    let metric = |of: &[&str], declaration: &Declaration| {
        let kind = match declaration.kind {
            Kind::Counter => "counter",
            Kind::Gauge | Kind::Highest | Kind::Longest => "gauge",
            Kind::Histogram => "histogram",
        };
        let unit = match declaration.unit {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "seconds",
        };
        let own = Some(declaration.label).filter(|label| !label.is_empty());
        let all: Vec<&str> = of.iter().copied().chain(own).collect();
        let what = declaration.what.trim();
        format!("| `{}` | {kind} | {unit} | {} | {what} |", declaration.metric(), labels(&all))
    };
    let figures = |declaration: &Declaration| {
        let key = declaration.key();
        let values = declaration.values.iter().map(|value| format!("{key}.{value}")).collect();
        if declaration.values.is_empty() { vec![key] } else { values }
    };
    let table = |table: &Table| {
        let keys: Vec<String> = table.declarations().iter().flat_map(figures).collect();
        format!("| {} | {} | {} |", table.name(), labels(table.labels()), keys.join(", "))
    };
    let of_table = |table: Table| {
        table.declarations().iter().map(move |declaration| metric(table.labels(), declaration))
    };
    let of_probes = ProbeFigures::DECLARATIONS.iter().map(|probe| metric(&["volume", "server"], probe));
    exported().flat_map(of_table).chain(of_probes).chain(Table::ALL.iter().map(table)).collect()
}

#[test]
fn names_types_and_units_are_those_that_are_promised() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let is_row = |line: &&str| {
        line.starts_with("| ") && !line.starts_with("| metric ") && !line.starts_with("| table ")
    };
    let promised: Vec<&str> = page.lines().filter(is_row).collect();
    let declared = documented();
    let gone: Vec<&&str> = promised.iter().filter(|row| !declared.iter().any(|own| own == **row)).collect();
    assert!(gone.is_empty(), "docs/reference/metrics.md promises what is no longer declared: {gone:#?}");
    let new: Vec<&String> = declared.iter().filter(|row| !promised.contains(&row.as_str())).collect();
    assert!(new.is_empty(), "docs/reference/metrics.md lacks: {new:#?}");
    assert_eq!(promised.len(), declared.len(), "a line is there twice");
    let metrics = exposition(&Sample::new());
    let named = |line: &&&str| line.starts_with("| `");
    for line in promised.iter().filter(named) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let reported = format!("# TYPE {} {}\n", cells[0].trim_matches(['|', ' ', '`']), cells[1]);
        assert!(metrics.contains(&reported), "{reported}");
    }
}
