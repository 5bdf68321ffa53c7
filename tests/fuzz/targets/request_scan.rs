#![no_main]
//! Coverage-guided: see `request_scan` in `entries.rs`.

#[allow(dead_code)]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::request_scan(data));
