#![no_main]
//! Coverage-guided: see `request_scan` in `entries.rs`.

#[expect(dead_code, reason = "each target uses one of the entry points")]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::request_scan(data));
