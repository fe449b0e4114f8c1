#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::run("cluster_records", data));
