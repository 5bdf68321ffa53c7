//! The fuzz entry points on stable Rust, for a bounded time: recorded answers and requests, mutated at random.
//! `tests/run --full` runs them longer, and coverage-guided where the tools for it are there.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::recordings::{GEMINI_ARRAY, events, unary};
use crate::harness::request::ALL_WIRES;
use crate::harness::tools::{note, rounds};

#[path = "../fuzz/entries.rs"]
mod entries;

/// The longest input, in bytes.
const INPUT_BYTES_MAX: usize = 4096;

/// Pieces that mean something to one of the formats.
const WORDS: [&str; 35] = [
    "\"top_k\":5,",
    "\"max_tokens\":1e99,",
    "\"store\":[],",
    "\"role\":\"user\",",
    "\"used\":{},",
    "data:",
    "data: ",
    "event:",
    "event: error\n",
    "\n\n",
    "\r\n\r\n",
    "\r",
    "\n",
    ":",
    ": c\n",
    "[DONE]",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "\\",
    "\\u006d",
    "\\ud83d",
    "\"model\":",
    "\"usage\":",
    "\"contents\":",
    "\"stream\":true",
    "1e400",
    "-0",
    "null",
    "\u{feff}",
    "\u{2028}",
    "\u{0}",
];

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for wire in ALL_WIRES {
        seeds.push(events(wire).concat().into_bytes());
        seeds.push(unary(wire).as_bytes().to_vec());
        seeds.push(wire.request("k", "h\u{f6}llo \"x\"").body);
        seeds.push(wire.streaming("k", "hi").body);
    }
    seeds.push(GEMINI_ARRAY.concat().into_bytes());
    seeds
}

fn mutate(rng: &mut StdRng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(0..8_u32) {
        let at = rng.random_range(0..=input.len());
        match rng.random_range(0..7_u32) {
            0 => input.truncate(at),
            1 => drop(input.splice(at..at, WORDS[rng.random_range(0..WORDS.len())].bytes())),
            2 if at < input.len() => input[at] = rng.random(),
            3 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8_u32),
            4 => {
                let end = rng.random_range(at..=input.len());
                input.drain(at..end);
            }
            5 => {
                let end = rng.random_range(at..=input.len());
                let again = input[at..end].to_vec();
                drop(input.splice(at..at, again));
            }
            _ => {
                let other = &seeds[rng.random_range(0..seeds.len())];
                let from = rng.random_range(0..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

#[test]
fn no_input_breaks_a_promise_of_the_parsers() {
    let seeds = seeds();
    // As for the coverage-guided form: WEIR_FUZZ_SECONDS for each entry point.
    let seconds = std::env::var("WEIR_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|seconds| *seconds > 0)
        .unwrap_or(rounds(3, 300) as u64);
    for (name, entry) in entries::ENTRIES {
        seeds.iter().for_each(|seed| entry(seed));
        // Another seed each time, told when it finds something; WEIR_FUZZ_SEED repeats a run.
        let seed: u64 = std::env::var("WEIR_FUZZ_SEED")
            .ok()
            .map_or_else(rand::random, |text| text.parse().unwrap());
        let mut rng = StdRng::seed_from_u64(seed);
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut runs = 0_u64;
        while Instant::now() < until {
            let input = mutate(&mut rng, &seeds);
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| entry(&input)));
            assert!(
                outcome.is_ok(),
                "{name} fails on {:?} (WEIR_FUZZ_SEED={seed})",
                String::from_utf8_lossy(&input)
            );
            runs += 1;
        }
        assert!(runs > 100, "{name}: {runs} runs only");
        note(&format!("fuzz: {name}, {runs} inputs"));
    }
}
