#![no_main]
//! Coverage-guided: see `rules` in `entries.rs`.

#[allow(dead_code)]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::rules(data));
