//! How the shipped factors were found. Not a test of anything: it prints factors for a folder of texts.
//!
//! `WEIR_TOKEN_TEXTS=FOLDER cargo test --release --lib tokens::fit -- --ignored --nocapture`. The name of a text up to its
//! first `-` is its sort; all texts of a sort weigh as much as those of another.

use std::collections::BTreeMap;
use std::fs;

use super::CharClasses;
use super::steps::{KINDS, NOTHING};

/// Towards what a factor is drawn that few texts say anything of, and how hard.
const PRIOR: f64 = 0.15;
const PULL: f64 = 2e-6;
const ROUNDS: usize = 3000;

struct Text {
    sort: String,
    counts: Vec<f64>,
    tokens: f64,
}

#[test]
#[ignore = "needs a folder of texts"]
#[expect(clippy::cast_precision_loss, reason = "counts of small texts")]
fn fit() {
    let folder = std::env::var("WEIR_TOKEN_TEXTS").expect("WEIR_TOKEN_TEXTS names a folder of texts");
    let mut texts = Vec::new();
    let mut sorts = BTreeMap::<String, f64>::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let mut classes = CharClasses::default();
        classes.push(text.as_bytes());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let sort = name.split('-').next().unwrap_or_default().to_owned();
        *sorts.entry(sort.clone()).or_default() += 1.0;
        texts.push(Text {
            sort,
            counts: classes.counts.iter().map(|count| *count as f64).collect(),
            tokens: bpe_openai::o200k_base().count(&text) as f64,
        });
    }
    let rows: Vec<(Vec<f64>, f64)> = texts
        .iter()
        .map(|text| {
            let weight = sorts[&text.sort].sqrt().recip();
            let row = text.counts.iter().map(|count| count / text.tokens * weight).collect();
            (row, weight)
        })
        .collect();
    let factors = least_squares(&rows);
    let printed: Vec<String> = factors.iter().map(|factor| format!("{:.0}", factor * 1e6)).collect();
    println!("{}", printed.join(", "));
}

/// Coordinate descent; no factor goes below zero, so that an estimate never shrinks while a text grows.
fn least_squares(rows: &[(Vec<f64>, f64)]) -> Vec<f64> {
    let mut factors = vec![PRIOR; KINDS];
    factors[usize::from(NOTHING)] = 0.0;
    let product = |row: &[f64], factors: &[f64]| row.iter().zip(factors).map(|(a, b)| a * b).sum::<f64>();
    let mut errors: Vec<f64> = rows
        .iter()
        .map(|(row, wanted)| product(row, &factors) - wanted)
        .collect();
    for _ in 0..ROUNDS {
        for kind in 1..KINDS {
            let (mut slope, mut curve) = (PULL * (factors[kind] - PRIOR), PULL);
            for ((row, _), error) in rows.iter().zip(&errors) {
                slope += row[kind] * error;
                curve += row[kind] * row[kind];
            }
            let new = (factors[kind] - slope / curve).max(0.0);
            let change = new - factors[kind];
            factors[kind] = new;
            for ((row, _), error) in rows.iter().zip(&mut errors) {
                *error += change * row[kind];
            }
        }
    }
    factors
}
