#![no_main]
//! Coverage-guided: see `json_array` in `entries.rs`.

#[allow(dead_code)]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::json_array(data));
