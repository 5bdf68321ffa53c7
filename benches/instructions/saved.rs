//! What was counted before of each build profile, in `counted.json` beside this file.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{loads::Measured, machine::Machine};

/// By build profile.
type All = BTreeMap<String, Saved>;

/// The numbers of a day.
#[derive(Default, Serialize, Deserialize)]
struct Saved {
    date: String,
    compiler: String,
    /// Instructions per request on the threads that serve requests, by load and proxy.
    instructions: BTreeMap<String, BTreeMap<String, u64>>,
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/counted.json")
}

fn read() -> Result<All, String> {
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
/// Something costs more than its load tolerates, or nothing was saved of this build profile: which, and what to do. What was not saved
/// is only shown, and so is all that another compiler has built: what it makes of the same text may be more.
pub(crate) fn check(measured: &[Measured], machine: &Machine) -> Result<(), String> {
    let mut all = read()?;
    let profiles: Vec<String> = all.keys().cloned().collect();
    let Some(saved) = all.remove(&machine.profile) else {
        return Err(format!(
            "nothing was saved of profile `{}`, only of {}: take one of those, or save it with `-- --save`",
            machine.profile,
            profiles.join(", ")
        ));
    };
    if saved.compiler != machine.compiler {
        println!(
            "Not compared: counted with {}, and this is {}.",
            saved.compiler, machine.compiler
        );
        return Ok(());
    }
    let mut complaints = Vec::new();
    for Measured { name, costs, tolerance } in measured {
        for cost in costs {
            let (load, subject) = (name, cost.subject.name());
            let now = cost.profile.serving.instructions / cost.requests;
            let before = saved.instructions.get(*load).and_then(|values| values.get(subject));
            match before {
                None => println!("{load}, {subject}: {now}, to be saved with `-- --save`"),
                Some(before) if now as f64 > *before as f64 * tolerance => {
                    let percent = (now as f64 / *before as f64 - 1.0) * 100.0;
                    complaints.push(format!("{load}, {subject}: {now}, was {before} ({percent:+.1} %)"));
                }
                Some(_) => {}
            }
        }
    }
    if complaints.is_empty() {
        println!("Nothing costs more instructions than on {}.", saved.date);
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
    let mut all = read()?;
    let saved = all.entry(machine.profile.clone()).or_default();
    saved.date.clone_from(&machine.date);
    saved.compiler.clone_from(&machine.compiler);
    saved.instructions.extend(numbers(measured));
    let text = serde_json::to_string_pretty(&all).expect("plain values");
    fs::write(file(), text + "\n").map_err(|error| format!("{}: {error}", file().display()))
}
