//! The fuzz entry points at random, for a bounded time: what the tests have anyway, mutated. `tests/run --full` runs them
//! longer, and coverage-guided where the tools for it are there.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::tools::{note, rounds};

#[path = "../fuzz/entries.rs"]
mod entries;
mod seeds;

/// The longest input, in bytes.
const INPUT_BYTES_MAX: usize = 8192;

/// The fewest inputs of each entry point, however slow the machine.
const RUNS_MIN: u64 = 100;

/// Pieces that mean something to one of the formats.
const WORDS: [&str; 60] = [
    "HTTP/1.1",
    "\r\nhost: x",
    "content-length: 5",
    "transfer-encoding: chunked",
    "0\r\n\r\n",
    "5\r\n",
    "PROXY TCP4 ",
    "[[price]]\n",
    "[[body]]\n",
    "op = \"set\"\n",
    " = ",
    "\"0.1\"",
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
    "\"type\":\"error\",",
    "\"error\":{\"code\":429},",
    "\"index\":1,",
    "\"output_index\":0,",
    "\"finish_reason\":\"stop\",",
    "\"finishReason\":\"SAFETY\",",
    "\"stop_reason\":\"refusal\",",
    "\"thought\":true,",
    "\"arguments\":\"{}\",",
    "{\"type\":\"apply_patch\"},",
    "\"tool_choice\":\"none\",",
    "\"id\":\"\",",
    "weir1.pJR0aVne.c.",
];

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

/// As for the coverage-guided form: WEIR_FUZZ_SECONDS for each entry point.
fn seconds() -> u64 {
    let said = std::env::var("WEIR_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    said.filter(|seconds| *seconds > 0).unwrap_or(rounds(1, 60) as u64)
}

#[test]
fn no_input_breaks_a_promise_of_the_parsers() {
    for (name, entry) in entries::ENTRIES {
        let seeds = seeds::of(name);
        // Another seed each time, told when it finds something; WEIR_FUZZ_SEED repeats a run.
        let seed: u64 = std::env::var("WEIR_FUZZ_SEED")
            .ok()
            .map_or_else(rand::random, |text| text.parse().unwrap());
        let mut rng = StdRng::seed_from_u64(seed);
        let until = Instant::now() + Duration::from_secs(seconds());
        let mut runs = 0_u64;
        while runs < RUNS_MIN || Instant::now() < until {
            let input = mutate(&mut rng, &seeds);
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| entry(&input)));
            assert!(
                outcome.is_ok(),
                "{name} fails on {:?} (WEIR_FUZZ_SEED={seed})",
                String::from_utf8_lossy(&input)
            );
            runs += 1;
        }
        note(&format!("fuzz: {name}, {runs} inputs"));
    }
}

/// With WEIR_FUZZ_SEEDS=FOLDER they are also left there, a folder for each entry point, for the coverage-guided form.
#[test]
fn every_seed_keeps_the_promises_of_its_entry_point() {
    let folder = std::env::var_os("WEIR_FUZZ_SEEDS").map(std::path::PathBuf::from);
    for (name, entry) in entries::ENTRIES {
        let seeds = seeds::of(name);
        assert!(!seeds.is_empty(), "{name}");
        seeds.iter().for_each(|seed| entry(seed));
        let Some(folder) = &folder else { continue };
        std::fs::create_dir_all(folder.join(name)).unwrap();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(name).join(format!("{number:04}")), seed).unwrap();
        }
    }
}
