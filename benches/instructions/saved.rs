//! What was counted before, in `counted.json` beside this file.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{loads::Measured, machine::Machine};

/// How much more than saved is too much.
const TOLERANCE: f64 = 1.03;

/// The numbers of a day.
#[derive(Serialize, Deserialize)]
struct Saved {
    date: String,
    compiler: String,
    profile: String,
    /// Instructions per request on the threads that serve requests, by load and proxy.
    instructions: BTreeMap<String, BTreeMap<String, u64>>,
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/counted.json")
}

fn read() -> Result<Saved, String> {
    let text = fs::read_to_string(file()).map_err(|error| format!("{}: {error}", file().display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file().display()))
}

fn numbers(measured: &[Measured]) -> BTreeMap<String, BTreeMap<String, u64>> {
    let row = |load: &Measured| {
        let costs = load.costs.iter();
        let values = costs.map(|cost| {
            (
                cost.subject.name().to_owned(),
                cost.profile.serving.instructions / cost.requests,
            )
        });
        (load.name.to_owned(), values.collect())
    };
    measured.iter().map(row).collect()
}

/// Compares with what was saved.
///
/// # Errors
/// Something costs 3 % more, was not saved, or was saved of another build profile: which, and what to do.
pub(crate) fn check(measured: &[Measured], machine: &Machine) -> Result<(), String> {
    let saved = read()?;
    if saved.profile != machine.profile {
        return Err(format!(
            "the numbers were saved of profile `{}`, and this is `{}`: run `cargo bench --profile {} --bench instructions`",
            saved.profile, machine.profile, saved.profile
        ));
    }
    let mut complaints = Vec::new();
    for (load, values) in numbers(measured) {
        for (subject, now) in values {
            let before = saved.instructions.get(&load).and_then(|values| values.get(&subject));
            match before {
                None => complaints.push(format!("{load}, {subject}: not saved yet")),
                Some(before) if now as f64 > *before as f64 * TOLERANCE => {
                    let percent = (now as f64 / *before as f64 - 1.0) * 100.0;
                    complaints.push(format!("{load}, {subject}: {now}, was {before} ({percent:+.1} %)"));
                }
                Some(_) => {}
            }
        }
    }
    if complaints.is_empty() {
        println!("Nothing costs 3 % more instructions than on {}.", saved.date);
        return Ok(());
    }
    Err(format!(
        "more instructions than on {}:\n  {}\nMake it cheaper, or save the new numbers with `-- --save` and say in the commit \
         why they are worth it.",
        saved.date,
        complaints.join("\n  ")
    ))
}

/// Saves the numbers, those of loads that were left out as they were.
pub(crate) fn save(measured: &[Measured], machine: &Machine) -> Result<(), String> {
    let mut instructions = match read() {
        Ok(saved) if saved.profile == machine.profile => saved.instructions,
        Ok(_) | Err(_) => BTreeMap::new(),
    };
    instructions.extend(numbers(measured));
    let saved = Saved {
        date: machine.date.clone(),
        compiler: machine.compiler.clone(),
        profile: machine.profile.clone(),
        instructions,
    };
    let text = serde_json::to_string_pretty(&saved).expect("plain values");
    fs::write(file(), text + "\n").map_err(|error| format!("{}: {error}", file().display()))
}
