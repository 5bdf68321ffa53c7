//! Coverage-guided: see `messages_answer` in `entries.rs`.
#![no_main]

#[allow(dead_code, reason = "each target uses one entry point of the file they share")]
#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::messages_answer(data));
