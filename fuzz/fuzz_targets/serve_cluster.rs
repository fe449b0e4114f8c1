#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::run("serve_cluster", data));
