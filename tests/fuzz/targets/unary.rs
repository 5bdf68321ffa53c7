#![no_main]
//! Coverage-guided: see `unary` in `entries.rs`.

#[allow(dead_code)]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::unary(data));
