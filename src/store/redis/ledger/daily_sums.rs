//! Daily sums in Redis: reading, replacing, and how the scripts encode them: for each subject, `;model=number|number|...` for
//! each model.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::answer::{self, LedgerReply, parse};
use crate::domain::ledger::consumption::Row;
use crate::domain::ledger::daily_sums::{DailySums, SumSubject, Sums};
use crate::domain::money::NanoUsd;
use crate::domain::wire::usage::Usage;
use crate::store::StoreError;

/// The characters that are not encoded in a model's name: none that has a meaning in a list.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// A script's arguments for the sums of a row: the model's name, the row's counts, and its summed tags.
pub(super) fn row_arguments(row: &Row) -> [String; 3] {
    [encode_model(&row.model), encode_numbers(&Sums::of(row)), tags(row)]
}

/// A script's arguments for the sums of one model: the model's name and the counts.
pub(super) fn sums_arguments(model: &str, sums: &Sums) -> [String; 2] {
    [encode_model(model), encode_numbers(sums)]
}

/// The tags of a row that are summed, separated by spaces.
pub(super) fn tags(row: &Row) -> String {
    let summed = row.tags.iter().filter(|tag| tag.is_summed());
    summed.map(|tag| tag.as_str()).collect::<Vec<_>>().join(" ")
}

fn encode_model(model: &str) -> String {
    utf8_percent_encode(model, PLAIN).to_string()
}

/// All numbers, each followed by `|`; a zero is empty.
fn encode_numbers(sums: &Sums) -> String {
    let cost = sums.cost_nano_usd.nanos().unsigned_abs();
    let mut list = String::new();
    for number in [sums.requests, sums.errors, cost, sums.digest]
        .into_iter()
        .chain(sums.usage.parts())
    {
        // Writing to a text cannot fail.
        let _ = match number {
            0 => write!(list, "|"),
            number => write!(list, "{number}|"),
        };
    }
    list
}

/// Appends one model's sums to those of others.
pub(super) fn write_model(models: &mut String, model: &str, sums: &Sums) {
    // Writing to a text cannot fail.
    let _ = write!(models, ";{}={}", encode_model(model), encode_numbers(sums));
}

fn read_numbers(list: &str) -> Result<Sums, StoreError> {
    let mut numbers = list.split('|').map(|number| match number {
        "" => Ok(0),
        number => parse::<u64>(number),
    });
    let mut next = || numbers.next().unwrap_or(Ok(0));
    let (requests, errors, cost, digest) = (next()?, next()?, next()?, next()?);
    let mut parts = Usage::default().parts();
    for part in &mut parts {
        *part = next()?;
    }
    let cost = i64::try_from(cost).map_err(|_| answer::unknown_answer())?;
    Ok(Sums {
        requests,
        errors,
        cost_nano_usd: NanoUsd::from_nanos(cost),
        digest,
        usage: Usage::from_parts(parts),
    })
}

/// Adds the sums of a subject on a day, as a hash stores them, to `all`.
pub(super) fn add(all: &mut DailySums, day: i64, subject: &str, models: &str) -> Result<(), StoreError> {
    let subject = SumSubject::parse(subject).ok_or_else(answer::unknown_answer)?;
    for entry in models.split(';').skip(1) {
        let (model, list) = entry.split_once('=').ok_or_else(answer::unknown_answer)?;
        let model = percent_decode_str(model).decode_utf8_lossy();
        all.add_to(day, subject.clone(), model.into(), &read_numbers(list)?);
    }
    Ok(())
}

/// The answer of `sums.lua` after its status.
pub(super) fn read(answer: LedgerReply) -> Result<DailySums, StoreError> {
    let mut sums = DailySums::default();
    let mut words = answer.remaining();
    while let Some(day) = words.next() {
        let (Some(subject), Some(models)) = (words.next(), words.next()) else {
            return Err(answer::unknown_answer());
        };
        add(&mut sums, parse(&day)?, &subject, &models)?;
    }
    Ok(sums)
}
