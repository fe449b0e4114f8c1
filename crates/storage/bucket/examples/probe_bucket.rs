//! Tests whether a bucket does what Cellar relies on: `probe_bucket s3://BUCKET/PREFIX`, with the feature `s3`, or
//! `probe_bucket file:///FOLDER`. Credentials and server are those of the environment (see `bucket::Access`).

use bucket::probe::probe_once;
use bucket::{Access, Address, open};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(text) = std::env::args().nth(1) else {
        eprintln!("usage: probe_bucket s3://BUCKET/PREFIX | file:///FOLDER");
        return ExitCode::from(2);
    };
    match run(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(text: &str) -> Result<(), String> {
    let address: Address = text.parse().map_err(|error: bucket::AddressError| error.to_string())?;
    let bucket = open(&address, &Access::from_env()).map_err(|error| error.to_string())?;
    let report = probe_once(bucket, address.prefix()).map_err(|error| format!("{address}: {error}"))?;
    for (operation, time) in report.times {
        println!("{:8.1} ms  {operation}", time.as_secs_f64() * 1e3);
    }
    println!("{address} can be used; {} competing requests were answered with other errors", report.unclear);
    Ok(())
}
