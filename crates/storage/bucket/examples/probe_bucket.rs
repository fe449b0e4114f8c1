//! Tests whether a bucket does what Cellar relies on: `probe_bucket s3://BUCKET/PREFIX`, with the feature `s3`, or
//! `probe_bucket file:///FOLDER`. Credentials and server are those of the environment (see `bucket::Address`).

use bucket::Address;
use bucket::probe::probe;
use object_store::path::Path;
use std::process::ExitCode;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let Some(text) = std::env::args().nth(1) else {
        eprintln!("usage: probe_bucket s3://BUCKET/PREFIX | file:///FOLDER");
        return ExitCode::from(2);
    };
    let opened = text.parse::<Address>().and_then(|address| Ok((address.open()?, address)));
    let (bucket, address) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let name = format!("probe-{:016x}", rand::random::<u64>());
    let folder: Path =
        address.prefix().split('/').filter(|part| !part.is_empty()).chain([name.as_str()]).collect();
    match runtime.block_on(probe(&*bucket, &folder)) {
        Ok(report) => {
            for (operation, time) in report.times {
                println!("{:8.1} ms  {operation}", time.as_secs_f64() * 1e3);
            }
            println!(
                "{address} can be used; {} competing requests were answered with other errors",
                report.unclear
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{address}: {error}");
            ExitCode::FAILURE
        }
    }
}
