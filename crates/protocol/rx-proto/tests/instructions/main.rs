//! Measures the number of instructions per packet and per call in the protocol core.
//!
//! Times differ between runs and machines; the number of instructions hardly does. This program runs itself
//! under valgrind with each workload twice, with few and with many steps, so that the cost common to both
//! runs (startup, creating the connection) cancels out. The result must be within [`TOLERANCE`] percent of
//! the bound in `bounds.txt`: a change that slows something down fails the test, and a change that speeds
//! something up has to update the bound, so that the gain is kept.

mod pair;

use pair::Pair;
use std::fmt::Write as _;
use std::process::{Command, ExitCode};

/// Maximum difference between a count and its bound, in percent.
const TOLERANCE: f64 = 5.0;

/// Settings that make the C library copy without processor-specific instructions. It normally chooses them by
/// processor, and a repeated move counts once per byte, so the count would depend on the processor.
const PLAIN_COPIES: &str =
    "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load,-Fast_Unaligned_Copy";

const BOUNDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/instructions/bounds.txt");

/// A workload: its name, the function that repeats it, and two numbers of repetitions.
struct Workload {
    name: &'static str,
    run: fn(&mut Pair, u32),
    few: u32,
    many: u32,
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "call",
        run: |pair, times| (0..times).for_each(|_| pair.call(52, 148)),
        few: 50,
        many: 450,
    },
    Workload {
        name: "packet_to_client",
        run: |pair, packets| pair.call(52, packets as usize * PACKET_DATA),
        few: 64,
        many: 1088,
    },
    Workload {
        name: "packet_to_server",
        run: |pair, packets| pair.call(packets as usize * PACKET_DATA, 52),
        few: 64,
        many: 1088,
    },
];

/// Data in a full packet between the two endpoints: 1472 bytes less the header and the bytes reserved for
/// security classes.
const PACKET_DATA: usize = 1444;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [verb, name, times] if verb == "run" => run(name, times),
        _ if arguments.iter().any(|it| it == "--list") => println!("instructions: test"),
        // A `cargo test` filter that selects other tests.
        [first, ..] if !first.starts_with('-') && !"instructions".contains(first.as_str()) => {}
        _ => return guard(),
    }
    ExitCode::SUCCESS
}

fn run(name: &str, times: &str) {
    let workload = WORKLOADS.iter().find(|it| it.name == name).expect("a workload's name");
    (workload.run)(&mut Pair::new(), times.parse().expect("a number"));
}

/// Runs the measurements and compares them with their bounds.
fn guard() -> ExitCode {
    let skipped = std::env::var("CELLAR_TEST_SKIP").unwrap_or_default();
    if skipped.split([',', ' ']).any(|word| word == "valgrind") {
        println!("instructions ... skipped (valgrind is in CELLAR_TEST_SKIP)");
        return ExitCode::SUCCESS;
    }
    let counts: Result<Vec<f64>, String> = WORKLOADS.iter().map(count).collect();
    let verdict = counts.and_then(|counts| judge(&counts));
    match verdict {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("instructions ... FAILED\n{why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of instructions per step.
fn count(workload: &Workload) -> Result<f64, String> {
    let few = instructions(workload.name, workload.few)?;
    let many = instructions(workload.name, workload.many)?;
    let more = many.checked_sub(few).and_then(|more| u32::try_from(more).ok());
    let more = more.ok_or_else(|| format!("{}: {few} instructions, then {many}", workload.name))?;
    Ok(f64::from(more) / f64::from(workload.many - workload.few))
}

/// Returns the number of instructions of a whole run.
fn instructions(name: &str, times: u32) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .env("GLIBC_TUNABLES", PLAIN_COPIES)
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(["run", name, &times.to_string()])
        .output()
        .map_err(|error| {
            format!(
                "cannot run valgrind: {error}; `make deps` installs it (CELLAR_TEST_SKIP=valgrind skips this)"
            )
        })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find_map(|line| line.split_once("I   refs:").or(line.split_once("I refs:")));
    let digits: String = line.map_or("", |(_, count)| count).chars().filter(char::is_ascii_digit).collect();
    match digits.parse() {
        Ok(count) if output.status.success() => Ok(count),
        _ => Err(format!("{name} under valgrind ended with {} and said:\n{said}", output.status)),
    }
}

fn judge(counts: &[f64]) -> Result<(), String> {
    let named: Vec<(&str, f64)> = WORKLOADS.iter().map(|it| it.name).zip(counts.iter().copied()).collect();
    if std::env::var("CELLAR_BOUNDS").is_ok_and(|it| it == "write") {
        return write_bounds(&named);
    }
    let text = std::fs::read_to_string(BOUNDS).map_err(|error| format!("{BOUNDS}: {error}"))?;
    let mut wrong = String::new();
    for (name, count) in named {
        let bound = bound_of(&text, name).ok_or_else(|| format!("{BOUNDS} has no line `{name} COUNT`"))?;
        let percent = 100.0 * (count / bound - 1.0);
        println!("instructions of one {name}: {count:.0}, {percent:+.1} % of {bound:.0}");
        if percent.abs() > TOLERANCE {
            let _ = writeln!(wrong, "one {name} took {count:.0} instructions, {percent:+.1} % of {bound:.0}");
        }
    }
    // The bounds apply to the usual build of the tests for this architecture; other builds execute other
    // instructions.
    if wrong.is_empty() || !cfg!(all(debug_assertions, target_arch = "x86_64")) {
        return Ok(());
    }
    Err(format!(
        "{wrong}More than {TOLERANCE} % from what stands in {BOUNDS}. If that is meant (or the compiler is another \
         one), CELLAR_BOUNDS=write cargo test -p rx-proto --test instructions writes the new bounds."
    ))
}

fn bound_of(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(known, _)| *known == name)?.1.trim().parse().ok()
}

fn write_bounds(counts: &[(&str, f64)]) -> Result<(), String> {
    let mut text = String::from(
        "# Instructions of one step, both ends together, as `cargo test` builds them.\n\
         # CELLAR_BOUNDS=write cargo test -p rx-proto --test instructions writes this file.\n",
    );
    for (name, count) in counts {
        let _ = writeln!(text, "{name} {count:.0}");
    }
    print!("{text}");
    std::fs::write(BOUNDS, text).map_err(|error| format!("{BOUNDS}: {error}"))
}
